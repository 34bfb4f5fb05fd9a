"""Could this result be true? What no chip of that name can do, and what does not fit together, is kept apart.

A wrong calibration is worse than none: a grave finding puts the whole result into quarantine until a person has
looked at it; a remark only stands beside it. Pure: from a document and what the catalog says of the chip.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = Mapping[str, Any]
ABOVE = 1.05  # of the data sheet: boost clocks and rounding, no more
BELOW = 0.01
SPREAD = 0.15  # (p90 - p10) / median
SHARE = 0.25  # of the entries may be unsteady or throttled; they never calibrate
CLOCK_S = 5.0
CACHE_TIMES = 12.0  # what a cache may be faster than the memory behind it
PEERS = 3
FEW_PEERS = 0.3  # of the median: what one or two other machines, or other suites, may differ by
MAD_TO_SIGMA = 1.4826
FLOOR = 0.02  # of the median: peers that agree better than this are not made a stick to beat others with
MEMORY_KINDS = ("memory_read", "memory_write", "memory_copy", "memory_strided", "memory_gather")
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "point_to_point")
# int4 is of weights only: it multiplies in 16 bits after widening, and at many rows its kernels are slow by design.
WIDTH = {"fp32": 32, "tf32": 19, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4}
TRIVIAL_S = 50e-6  # shorter runs say more of the clock than of the chip


class Finding(NamedTuple):
    grave: bool
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """The catalog's figures that bound a measurement."""

    slug: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]  # dense, by dtype
    cache_bytes: float
    link_bytes_per_s: float  # of the nearest link; 0: none known
    host_bytes_per_s: float  # 0: not known


@dataclass(frozen=True, kw_only=True, slots=True)
class Peers:
    """Headline rates of other machines with the chip, by name."""

    same_suite: Mapping[str, Sequence[float]] = field(default_factory=dict)
    confirmed: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of every suite; these calibrate


def examine(
    document: Json, chip: Chip | None, wall_s: float | None = None, peers: Peers | None = None
) -> list[Finding]:
    """Everything that speaks against the result. `wall_s`: how long the server saw its lease; None: from a file."""
    found = [*of_the_run(document, wall_s), *of_steadiness(document["results"])]
    found += known_answer(document["results"])
    if chip is None:
        found.append(
            Finding(False, "no chip of the catalog has this name and memory: shown, but it calibrates nothing")
        )
    else:
        found += [f for e in document["results"] for f in too_fast(e, chip)]
        found += too_slow(document["results"], chip)
        found += outliers(document["results"], peers or Peers())
    return [*found, *precision_order(document["results"])]


def named(e: Json) -> str:
    return " ".join([e["kind"], *(f"{k}={v}" for k, v in e["key"].items())])


def of_the_run(document: Json, wall_s: float | None) -> Iterator[Finding]:
    duration_s = document["duration_s"]
    measured_s = sum(e["time_s"]["n"] * e["time_s"]["median"] for e in document["results"])
    if measured_s > duration_s:
        yield Finding(True, f"its runs add up to {measured_s:.3g} s, its duration is {duration_s:.3g} s")
    if wall_s is not None and duration_s > wall_s + CLOCK_S:
        yield Finding(True, f"it says that it took {duration_s:.3g} s; its lease was {wall_s:.3g} s old")


def of_steadiness(entries: Sequence[Json]) -> Iterator[Finding]:
    hot = [e for e in entries if e.get("throttled")]
    # Launches from the host wait for it, and collectives for each other: a long tail there is not the chip's.
    device = [e for e in entries if e["kind"] != "launch" and e["key"].get("mode") != "eager"]
    loose = [e for e in device if not is_steady(e)]
    if len(hot) > SHARE * len(entries):
        yield Finding(True, f"the chip was throttled in {len(hot)} of {len(entries)} measurements")
    if len(loose) > SHARE * len(device):
        yield Finding(True, f"{len(loose)} of {len(device)} measurements spread by more than {SPREAD:.0%}")
    for e in entries:
        if e["check"] is not None and not e["check"]["ok"] and e["kind"] != "known_answer":
            yield Finding(False, f"{named(e)}: its result was wrong, so its time is not used")


def is_steady(e: Json) -> bool:
    t = e["time_s"]
    return bool((t["p90"] - t["p10"]) <= SPREAD * t["median"])


def known_answer(entries: Sequence[Json]) -> Iterator[Finding]:
    asked = [e for e in entries if e["kind"] == "known_answer"]
    if not asked:
        yield Finding(True, "the question with the known answer was not answered")
    for e in asked:
        error, limit = (e["check"] or {}).get("error"), (e["check"] or {}).get("limit")
        if not e["check"] or not e["check"]["ok"] or error is None or limit is None or error > limit:
            yield Finding(True, "the known answer is wrong")


# --- against the data sheet -------------------------------------------------------------------------------------


def peak_of(e: Json, chip: Chip) -> float:
    """FLOP/s that nothing in this dtype can pass; of an unnamed dtype the chip's highest."""
    rates, dtype = chip.flops_per_s, str(e["key"].get("dtype", "")).lower()
    known = next((rate for name, rate in rates.items() if dtype == name or dtype.startswith(f"{name}_")), None)
    return known or max(rates.values(), default=float("inf"))


def too_fast(e: Json, chip: Chip) -> Iterator[Finding]:
    """More than the data sheet allows, by what it says that it computed and moved."""
    median_s, kind = e["time_s"]["median"], e["kind"]
    if e["flops"]:
        rate, most = e["flops"] / median_s, peak_of(e, chip)
        if rate > ABOVE * most:
            yield Finding(True, f"{named(e)}: {rate / 1e12:.4g} TFLOP/s, the data sheet allows {most / 1e12:.4g}")
    if e["bytes"] and (most := most_bytes_per_s(e, chip)):
        rate = e["bytes"] / median_s
        if rate > ABOVE * most:
            yield Finding(True, f"{named(e)}: {rate / 1e9:.4g} GB/s, at most {most / 1e9:.4g} are possible")
    if kind in MEMORY_KINDS and isinstance(e["key"].get("bytes"), int | float):
        if e["key"]["bytes"] > chip.memory_bytes:
            yield Finding(True, f"{named(e)}: larger than the memory of the chip")


def most_bytes_per_s(e: Json, chip: Chip) -> float:
    """The bound on bytes/time; what fits the caches may be read from them. 0: none is known."""
    if e["kind"] == "host_copy":
        return chip.host_bytes_per_s
    if e["kind"] in COLLECTIVES:  # bytes that cross one chip's link; switches that add up themselves save some
        return chip.link_bytes_per_s * 2
    cached = e["kind"] == "l2_read" or e["bytes"] < 4 * chip.cache_bytes
    return chip.memory_bytes_per_s * (CACHE_TIMES if cached else 1.0)


def too_slow(entries: Sequence[Json], chip: Chip) -> Iterator[Finding]:
    """The best of a kind under one per cent of the data sheet: another chip, or not the kernel that it names."""
    for name, (rate, _) in best(e for e in entries if e["path"] == "native").items():
        kind, _, dtype = name.partition(" ")
        of = chip.memory_bytes_per_s if kind in MEMORY_KINDS else chip.flops_per_s.get(dtype)
        if kind in ("memory_read", "memory_copy", "gemm") and of and rate < BELOW * of:
            yield Finding(True, f"the best {name} reaches {rate / of:.2%} of the data sheet")


def best(entries: Iterable[Json]) -> dict[str, tuple[float, Json]]:
    """The headline figures: {`gemm bf16`, `memory_read`, ...: (highest rate in FLOP/s or B/s, its entry)}."""
    found: dict[str, tuple[float, Json]] = {}
    for e in entries:
        amount = e["bytes"] if e["kind"] in MEMORY_KINDS else e["flops"]
        if not amount or e["kind"] not in (*MEMORY_KINDS, "gemm", "grouped_gemm", "attention_prefill"):
            continue
        dtype = str(e["key"].get("dtype", ""))
        name = e["kind"] if e["kind"] in MEMORY_KINDS else f"{e['kind']} {dtype}".strip()
        rate = amount / e["time_s"]["median"]
        if name not in found or rate > found[name][0]:
            found[name] = (rate, e)
    return found


def precision_order(entries: Sequence[Json]) -> Iterator[Finding]:
    """A narrower dtype at less than half the rate of a wider one, for the same shape: worth a look, not a proof."""
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
    for (narrow, wide), found in slower.items():
        text = f"{narrow} is up to {max(found):.1f} times slower than {wide} in {len(found)} matrix multiplies"
        yield Finding(False, text)


def outliers(entries: Sequence[Json], peers: Peers) -> Iterator[Finding]:
    """Headline figures away from those of other machines with this chip.

    From three machines on by more than three deviations (MAD) within the same suite. With fewer, or in a suite that
    no other machine ran, by a wide tolerance from those that are confirmed.
    """
    for name, (rate, _) in best(e for e in entries if e["path"] == "native").items():
        others = peers.same_suite.get(name, ())
        if len(others) >= PEERS:
            middle = statistics.median(others)
            mad = statistics.median(abs(x - middle) for x in others)
            allowed = 3 * max(MAD_TO_SIGMA * mad, FLOOR * middle)
        elif others := peers.confirmed.get(name, ()):
            middle = statistics.median(others)
            allowed = FEW_PEERS * middle
        else:
            continue
        if abs(rate - middle) > allowed:
            many = (
                f"{len(others)} other machine{'s' * (len(others) > 1)} with this chip reach{'es' * (len(others) == 1)}"
            )
            yield Finding(True, f"{name}: {rate / middle:.2f} times what {many}")
