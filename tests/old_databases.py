"""Databases of earlier versions (tests/databases/), migrated to today's schema on SQLite or PostgreSQL."""

import json
import lzma
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import environ
from django.core.management import call_command
from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import load_backend

from advisor.stored import unpacked
from tests import services

FILES = sorted((Path(__file__).parent / "databases").glob("*.sqlite3.xz"))


def stored(file: Path) -> dict[str, dict[str, Any]]:
    """{name of the question: result} as the version that computed it wrote them, read without Django."""
    rows = sqlite3.connect(file).execute(
        "SELECT w.name, a.result FROM advisor_advice a JOIN advisor_workload w ON w.id = a.workload_id"
        " WHERE a.result IS NOT NULL"
    )
    return {name: unpacked(result) if isinstance(result, bytes) else json.loads(result) for name, result in rows}


def snapshots(file: Path) -> dict[str, dict[str, Any]]:
    """{name of the question: snapshot}, likewise."""
    with TemporaryDirectory() as folder:
        rows = sqlite3.connect(decompress(file, Path(folder))).execute(
            "SELECT w.name, a.snapshot FROM advisor_advice a JOIN advisor_workload w ON w.id = a.workload_id"
            " WHERE a.snapshot IS NOT NULL"
        )
        return {name: unpacked(rows) if isinstance(rows, bytes) else json.loads(rows) for name, rows in rows}


def decompress(file: Path, folder: Path) -> Path:
    target = folder / file.name.removesuffix(".xz")
    target.write_bytes(lzma.decompress(file.read_bytes()))
    return target


@contextmanager
def connected(alias: str, url: str) -> Iterator[None]:
    """The database at this address under `alias`, in this thread."""
    given = environ.Env.db_url_config(url)
    defaults = {**connections["default"].settings_dict, "OPTIONS": {}, "CONN_MAX_AGE": 0, **given}
    kept = connections[alias] if alias in connections else None
    connections[alias] = load_backend(given["ENGINE"]).DatabaseWrapper(defaults, alias)
    try:
        yield
    finally:
        connections[alias].close()
        if kept is None:
            del connections[alias]
        else:
            connections[alias] = kept


@contextmanager
def migrated(file: Path, where: str) -> Iterator[None]:
    """The old database as the default one, migrated; on PostgreSQL it is copied there before that."""
    with ExitStack() as stack:
        if where == "postgres":
            url = stack.enter_context(services.postgres_database())
            stack.enter_context(connected("old", f"sqlite:///{file}"))
            stack.enter_context(connected("default", url))
            copy()
        else:
            stack.enter_context(connected("default", f"sqlite:///{file}"))
        call_command("migrate", verbosity=0)
        yield


def copy() -> None:
    """Builds the schema of the old version in the default database, then copies every row."""
    there = MigrationExecutor(connections["old"]).loader
    here = MigrationExecutor(connections["default"])
    nodes = [node for node in there.applied_migrations if node in here.loader.graph.nodes]
    last = [n for n in nodes if not any(child in nodes for child in here.loader.graph.node_map[n].children)]
    here.migrate(last)
    apps = here.loader.project_state(last).apps
    with transaction.atomic(), connections["default"].cursor() as cursor:  # references are checked at its end
        models = [m for m in apps.get_models() if m._meta.app_label in ("advisor", "probes", "catalog")]
        cursor.execute(f"TRUNCATE {', '.join(m._meta.db_table for m in models)} CASCADE")  # what migrations made
        for model in models:
            model._base_manager.using("default").bulk_create(model._base_manager.using("old").all())
