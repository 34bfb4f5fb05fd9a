"""The published scorecard: filters and summarizes scored rows, and compares them with the targets."""

import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.fidelity.scores.statistics import Point, summary
from catalog.models import MeasuredFigure, Scorecard, ScoredRow

Json = dict[str, Any]
DEPLOYMENTS = ("tensorrt-llm", "vllm", "sglang")
WORST = 20
TRAINING = "training"  # phase of training rows
FILTERS: Mapping[str, str] = {  # query parameter -> column of a row
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
GROUPINGS: Mapping[str, str] = {  # grouping -> title of its table
    "metric": "Metric",
    "accelerator": "Chip",
    "framework": "Framework",
    "model": "Model",
    "source": "Source",
    "basis": "Evidence for the chip's efficiency",
}
KINDS: Mapping[str, str] = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "prefill": "prefill", "e2e": "latency"}
SORTS = ("n", "median_ape", "group_median_ape", "p90_ape", "bias", "coverage_90")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A scored row with its point for the statistics."""

    row: MeasuredFigure
    point: Point


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The loaded scorecard."""

    head: Scorecard
    lines: tuple[Line, ...]
    training: tuple[Line, ...] = ()  # judged apart: docs/reference/fidelity.md has their tables

    def listed(self, keys: Sequence[str]) -> tuple[Line, ...]:
        """The lines to choose from: those of training only where their keys are given."""
        return (*self.lines, *self.training) if keys else self.lines


def card() -> Card | None:
    """The loaded scorecard; None if none was loaded."""
    head = Scorecard.objects.only("digest").order_by("-pk").first()
    return None if head is None else _card(head.pk, head.digest)


@functools.lru_cache(maxsize=1)
def _card(pk: int, digest: str) -> Card:
    """Cached until another one is loaded, because reading 9,000 rows is slow."""
    every = [line_of(row) for row in ScoredRow.objects.order_by("pk")]
    return Card(
        head=Scorecard.objects.get(pk=pk),
        lines=tuple(line for line in every if line.row.phase != TRAINING),
        training=tuple(line for line in every if line.row.phase == TRAINING),
    )


def line_of(row: MeasuredFigure) -> Line:
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


def ape_of(row: MeasuredFigure) -> float:
    """|predicted - measured| / measured; 1 for a run that was predicted not to fit."""
    if row.metric == "fits_in_memory":
        return abs((row.predicted or 0.0) - (row.measured or 0.0))
    return 1.0 if row.bias_fraction is None else abs(row.bias_fraction)


# --- filters ----------------------------------------------------------------------------------------------------


def filtered(lines: Iterable[Line], filters: Mapping[str, str], keys: Sequence[str] = ()) -> list[Line]:
    """The rows that match all filters (also `disputed`: only or without); `keys`: only these rows, in this order."""
    expected = {FILTERS[name]: value for name, value in filters.items() if name in FILTERS and value}
    selected = [line for line in lines if all(getattr(line.row, name) == value for name, value in expected.items())]
    if filters.get("disputed"):
        only = filters["disputed"] == "only"
        selected = [line for line in selected if (line.row.circumstance == "disputed") is only]
    if keys:
        position = {key: number for number, key in enumerate(keys)}
        selected = sorted(
            (line for line in selected if line.row.key in position), key=lambda line: position[line.row.key]
        )
    return selected


def filter_choices(lines: Iterable[Line]) -> dict[str, list[str]]:
    """The values of each filter."""
    values: dict[str, set[str]] = {name: set() for name in FILTERS}
    for line in lines:
        for name, column in FILTERS.items():
            values[name].add(getattr(line.row, column))
    return {name: sorted(options - {""}) for name, options in values.items()}


# --- summaries --------------------------------------------------------------------------------------------------


def figures(lines: Sequence[Line]) -> Json:
    return summary([line.point for line in lines])


def groups(lines: Iterable[Line], by: str) -> list[Json]:
    """One summary for each value of a filter's column, largest group first."""
    column = FILTERS[by]
    members: dict[str, list[Line]] = {}
    for line in lines:
        members.setdefault(getattr(line.row, column), []).append(line)
    summaries = [{"name": name, **figures(group)} for name, group in members.items()]
    return sorted(summaries, key=lambda group: (-group["n"], group["name"]))


def sorted_groups(groups: Sequence[Json], sort: str) -> list[Json]:
    """Sorted by a figure or by name ('-' before it: descending), missing figures last; unknown keys change nothing."""
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    if name == "name":
        return sorted(groups, key=lambda group: group["name"].lower(), reverse=descending)
    if name not in SORTS:
        return list(groups)
    known = sorted(
        (group for group in groups if group[name] is not None), key=lambda group: group[name], reverse=descending
    )
    return known + [group for group in groups if group[name] is None]


def worst(lines: Iterable[Line], limit: int = WORST) -> list[Line]:
    return sorted(lines, key=lambda line: -(line.point.ape or 0.0))[:limit]


def coverage(lines: Iterable[Line]) -> list[Json]:
    """The share of measured figures inside the 90 % interval, by basis and metric kind."""
    members: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.point.inside is not None:
            members.setdefault((line.row.basis, kind_of(line.row)), []).append(line)
    return [
        {
            "basis": basis,
            "figure": kind,
            "n": len(group),
            "groups": len({line.point.group for line in group}),
            "coverage_90": sum(bool(line.point.inside) for line in group) / len(group),
            "half_width": statistics.median(half_width(line.row) for line in group if line.row.predicted)
            if any(line.row.predicted for line in group)
            else None,
        }
        for (basis, kind), group in sorted(members.items())
    ]


def half_width(row: MeasuredFigure) -> float:
    """Half the interval as a fraction of the prediction."""
    return ((row.high or 0.0) - (row.low or 0.0)) / 2 / (row.predicted or 1.0)


def kind_of(row: MeasuredFigure) -> str:
    """ttft, tpot, throughput, ...: metrics of one kind share a unit and a chart."""
    for begin, kind in KINDS.items():
        if row.metric.startswith(begin):
            return kind
    if "tokens_per_s" in row.metric:
        return "throughput"
    return "kernel" if row.phase == "kernel" else "memory"


# --- targets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """An accuracy target: the limit of a figure over some rows."""

    name: str
    rows: str  # description
    limit: float
    selects: Callable[[MeasuredFigure], bool]
    figure: str = "group_median_ape"
    validated: str = ""  # metric kind whose worst held-out error must meet the limit too
    held_out: tuple[str, str] | None = None  # (unit held out, metric kind): only this error counts
    at_least: bool = False


def closed_loop(row: MeasuredFigure) -> bool:
    """Whether the row is a deployment under a closed loop with a known client, and not disputed."""
    known = row.client_known and row.client != "poisson" and row.circumstance != "disputed"
    return known and row.framework in DEPLOYMENTS and row.phase == "serving"


def is_mean(row: MeasuredFigure, kind: str) -> bool:
    return row.metric in (f"{kind}_ms_mean", f"{kind}_ms_p50")


def undisputed(row: MeasuredFigure, *phases: str) -> bool:
    return row.circumstance != "disputed" and (not phases or row.phase in phases)


def offline(row: MeasuredFigure) -> bool:
    """Whether the row is a throughput without an offered rate in the headline: no MLPerf, and its layout is stated."""
    apart = row.source_key.startswith("mlperf_") or row.circumstance == "layout"
    return undisputed(row, "offline") and kind_of(row) == "throughput" and not apart


def static(row: MeasuredFigure) -> bool:
    batch_of_one = row.metric == "ttft_ms"
    return batch_of_one or undisputed(row, "static") and kind_of(row) in ("ttft", "tpot", "latency")


TARGETS = (
    Target(
        name="TPOT of deployments",
        rows="TensorRT-LLM, vLLM and SGLang, closed loop, known load generator",
        limit=0.07,
        selects=lambda row: closed_loop(row) and is_mean(row, "tpot"),
        validated="tpot",
    ),
    Target(
        name="TPOT of deployments, 90th percentile",
        rows="the same deployments, over rows",
        limit=0.25,
        selects=lambda row: closed_loop(row) and is_mean(row, "tpot"),
        figure="p90_ape",
    ),
    Target(
        name="TTFT of deployments",
        rows="the same deployments",
        limit=0.16,
        selects=lambda row: closed_loop(row) and is_mean(row, "ttft"),
        validated="ttft",
    ),
    Target(
        name="Offline throughput",
        rows="all requests sent at once, tokens/s, stated layout, without MLPerf",
        limit=0.13,
        selects=offline,
        validated="throughput",
    ),
    Target(name="Latency of a static batch", rows="TTFT, TPOT and whole batches", limit=0.10, selects=static),
    Target(
        name="TPOT, vLLM on the H200",
        rows="measured for this project; kernel times from the probe suite only, host time of this version",
        limit=0.025,
        selects=lambda row: row.source_key == "h200_vllm" and row.metric == "tpot_ms_mean" and row.chips == 1,
        figure="median_ape",
        validated="vllm_tpot",
    ),
    Target(
        name="TTFT, vLLM on the H200",
        rows="measured for this project",
        limit=0.06,
        selects=lambda row: row.source_key == "h200_vllm" and row.metric == "ttft_ms_mean" and row.chips == 1,
        figure="median_ape",
        validated="vllm_ttft",
    ),
    Target(
        name="TPOT, vLLM on two and four H200s",
        rows="measured for this project; all-reduce and host time of several ranks fitted to these rows",
        limit=0.06,
        selects=lambda row: row.source_key == "h200_vllm" and row.metric == "tpot_ms_mean" and row.chips > 1,
        figure="median_ape",
    ),
    Target(
        name="TTFT, vLLM on two and four H200s",
        rows="the same deployments and single prompts",
        limit=0.12,
        selects=lambda row: row.source_key == "h200_vllm" and row.metric == "ttft_ms_mean" and row.chips > 1,
        figure="median_ape",
    ),
    Target(
        name="Prefill, vLLM on the H200",
        rows="one prompt at a time; kernel times from the probe suite only, host time of this version",
        limit=0.05,
        selects=lambda row: row.source_key == "h200_vllm_prefill" and row.metric.startswith("ttft") and row.chips == 1,
        figure="median_ape",
        validated="vllm_prefill",
    ),
    Target(
        name="TPOT, chip held out",
        rows="means of known load generators",
        limit=0.15,
        selects=lambda row: False,
        held_out=("one accelerator", "tpot"),
    ),
    Target(
        name="Throughput, chip held out",
        rows="tokens/s",
        limit=0.15,
        selects=lambda row: False,
        held_out=("one accelerator", "throughput"),
    ),
    Target(
        name="Throughput, family held out",
        rows="tokens/s",
        limit=0.25,
        selects=lambda row: False,
        held_out=("one family", "throughput"),
    ),
    Target(
        name="Wrong out-of-memory predictions",
        rows="llama.cpp runs; at most 3 of 86 may be wrong",
        limit=3 / 86,
        selects=lambda row: row.metric == "fits_in_memory",
        figure="mean_ape",
    ),
    Target(
        name="Runs predicted to fit",
        rows="non-disaggregated runs at their concurrency",
        limit=0.99,
        selects=lambda row: row.mode == "agg" and undisputed(row) and row.metric != "fits_in_memory",
        figure="fitting",
        at_least=True,
    ),
    Target(
        name="Chip pairs ranked correctly",
        rows="measured on the same case, differing by more than 10 %",
        limit=0.93,
        selects=undisputed,
        figure="pairs_ordered",
        at_least=True,
    ),
)


def against_targets(card: Card) -> list[Json]:
    """The result of each target over all rows; filters do not apply."""
    return _against_targets(card.head.pk, card.head.digest)


@functools.lru_cache(maxsize=1)
def _against_targets(pk: int, digest: str) -> list[Json]:
    loaded = _card(pk, digest)
    return [target_result(target, loaded) for target in TARGETS]


def target_result(target: Target, card: Card) -> Json:
    """What a target reached. It is met only if the held-out error is within the limit too."""
    lines = [line for line in card.lines if target.selects(line.row)]
    errors = card.head.left_out.get("held out") or {}
    unseen = [of_unit.get(target.validated) for unit, of_unit in errors.items() if not unit.startswith("none")]
    validated = max((error for error in unseen if error is not None), default=None)
    reached = figure(target.figure, lines)
    if target.held_out:
        reached = errors.get(target.held_out[0], {}).get(target.held_out[1])
    values = [value for value in (reached, validated) if value is not None]
    within = [value >= target.limit if target.at_least else value <= target.limit for value in values]
    return {
        "name": target.name,
        "rows": target.rows,
        "n": None if target.held_out else len(lines),
        "limit": target.limit,
        "at_least": target.at_least,
        "reached": reached,
        "validated": validated,
        "met": all(within) if within else None,
    }


def figure(name: str, lines: Sequence[Line]) -> float | None:
    """One figure over some rows; None without rows."""
    if not lines:
        return None
    if name == "mean_ape":
        return statistics.mean(line.point.ape or 0.0 for line in lines)
    if name == "fitting":
        return statistics.mean(float(line.row.circumstance != "misfit") for line in lines)
    value = figures(lines)[name]
    return None if value is None else float(value)


# --- one row ----------------------------------------------------------------------------------------------------


def row_json(line: Line) -> Json:
    """A row as in the exports, with figures in the unit that the metric's name ends in."""
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
