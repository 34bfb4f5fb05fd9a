"""The two figures that agents' training probes fit: what each of them makes longer."""

from dataclasses import replace

import pytest

from advisor.engine import training
from advisor.engine.training import MEGATRON_BF16, Parallel, Run, Shape
from tests.engine.training.test_step_time import EFFICIENCY, H200, model

RUN = Run(sequence_tokens=4096, recipe=MEGATRON_BF16, parallel=Parallel(dp=8, zero=1))


def step(run: Run = RUN, **changes: float) -> training.StepTime:
    rates = training.rates_of(H200, replace(EFFICIENCY, **changes), run.recipe, run.code)  # type: ignore[arg-type]
    return training.step_time(model("llama-8b", 8), Shape.of(run), rates, run)


def test_the_training_factor_scales_all_that_a_chip_computes() -> None:
    alone = replace(RUN, parallel=Parallel())
    before, after = step(alone), step(alone, training_factor=1.25)
    assert float(after.compute_s) == pytest.approx(1.25 * float(before.compute_s))
    assert float(after.update_s) == pytest.approx(1.25 * float(before.update_s))
    assert float(after.step_s) == pytest.approx(1.25 * float(before.step_s))
    assert float(after.host_s) == float(before.host_s)


def test_the_training_factor_leaves_communication() -> None:
    before, after = step(), step(training_factor=1.25)
    assert float(after.communication_s) == float(before.communication_s) > 0


def test_the_slowdown_counts_for_the_communication_that_compute_hides() -> None:
    none, some = step(overlap_slowdown_fraction=0.0), step(overlap_slowdown_fraction=0.5)
    hidden_s = float(none.communication_s - none.exposed_s)
    assert 0 < hidden_s < float(none.compute_s)
    assert float(some.compute_s - none.compute_s) == pytest.approx(0.5 * hidden_s)
