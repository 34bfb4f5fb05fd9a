"""Migrations since the last version only add, so that the processes of that version keep working on the new schema.

`RELEASED` names the last migration of each app in each released version. When a version is released, add a line: what
only the version before it used may then be removed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import models
from django.db.migrations import operations as ops
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

RELEASED = {
    "66d1e702, before 0.2": {"advisor": "0015_names", "catalog": "0026_catalog_bundles", "probes": "0008_report"},
}
BASE = list(RELEASED.values())[-1]
DESTRUCTIVE = (ops.RemoveField, ops.RenameField, ops.RenameModel, ops.DeleteModel, ops.AlterModelTable)
HARMLESS = (
    ops.CreateModel, ops.AddIndex, ops.RemoveIndex, ops.RenameIndex, ops.RemoveConstraint, ops.AlterModelOptions,
    ops.AlterModelManagers, ops.RunPython, ops.AlterOrderWithRespectTo,
)  # fmt: skip


def why_not(operation: Operation, app: str, before: ProjectState, new: set[str]) -> str:
    """What the last version could not do after this operation; empty: nothing. `new`: tables since then."""
    name = getattr(operation, "model_name", getattr(operation, "name", "")).lower()
    if isinstance(operation, ops.CreateModel):
        new.add(name)
    if name in new or isinstance(operation, HARMLESS):
        return ""
    if isinstance(operation, DESTRUCTIVE):
        return "read a column or table that is gone; stop using it now, and remove it in the next version"
    if isinstance(operation, ops.AddField):
        return "" if has_value_when_left_out(operation.field) else "insert rows; add null=True or db_default"
    if isinstance(operation, ops.AlterField):
        old = before.models[app, name].fields[operation.name]
        return "write values that the column no longer takes" if is_narrower(old, operation.field) else ""
    if isinstance(operation, ops.AddConstraint):
        return "write rows that the constraint refuses, unless it holds for all that it writes: list it in HOLD"
    return f"perhaps do something: {type(operation).__name__} is not known to be harmless"


def has_value_when_left_out(field: Any) -> bool:
    return field.many_to_many or field.null or field.has_db_default() or field.primary_key


def is_narrower(old: Any, new: Any) -> bool:
    if type(old) is not type(new) or old.null and not new.null or not old.unique and new.unique:
        return True
    return bool(new.max_length) and (not old.max_length or new.max_length < old.max_length)


# Constraints since the last version that hold for all rows that it writes.
# The last version kept slugs and IDs unique among all models, and knew no own ones.
HOLD = {"one_shared_slug", "one_shared_hf_id", "one_own_slug", "one_own_hf_id"}
# It kept the keys of requests unique in an organization.
HOLD |= {"one_advice_a_callers_key", "one_study_a_callers_key"}


def flat(operations: Any) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, ops.SeparateDatabaseAndState):
            yield from flat(operation.database_operations)
        else:
            yield operation


def wrong(graph: Any, base: dict[str, str]) -> list[str]:
    old = {node for app, name in base.items() for node in graph.forwards_plan((app, name))}
    order = [node for leaf in sorted(graph.leaf_nodes()) for node in graph.forwards_plan(leaf)]
    state, found, new, seen = ProjectState(), [], set[str](), set()
    for node in [*(n for n in order if n in old or n[0] not in base), *order]:
        if node in seen:
            continue
        seen.add(node)
        migration = graph.nodes[node]
        if node[0] in base and node not in old:
            for operation in flat(migration.operations):
                reason = why_not(operation, node[0], state, new)
                if reason and not (isinstance(operation, ops.AddConstraint) and operation.constraint.name in HOLD):
                    found.append(f"{node[0]}.{node[1]}: {operation.describe()}: the last version could not {reason}")
                operation.state_forwards(node[0], state)
        else:
            state = migration.mutate_state(state, preserve=False)
    return found


def test_migrations_since_the_last_version_only_add() -> None:
    assert wrong(MigrationLoader(None).graph, BASE) == []


def test_a_migration_that_drops_columns_is_found() -> None:
    """As 0008 did, which no process of the version before it would have survived."""
    before = {**BASE, "advisor": "0007_pack_answers"}
    assert any(text.startswith("advisor.0008_only_packed") for text in wrong(MigrationLoader(None).graph, before))


STATE = ProjectState()
STATE.add_model(
    ModelState(
        "advisor", "Thing", [("id", models.BigAutoField(primary_key=True)), ("name", models.CharField(max_length=9))]
    )
)


@pytest.mark.parametrize(
    ("operation", "passes"),
    [
        (ops.AddField("thing", "a", models.IntegerField(null=True)), True),
        (ops.AddField("thing", "a", models.IntegerField(default=1, db_default=1)), True),
        (ops.AddField("thing", "a", models.IntegerField(default=1)), False),
        (ops.AddField("thing", "a", models.CharField(blank=True, max_length=3)), False),
        (ops.AddField("thing", "a", models.ManyToManyField("thing")), True),
        (ops.RemoveField("thing", "name"), False),
        (ops.RenameField("thing", "name", "title"), False),
        (ops.RenameModel("thing", "other"), False),
        (ops.DeleteModel("thing"), False),
        (ops.AlterField("thing", "name", models.CharField(max_length=10)), True),
        (ops.AlterField("thing", "name", models.CharField(max_length=8)), False),
        (ops.AlterField("thing", "name", models.CharField(max_length=9, null=True)), True),
        (ops.AlterField("thing", "name", models.CharField(max_length=9, unique=True)), False),
        (ops.AlterField("thing", "name", models.IntegerField()), False),
        (ops.CreateModel("new", []), True),
        (ops.RunSQL("drop table thing"), False),
    ],
    ids=lambda value: value.describe() if isinstance(value, Operation) else str(value),
)
def test_each_kind_of_operation(operation: Operation, passes: bool) -> None:
    assert (why_not(operation, "advisor", STATE, set()) == "") == passes


def test_a_table_that_the_last_version_did_not_have_may_change_at_will() -> None:
    new: set[str] = set()
    assert why_not(ops.CreateModel("fresh", []), "advisor", STATE, new) == ""
    assert why_not(ops.AddField("fresh", "a", models.IntegerField(default=1)), "advisor", STATE, new) == ""
