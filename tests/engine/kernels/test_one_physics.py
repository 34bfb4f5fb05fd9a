"""Serving and training agree: the same kernel of the same size takes the same time on every chip of the catalog."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from advisor.engine import kernels, training
from advisor.engine.kernels import Array, rate_of
from advisor.engine.network import Attention
from advisor.engine.step import Choice, Layouts, layouts
from advisor.engine.step.operators import all_reduce, context_token, gemm
from advisor.engine.terms import Accelerator, Efficiency, Link, efficiency, overhead
from advisor.engine.training import MEGATRON, MEGATRON_BF16, Rates, Run, Shape
from advisor.engine.training.operators import Product, attention_flops, products_s
from tests.engine.catalog_sample import BF16, LLAMA_8B

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SCOPES = {
    row["name"]: row["values"]
    for row in map(yaml.safe_load, (f.read_text() for f in FIXTURES.glob("calibration/*.yaml")))
}
SCOPES["framework:vllm"] |= {"eager_s_per_layer": 0.0, "eager_s_per_expert_layer": 0.0}
RANDOM = np.random.default_rng(32)
SLICES = ((2, 2), (4, 4), (8, 8), (16, 16))
FACTORLESS = {"matmul_factor": 1.0, "memory_factor": 1.0, "core_bytes_per_s": 0.0, "collective_factor": 1.0,
              "prefill_factor": 1.0, "one_shot_s": 1e9}  # fmt: skip


def chip(path: Path) -> Accelerator:
    row = yaml.safe_load(path.read_text())
    links = tuple(
        Link(
            name=each["name"], bytes_per_s=each["gb_per_s"] * 1e9, latency_s=each.get("latency_us", 0.0) * 1e-6,
            chips=each["chips"], topology=each["topology"], wraps_from=each.get("wraps_from", 0),
            shapes=SLICES if each["topology"] == "torus" else (),
        )
        for each in row.get("links", {}).get("tiers", ())
    )  # fmt: skip
    return Accelerator(
        slug=row["slug"], name=row["name"], vendor=row["vendor"], kind=row["kind"],
        family=row["family"].replace(" ", "-"),
        memory_bytes=row["memory"].get("gib", 1.0) * 2.0**30, memory_bytes_per_s=row["memory"]["gb_per_s"] * 1e9,
        flops_per_s={d: v * 1e12 for d, v in row.get("dense_tflops", {}).items() if isinstance(v, int | float)},
        cores=row.get("chip", {}).get("cores") or 1, sram_bytes=1.0, links=links, stacks=(), chips_per_host=8,
        pcie_bytes_per_s=63e9, idle_watts=0.0, watts=row.get("power", {}).get("tdp_watts") or 0.0,
    )  # fmt: skip


CHIPS = [c for c in map(chip, sorted(FIXTURES.glob("accelerators/*.yaml"))) if rate_of(c, "bf16")]


def both(a: Accelerator, tp: int = 1) -> tuple[Layouts, Rates]:
    """The rates of one chip in serving (with no factor of a framework) and in training."""
    known, plain = efficiency(SCOPES, a.slug, a.family, a.kind), replace(overhead(SCOPES, "vllm", ""), **FACTORLESS)
    choice = Choice(accelerator=a, efficiency=known, overhead=plain, quantization=BF16, kv_dtype="bf16", tp=tp)
    return layouts(LLAMA_8B, [choice]), training.rates_of(a, known, MEGATRON_BF16, MEGATRON)


def as_served(r: Rates, x: Layouts) -> Rates:
    """The rates of training with what the kernels of both share taken from serving."""
    return replace(r, **{f.name: float(getattr(x, f.name)[0]) for f in fields(kernels.Rates)})


def seconds(value: Array) -> float:
    return float(np.ravel(value)[0])


def own_figures(a: Accelerator) -> set[str]:
    """What the catalog says of a chip's training alone."""
    return {name for scope in (f"family:{a.family}", f"kind:{a.kind}", f"accelerator:{a.slug}")
            for name, value in SCOPES.get(f"training:{scope}", {}).items() if value}  # fmt: skip


@pytest.mark.parametrize("a", CHIPS, ids=lambda a: a.slug)
def test_rates_differ_only_where_the_catalog_says_so(a: Accelerator) -> None:
    """By figures of a family's training, the power limit that they hold for, and the cap of streaming reads."""
    x, r = both(a)
    known = efficiency(SCOPES, a.slug, a.family, a.kind)
    own = own_figures(a)
    allowed = {"memory_bytes_per_s"} if known.memory_fraction > SCOPES["training"]["stream_fraction"] else set()
    if {"matmul_16_fraction", "power_limit_watts"} & own:
        allowed |= {"matmul_flops_per_s", "half_flops_per_s"}
    differing = {
        f.name for f in fields(kernels.Rates)
        if getattr(r, f.name) != pytest.approx(float(getattr(x, f.name)[0]), rel=1e-12, nan_ok=True)
    }  # fmt: skip
    assert differing <= allowed


@pytest.mark.parametrize("half", [True, False])
def test_the_same_product_takes_the_same_time(half: bool) -> None:
    """Of any size: aligned and not, less than a wave and many."""
    for a in CHIPS:
        x, r = both(a)
        m, n, k = np.exp(RANDOM.uniform(0, np.log(40_000), (3, 200))).round()
        m, n, k = (np.where(RANDOM.random(200) < 0.5, np.ceil(size / 8) * 8, size) for size in (m, n, k))
        served = gemm(x, "any", 1, m, n, k, "half" if half else "quantized").time_s
        product = Product(name="any", rows=m, columns=n, inner=k, half=half)
        assert products_s(as_served(r, x), product, 2.0)[0] == pytest.approx(np.ravel(served), rel=1e-9), a.slug


def test_the_same_all_reduce_takes_the_same_time() -> None:
    """Inside the scale-up domain, by the library's ring: frameworks of serving have faster ones for small messages.

    On a torus, serving counts the links that so few chips use, and training all of them.
    """
    for a in CHIPS:
        for chips in (2, 3, 4, 8, 16, 64, 256):
            if not a.links or chips > a.links[0].chips:
                continue
            x, r = both(a, tp=chips)
            sizes = 10.0 ** RANDOM.uniform(2, 10, 50)
            served = all_reduce(x, "sum", 1, sizes, np.full(50, float(chips))).time_s
            assert training.ring_s(as_served(r, x), chips, 2.0 * sizes) == pytest.approx(served, rel=1e-9), (
                a.slug,
                chips,
            )


def test_the_same_attention_is_the_same_work() -> None:
    """Its rate is that of another library's kernels, and of small heads."""
    for a in CHIPS:
        x, _ = both(a)
        for block in LLAMA_8B.blocks:
            flops = float(attention_flops(LLAMA_8B, block, Shape.of(Run(sequence_tokens=4096, recipe=MEGATRON_BF16))))
            assert isinstance(block.mixer, Attention)
            pair_s = float(context_token(block.mixer, x)[1][0])
            assert flops == pytest.approx(pair_s * 4096 * 4096 / 2 * float(x.attention_flops_per_s[0]))


def test_the_backward_pass_multiplies_the_same_matrices_turned() -> None:
    """Its two products are those of the forward pass with sizes swapped."""
    a = next(c for c in CHIPS if c.slug == "a100-80gb-sxm")
    _, r = both(a)
    sizes = (4096.0, 11008.0, 4096.0 * 2)
    m, n, k = sizes
    _, data, weight, _ = products_s(r, Product(name="any", rows=m, columns=n, inner=k), 2.0)
    turned = [
        products_s(r, Product(name="any", rows=i, columns=j, inner=o), 2.0)[0] for i, j, o in ((m, k, n), (n, k, m))
    ]
    assert [seconds(data), seconds(weight)] == pytest.approx([seconds(t) for t in turned])


def efficiency_with(**changes: Any) -> Efficiency:
    return replace(efficiency(SCOPES, "h200-sxm", "hopper", "gpu"), **changes)


@pytest.mark.parametrize("odd", [4097, 4092])
def test_training_pays_for_partly_filled_waves_and_rows_off_16_bytes(odd: int) -> None:
    a = next(c for c in CHIPS if c.slug == "h200-sxm")
    even = training.rates_of(a, efficiency_with(wave_fraction=0.0), MEGATRON_BF16, MEGATRON)
    waving = training.rates_of(a, efficiency_with(wave_fraction=1.0), MEGATRON_BF16, MEGATRON)
    p = Product(name="any", rows=1152.0, columns=2048.0, inner=8192.0)  # 9 x 16 tiles on 132 cores: two waves
    assert seconds(products_s(waving, p, 2.0)[0]) > 1.5 * seconds(products_s(even, p, 2.0)[0])
    off = replace(p, columns=float(odd))
    assert seconds(products_s(even, off, 2.0)[0]) > 2.5 * seconds(products_s(even, replace(p, columns=4096.0), 2.0)[0])
