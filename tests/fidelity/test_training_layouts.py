"""Published layouts against the fastest found."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from advisor.engine.training import Parallel, Run
from tests.engine.training.test_layouts import H100, LLAMA3_70B
from tests.engine.training.test_step_time import scopes
from tests.fidelity.test_training_rows import BRIDGE
from tests.laboratory.training.layouts import compare, layout_text, within

ROW = replace(
    BRIDGE, model_id="llama", accelerator_slug="h100-sxm", n_accelerators="64", tp="4", pp="8", ep="", isl="8192",
    weights_dtype="fp8", source_key="megatron_lm", framework="Megatron-LM",
    concurrency_or_batch="GBS=128 MBS=1", notes="VP 5",
)  # fmt: skip


@dataclass
class Known:
    models: dict[str, Any] = field(default_factory=lambda: {"llama": LLAMA3_70B})
    accelerators: dict[str, Any] = field(default_factory=lambda: {"h100-sxm": H100})
    scopes: dict[str, Any] = field(default_factory=scopes)


def test_a_layout_is_compared_once_with_the_fastest_for_its_chips_and_batch() -> None:
    (one,) = compare([ROW, replace(ROW, id="3", value=2.0), replace(ROW, id="4", source_key="llm_foundry")], Known())
    assert one.fits and 1.0 <= one.ratio < 1.1 and one.candidates > 1000
    assert one.best.global_tokens == one.published.global_tokens == 128 * 8192
    assert one.best.parallel.chips == 64
    assert within([one], 1.1) == 1.0 and within([one], 1.0001) == 0.0 == within([])


@pytest.mark.parametrize(("run", "text"), [
    (Run(sequence_tokens=1, parallel=Parallel(dp=2, tp=4, pp=8, virtual_stages=5)), "tp4 pp8 v5 dp2, micro-batch 1"),
    (Run(sequence_tokens=1, micro_batch=2, recompute="full", parallel=Parallel(dp=8, ep=4, zero=3)),
     "ep4 dp8 ZeRO 3, micro-batch 2, full recomputation"),
])  # fmt: skip
def test_a_layout_as_text(run: Run, text: str) -> None:
    assert layout_text(run) == text
