"""The published scorecard: scored rows of the catalog, narrowed, summed up, and held against what was aimed at."""

import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.fidelity.statistics import Point, summary
from catalog.models import Scorecard, ScoredRow

Json = dict[str, Any]
DEPLOYMENTS = ("tensorrt-llm", "vllm", "sglang")
WORST = 20
FILTERS: Mapping[str, str] = {  # name in the address -> column of a row
    "metric": "metric",
    "accelerator": "accelerator",
    "family": "family",
    "model": "model",
    "framework": "framework",
    "version": "framework_version",
    "phase": "phase",
    "basis": "basis",
    "source": "source_key",
}
GROUPINGS: Mapping[str, str] = {  # what the tables are by -> title
    "metric": "Metric",
    "accelerator": "Chip",
    "framework": "Framework",
    "model": "Model",
    "source": "Source",
    "basis": "What the chip's efficiency rests on",
}
KINDS: Mapping[str, str] = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "prefill": "prefill", "e2e": "latency"}
SORTS = ("n", "median_ape", "group_median_ape", "p90_ape", "bias", "coverage_90")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row of the catalog with what statistics make of it."""

    row: ScoredRow
    point: Point


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The whole scorecard, as it was loaded."""

    head: Scorecard
    lines: tuple[Line, ...]


def card() -> Card | None:
    """The loaded scorecard; None: none was loaded."""
    head = Scorecard.objects.only("digest").order_by("-pk").first()
    return None if head is None else _card(head.pk, head.digest)


@functools.lru_cache(maxsize=1)
def _card(pk: int, digest: str) -> Card:
    """Kept until another one is loaded: reading 9,000 rows takes longer than summing them up."""
    return Card(head=Scorecard.objects.get(pk=pk), lines=tuple(map(line_of, ScoredRow.objects.order_by("pk"))))


def line_of(row: ScoredRow) -> Line:
    ratio = None if row.bias_fraction is None or row.metric == "fits_in_memory" else row.bias_fraction + 1.0
    return Line(
        row=row,
        point=Point(
            ape=ape_of(row),
            ratio=ratio,
            inside=row.inside,
            group=(row.accelerator, row.model, row.source_key),
            chip=row.accelerator,
            pair=row.pair_index,
            measured=row.measured if row.measured is not None else float("nan"),
            predicted=row.predicted,
        ),
    )


def ape_of(row: ScoredRow) -> float:
    """|predicted - measured| / measured; a run that is said not to fit is wholly wrong (1)."""
    if row.metric == "fits_in_memory":
        return abs((row.predicted or 0.0) - (row.measured or 0.0))
    return 1.0 if row.bias_fraction is None else abs(row.bias_fraction)


# --- narrowing --------------------------------------------------------------------------------------------------


def narrowed(lines: Iterable[Line], asked: Mapping[str, str], keys: Sequence[str] = ()) -> list[Line]:
    """The rows that fit everything asked; `keys`: only these rows, in their order; `disputed`: only or without."""
    wanted = {FILTERS[name]: value for name, value in asked.items() if name in FILTERS and value}
    found = [line for line in lines if all(getattr(line.row, name) == value for name, value in wanted.items())]
    if asked.get("disputed"):
        only = asked["disputed"] == "only"
        found = [line for line in found if (line.row.circumstance == "disputed") is only]
    if keys:
        place = {key: number for number, key in enumerate(keys)}
        found = sorted((line for line in found if line.row.key in place), key=lambda line: place[line.row.key])
    return found


def choices(lines: Iterable[Line]) -> dict[str, list[str]]:
    """What each filter can be set to."""
    values: dict[str, set[str]] = {name: set() for name in FILTERS}
    for line in lines:
        for name, column in FILTERS.items():
            values[name].add(getattr(line.row, column))
    return {name: sorted(found - {""}) for name, found in values.items()}


# --- summing up -------------------------------------------------------------------------------------------------


def figures(lines: Sequence[Line]) -> Json:
    return summary([line.point for line in lines])


def groups(lines: Iterable[Line], by: str) -> list[Json]:
    """One summary for each value of a filter's column, largest first."""
    column = FILTERS[by]
    members: dict[str, list[Line]] = {}
    for line in lines:
        members.setdefault(getattr(line.row, column), []).append(line)
    found = [{"name": name, **figures(own)} for name, own in members.items()]
    return sorted(found, key=lambda group: (-group["n"], group["name"]))


def ordered(found: Sequence[Json], sort: str) -> list[Json]:
    """By a figure or the name, '-' before it for downwards; what has no figure comes last; else as they are."""
    name, down = sort.removeprefix("-"), sort.startswith("-")
    if name == "name":
        return sorted(found, key=lambda group: group["name"].lower(), reverse=down)
    if name not in SORTS:
        return list(found)
    there = sorted((group for group in found if group[name] is not None), key=lambda group: group[name], reverse=down)
    return there + [group for group in found if group[name] is None]


def worst(lines: Iterable[Line], most: int = WORST) -> list[Line]:
    return sorted(lines, key=lambda line: -(line.point.ape or 0.0))[:most]


def coverage(lines: Iterable[Line]) -> list[Json]:
    """How often the stated 90 % interval holds the measured figure, by what it rests on and the kind of figure."""
    members: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.point.inside is not None:
            members.setdefault((line.row.basis, kind_of(line.row)), []).append(line)
    return [
        {
            "basis": basis,
            "figure": kind,
            "n": len(own),
            "groups": len({line.point.group for line in own}),
            "coverage_90": sum(bool(line.point.inside) for line in own) / len(own),
            "half_width": statistics.median(half_width(line.row) for line in own if line.row.predicted)
            if any(line.row.predicted for line in own)
            else None,
        }
        for (basis, kind), own in sorted(members.items())
    ]


def half_width(row: ScoredRow) -> float:
    """Half the interval as a fraction of the prediction."""
    return ((row.high or 0.0) - (row.low or 0.0)) / 2 / (row.predicted or 1.0)


def kind_of(row: ScoredRow) -> str:
    """ttft, tpot, throughput, ...: metrics of one kind share their unit and their picture."""
    for begin, kind in KINDS.items():
        if row.metric.startswith(begin):
            return kind
    if "tokens_per_s" in row.metric:
        return "throughput"
    return "kernel" if row.phase == "kernel" else "memory"


# --- what was aimed at ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One aim of the project: the most (or least) that a figure may be, over which rows, and how it is formed."""

    name: str
    rows: str  # in words
    limit: float
    wanted: Callable[[ScoredRow], bool]
    figure: str = "group_median_ape"
    validated: str = ""  # kind of figure whose error with any one kind of group left out counts too
    left_out: tuple[str, str] | None = None  # (what the fit did not see, kind): only that error
    at_least: bool = False


def closed_loop(row: ScoredRow) -> bool:
    """Deployments under a closed loop whose client is known, without disputed rows."""
    known = row.client_known and row.client != "poisson" and row.circumstance != "disputed"
    return known and row.framework in DEPLOYMENTS and row.phase == "serving"


def is_mean(row: ScoredRow, kind: str) -> bool:
    return row.metric in (f"{kind}_ms_mean", f"{kind}_ms_p50")


def undisputed(row: ScoredRow, *phases: str) -> bool:
    return row.circumstance != "disputed" and (not phases or row.phase in phases)


def offline(row: ScoredRow) -> bool:
    return undisputed(row, "offline") and kind_of(row) == "throughput"


def static(row: ScoredRow) -> bool:
    alone = row.metric == "ttft_ms"  # the first token of a batch of one
    return alone or undisputed(row, "static") and kind_of(row) in ("ttft", "tpot", "latency")


TARGETS = (
    Target(
        name="TPOT of deployments",
        rows="TensorRT-LLM, vLLM and SGLang under a closed loop, client known",
        limit=0.08,
        wanted=lambda row: closed_loop(row) and is_mean(row, "tpot"),
        validated="tpot",
    ),
    Target(
        name="TTFT of deployments",
        rows="the same deployments",
        limit=0.15,
        wanted=lambda row: closed_loop(row) and is_mean(row, "ttft"),
        validated="ttft",
    ),
    Target(
        name="Offline throughput",
        rows="everything at once, tokens/s",
        limit=0.10,
        wanted=offline,
        validated="throughput",
    ),
    Target(name="Latency of a static batch", rows="TTFT, TPOT and whole batches", limit=0.12, wanted=static),
    Target(
        name="TPOT, vLLM on the H200",
        rows="measured for this project; kernels by the probe suite alone, host time of that version",
        limit=0.05,
        wanted=lambda row: row.source_key == "h200_vllm" and row.metric == "tpot_ms_mean",
        figure="median_ape",
        validated="vllm_tpot",
    ),
    Target(
        name="TTFT, vLLM on the H200",
        rows="measured for this project",
        limit=0.12,
        wanted=lambda row: row.source_key == "h200_vllm" and row.metric == "ttft_ms_mean",
        figure="median_ape",
        validated="vllm_ttft",
    ),
    Target(
        name="Prefill, vLLM on the H200",
        rows="one prompt alone; kernels by the probe suite alone, host time of that version",
        limit=0.05,
        wanted=lambda row: row.source_key == "h200_vllm_prefill" and row.metric.startswith("ttft"),
        figure="median_ape",
        validated="vllm_prefill",
    ),
    Target(
        name="TPOT, chip left out of the fit",
        rows="means of known clients",
        limit=0.15,
        wanted=lambda row: False,
        left_out=("one accelerator", "tpot"),
    ),
    Target(
        name="Throughput, chip left out of the fit",
        rows="tokens/s",
        limit=0.15,
        wanted=lambda row: False,
        left_out=("one accelerator", "throughput"),
    ),
    Target(
        name="Throughput, family left out of the fit",
        rows="tokens/s",
        limit=0.25,
        wanted=lambda row: False,
        left_out=("one family", "throughput"),
    ),
    Target(
        name="Wrong memory flags",
        rows="whether llama.cpp ran or was out of memory: 3 of 86 may be wrong",
        limit=3 / 86,
        wanted=lambda row: row.metric == "fits_in_memory",
        figure="mean_ape",
    ),
    Target(
        name="Ran and is judged to fit",
        rows="aggregated runs, at their concurrency",
        limit=0.99,
        wanted=lambda row: row.mode == "agg" and undisputed(row) and row.metric != "fits_in_memory",
        figure="fitting",
        at_least=True,
    ),
    Target(
        name="Pairs of chips ordered right",
        rows="measured on the same case, more than 10 % apart",
        limit=0.95,
        wanted=undisputed,
        figure="pairs_ordered",
        at_least=True,
    ),
)


def against_targets(found: Card) -> list[Json]:
    """Each target with what was reached over all rows, whatever the filters."""
    return _against_targets(found.head.pk, found.head.digest)


@functools.lru_cache(maxsize=1)
def _against_targets(pk: int, digest: str) -> list[Json]:
    found = _card(pk, digest)
    return [held(target, found) for target in TARGETS]


def held(target: Target, found: Card) -> Json:
    """Met only where the error of fits that did not see the rows' group is within the limit too."""
    own = [line for line in found.lines if target.wanted(line.row)]
    errors = found.head.left_out.get("left out") or {}
    unseen = [of_unit.get(target.validated) for unit, of_unit in errors.items() if not unit.startswith("nothing")]
    validated = max((error for error in unseen if error is not None), default=None)
    reached = figure(target.figure, own)
    if target.left_out:
        reached = errors.get(target.left_out[0], {}).get(target.left_out[1])
    known = [error for error in (reached, validated) if error is not None]
    within = [error >= target.limit if target.at_least else error <= target.limit for error in known]
    return {
        "name": target.name,
        "rows": target.rows,
        "n": None if target.left_out else len(own),
        "limit": target.limit,
        "at_least": target.at_least,
        "reached": reached,
        "validated": validated,
        "met": all(within) if within else None,
    }


def figure(name: str, own: Sequence[Line]) -> float | None:
    """One number over some rows; None of none."""
    if not own:
        return None
    if name == "mean_ape":
        return statistics.mean(line.point.ape or 0.0 for line in own)
    if name == "fitting":
        return statistics.mean(float(line.row.circumstance != "misfit") for line in own)
    value = figures(own)[name]
    return None if value is None else float(value)


# --- one row ----------------------------------------------------------------------------------------------------


def row_json(line: Line) -> Json:
    """A row as the exports give it; figures in the unit that the metric's name ends in."""
    row = line.row
    return {
        "id": row.key,
        "metric": row.metric,
        "measured": row.measured,
        "predicted": row.predicted,
        "low": row.low,
        "high": row.high,
        "ape": line.point.ape,
        "in_interval": row.inside,
        "accelerator": row.accelerator,
        "family": row.family,
        "chips": row.chips,
        "model": row.model,
        "framework": row.framework,
        "framework_version": row.framework_version,
        "weights_dtype": row.weights_dtype,
        "mode": row.mode,
        "layout": row.layout,
        "isl": row.isl,
        "osl": row.osl,
        "concurrency": row.concurrency,
        "client": row.client,
        "client_known": row.client_known,
        "phase": row.phase,
        "basis": row.basis,
        "measured_on": row.measured_on,
        "source_key": row.source_key,
        "circumstance": row.circumstance,
        "note": row.note,
    }
