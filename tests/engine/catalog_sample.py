"""Small engine values that tests share: ideal hardware for worked examples, and a catalog of four chips."""

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from advisor.engine.cost.hourly import Assumptions
from advisor.engine.network.blocks import Attention, Block, Ffn
from advisor.engine.network.model import Model
from advisor.engine.search.candidates import Catalog
from advisor.engine.step.lane import Lane
from advisor.engine.step.layout import Choice
from advisor.engine.terms.command_template import template_of
from advisor.engine.terms.machines.hardware import EXPERT_FORMATS, Accelerator, Efficiency, Link, Overhead
from advisor.engine.terms.machines.offer import Offer
from advisor.engine.terms.software import FlagLists, Framework, LaunchFacts, Quantization, SupportRule
from advisor.engine.terms.workloads.kinds import SERVING
from advisor.engine.terms.workloads.workload import Constraints, Lengths, Slo, Workload
from catalog.loading import fixtures, frameworks

GIB = 2.0**30
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CALIBRATION = FIXTURES / "calibration"
SHARP = 12.0  # roof exponent: near a maximum, and far from underflow on times of a picosecond


EXPERT_SHARES = tuple(f"expert_{name}_fraction" for name in EXPERT_FORMATS)


def ideal(kind: type) -> Any:
    """Every share 1, every fixed cost 0; no expert kernel is timed."""
    values: dict[str, Any] = {}
    for f in fields(kind):
        if f.name in EXPERT_SHARES:
            values[f.name] = 0.0
        elif f.name.endswith(("_fraction", "_factor")):
            values[f.name] = 1.0
        elif f.name not in ("basis", "source"):
            values[f.name] = 0.0
    return kind(**values | ({"roof_exponent": SHARP} if kind is Efficiency else {}))


def dense(layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, inner: int, vocab: int) -> Model:
    block = Block(
        count=layers, mixer=Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim), ffn=Ffn(inner=inner)
    )
    return Model(slug="sample", hidden=hidden, vocab=vocab, blocks=(block,))


LLAMA_8B = dense(32, 4096, 32, 8, 128, 14336, 128256)
LLAMA_70B = dense(80, 8192, 64, 8, 128, 28672, 128256)


def chip(slug: str, **changes: Any) -> Accelerator:
    values: dict[str, Any] = dict(
        slug=slug, name=slug.upper(), vendor="nvidia", family="sample", kind="gpu",
        memory_bytes=80 * GIB, memory_bytes_per_s=3.35e12,
        flops_per_s={"bf16": 9.89e14, "fp8": 1.979e15, "int8": 1.979e15, "fp32": 6.7e13},
        cores=132, sram_bytes=50 * 2.0**20, watts=700.0, idle_watts=80.0,
        links=(Link(name="fast", bytes_per_s=4.5e11, latency_s=0.0, chips=8),),
        stacks=("cuda",), chips_per_host=8, pcie_bytes_per_s=6.4e10,
        kubernetes_resource="nvidia.com/gpu", container={"driver": "nvidia"},
    )  # fmt: skip
    return Accelerator(**values | changes)


# TPU v5e as jax-ml/scaling-book gives it; links without end, because its exercises leave communication out
TPU_V5E = chip(
    "v5e", memory_bytes=16e9, memory_bytes_per_s=8.2e11, flops_per_s={"bf16": 1.97e14, "int8": 3.94e14, "fp32": 1e15},
    cores=1, links=(Link(name="ici", bytes_per_s=1e30, latency_s=0.0, chips=256),),
)  # fmt: skip


def format_of(slug: str, bits: float, activations: str, quality: str = "lossless") -> Quantization:
    return Quantization(
        slug=slug, name=slug.upper(), weights_dtype=slug, bits_per_weight=bits, activations_dtype=activations,
        quality=quality, quality_note="as the sample says", source="sample",
    )  # fmt: skip


BF16 = format_of("bf16", 16, "bf16")
FP8 = format_of("fp8", 8, "fp8", "near_lossless")
INT8_WEIGHTS = format_of("int8", 8, "bf16", "near_lossless")
INT4 = format_of("awq", 4.25, "bf16", "lossy")

SOFTWARE_KEYS = (
    *("launch", "compiled_stacks", "torch_compile", "prefixes_by_default", "builds_engines"),
    *("memory_as_needed", "host_cache_option", "fp8_cache_weights", "aliases"),
)
BEHAVES_PLAINLY: dict[str, Any] = {f.name: f.default for f in fields(Framework) if f.name in SOFTWARE_KEYS}


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """The frameworks of the reference data at their newest version, by slug; a file has its newest version first."""
    rows = frameworks.frameworks(FIXTURES)
    plain = ("slug", "name", "version")
    return {row["slug"]: {key: row[key] for key in plain} | row["settings"] for row in reversed(rows)}


def software(slug: str) -> dict[str, Any]:
    """What the reference data says of how a framework starts and behaves; for one made up, as vLLM's."""
    row = shipped().get(slug) or shipped()["vllm"]
    found = {key: row[key] for key in SOFTWARE_KEYS if key in row} | {
        "flags": FlagLists(**tuples(row.get("flags", {})))
    }
    if row["launch"]:
        found["launch"] = LaunchFacts(**tuples(row["launch"]) | {"template": template_of(row["launch"]["template"])})
    return BEHAVES_PLAINLY | tuples(found)


def tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def reached(a: Accelerator, slug: str, **changes: Any) -> Accelerator:
    """The chip as software counts and reaches one of the reference data."""
    return replace(a, **{"kubernetes_resource": "", "container": {}} | chip_software(slug) | changes)


def host_times() -> dict[str, float]:
    """vLLM's, by the names of Overhead, in seconds."""
    given = shipped()["vllm"]["host_times"]
    scales = {"_ms": ("_s", 1e3), "_us": ("_s", 1e6)}
    return {
        key.replace(unit, si): value / scale
        for key, value in given.items()
        for unit, (si, scale) in scales.items()
        if unit in key
    }


def chip_software(slug: str) -> dict[str, Any]:
    """How software counts and reaches a chip of the reference data."""
    path = FIXTURES / "accelerators" / f"{slug}.yaml"
    return dict(fixtures.accelerator(path).get("software", {})) if path.exists() else {}


def rules(*formats: str, **limits: Any) -> tuple[SupportRule, ...]:
    """One rule for all formats, without limits unless given."""
    return (SupportRule(formats=formats, **limits),)


VLLM = Framework(
    slug="vllm", name="vLLM", version="0.24.0", stacks=("cuda",), vendors=(), kinds=("gpu",),
    weights=rules("bf16", "fp8", "awq"), caches=rules("bf16", "fp8"), mixers=("attention", "window"),
    scheduler="chunked", default_max_batched_tokens=8192, max_running_requests=1024, memory_fraction=0.9,
    runtime_bytes=2 * GIB, block_tokens=16, graph_max_tokens=512, features=("pipeline_parallel",),
    **software("vllm"),
)  # fmt: skip
SGLANG = replace(
    VLLM, slug="sglang", name="SGLang", version="0.5.10", scheduler="prefill_first", memory_fraction=0.88,
    **software("sglang"),
)  # fmt: skip

ASSUMED = Assumptions(
    life_years=5, residual_fraction=0.1, discount_fraction=0.08, pue=1.3, usd_per_kwh=0.1, kgco2e_per_kwh=0.4,
    maintenance_fraction=0.05, network_fraction=0.1, colocation_usd_per_kw_month=150,
    staff_usd_per_accelerator_year=500, idle_fraction=0.15, host_watts_per_accelerator=100,
    card_host_watts=100, socket_host_watts=150, small_host_watts=200, small_host_usd=2000, months=36,
)  # fmt: skip


def offer(slug: str, usd_per_hour: float, accelerators: int = 1, **changes: Any) -> Offer:
    values: dict[str, Any] = dict(
        provider="cloud", instance=f"{slug}-{accelerators}", region="north", accelerator=slug,
        accelerators=accelerators, acquisition="rent", term="on_demand", usd_per_hour=usd_per_hour,
        as_of="2026-11-01", source="sample", kgco2e_per_kwh=0.3,
    )  # fmt: skip
    return Offer(**values | changes)


def scopes() -> dict[str, dict[str, Any]]:
    """The shipped defaults, without the fits of single chips."""
    rows = [yaml.safe_load((CALIBRATION / f"{name}.yaml").read_text()) for name in ("default", "framework", "training")]
    found = {row["name"]: {**row["values"], "basis": row["basis"], "source": row["fitted_on"]} for row in rows}
    found["framework"] |= host_times()
    return found


def catalog(**changes: Any) -> Catalog:
    """Big, small and tiny GPUs, one without a price and one that serves nothing."""
    values: dict[str, Any] = dict(
        model=LLAMA_8B,
        accelerators=(
            chip("big", memory_bytes=141 * GIB, memory_bytes_per_s=4.8e12),
            chip("small", memory_bytes=24 * GIB, memory_bytes_per_s=3e11, watts=72.0, links=(), chips_per_host=1,
                 flops_per_s={"bf16": 1.21e14, "fp8": 2.42e14, "fp32": 3e13}),
            chip("tiny", memory_bytes=6.5 * GIB, memory_bytes_per_s=6e11, links=(), chips_per_host=1,
                 flops_per_s={"bf16": 1e14, "fp32": 3e13}),
            chip("unsold"),
            chip("board", served=False, not_served_reason="runs no serving framework"),
        ),
        offers=(offer("big", 4.0), offer("big", 30.0, 8), offer("small", 0.7),
                offer("tiny", 0.3, fabric_accelerators=4)),
        quantizations=(BF16, FP8, INT4),
        frameworks=(VLLM, SGLANG),
        scopes=scopes(),
        assumptions=ASSUMED,
        stale={},
    )  # fmt: skip
    return Catalog(**values | changes)


def question(**changes: Any) -> Workload:
    values: dict[str, Any] = dict(
        name="sample", kind=SERVING,
        input_tokens=Lengths(mean_tokens=1000, p95_tokens=3000), output_tokens=Lengths(mean_tokens=200, p95_tokens=500),
        requests_per_s_mean=2.0, requests_per_s_peak=5.0, prefix_cache_hit_fraction=0.0,
        slo=Slo(ttft_p95_s=1.0, tpot_p95_s=0.04), constraints=Constraints(),
    )  # fmt: skip
    return Workload(**values | changes)


def lane(
    accelerator: Accelerator, quantization: Quantization = BF16, *, context: float = 8192,
    kv_dtype: str = "bf16", **sizes: Any,
) -> Lane:  # fmt: skip
    """A lane with ideal kernels and no framework costs."""
    choice = Choice(
        accelerator=accelerator, efficiency=ideal(Efficiency), overhead=ideal(Overhead), quantization=quantization,
        kv_dtype=kv_dtype, **sizes,
    )  # fmt: skip
    return Lane(
        choice=choice, framework=VLLM, context_tokens=context, max_batched_tokens=8192, max_running_requests=512
    )
