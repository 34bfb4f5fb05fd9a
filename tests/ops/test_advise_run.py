"""How an advice is claimed, computed, finished, failed and cancelled."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction
from django.test import Client

from advisor import advise
from advisor.models import Advice, Option
from tests import answers

pytestmark = pytest.mark.django_db
State = Advice.State


@pytest.fixture
def advice(woken: list[str]) -> Advice:
    return answers.queued()


def test_a_run_writes_result_options_and_what_they_rest_on(advice: Advice, engine: SimpleNamespace) -> None:
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, advice.attempt, advice.lease_until) == (State.DONE, 1, None)
    assert (advice.engine_version, advice.catalog_version) == ("test", "test")
    assert [option.rank for option in advice.options.all()] == [1, 2]
    assert advice.result["recommendations"] == [option.detail for option in advice.options.all()]
    assert advice.result["elapsed_s"] >= 0


@pytest.mark.parametrize("usd", [1.8e12, 1e20])
def test_a_figure_beyond_its_column_stays_in_the_json_alone(
    usd: float, advice: Advice, engine: SimpleNamespace, client: Client
) -> None:
    """A millionth of a request a day makes a token that dear; PostgreSQL refuses the row, SQLite to read it again."""
    full = engine.recommend
    changed = {"usd_per_mtok_output": usd, "usd_per_month": 100.5}
    engine.recommend = lambda *given: (r := full(*given)).changed(
        recommendations=[each.changed(**changed) for each in r.recommendations]
    )
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == State.DONE, advice.error
    first = advice.options.get(rank=1)
    assert (first.usd_per_mtok_output, first.detail["usd_per_mtok_output"]) == (None, usd)
    assert "$100" in client.get("/advice").content.decode()


def test_a_second_delivery_finds_nothing_to_claim(advice: Advice, engine: SimpleNamespace) -> None:
    advise.run(advice.pk)
    finished = Advice.objects.values().get()
    advise.run(advice.pk)
    assert Advice.objects.values().get() == finished
    assert Option.objects.count() == 2


def test_only_one_of_two_claims_wins(advice: Advice) -> None:
    assert advise.claimed(advice.pk) is not None
    assert advise.claimed(advice.pk) is None


def test_an_old_attempt_can_write_nothing(advice: Advice) -> None:
    old = advise.claimed(advice.pk)
    assert old
    Advice.objects.update(state=State.QUEUED)
    new = advise.claimed(advice.pk)
    assert new and new.attempt == 2
    before = Advice.objects.values().get()
    with pytest.raises(advise.LostLease):
        old.report("late", 0.9)
    with pytest.raises(advise.LostLease):
        old.finish(answers.snapshot({}, None), answers.recommend({"name": "late"}, {}))
    old.fail("late")
    assert Advice.objects.values().get() == before
    assert not Option.objects.exists()


@pytest.mark.parametrize("interrupt", [advise.cancel, lambda advice: advice.delete()], ids=["cancelled", "deleted"])
def test_an_interrupted_calculation_stops_at_its_next_stage(
    advice: Advice, engine: SimpleNamespace, interrupt: Callable[[Advice], object]
) -> None:
    stages: list[str] = []

    def recommend(spec: Any, snapshot: Any, progress: Callable[[str, float], None]) -> Any:
        stages.append("first")
        interrupt(Advice.objects.get())
        progress("second", 0.5)
        stages.append("second")

    engine.recommend = recommend
    advise.run(advice.pk)
    assert stages == ["first"]
    assert list(Advice.objects.values_list("state", flat=True)) in ([], [State.CANCELLED])


def test_an_engine_error_is_a_failed_advice_without_a_traceback(
    advice: Advice, engine: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("secret detail")

    engine.recommend = broken
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == State.FAILED
    assert "ZeroDivisionError" in advice.error and "secret" not in advice.error and "Traceback" not in advice.error
    assert "calculation failed" in caplog.text and "'exc_info': True" in caplog.text


def test_a_database_that_goes_away_leaves_the_advice_for_the_sweep(advice: Advice, engine: SimpleNamespace) -> None:
    def away(*args: object) -> None:
        raise OperationalError("server closed the connection")

    engine.recommend = away
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, advice.error) == (State.RUNNING, "")


def test_a_second_attempt_answers_from_the_first_ones_snapshot(advice: Advice, engine: SimpleNamespace) -> None:
    kept = replace(answers.snapshot({}, None), catalog_version="before").stored()
    Advice.objects.update(snapshot=kept)
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.snapshot, advice.catalog_version) == (kept, "before")


def test_a_snapshot_of_an_earlier_version_is_taken_again(advice: Advice, engine: SimpleNamespace) -> None:
    Advice.objects.update(snapshot={"catalog_version": "before", "frameworks": [{"slug": "vllm"}]})
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == State.DONE and advice.snapshot == answers.snapshot({}, None).stored()


def test_a_finished_advice_cannot_be_cancelled(advice: Advice, engine: SimpleNamespace) -> None:
    advise.run(advice.pk)
    assert advise.cancel(Advice.objects.get()) is False
    assert Advice.objects.get().state == State.DONE


def test_a_rescore_is_a_successor_and_leaves_the_old_answer(advice: Advice, engine: SimpleNamespace) -> None:
    advise.run(advice.pk)
    finished = Advice.objects.values().get()
    successor = advise.rescore(Advice.objects.get())
    assert (successor.supersedes_id, successor.state, successor.workload_id) == (
        advice.pk,
        "queued",
        advice.workload_id,
    )
    assert Advice.objects.values().get(pk=advice.pk) == finished


def test_an_open_advice_is_its_own_rescore(advice: Advice) -> None:
    assert advise.rescore(advice) == advice
    assert Advice.objects.count() == 1


@pytest.mark.parametrize("values", [{"state": State.DONE}, {"state": State.FAILED}, {"state": State.RUNNING}])
def test_the_database_refuses_a_state_without_its_proof(advice: Advice, values: dict[str, str]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Advice.objects.update(**values)
