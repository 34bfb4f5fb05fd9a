"""The optimization plan of a training run: it ends at the chosen run, and its gains multiply to the whole."""

import math
from dataclasses import replace

import pytest

from advisor.engine.optimisation import stability_notes, technique_steps
from advisor.engine.training import MEGATRON_BF16, Parallel, Run, Shape, rates_of, step_time
from tests.engine.training.test_step_time import EFFICIENCY, model
from tests.engine.training.test_step_time import H200 as WITHOUT_FP32

LLAMA, REACHED = model("llama-8b", 32), EFFICIENCY
H200 = replace(WITHOUT_FP32, flops_per_s={**WITHOUT_FP32.flops_per_s, "fp32": 67e12})

CHOSEN = Run(
    sequence_tokens=4096,
    micro_batch=2,
    micro_batches=8,
    recipe=replace(MEGATRON_BF16, matmul_dtype="fp8"),
    parallel=Parallel(dp=4, tp=2, zero=1, sequence_parallel=True),
    recompute="full",
)


def test_the_last_step_is_the_chosen_run_and_gains_multiply_to_it() -> None:
    steps = technique_steps(LLAMA, H200, REACHED, CHOSEN)
    rates = rates_of(H200, REACHED, CHOSEN.recipe, CHOSEN.code)
    assert steps[-1].step_s == pytest.approx(float(step_time(LLAMA, Shape.of(CHOSEN), rates, CHOSEN).step_s))
    assert steps[-1].name == "FP8" and steps[0].gain_ratio is None
    gains = math.prod(step.gain_ratio or 1.0 for step in steps)
    assert gains == pytest.approx(steps[0].step_s / steps[-1].step_s)


def test_techniques_that_the_run_does_not_use_are_left_out() -> None:
    names = [step.name for step in technique_steps(LLAMA, H200, REACHED, CHOSEN)]
    assert "recomputation" in names and "torch.compile" not in names and "interleaved stages" not in names
    plain = replace(CHOSEN, recipe=MEGATRON_BF16, recompute="none")
    assert {"FP8", "recomputation"}.isdisjoint(s.name for s in technique_steps(LLAMA, H200, REACHED, plain))


def test_sharding_and_recomputation_save_memory() -> None:
    by_name = {step.name: step for step in technique_steps(LLAMA, H200, REACHED, CHOSEN)}
    order = list(by_name)
    for name in ("FlashAttention", "sharded states", "recomputation"):
        before = by_name[order[order.index(name) - 1]]
        assert by_name[name].peak_bytes < before.peak_bytes


def test_a_chip_without_fp32_products_starts_at_sixteen_bits() -> None:
    steps = technique_steps(LLAMA, WITHOUT_FP32, REACHED, CHOSEN)
    assert steps[0].name != "start" and steps[-1].name == "FP8"


def test_notes_name_the_format_and_its_source() -> None:
    assert any("arXiv:2412.19437" in note for note in stability_notes(CHOSEN))
    assert not any("NVFP4" in note for note in stability_notes(CHOSEN))
