"""Checks of claims with kernel measurements of one H200, which are in the fixtures."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from statistics import median
from typing import Any

from catalog.shipped import FIXTURES
from tests.claims.claims import Check, Desk, Finding

PROBE = "measurements/probes/h200-sxm--one-gpu-torch.json"
ON = "measured on one H200 (fixtures/measurements/probes)"
CONTIGUOUS = ("flash", "flash_grouped", "cudnn")
LAYERS = ("block", "decode_step", "compile_gain")
Row = Mapping[str, Any]


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    return tuple(json.loads((FIXTURES / PROBE).read_text(encoding="utf-8"))["results"])


def seconds(r: Row) -> float:
    return float(r["time_s"]["median"])


def by_case(kinds: Iterable[str], key: str) -> list[dict[str, float]]:
    """Seconds by the value of one key, for each group of cases that are otherwise equal."""
    cases: dict[str, dict[str, float]] = {}
    for r in rows():
        if r["kind"] in kinds and key in r["key"]:
            rest = json.dumps([r["kind"], {k: v for k, v in r["key"].items() if k != key}], sort_keys=True)
            cases.setdefault(rest, {})[r["key"][key]] = seconds(r)
    return list(cases.values())


def paged(desk: Desk) -> Finding:
    cases = [c for c in by_case(("attention_decode",), "backend") if "split_kv" in c and set(CONTIGUOUS) & set(c)]
    slower = [c["split_kv"] / min(c[b] for b in CONTIGUOUS if b in c) - 1 for c in cases]
    return Finding(
        "conditional",
        f"{min(slower):.0%} to {max(slower):.0%} over {len(slower)} shapes, median {median(slower):.0%}",
        f"{ON}: our paged kernel against the fastest contiguous one in torch; only one shape is as slow as stated.",
    )


def compiled(desk: Desk) -> Finding:
    cases = [c for c in by_case(LAYERS, "mode") if {"eager", "compiled"} <= set(c)]
    gains = [c["eager"] / c["compiled"] for c in cases]
    return Finding(
        "refuted",
        f"{min(gains):.2f} to {max(gains):.2f} times in inference over {len(gains)} layers and models",
        f"{ON}, both inside graphs: compiling fuses kernels. The rest of the claim is the launch time that graphs "
        "save. "
        "Training was not measured.",
    )


def launched(desk: Desk) -> Finding:
    us = {r["key"]["mode"]: seconds(r) * 1e6 for r in rows() if r["kind"] == "launch"}
    return Finding(
        "agrees",
        f"{us['eager']:.0f} us one by one, {us['graph']:.1f} us inside a graph",
        f"{ON}; serving seldom pays it, because it captures graphs.",
    )


def aligned(desk: Desk) -> Finding:
    cases = [r for r in rows() if r["kind"] == "gemm" and r["key"]["dtype"] == "bf16" and "off" in r["key"]]
    rates = {r["key"]["off"]: r["flops"] / seconds(r) / 1e12 for r in cases}
    far = [rate for off, rate in rates.items() if off.endswith("64")]
    near = [rate for off, rate in rates.items() if not off.endswith("64")]
    return Finding(
        "agrees",
        f"512 rows, about 4,096 squared: {min(far):.0f} to {max(far):.0f} TFLOP/s at multiples of 64, "
        f"{min(near):.0f} to {max(near):.0f} at multiples of 8 and 16 only",
        f"{ON}; a last dimension that is off by 8 costs most, since rows are then not read in whole cache lines.",
    )


CHECKS: dict[str, Check] = {"c27": paged, "c34": compiled, "c35": launched, "c56": aligned}
