"""90 % intervals of an option's figures: residuals of its calibration, swings of its prices and its load."""

import math
from collections.abc import Mapping

from advisor.engine.cost import combined_ratio
from advisor.engine.search import Scored, factors_of, latency_ranges, of_pools
from advisor.engine.terms import Ratios, Scopes
from advisor.inputs import number
from advisor.result import Intervals, Option, Percentiles


def intervals(option: Option, half: Mapping[str, Ratios], ranges: Mapping[str, Ratios]) -> Intervals:
    """[low, high] of each headline figure; costs move with performance, prices and, per token, with the load.

    half: factors on ttft, tpot, their p95 and throughput; ranges: factors on price, load and power.
    """
    if not half:
        return Intervals()
    throughput = replicas(option, half["throughput"])
    bill = combined_ratio([throughput, ranges["price"]])
    token = combined_ratio([throughput, ranges["price"], ranges["load"]])
    power = ranges.get("power", (1.0, 1.0))
    energy = combined_ratio([power, ranges["load"]])
    figures = {
        "usd_per_month": (option.usd_per_month, bill),
        "tco_usd": (option.tco_usd, bill),
        "watts": (option.watts, power),
        "joules_per_output_token": (option.joules_per_output_token, energy),
        "joules_per_input_token": (option.joules_per_input_token, energy),
        "kgco2e_per_mtok": (option.kgco2e_per_mtok, energy),
    }
    bounds = {name: scaled(value, ratios) for name, (value, ratios) in figures.items() if value is not None}
    if option.latency_ms is not None:
        bounds |= of_latency("latency_ms", option.latency_ms, half, "ttft")
        bounds["input_tokens_per_s_at_capacity"] = scaled(option.input_tokens_per_s_at_capacity, half["throughput"])
        bounds["usd_per_mtok_input"] = scaled(option.usd_per_mtok_input, token)
    else:
        bounds |= of_latency("ttft_ms", option.ttft_ms, half, "ttft")
        bounds |= of_latency("tpot_ms", option.tpot_ms, half, "tpot")
        bounds["output_tokens_per_s_at_capacity"] = scaled(option.output_tokens_per_s_at_capacity, half["throughput"])
        for name in ("usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_blended"):
            bounds[name] = scaled(getattr(option, name), token)
    return Intervals(**bounds)


def latency_ranges_of(scopes: Scopes, s: Scored) -> dict[str, Ratios]:
    """Factors on the latencies, from the draws that give the probability of meeting the limits; empty: not known."""
    drawn = factors_of(scopes, s.lane)
    drawn = of_pools(drawn) if s.pools else drawn
    return latency_ranges(drawn, s.verified.response) if drawn else {}


def of_latency(name: str, latency: Percentiles, half: Mapping[str, Ratios], key: str) -> dict[str, list[float | None]]:
    return {name: scaled(latency.mean, half[key]), f"{name}_p95": scaled(latency.p95, half[f"{key}_p95"])}


def replicas(option: Option, throughput: Ratios) -> Ratios:
    """Factors on the bill when a replica does less or more: whole replicas, or the hours of a batch."""
    low, high = throughput
    if option.batch is not None and option.batch.given_back:
        return 1 / high, 1 / low  # it is paid for as long as it runs
    carrying = option.replicas - option.spare_replicas
    fewer, more = ((math.ceil(carrying / f) + option.spare_replicas) / option.replicas for f in (high, low))
    return fewer, more


def scaled(value: float | None, ratios: Ratios) -> list[float | None]:
    return [None if value is None else number(value * ratio) for ratio in ratios]
