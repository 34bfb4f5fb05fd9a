"""Step time against whole layers measured on one H200, against hand arithmetic, and its properties."""

import csv
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine import training
from advisor.engine.network import Attention, Block, Ffn, Model
from advisor.engine.terms import Accelerator, Link
from advisor.engine.terms.machines.hardware import efficiency
from advisor.engine.training import HF, MEGATRON_BF16, PLAIN, Parallel, Run, Shape

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
LAYERS = {  # hidden, query heads, key heads, head size, inner
    "llama-1b": (2048, 32, 8, 64, 8192),
    "qwen3-4b": (2560, 32, 8, 128, 9728),
    "llama-8b": (4096, 32, 8, 128, 14336),
    "llama-70b": (8192, 64, 8, 128, 28672),
}
H200 = Accelerator(
    slug="h200-sxm", name="H200", vendor="nvidia", family="hopper", kind="gpu", memory_bytes=150e9,
    memory_bytes_per_s=4.8e12, flops_per_s={"bf16": 989e12, "fp8": 1979e12}, cores=132, sram_bytes=50e6, watts=700,
    idle_watts=80, links=(Link(name="NVLink4", bytes_per_s=450e9, latency_s=0.0, chips=8),
                          Link(name="network card", bytes_per_s=50e9, latency_s=0.0, chips=1024)),
    stacks=("cuda",), chips_per_host=8, pcie_bytes_per_s=55e9,
)  # fmt: skip


def scopes() -> dict[str, dict[str, float]]:
    folder = FIXTURES / "calibration"
    files = [folder / f"{name}.yaml" for name in ("default", "framework", "accelerator-h200-sxm")]
    read = (yaml.safe_load(file.read_text()) for file in [*files, *folder.glob("training*.yaml")])
    return {one["name"]: one["values"] for one in read}


EFFICIENCY = efficiency(scopes(), "h200-sxm", "hopper", "gpu")


def model(name: str, layers: int = 1) -> Model:
    h, heads, kv, size, inner = LAYERS[name]
    block = Block(count=layers, mixer=Attention(heads=heads, kv_heads=kv, head_dim=size), ffn=Ffn(inner=inner))
    return Model(slug=name, hidden=h, vocab=128256, blocks=(block,))


def step(m: Model, run: Run) -> training.StepTime:
    return training.step_time(m, Shape.of(run), training.rates_of(H200, EFFICIENCY, run.recipe, run.code), run)


def measured_layers() -> list[tuple[str, bool, bool, int, float]]:
    """(model, eager norms, compiled, tokens, seconds of one more layer)."""
    with (FIXTURES / "measurements" / "h200-training-kernels.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["kind"] == "layers"]
    keys = ("model", "eager_norm", "compiled", "tokens", "depth")
    times = {tuple(r[key] for key in keys): float(r["time_s"]) for r in rows}
    return [
        (name, norm == "1", compiled == "1", int(tokens), (time_s - times[name, norm, compiled, tokens, "2"]) / 2)
        for (name, norm, compiled, tokens, depth), time_s in times.items()
        if depth == "4"
    ]


def test_a_decoder_layer_takes_what_it_took_on_an_h200() -> None:
    """Layers were measured whole; the constants come from single kernels."""
    errors = []
    for name, eager, compiled, tokens, measured_s in measured_layers():
        code = replace(HF if eager else PLAIN, compiled="block" if compiled else "")
        run = Run(sequence_tokens=tokens, recipe=training.BF16, code=code)
        rates = training.rates_of(H200, EFFICIENCY, run.recipe, run.code)
        lines = training.ledger(model(name), Shape.of(run), rates, run)
        predicted_s = sum(float(line.seconds) for line in lines if line.name not in ("lm_head", "loss", "embedding"))
        errors.append(abs(predicted_s / measured_s - 1))
    assert len(errors) == 32
    assert statistics.median(errors) < 0.03 and sorted(errors)[28] < 0.06


def test_the_products_are_six_operations_for_each_weight_and_token() -> None:
    m, run = model("llama-8b", 32), Run(sequence_tokens=4096, recipe=MEGATRON_BF16)
    lines = training.ledger(m, Shape.of(run), training.rates_of(H200, EFFICIENCY, run.recipe, run.code), run)
    flops = sum(float(line.flops) for line in lines if line.name != "attention/scores")
    h, heads, kv, size, inner = LAYERS["llama-8b"]
    weights = 32 * (h * (2 * heads + 2 * kv) * size + 3 * h * inner) + h * 128256
    assert flops == pytest.approx(6 * weights * 4096, rel=1e-9)
    scores = sum(float(line.flops) for line in lines if line.name == "attention/scores")
    assert scores == pytest.approx(3.5 * 32 * 4 * heads * size * 4096 * 2048, rel=1e-9)


def test_a_ring_all_reduce_of_175b_parameters_sends_612_gb_in_each_direction() -> None:
    """350 GB of BF16 gradients on 8 chips: 2 x 7/8 x 350 GB at 450 GB/s per direction; both directions are no 900."""
    rates = training.rates_of(H200, replace(EFFICIENCY, link_fraction=1.0), MEGATRON_BF16, training.MEGATRON)
    rates = replace(rates, collective_s=0.0, hop_s=0.0, collective_knee_bytes=0.0)
    assert float(training.ring_s(rates, 8.0, 2 * 350e9)) == pytest.approx(612.5e9 / 450e9)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(1, 3),
    st.sampled_from(["none", "selective", "full"]),
)  # fmt: skip
def test_more_work_never_takes_less(dp: int, tp: int, pp: int, micro_batch: int, recompute: str) -> None:
    m = model("llama-8b", 32)
    p = Parallel(dp=dp, tp=tp, pp=pp, zero=1, sequence_parallel=tp > 1)
    run = Run(sequence_tokens=2048, micro_batch=micro_batch, micro_batches=4, recipe=MEGATRON_BF16, parallel=p,
              recompute=recompute)  # fmt: skip
    one = step(m, run)
    for more in (
        replace(run, micro_batch=micro_batch + 1),
        replace(run, micro_batches=8),
        replace(run, recompute="full"),
    ):
        assert float(step(m, more).step_s) >= float(one.step_s) * (1 - 1e-9)
    assert float(one.exposed_s) <= float(one.communication_s) * (1 + 1e-9) or pp > 1
    if tp == pp == dp == 1:
        assert float(one.communication_s) == float(one.bubble_s) == 0.0


def test_a_thousand_layouts_are_timed_at_once_like_one_by_one() -> None:
    m = model("llama-8b", 32)
    runs = [
        Run(sequence_tokens=2048, micro_batch=b, micro_batches=8, recipe=MEGATRON_BF16,
            parallel=Parallel(dp=dp, tp=tp, pp=pp, zero=1))
        for b in (1, 2) for dp in (1, 8) for tp in (1, 8) for pp in (1, 4)
    ]  # fmt: skip
    shapes = [Shape.of(run) for run in runs]
    columns = {name: np.array([getattr(s, name) for s in shapes]) for name in Shape.__dataclass_fields__}
    rates = training.rates_of(H200, EFFICIENCY, MEGATRON_BF16, training.MEGATRON)
    together = training.step_time(m, Shape(**columns), rates, runs[0])
    apart = [float(step(m, run).step_s) for run in runs]
    assert together.step_s == pytest.approx(apart)


def test_a_chip_without_the_matrix_rate_says_so() -> None:
    with pytest.raises(ValueError, match="H200 has no nvfp4 matrix rate: choose bf16"):
        training.rates_of(H200, EFFICIENCY, replace(MEGATRON_BF16, matmul_dtype="nvfp4"), training.MEGATRON)
