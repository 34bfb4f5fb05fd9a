"""A stored answer is small, exact, and not stored twice."""

from typing import Any

import pytest
from django.core import serializers
from django.db import IntegrityError, connection, transaction

from advisor import advise
from advisor.management.commands.advise import question
from advisor.models import Advice
from advisor.stored import packed, unpacked
from tests import sample_advice
from tests.save_database import ROOT

MOST_BYTES = 300_000
TABLES = {"advisor_advice": "id", "advisor_option": "advice_id", "advisor_workload": "id"}


def stored_bytes(advice: Advice) -> int:
    """All values of the answer's rows as the database holds them."""
    total = 0
    with connection.cursor() as cursor:
        for table, column in TABLES.items():
            pk = advice.workload_id if table == "advisor_workload" else advice.pk
            shown = pk.hex if connection.vendor == "sqlite" else str(pk)
            cursor.execute(f"SELECT * FROM {table} WHERE {column} = %s", [shown])
            total += sum(len(v) if isinstance(v, bytes | memoryview) else len(str(v)) for r in cursor for v in r)
    return total


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    "name",
    [
        "support-chat",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("shared-fleet", "code-assistant", "nightly-batch", "small-models")
        ),
    ],
)
def test_a_stored_answer_takes_at_most_0_3_mb(name: str, woken: list[str]) -> None:
    """With its question, snapshot, result and options."""
    advice = advise.request(question(ROOT / "fixtures" / "workloads" / f"{name}.yaml", [], None))
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == "done" and (advice.options.exists() or advice.result["portfolio"])
    assert stored_bytes(advice) <= MOST_BYTES


@pytest.mark.parametrize("value", [{}, [], {"b": 1, "a": [0.1, 1e300, None, True]}, {"text": "é \ud83d \x00"}, "x"])
def test_what_is_unpacked_is_what_was_packed(value: Any) -> None:
    assert unpacked(packed(value)) == value


def test_a_figure_that_json_cannot_hold_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        packed({"usd": float("nan")})


@pytest.mark.django_db
def test_a_row_without_a_result_holds_null_and_a_done_one_needs_its_result() -> None:
    advice = sample_advice.advice(state="queued")
    assert Advice.objects.filter(result=None, snapshot__isnull=True).count() == 1
    with pytest.raises(IntegrityError), transaction.atomic():
        Advice.objects.filter(pk=advice.pk).update(state="done", result=None)


@pytest.mark.django_db
def test_an_option_reads_its_details_from_the_answer() -> None:
    advice = sample_advice.advice()
    assert [option.detail for option in advice.options.all()] == advice.result["recommendations"]
    assert "detail" not in {field.name for field in advice.options.model._meta.fields}


@pytest.mark.django_db
def test_rows_survive_a_dump() -> None:
    advice = sample_advice.advice(snapshot={"asked_on": "2026-01-01"})
    before = Advice.objects.values_list("snapshot", "result").get()
    text = serializers.serialize("json", Advice.objects.all())
    advice.options.all().delete()
    for row in serializers.deserialize("json", text):
        row.save()
    assert Advice.objects.values_list("snapshot", "result").get() == before
