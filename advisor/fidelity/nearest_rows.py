"""Finds the measured runs that are most similar to an estimate, with their prediction errors."""

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q

from advisor.engine.network import active_parameters, from_hf_config, from_shape, parameters
from advisor.fidelity.scorecard import Card, Line, card, kind_of
from catalog.models import Accelerator, ServedModel

Json = dict[str, Any]
Sizes = tuple[float | None, float | None]
NEAREST = 5  # measured runs shown
NEAR = 3.0  # e.g. the same chip and model with both lengths and the users four times as large
HEADLINES = ("ttft", "tpot", "throughput", "latency", "prefill")  # metric kinds shown for a run
PHASES = ("serving", "offline", "static", "prefill", "decode")

# What each difference adds to the distance. A factor of two in a length or in the users adds DOUBLING.
DOUBLING = 0.5
OTHER_FAMILY = 4.0
OTHER_CHIP = 1.5  # of the same family
OTHER_MODEL = 0.5  # plus SIZE for each factor of two in total and in active parameters
SIZE = 0.75
OTHER_FRAMEWORK = 1.0
OTHER_VERSION = 0.25  # also if a version is not stated
OTHER_FORMAT = 0.25  # plus WIDTH for each factor of two in bits
WIDTH = 0.75
OTHER_MODE = 1.5  # disaggregated against aggregated
OTHER_PHASE = 0.5  # e.g. a static batch against serving
UNKNOWN_LAYOUT = 0.5
ONE_PART = 1.0  # only prefill or only decode was measured
RUN = (  # fields that the figures of one run share
    *("distance", "source", "accelerator", "accelerator_count", "model", "framework", "framework_version"),
    *("weights_dtype", "layout", "isl", "osl", "concurrency"),
)
BITS = re.compile(r"(?:q|fp|int|bf|uint|mxfp|nvfp)-?(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """The properties of a run that `distance` compares; None or empty: not stated."""

    accelerator: str
    family: str
    model: str
    parameters: float | None
    active_parameters: float | None
    framework: str
    framework_version: str
    weights: str
    mode: str
    phase: str
    replica_chips: int | None
    isl: float
    osl: float
    concurrency_per_replica: float | None


def distance(asked: Situation, measured: Situation) -> float:
    """How different two runs are: the sum of the constants above for each difference. Symmetric; 0 for equal runs."""
    return (
        chips_apart(asked, measured)
        + models_apart(asked, measured)
        + frameworks_apart(asked, measured)
        + formats_apart(asked.weights, measured.weights)
        + OTHER_MODE * (asked.mode != measured.mode)
        + OTHER_PHASE * (asked.phase != measured.phase)
        + doublings(asked.replica_chips, measured.replica_chips, UNKNOWN_LAYOUT)
        + lengths_apart(asked.isl, measured.isl)
        + lengths_apart(asked.osl, measured.osl)
        + doublings(asked.concurrency_per_replica, measured.concurrency_per_replica, UNKNOWN_LAYOUT)
    )


def chips_apart(a: Situation, b: Situation) -> float:
    if a.accelerator == b.accelerator:
        return 0.0
    return OTHER_CHIP if a.family == b.family and a.family else OTHER_FAMILY


def models_apart(a: Situation, b: Situation) -> float:
    if a.model == b.model:
        return 0.0
    sizes = ((a.parameters, b.parameters), (a.active_parameters, b.active_parameters))
    return OTHER_MODEL + sum(doublings(x, y, 2.0) for x, y in sizes) * SIZE / DOUBLING


def frameworks_apart(a: Situation, b: Situation) -> float:
    if a.framework != b.framework:
        return OTHER_FRAMEWORK
    return 0.0 if a.framework_version == b.framework_version and a.framework_version else OTHER_VERSION


def formats_apart(a: str, b: str) -> float:
    if a == b:
        return 0.0
    return OTHER_FORMAT + abs(math.log2(bits(a) / bits(b))) * WIDTH


def bits(weights: str) -> int:
    """Bits per weight, from the format's name; 16 if the name has none."""
    match = BITS.search(weights)
    return int(match[1]) if match and 0 < int(match[1]) <= 32 else 16


def lengths_apart(a: float, b: float) -> float:
    """Like `doublings`, but a run with only prefill or only decode differs by ONE_PART."""
    if min(a, b) <= 1 < max(a, b):
        return ONE_PART
    return doublings(a, b)


def doublings(a: float | None, b: float | None, unknown: float = DOUBLING) -> float:
    """DOUBLING for each factor of two between a and b; values below 1 count as 1."""
    if a is None or b is None:
        return 0.0 if a is b else unknown
    return abs(math.log2(max(a, 1.0) / max(b, 1.0))) * DOUBLING


# --- over the scorecard -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Figures of one measured run."""

    situation: Situation
    lines: tuple[Line, ...]


def nearest(asked: Situation, runs: Iterable[Run], limit: int = NEAREST) -> list[tuple[float, Run]]:
    """(distance, run) of the most similar runs, nearest first."""
    ranked = sorted(((distance(asked, run.situation), i, run) for i, run in enumerate(runs)), key=lambda item: item[:2])
    return [(apart, run) for apart, _, run in ranked[:limit]]


def runs_of(scored: Card) -> tuple[Run, ...]:
    """The scored rows as runs, without disputed rows, kernels and memory predictions."""
    return _runs(scored.head.digest)


@functools.lru_cache(maxsize=1)
def _runs(digest: str) -> tuple[Run, ...]:
    scored = card()
    lines = scored.lines if scored and scored.head.digest == digest else ()
    sizes = {row.hf_id: sizes_of(row.shape) for row in ServedModel.objects.all()}
    members: dict[tuple[Situation, str], list[Line]] = {}
    for line in lines:
        if line.row.phase in PHASES and line.row.circumstance != "disputed" and kind_of(line.row) in HEADLINES:
            members.setdefault((situation_of(line, sizes), line.row.source_key), []).append(line)
    return tuple(Run(situation=key[0], lines=tuple(run_lines)) for key, run_lines in members.items())


def sizes_of(shape: Mapping[str, Any]) -> Sizes:
    """(total, active) parameters of a catalog model; (None, None) if its layers are unknown."""
    if not shape.get("blocks"):
        return None, None
    model = from_shape("", dict(shape))
    return parameters(model), active_parameters(model)


def sizes_named(model: str | Mapping[str, Any]) -> Sizes:
    """(total, active) parameters of a workload's model: an ID or slug, or {config: contents of config.json}."""
    if isinstance(model, str):
        row = ServedModel.objects.filter(Q(hf_id=model) | Q(slug=model)).first()
        return sizes_of(row.shape) if row else (None, None)
    config = model.get("config")
    if not isinstance(config, dict):
        return None, None
    parsed = from_hf_config(config, "own-model")
    return parameters(parsed), active_parameters(parsed)


def situation_of(line: Line, sizes: Mapping[str, Sizes]) -> Situation:
    row = line.row
    whole, active = sizes.get(row.model, (None, None))
    replicas = row.chips / row.replica_chips if row.replica_chips else None
    return Situation(
        accelerator=row.accelerator,
        family=row.family,
        model=row.model,
        parameters=whole,
        active_parameters=active,
        framework=row.framework,
        framework_version=row.framework_version,
        weights=row.weights_dtype,
        mode=row.mode,
        phase=row.phase,
        replica_chips=row.replica_chips,
        isl=row.isl,
        osl=row.osl,
        concurrency_per_replica=row.concurrency / replicas if row.concurrency and replicas else None,
    )


def asked_for(deployment: Mapping[str, Any], model: str, sizes: Sizes, isl: float, osl: float) -> Situation:
    """The situation of an estimate or of an option of an answer (`deployment`)."""
    chip = Accelerator.objects.filter(slug=deployment["accelerator"]).only("family").first()
    return Situation(
        accelerator=deployment["accelerator"],
        family=chip.family.replace(" ", "-") if chip else "",
        model=model,
        parameters=sizes[0],
        active_parameters=sizes[1],
        framework=deployment["framework"],
        framework_version=deployment["framework_version"],
        weights=deployment["quantization"]
        if deployment["quantization"].startswith("mxfp")
        else deployment["weights_dtype"],
        mode="disagg" if deployment.get("disaggregated") else "agg",
        phase="static" if deployment.get("client") == "static" else "serving",
        replica_chips=deployment["tp"] * deployment["pp"] * deployment["dp"],
        isl=isl,
        osl=osl,
        concurrency_per_replica=deployment["concurrency"],
    )


def of_option(option: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Json]:
    """The evidence for one option of a finished answer."""
    lengths = [mean_tokens(spec["traffic"][name]) for name in ("input_tokens", "output_tokens")]
    if None in lengths or not isinstance(spec["model"], str | Mapping):
        return []
    name = spec["model"] if isinstance(spec["model"], str) else "own-model"
    row = ServedModel.objects.filter(slug=name).only("hf_id").first()
    isl, osl = (each or 0.0 for each in lengths)
    return evidence(asked_for(option, row.hf_id if row else name, sizes_named(spec["model"]), isl, osl))


def mean_tokens(given: Any) -> float | None:
    """The mean of a workload's token length; None if only a trace file states it."""
    mean = given.get("mean") if isinstance(given, Mapping) else given
    return float(mean) if isinstance(mean, int | float) else None


def evidence(asked: Situation) -> list[Json]:
    """The main figures of the most similar measured runs, as in the JSON of `estimate`."""
    scored = card()
    if scored is None:
        return []
    near = nearest(asked, runs_of(scored))
    items = [(apart, line) for apart, run in near for line in headlines(run.lines)]
    return [item_json(apart, line, scored) for apart, line in items]


def headlines(lines: Sequence[Line]) -> list[Line]:
    """One line of each metric kind, preferably the mean, else the median."""
    chosen: dict[str, Line] = {}
    for line in sorted(lines, key=lambda line: line.row.metric):
        if not line.row.metric.endswith(("p95", "p99")):
            chosen.setdefault(kind_of(line.row), line)
    return [chosen[kind] for kind in HEADLINES if kind in chosen]


def item_json(apart: float, line: Line, scored: Card) -> Json:
    row = line.row
    return {
        "id": row.key,
        "accelerator": row.accelerator,
        "accelerator_count": row.chips,
        "model": row.model,
        "framework": row.framework,
        "framework_version": row.framework_version,
        "weights_dtype": row.weights_dtype,
        "layout": row.layout,
        "isl": row.isl,
        "osl": row.osl,
        "concurrency": row.concurrency,
        "distance": round(apart, 2),
        "near": apart <= NEAR,
        "metric": row.metric,
        "measured": row.measured,
        "predicted": row.predicted,
        "error_fraction": line.point.ape,
        "source": (scored.head.sources.get(row.source_key) or {}).get("name", row.source_key),
        "url": address([row.key]),
    }


def address(ids: Iterable[str]) -> str:
    """The URL of the scorecard page with these rows."""
    return f"/fidelity?{urlencode({'id': ','.join(ids)})}"


def shown(items: Sequence[Mapping[str, Any]]) -> Json:
    """The evidence grouped by run for a page, with links, and whether no run is near."""
    runs: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for item in items:
        runs.setdefault(tuple(item[name] for name in RUN), []).append(item)
    return {
        "runs": [
            {"run": figures[0], "figures": figures, "url": address(item["id"] for item in figures)}
            for figures in runs.values()
        ],
        "none_near": bool(items) and not any(item["near"] for item in items),
        "url": address(item["id"] for item in items) if items else "",
    }
