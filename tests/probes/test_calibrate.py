"""From an accepted result to a calibration of its chip, and to answers that are computed again."""

from datetime import date
from typing import Any

import pytest
from django.db import OperationalError

from advisor import advise
from advisor.models import Advice, Option
from catalog.loading.load import append_calibrations
from catalog.models import Accelerator, Calibration
from probes.agent import spec as specs
from probes.fitted import fitting
from probes.models import Result
from probes.received import results
from tests import answers, sample_advice
from tests.probes import samples

pytestmark = pytest.mark.django_db
NAME = "accelerator:h200-sxm"


def imported(**changes: Any) -> Result:
    return results.import_file(samples.body(samples.document(**changes)), approve=True)


def test_an_accepted_result_becomes_a_row_with_its_origin(h200: Accelerator) -> None:
    result = imported()
    row = fitting.run(result.pk)
    assert row and row.name == NAME and row.basis == "measured"
    for name in ("memory_fraction", "matmul_16_fraction", "matmul_8_fraction", "attention_fraction", "kernel_s"):
        assert row.values[name] == pytest.approx(samples.TRUE[name], rel=0.02)
    assert (
        f"probe result {result.pk}" in row.fitted_on
        and "torch 2.13.0" in row.fitted_on
        and "driver 580" in row.fitted_on
    )
    result.refresh_from_db()
    assert result.calibration == row and result.fit["memory_fraction"]["low"] <= row.values["memory_fraction"]


def test_a_second_message_for_the_same_result_does_nothing(h200: Accelerator) -> None:
    result = imported()
    fitting.run(result.pk)
    assert fitting.run(result.pk) is None and Calibration.objects.count() == 1


def test_what_was_not_measured_keeps_its_earlier_figure(h200: Accelerator) -> None:
    before = {"name": NAME, "values": {"sample_bytes_per_logit": 25, "memory_fraction": 0.8}, "basis": "measured"}
    Calibration.objects.create(**before, fitted_on="a file", engine_version="1", as_of="2026-01-01")
    row = fitting.run(imported().pk)
    assert row and row.values["sample_bytes_per_logit"] == 25 and row.values["memory_fraction"] > 0.9
    assert "kept: sample_bytes_per_logit" in row.fitted_on


def test_loading_the_catalog_again_does_not_undo_a_measurement(h200: Accelerator) -> None:
    row = {"name": NAME, "values": {"memory_fraction": 0.8}, "basis": "measured", "fitted_on": "a file"}
    row |= {"engine_version": "1", "as_of": date(2026, 1, 1)}
    append_calibrations([row])
    fitting.run(imported().pk)
    assert append_calibrations([row]).created == 0


def test_a_newer_file_changes_only_what_no_machine_measured(h200: Accelerator) -> None:
    row = {"name": NAME, "values": {"memory_fraction": 0.8, "sample_bytes_per_logit": 25}, "basis": "relative"}
    row |= {"fitted_on": "a file", "engine_version": "1", "as_of": date(2026, 1, 1)}
    append_calibrations([row])
    measured = fitting.run(imported().pk)
    assert measured and "memory_fraction" in measured.measured and "sample_bytes_per_logit" not in measured.measured
    newer = row | {"values": {"memory_fraction": 0.5, "sample_bytes_per_logit": 30}, "fitted_on": "a newer file"}
    for _ in range(2):  # the second load finds its own row
        append_calibrations([newer])
        kept = Calibration.objects.latest("pk")
        assert kept.values["memory_fraction"] == measured.values["memory_fraction"]
        assert kept.values["sample_bytes_per_logit"] == 30 and kept.basis == "measured"
        assert "probe result" in kept.fitted_on and "a newer file" in kept.fitted_on
    assert Calibration.objects.count() == 4
    again = fitting.run(imported(started_at=samples.begun(30)).pk)
    assert again is None  # nothing new is said, and what machines measured is still told from what they did not


def test_a_measurement_that_agrees_with_the_file_is_kept_as_measured(h200: Accelerator) -> None:
    found = fitting.run(imported().pk)
    assert found
    values = dict(found.values)
    Result.objects.update(fitted_at=None, calibration=None)
    Calibration.objects.all().delete()
    Calibration.objects.create(
        name=NAME, values=values, basis="relative", fitted_on="a file", engine_version="1", as_of="2026-01-01"
    )
    agreed = fitting.run(Result.objects.get().pk)
    assert agreed and agreed.values == values and "memory_fraction" in agreed.measured


def test_nothing_is_fitted_from_quarantine_and_a_release_fits(h200: Accelerator) -> None:
    result = results.import_file(samples.body(samples.document()))
    assert fitting.run(result.pk) is None
    results.release(result, "ada")
    assert fitting.run(result.pk) is not None


def test_results_of_another_method_are_not_mixed(h200: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "METHODS", {"1": "1", "2": "2"})
    fitting.run(imported().pk)
    slow = [{**e, "time_s": {k: v * 1.2 if k != "n" else v for k, v in e["time_s"].items()}} for e in of_memory()]
    row = fitting.run(imported(results=slow, suite_version="2").pk)
    assert row and row.values["memory_fraction"] == pytest.approx(0.92 / 1.2, rel=0.02)


def of_memory() -> list[Any]:
    return [samples.known(), *samples.memory()]


def test_a_full_suite_is_not_overruled_by_a_later_quick_one(h200: Accelerator) -> None:
    fitting.run(imported().pk)
    burst = [e for e in samples.gemms() if "sustained_s" not in e["key"]]
    for e in burst:
        e["time_s"] = {k: v / 1.1 if k != "n" else v for k, v in e["time_s"].items()}
    quick = imported(spec={**samples.SPEC, "suite": "quick"}, results=[samples.known(), *samples.memory(), *burst])
    fitting.run(quick.pk)
    newest = Calibration.objects.order_by("-pk")[0]
    assert newest.values["matmul_16_fraction"] == pytest.approx(0.70, rel=0.02)


def test_recent_answers_that_rank_the_chip_are_asked_again(
    h200: Accelerator, django_capture_on_commit_callbacks: Any
) -> None:
    ranks, other = (sample_advice.advice() for _ in range(2))
    Option.objects.filter(advice=other).update(accelerator_slug="l4")
    Option.objects.filter(advice=ranks, rank=1).update(accelerator_slug="h200-sxm")
    fitting.run(imported().pk)
    assert [a.supersedes for a in Advice.objects.filter(state="queued")] == [ranks]
    ranks.refresh_from_db()
    assert ranks.state == "done" and ranks.successors.count() == 1


def test_a_measurement_that_changes_nothing_asks_nothing_again(h200: Accelerator) -> None:
    fitting.run(imported().pk)
    ranks = sample_advice.advice()
    Option.objects.filter(advice=ranks, rank=1).update(accelerator_slug="h200-sxm")
    assert fitting.run(imported(started_at=samples.begun(30)).pk) is None
    assert not ranks.successors.exists()


def test_a_result_that_breaks_the_fit_is_marked_and_left(h200: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "determined", lambda *given: 1 / 0)
    result = imported()
    assert fitting.run(result.pk) is None
    result.refresh_from_db()
    assert result.fitted_at and "ZeroDivisionError" in result.remarks[-1] and not Calibration.objects.exists()


def test_a_database_that_was_away_leaves_the_result_to_the_next_message(
    h200: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: object) -> None:
        raise OperationalError("the server closed the connection")

    result = imported()
    with monkeypatch.context() as broken:
        broken.setattr(fitting, "append", away)
        assert fitting.run(result.pk) is None
    result.refresh_from_db()
    assert result.fitted_at is None and not result.remarks
    assert fitting.run(result.pk) is not None


def test_a_figure_is_not_stored_without_the_questions_that_it_changes(
    h200: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed between the two would leave answers that nobody asks again."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    result = imported()
    monkeypatch.setattr(fitting, "recompute_advice", killed)
    with pytest.raises(KeyboardInterrupt):
        fitting.run(result.pk)
    result.refresh_from_db()
    assert result.fitted_at is None and not Calibration.objects.exists()


def test_a_lost_message_is_sent_again_by_the_sweep(h200: Accelerator, later: Any, quiet: list[Any]) -> None:
    result = imported()
    quiet.clear()
    later(20)
    assert fitting.resend_unfitted() == 1 and quiet == [("probes.calibrate", [result.pk])]


def test_successors_are_not_held_for_machines(h200: Accelerator) -> None:
    advice = answers.queued()
    advice.workload.spec["probe"] = "required"
    assert advise.queue(advice.workload).held_until is not None
    assert advise.queue(advice.workload, supersedes=advice).held_until is None


def test_a_figure_that_was_nothing_before_is_compared_with_what_it_is_now(h200: Accelerator) -> None:
    Calibration.objects.create(
        name=NAME,
        values={"wave_fraction": 0.0},
        basis="relative",
        fitted_on="f",
        engine_version="1",
        as_of="2026-01-01",
    )
    found = fitting.run(imported().pk)
    assert found and found.values["wave_fraction"] == pytest.approx(samples.TRUE["wave_fraction"])
