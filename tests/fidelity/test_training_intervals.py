"""Intervals of training figures hold most of what they did not see, and turn around for rates."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.training.intervals import Intervals
from advisor.fidelity.scores.scoring import Prediction, Scored
from tests.fidelity.test_training_rows import BRIDGE
from tests.laboratory.training.intervals import intervals, used
from tests.laboratory.training.scores import with_interval

LABELS = {"experts": "true", "layout": "stated", "basis": "relative", "family": "blackwell"}


def scored(chip: str, predicted: float, metric: str = "step_time_s", basis: str = "relative") -> Scored:
    row = replace(BRIDGE, accelerator_slug=chip, metric=metric, value=1.0)
    labels = LABELS | {"basis": basis}
    return Scored(row=row, case=None, prediction=Prediction(value=predicted), skipped="", labels=labels)


def test_a_rate_that_is_too_high_is_a_time_that_is_too_short() -> None:
    time, rate = used(scored("gb200", 0.8)), used(scored("gb200", 1.25, "tokens_per_s"))
    assert time is not None and rate is not None
    assert rate.log_error == pytest.approx(time.log_error) == pytest.approx(np.log(0.8))


def test_an_interval_needs_three_groups() -> None:
    assert "experts_stated_step" not in intervals([scored(chip, 1.0) for chip in ("a", "b")])["relative"]
    assert "experts_stated_step" in intervals([scored(chip, 1.0) for chip in ("a", "b", "c")])["relative"]


def test_the_interval_holds_nine_of_ten_chips_that_it_did_not_see() -> None:
    errors = np.random.default_rng(1).normal(0.05, 0.15, 200)
    span = intervals([scored(f"chip-{i}", float(np.exp(e))) for i, e in enumerate(errors)])["relative"]
    found = span["experts_stated_step"]
    assert found.coverage == pytest.approx(0.9, abs=0.03)
    assert found.low == pytest.approx(np.exp(-0.05 - 1.645 * 0.15), rel=0.06)


def test_rows_on_measured_chips_do_not_widen_those_of_others() -> None:
    rows = [scored(chip, 1.0) for chip in ("a", "b", "c")] + [scored("d", 5.0, basis="measured")]
    assert intervals(rows)["relative"]["experts_stated_step"].high == pytest.approx(1.0)


def test_the_interval_of_a_rate_is_the_inverse_of_that_of_a_time() -> None:
    known = Intervals(step=(0.8, 1.25), memory=(0.9, 1.1))
    time = with_interval(replace(BRIDGE, metric="step_time_s"), 10.0, known)
    rate = with_interval(BRIDGE, 10.0, known)
    memory = with_interval(replace(BRIDGE, metric="peak_memory_bytes"), 10.0, known)
    assert (time.low, time.high) == pytest.approx((8.0, 12.5))
    assert (rate.low, rate.high) == pytest.approx((8.0, 12.5))
    assert (memory.low, memory.high) == pytest.approx((9.0, 11.0))
    assert with_interval(BRIDGE, None, known).low is None
