"""Products that are computed again: with PyTorch's checkpoint all but the last, in torchtitan every second."""

from dataclasses import replace

import pytest

from advisor.engine.terms.machines.hardware import efficiency
from advisor.engine.training.operators import Shape, ledger
from advisor.engine.training.rates import rates_of
from advisor.engine.training.run import FSDP_MIXED, MEGATRON, PLAIN, Code, Recompute, Run
from tests.engine.catalog_sample import LLAMA_8B, chip, scopes

LAYERS, HIDDEN, KEYS, INNER, TOKENS = 32, 4096, 1024, 14336, 8192
MATRIX = 2.0 * TOKENS * LAYERS * HIDDEN  # FLOPs for each column


def repeated(code: Code, recompute: Recompute) -> dict[str, float]:
    """FLOPs of recomputation by product."""
    run = Run(sequence_tokens=TOKENS, recipe=FSDP_MIXED, code=code, recompute=recompute)
    rates = rates_of(chip("big"), efficiency(scopes(), "big", "sample", "gpu"), run.recipe, code)
    lines = ledger(LLAMA_8B, Shape.of(run), rates, run)
    return {line.name: float(line.flops) for line in lines if line.phase == "recompute"}


def test_pytorchs_checkpoint_leaves_out_the_last_product() -> None:
    torch, megatron = repeated(PLAIN, "full"), repeated(replace(MEGATRON, tp_overlap=False), "full")
    assert torch["mlp/down"] == 0.0
    assert megatron["mlp/down"] == pytest.approx(MATRIX * INNER)
    for name in ("attention/qkv", "attention/output", "mlp/up", "attention/scores"):
        assert torch[name] == megatron[name] > 0.0


def test_selective_recomputation_of_operators_repeats_keys_output_and_the_second_branch() -> None:
    """Of q, k, v, o, gate, up and down the results of every second product are kept, from q on."""
    again = repeated(replace(PLAIN, selective="operators"), "selective")
    assert again["attention/qkv"] == pytest.approx(MATRIX * KEYS)
    assert again["attention/output"] == pytest.approx(MATRIX * HIDDEN)
    assert again["mlp/up"] == pytest.approx(MATRIX * INNER)
    assert again["mlp/down"] == again["attention/scores"] == 0.0


def test_without_recomputation_nothing_is_repeated() -> None:
    assert not any(repeated(PLAIN, "none").values())
