"""Finds the measured runs that are most similar to an estimate, with their prediction errors."""

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Max, Q

from advisor.engine.network import active_parameters, from_shape, from_stored_config, parameters
from advisor.fidelity.scores.scorecard import Line, card, kind_of, line_of
from advisor.result import Estimate, MeasuredRow, Option
from catalog.models import Accelerator, EvidenceImport, EvidenceRow, Scorecard, ScoredRow, ServedModel

Json = dict[str, Any]
Sizes = tuple[float | None, float | None]
NEAREST = 5  # measured cases
NEAR = 3.0  # the same chip and model with both lengths and the users four times as large; farther is not near
HEADLINES = ("ttft", "tpot", "throughput", "latency", "prefill")  # kinds of figures that are shown of a case
PHASES = ("serving", "offline", "static", "prefill", "decode")

# What each difference adds. One doubling of a length or of the users counts DOUBLING.
DOUBLING = 0.5
OTHER_FAMILY = 4.0
OTHER_CHIP = 1.5  # of the same family
OTHER_MODEL = 0.5  # beside the doublings of all and of active parameters, each SIZE
SIZE = 0.75
OTHER_FRAMEWORK = 1.0
OTHER_VERSION = 0.25  # also where one of the two is not stated
OTHER_FORMAT = 0.25  # of the same width; otherwise WIDTH for each doubling
WIDTH = 0.75
OTHER_MODE = 1.5  # pools apart against one pool
OTHER_PHASE = 0.5  # a batch run to its end against users that come and go
UNKNOWN_LAYOUT = 0.5
ONE_PART = 1.0  # only the prompt or only the answer was measured
RUN = (  # what the figures of one run share
    *("distance", "source", "accelerator", "accelerator_count", "model", "framework", "framework_version"),
    *("weights_dtype", "layout", "isl", "osl", "concurrency"),
)
IMPORTED = "/catalog/evidence"  # the page with imported rows
BITS = re.compile(r"(?:q|fp|int|bf|uint|mxfp|nvfp)-?(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class OnChip:
    """What runs of serving and of training have in common; None or empty: not stated."""

    accelerator: str
    family: str
    model: str
    parameters: float | None
    active_parameters: float | None
    framework: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation(OnChip):
    """The properties of a run that `distance` compares."""

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


def chips_apart(a: OnChip, b: OnChip) -> float:
    if a.accelerator == b.accelerator:
        return 0.0
    return OTHER_CHIP if a.family == b.family and a.family else OTHER_FAMILY


def models_apart(a: OnChip, b: OnChip) -> float:
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
    found = BITS.search(weights)
    return int(found[1]) if found and 0 < int(found[1]) <= 32 else 16


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


Groups = tuple[tuple[tuple[int, Run], ...], ...]  # the runs of each chip and model, with their places


def nearest(asked: Situation, runs: Iterable[Run], most: int = NEAREST) -> list[tuple[float, Run]]:
    """(distance, run) of the most similar runs, nearest first."""
    return nearest_of(asked, by_chip_and_model(runs), most)


def by_chip_and_model(runs: Iterable[Run]) -> Groups:
    members: dict[tuple[str, ...], list[tuple[int, Run]]] = {}
    for n, run in enumerate(runs):
        on = run.situation
        members.setdefault((on.accelerator, on.family, on.model), []).append((n, run))
    return tuple(map(tuple, members.values()))


def nearest_of(asked: Situation, groups: Groups, most: int = NEAREST) -> list[tuple[float, Run]]:
    """The same of runs that are grouped already."""
    found: list[tuple[float, int, Run]] = []
    far = [(least(asked, members[0][1].situation), members) for members in groups]
    for closest, members in sorted(far, key=lambda each: each[0]):
        if len(found) == most and closest > found[-1][0]:
            break
        found = sorted(
            [*found, *((distance(asked, run.situation), n, run) for n, run in members)], key=lambda each: each[:2]
        )[:most]
    return [(apart, run) for apart, _, run in found]


def least(asked: OnChip, measured: OnChip) -> float:
    """The part of the distance that all runs of one chip and model share."""
    return chips_apart(asked, measured) + models_apart(asked, measured)


@functools.lru_cache(maxsize=1)
def _groups(digest: str, state: str) -> Groups:
    """Scored and imported rows as runs, without disputed rows, kernels and memory predictions."""
    found = card()
    lines = found.lines if found and found.head.digest == digest else ()
    scored = grouped(lines, {row.hf_id: sizes_of(row.shape) for row in ServedModel.objects.all()})
    return by_chip_and_model((*scored, *_imported(state, "")))


def runs_of_model(model: str) -> tuple[Run, ...]:
    """The same of one model alone, without reading the other rows, and its imported runs."""
    head = Scorecard.objects.only("digest").order_by("-pk").first()
    scored = () if head is None else _runs_of_model(head.digest, model)
    return (*scored, *_imported(imported_state(), model))


def imported_runs() -> tuple[Run, ...]:
    """The imported figures as runs, to be shown; inputs/measured.py says which of them correct an answer."""
    return _imported(imported_state(), "")


def imported_state() -> str:
    """Changes with the imported figures."""
    rows = EvidenceRow.objects.aggregate(n=Count("pk"), last=Max("pk"))
    return f"{rows['n']}-{rows['last']}-{EvidenceImport.objects.aggregate(last=Max('made_at'))['last']}"


@functools.lru_cache(maxsize=64)
def _imported(state: str, model: str) -> tuple[Run, ...]:
    """Those of one model; empty: of all."""
    rows = EvidenceRow.objects.order_by("pk").defer("given")
    served = ServedModel.objects.all()
    if model:
        rows, served = rows.filter(model=model), served.filter(hf_id=model)
    return grouped(map(line_of, rows), {row.hf_id: sizes_of(row.shape) for row in served})


@functools.lru_cache(maxsize=1)
def _import_names(state: str) -> dict[str, str]:
    """What people call the source of each imported row."""
    named = EvidenceImport.objects.order_by("made_at", "pk").values_list("source_key", "name")
    return {key: f"{name or key} (imported)" for key, name in named}


@functools.lru_cache(maxsize=64)
def _runs_of_model(digest: str, model: str) -> tuple[Run, ...]:
    sizes = {row.hf_id: sizes_of(row.shape) for row in ServedModel.objects.filter(hf_id=model)}
    return grouped(map(line_of, ScoredRow.objects.filter(model=model).order_by("pk")), sizes)


def grouped(lines: Iterable[Line], sizes: Mapping[str, Sizes]) -> tuple[Run, ...]:
    """The rows of each run together."""
    members: dict[tuple[Situation, str], list[Line]] = {}
    for line in lines:
        if line.row.phase in PHASES and line.row.circumstance != "disputed" and kind_of(line.row) in HEADLINES:
            members.setdefault((situation_of(line, sizes), line.row.source_key), []).append(line)
    return tuple(Run(situation=key[0], lines=tuple(own)) for key, own in members.items())


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
    own = from_stored_config(config, "own-model")
    return parameters(own), active_parameters(own)


def on_chip(accelerator: str, family: str, model: str, sizes: Sizes) -> Json:
    """The fields of a situation that its chip and its model decide."""
    known = {"parameters": sizes[0], "active_parameters": sizes[1]}
    return {"accelerator": accelerator, "family": family, "model": model, **known}


def family_of(accelerator: str) -> str:
    """As scored rows name it; empty: not in the catalog."""
    chip = Accelerator.objects.filter(slug=accelerator).only("family").first()
    return chip.family.replace(" ", "-") if chip else ""


def situation_of(line: Line, sizes: Mapping[str, Sizes]) -> Situation:
    row = line.row
    replicas = row.chips / row.replica_chips if row.replica_chips else None
    return Situation(
        **on_chip(row.accelerator, row.family, row.model, sizes.get(row.model, (None, None))),
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


def asked_for(deployment: Option | Estimate, model: str, sizes: Sizes, isl: float, osl: float) -> Situation:
    """The situation of an estimate or of an option of an answer (`deployment`)."""
    d = deployment
    return Situation(
        **on_chip(d.accelerator, family_of(d.accelerator), model, sizes),
        framework=d.framework,
        framework_version=d.framework_version,
        weights=d.quantization if d.quantization.startswith("mxfp") else d.weights_dtype,
        mode="disagg" if d.disaggregated else "agg",
        phase="static" if isinstance(d, Estimate) and d.client == "static" else "serving",
        replica_chips=d.tp * d.pp * d.dp,
        isl=isl,
        osl=osl,
        concurrency_per_replica=d.concurrency,
    )


def of_option(option: Option, spec: Mapping[str, Any]) -> list[MeasuredRow]:
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


def evidence(asked: Situation) -> list[MeasuredRow]:
    """The main figures of the most similar measured runs, as in the JSON of `estimate`."""
    scorecard = card()
    if scorecard is None:
        return []
    state = imported_state()
    near = nearest_of(asked, _groups(scorecard.head.digest, state))
    names = {key: about.get("name", key) for key, about in scorecard.head.sources.items()}
    found = []
    for far, run in near:
        of_run = _import_names(state) if imported(run.lines[0]) else names
        found += [measured_row(far, line, of_run) for line in headlines(run.lines)]
    return found


def headlines(lines: Sequence[Line]) -> list[Line]:
    """One line of each metric kind, preferably the mean, else the median."""
    chosen: dict[str, Line] = {}
    for line in sorted(lines, key=lambda line: line.row.metric):
        if not line.row.metric.endswith(("p95", "p99")):
            chosen.setdefault(kind_of(line.row), line)
    return [chosen[kind] for kind in HEADLINES if kind in chosen]


def measured_row(far: float, line: Line, names: Mapping[str, str]) -> MeasuredRow:
    """names: of the sources, by key."""
    row = line.row
    return MeasuredRow(
        **row_fields(far, line, names),
        weights_dtype=row.weights_dtype,
        isl=row.isl,
        osl=row.osl,
        concurrency=row.concurrency,
        metric=row.metric,
        measured=row.measured,
        predicted=row.predicted,
        error_fraction=None if imported(line) and row.predicted is None else line.point.ape,
        url=address([row.key], imported(line)),
    )


def row_fields(far: float, line: Line, names: Mapping[str, str]) -> Json:
    """What an answer says of every measured row."""
    row = line.row
    return {
        "id": row.key,
        "accelerator": row.accelerator,
        "accelerator_count": row.chips,
        "model": row.model,
        "framework": row.framework,
        "framework_version": row.framework_version,
        "layout": row.layout,
        "distance": round(far, 2),
        "near": far <= NEAR,
        "source": names.get(row.source_key, row.source_key),
    }


def imported(line: Line) -> bool:
    return isinstance(line.row, EvidenceRow)


def address(ids: Iterable[str], imported: bool = False) -> str:
    """The URL of the page with these rows: of the scorecard, or of what was imported."""
    if imported:
        return f"{IMPORTED}?{urlencode({'key': ','.join(ids)})}"
    return f"/fidelity?{urlencode({'id': ','.join(ids)})}"


def shown(rows: Sequence[MeasuredRow]) -> Json:
    """The evidence grouped by run for a page, with links, and whether no run is near."""
    scored = [row.id for row in rows if not row.url.startswith(IMPORTED)]
    url = address(scored) if scored else ""
    return {**shown_runs(rows, RUN), "url": url, "imported": len(scored) < len(rows)}


def shown_runs(rows: Sequence[Any], run: Sequence[str]) -> Json:
    """The figures of each run, whose fields `run` are alike."""
    runs: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        runs.setdefault(tuple(getattr(row, name) for name in run), []).append(row)
    return {
        "runs": [
            {
                "run": own[0],
                "figures": own,
                "url": address((row.id for row in own), own[0].url.startswith(IMPORTED)),
            }
            for own in runs.values()
        ],
        "none_near": bool(rows) and not any(row.near for row in rows),
    }
