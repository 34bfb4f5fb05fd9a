"""A step's power is that of the ledger's own lines, each for its time, in whole tiles where products work in such."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.cost.hourly import Draw, kernel_fraction
from advisor.engine.step.lane import lanes
from advisor.engine.step.ledger import Line, decode_ledger, prefill_ledger
from advisor.engine.step.power import step_fractions
from tests.engine.catalog_sample import FP8, LLAMA_8B, chip, lane

DRAW = Draw(waiting_fraction=0.08, kernel_fraction=0.3, memory_fraction=0.3, compute_fraction=0.4)
TILES = 128.0


def share_of(line: Line, memory_bytes_per_s: float, flops_per_s: float) -> float:
    if line.bound == "host":
        return DRAW.waiting_fraction
    if line.operator == "sampling":
        return float(kernel_fraction(DRAW, 1.0, 0.0))
    memory = min(line.bytes / line.time_s / memory_bytes_per_s, 1.0)
    return float(kernel_fraction(DRAW, memory, min(line.flops / line.time_s / flops_per_s, 1.0)))


@pytest.mark.parametrize("tile_tokens", [0.0, TILES])
@pytest.mark.parametrize("sample_s", [1e-6, 1e-2])
@pytest.mark.parametrize(("prompt", "sequences"), [(129.0, 130.0), (256.0, 256.0), (1000.0, 12.0)])
def test_a_step_draws_what_its_lines_draw(tile_tokens, sample_s, prompt, sequences):
    wanted = lane(chip("any"), FP8)
    wanted = replace(
        wanted, choice=replace(wanted.choice, overhead=replace(wanted.choice.overhead, tile_tokens=tile_tokens))
    )
    built = lanes(LLAMA_8B, [wanted])
    built = replace(built, times=replace(built.times, sample_s_per_sequence=np.array([sample_s])))
    memory, matmul = (float(getattr(built.layouts, f"{n}_per_s")[0]) for n in ("memory_bytes", "matmul_flops"))
    half = float(built.layouts.half_flops_per_s[0])
    ledgers = prefill_ledger(LLAMA_8B, built, 0, prompt), decode_ledger(LLAMA_8B, built, 0, sequences, 1000.0)
    expected = []
    for lines in ledgers:
        time_s = np.array([line.time_s for line in lines])
        roofs = [half if line.operator in ("attention/scores", "attention/kv_read") else matmul for line in lines]
        shares = np.array([share_of(line, memory, roof) for line, roof in zip(lines, roofs, strict=True)])
        expected.append(float((time_s * shares).sum() / time_s.sum()))
    assert step_fractions(DRAW, LLAMA_8B, built, 0, prompt, sequences, 1000.0) == pytest.approx(expected, rel=5e-3)
