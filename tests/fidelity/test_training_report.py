"""The training section of the published scores."""

from dataclasses import replace

from advisor.fidelity.scores.scoring import Prediction, Scored
from tests.fidelity.test_training_layouts import ROW, Known
from tests.fidelity.test_training_rows import BRIDGE
from tests.laboratory.training.layouts import compare
from tests.laboratory.training.report import markdown

LABELS = {"experts": "true", "layout": "stated", "basis": "relative", "family": "blackwell"}


def scored(value: float | None, metric: str = "tokens_per_s", measured: float = 1.0, chip: str = "gb200") -> Scored:
    row = replace(BRIDGE, metric=metric, value=measured, accelerator_slug=chip)
    return Scored(row=row, case=None, prediction=Prediction(value=value), skipped="", labels=LABELS)


def test_runs_that_ran_though_predicted_not_to_fit_are_counted() -> None:
    rows = [scored(1.1), scored(None), scored(0.0, "fits_in_memory", 0.0), scored(1.0, "fits_in_memory", 0.0)]
    text = markdown(rows, ())
    assert "1 of 2 runs that ran out of memory are predicted to." in text
    assert "Of 2 time rows with a stated layout, which all ran, 1 (50.0 %;" in text


def test_errors_intervals_and_layouts_have_their_tables() -> None:
    text = markdown([scored(1.1, chip=chip) for chip in ("a", "b", "c")], compare([ROW], Known()))
    assert "| step time and tokens/s | 3 | 10.0 % | 10.0 % |" in text
    assert "| relative | experts_stated_step | 1.100 | 1.100 | 3 | 3 |" in text
    assert "1 layouts: median 1.0" in text


def test_no_section_without_training_rows() -> None:
    assert markdown([], ()) == ""
