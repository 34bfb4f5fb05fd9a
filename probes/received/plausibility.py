"""Plausibility checks of a result: rates that the chip cannot reach, and contradictions in the document.

A wrong calibration is worse than none, so a serious finding quarantines the whole result until a person reviews it.
Other findings are shown as warnings. Pure functions of the document and the catalog's figures of the chip.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = Mapping[str, Any]
MAX_OF_PEAK = 1.05  # allows for boost clocks and rounding in the datasheet
MIN_OF_PEAK = 0.01
MAX_SPREAD = 0.15  # (p90 - p10) / median
MAX_PROCESSOR_SPREAD = 0.3  # the same for processors, whose cores run other work too
MAX_NOISY_SHARE = 0.25  # of the entries that may be noisy or throttled; such entries never calibrate
CLOCK_TOLERANCE_S = 5.0
CACHE_SPEEDUP = 12.0  # a cache may be this much faster than the memory
MIN_PEERS = 3
FEW_PEERS_TOLERANCE = 0.3  # relative to the median, with fewer peers or other suites
MAD_TO_SIGMA = 1.4826
MIN_DEVIATION = 0.02  # relative to the median, in case the peers agree almost exactly
MEMORY_KINDS = ("memory_read", "memory_write", "memory_copy", "memory_strided", "memory_gather")
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "point_to_point")
# Without int4: it is weight-only, computes in 16 bits, and its kernels are slow at many rows by design.
WIDTH = {"fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4}
TRIVIAL_S = 50e-6  # shorter runs are dominated by timer resolution


class Finding(NamedTuple):
    serious: bool  # quarantines the result
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """The catalog figures that limit measured rates."""

    slug: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]  # dense, by dtype
    cache_bytes: float
    link_bytes_per_s: float  # of the nearest link; 0: unknown
    host_bytes_per_s: float  # 0: unknown
    share: float = 1.0  # of a processor's cores that the machine has


@dataclass(frozen=True, kw_only=True, slots=True)
class Peers:
    """Headline rates of other machines with this chip, by name, in FLOP/s or B/s."""

    same_suite: Mapping[str, Sequence[float]] = field(default_factory=dict)
    confirmed: Mapping[str, Sequence[float]] = field(default_factory=dict)  # any suite; confirmed results


def examine(
    document: Json, chip: Chip | None, wall_s: float | None = None, peers: Peers | None = None
) -> list[Finding]:
    """All findings on a result. `wall_s`: age of the lease on the server's clock; None for an imported file."""
    findings = [*duration_findings(document, wall_s), *noise_findings(document["results"], document["backend"])]
    findings += known_answer(document["results"])
    if chip is None:
        findings.append(
            Finding(
                False, "no accelerator in the catalog has this name and memory size, so it is not used to calibrate"
            )
        )
    else:
        findings += [f for e in document["results"] for f in too_fast(e, chip)]
        findings += too_slow(document["results"], chip)
        findings += outliers(document["results"], peers or Peers())
    return [*findings, *precision_order(document["results"])]


def entry_name(e: Json) -> str:
    """The kind and the key of an entry: gemm m=1 n=8 k=8."""
    return " ".join([e["kind"], *(f"{k}={v}" for k, v in e["key"].items())])


def duration_findings(document: Json, wall_s: float | None) -> Iterator[Finding]:
    duration_s = document["duration_s"]
    measured_s = sum(e["time_s"]["n"] * e["time_s"]["median"] for e in document["results"])
    if measured_s > duration_s:
        yield Finding(True, f"its runs add up to {measured_s:.3g} s, but its duration is {duration_s:.3g} s")
    if wall_s is not None and duration_s > wall_s + CLOCK_TOLERANCE_S:
        yield Finding(True, f"it reports a duration of {duration_s:.3g} s, but its lease was only {wall_s:.3g} s old")


def noise_findings(entries: Sequence[Json], backend: str = "") -> Iterator[Finding]:
    max_spread = MAX_PROCESSOR_SPREAD if backend == "cpu" else MAX_SPREAD
    throttled = [e for e in entries if e.get("throttled")]
    # Not launches: they wait for the host, so their spread says nothing about the chip.
    device = [e for e in entries if e["kind"] != "launch" and e["key"].get("mode") != "eager"]
    noisy = [e for e in device if not is_steady(e, max_spread)]
    if len(throttled) > MAX_NOISY_SHARE * len(entries):
        yield Finding(True, f"the chip was throttled in {len(throttled)} of {len(entries)} measurements")
    if len(noisy) > MAX_NOISY_SHARE * len(device):
        yield Finding(True, f"{len(noisy)} of {len(device)} measurements spread by more than {max_spread:.0%}")
    for e in entries:
        if e["check"] is not None and not e["check"]["ok"] and e["kind"] != "known_answer":
            yield Finding(False, f"{entry_name(e)}: its result was wrong, so its time is not used")


def is_steady(e: Json, max_spread: float = MAX_SPREAD) -> bool:
    t = e["time_s"]
    return bool((t["p90"] - t["p10"]) <= max_spread * t["median"])


def known_answer(entries: Sequence[Json]) -> Iterator[Finding]:
    answers = [e for e in entries if e["kind"] == "known_answer"]
    if not answers:
        yield Finding(True, "the known-answer test is missing")
    for e in answers:
        error, limit = (e["check"] or {}).get("error"), (e["check"] or {}).get("limit")
        if not e["check"] or not e["check"]["ok"] or error is None or limit is None or error > limit:
            yield Finding(True, "the known-answer test is wrong")


# --- against the datasheet --------------------------------------------------------------------------------------


def peak_of(e: Json, chip: Chip) -> float:
    """The peak in FLOP/s of the entry's dtype; for an unknown dtype, the highest peak of the chip."""
    rates, dtype = chip.flops_per_s, str(e["key"].get("dtype", "")).lower()
    known = next((rate for name, rate in rates.items() if dtype == name or dtype.startswith(f"{name}_")), None)
    return known or max(rates.values(), default=float("inf"))


def too_fast(e: Json, chip: Chip) -> Iterator[Finding]:
    """Rates above the datasheet peak, and buffers larger than the memory."""
    median_s, kind = e["time_s"]["median"], e["kind"]
    if e["flops"]:
        rate, peak = e["flops"] / median_s, peak_of(e, chip)
        if rate > MAX_OF_PEAK * peak:
            yield Finding(
                True, f"{entry_name(e)}: {rate / 1e12:.4g} TFLOP/s is above the datasheet's {peak / 1e12:.4g}"
            )
    if e["bytes"] and (limit := max_bytes_per_s(e, chip)):
        rate = e["bytes"] / median_s
        if rate > MAX_OF_PEAK * limit:
            yield Finding(True, f"{entry_name(e)}: {rate / 1e9:.4g} GB/s, but at most {limit / 1e9:.4g} is possible")
    if kind in MEMORY_KINDS and isinstance(e["key"].get("bytes"), int | float):
        if e["key"]["bytes"] > chip.memory_bytes:
            yield Finding(True, f"{entry_name(e)}: larger than the memory of the chip")


def max_bytes_per_s(e: Json, chip: Chip) -> float:
    """The highest possible rate in B/s; higher for data that may come from caches. 0: unknown."""
    if e["kind"] == "host_copy":
        return chip.host_bytes_per_s
    if e["kind"] in COLLECTIVES:  # in-network reduction can halve the bytes per link
        return chip.link_bytes_per_s * 2
    if e["kind"] == "grouped_gemm":  # experts are drawn at random; those without a token are counted but not read
        experts, tokens = (float(e["key"].get(name) or 1) for name in ("experts", "tokens_per_expert"))
        return chip.memory_bytes_per_s / (1 - (1 - 1 / experts) ** (experts * tokens) if experts > 1 else 1.0)
    cached = e["kind"] == "l2_read" or e["bytes"] < 4 * chip.cache_bytes
    return chip.memory_bytes_per_s * (CACHE_SPEEDUP if cached else 1.0)


def too_slow(entries: Sequence[Json], chip: Chip) -> Iterator[Finding]:
    """The best rate of a kind is below 1 % of the datasheet peak: probably another chip or kernel."""
    for name, (rate, _) in best(e for e in entries if e["path"] == "native").items():
        kind, _, dtype = name.partition(" ")
        peak = chip.memory_bytes_per_s if kind in MEMORY_KINDS else chip.flops_per_s.get(dtype)
        peak = peak and peak * chip.share
        if kind in ("memory_read", "memory_copy", "gemm") and peak and rate < MIN_OF_PEAK * peak:
            yield Finding(True, f"the best {name} reaches only {rate / peak:.2%} of the datasheet peak")


def best(entries: Iterable[Json]) -> dict[str, tuple[float, Json]]:
    """The headline rates: {`gemm bf16`, `memory_read`, ...: (highest rate in FLOP/s or B/s, its entry)}."""
    highest: dict[str, tuple[float, Json]] = {}
    for e in entries:
        amount = e["bytes"] if e["kind"] in MEMORY_KINDS else e["flops"]
        if not amount or e["kind"] not in (*MEMORY_KINDS, "gemm", "grouped_gemm", "attention_prefill"):
            continue
        dtype = str(e["key"].get("dtype", ""))
        name = e["kind"] if e["kind"] in MEMORY_KINDS else f"{e['kind']} {dtype}".strip()
        rate = amount / e["time_s"]["median"]
        if name not in highest or rate > highest[name][0]:
            highest[name] = (rate, e)
    return highest


def precision_order(entries: Sequence[Json]) -> Iterator[Finding]:
    """A warning if a narrower dtype is less than half as fast as a wider one for the same shape."""
    shapes: dict[tuple[Any, ...], dict[str, float]] = {}
    for e in entries:
        dtype = str(e["key"].get("dtype", ""))
        if e["kind"] == "gemm" and e["path"] == "native" and dtype in WIDTH and e["time_s"]["median"] > TRIVIAL_S:
            times = shapes.setdefault(tuple(e["key"].get(axis) for axis in "mnk"), {})
            times[dtype] = min(times.get(dtype, math.inf), e["time_s"]["median"])
    slower: dict[tuple[str, str], list[float]] = {}
    for times in shapes.values():
        for narrow, wide in ((a, b) for a in times for b in times if WIDTH[a] < WIDTH[b]):
            if times[narrow] > 2 * times[wide]:
                slower.setdefault((narrow, wide), []).append(times[narrow] / times[wide])
    for (narrow, wide), ratios in slower.items():
        text = f"{narrow} is up to {max(ratios):.1f} times slower than {wide} in {len(ratios)} matrix multiplies"
        yield Finding(False, text)


def outliers(entries: Sequence[Json], peers: Peers) -> Iterator[Finding]:
    """Headline rates that differ from those of other machines with this chip.

    With at least three machines in the same suite: by more than three standard deviations (estimated by MAD). Else:
    by more than 30 % from the median of confirmed results of any suite.
    """
    for name, (rate, _) in best(e for e in entries if e["path"] == "native").items():
        others = peers.same_suite.get(name, ())
        if len(others) >= MIN_PEERS:
            median = statistics.median(others)
            mad = statistics.median(abs(x - median) for x in others)
            allowed = 3 * max(MAD_TO_SIGMA * mad, MIN_DEVIATION * median)
        elif others := peers.confirmed.get(name, ()):
            median = statistics.median(others)
            allowed = FEW_PEERS_TOLERANCE * median
        else:
            continue
        if abs(rate - median) > allowed:
            machines = f"{len(others)} other machine{'s' * (len(others) > 1)} with this chip"
            yield Finding(True, f"{name}: {rate / median:.2f} times the median of {machines}")
