"""90 % intervals of an option's figures: residuals of its calibration, swings of its prices and its load."""

import math
from collections.abc import Mapping
from typing import Any

from advisor.engine.cost import combined_ratio
from advisor.inputs import number

Json = dict[str, Any]
Ratios = tuple[float, float]  # (low, high) as factors on a figure


def interval_fractions(taken: Json, basis: str) -> dict[str, Ratios]:
    """90 % interval as factors (low, high) on each metric, from the calibration's residuals of this class."""
    row = taken["calibrations"].get(f"interval:{basis}", {})
    return {
        name: (float(row[f"{name}_low_ratio"]), float(row[f"{name}_high_ratio"]))
        for name in ("ttft", "tpot", "throughput")
        if f"{name}_low_ratio" in row
    }


def intervals(r: Json, half: Mapping[str, Ratios], swings: Mapping[str, Ratios]) -> dict[str, list[float | None]]:
    """[low, high] of each headline figure; money moves with performance, prices and, per token, with the load."""
    if not half:
        return {}
    vectors = "latency_ms" in r
    latencies = {"latency_ms": "ttft"} if vectors else {"ttft_ms": "ttft", "tpot_ms": "tpot"}
    found = {}
    for name, key in latencies.items():
        for statistic, field in (("mean", name), ("p95", f"{name}_p95")):
            found[field] = scaled(r[name][statistic], half[key])
    rate = "input_tokens_per_s_at_capacity" if vectors else "output_tokens_per_s_at_capacity"
    found[rate] = scaled(r[rate], half["throughput"])
    bill = combined_ratio([replicas(r, half["throughput"]), swings["price"]])
    token = combined_ratio([replicas(r, half["throughput"]), swings["price"], swings["load"]])
    found |= {name: scaled(r[name], bill) for name in ("usd_per_month", "tco_usd")}
    drawn = swings.get("power", (1.0, 1.0))
    energy = combined_ratio([drawn, swings["load"]])
    for name, ratios in (("watts", drawn), ("joules_per_output_token", energy), ("joules_per_input_token", energy)):
        if r.get(name) is not None:
            found[name] = scaled(r[name], ratios)
    if r.get("kgco2e_per_mtok") is not None:
        found["kgco2e_per_mtok"] = scaled(r["kgco2e_per_mtok"], energy)
    names = ("input",) if vectors else ("input", "output", "blended")
    return found | {f"usd_per_mtok_{name}": scaled(r[f"usd_per_mtok_{name}"], token) for name in names}


def replicas(r: Json, throughput: Ratios) -> Ratios:
    """What the same service costs when a replica does less or more: whole replicas, or for a batch its hours."""
    low, high = throughput
    if r.get("batch", {}).get("given_back"):
        return 1 / high, 1 / low  # it is paid for as long as it runs
    carrying = r["replicas"] - r["spare_replicas"]
    fewer, more = ((math.ceil(carrying / f) + r["spare_replicas"]) / r["replicas"] for f in (high, low))
    return fewer, more


def scaled(value: float | None, ratios: Ratios) -> list[float | None]:
    return [None if value is None else number(value * ratio) for ratio in ratios]
