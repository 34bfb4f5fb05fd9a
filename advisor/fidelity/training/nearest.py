"""Finds the measured training runs that are most similar to a recommended one, with their prediction errors."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.fidelity.nearest_rows import (
    NEAR,
    NEAREST,
    OTHER_FRAMEWORK,
    Sizes,
    address,
    chips_apart,
    doublings,
    formats_apart,
    models_apart,
    sizes_of,
)
from advisor.fidelity.scores.scorecard import Card, Line, card
from advisor.fidelity.training.rows import MEMORY, RESERVED_GIB
from advisor.result import MeasuredRun, TrainingOption
from catalog.models import Accelerator, MeasuredFigure, ServedModel

Json = dict[str, Any]
OTHER_METHOD = 1.5  # LoRA trains a small part of the weights: no gradients and no optimizer states of the others
GIB = 2.0**30
NAMES = {  # metric of a row -> that of the answer
    "tokens_per_s_per_accelerator": "tokens_per_s_per_accelerator",
    "tokens_per_s": "tokens_per_s",
    "samples_per_s": "samples_per_s",
    "step_time_s": "step_time_s",
    "peak_memory_bytes": "peak_allocated_gib",
    "peak_memory_gb": "peak_allocated_gib",
    "peak_reserved_bytes": "peak_reserved_gib",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """The properties of a training run that `distance` compares; None or empty: not stated."""

    accelerator: str
    family: str
    model: str
    parameters: float | None
    active_parameters: float | None
    framework: str
    method: str
    precision: str
    chips: int
    sequence_tokens: float
    batch_per_chip: float | None  # tokens of one step


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Figures of one measured run."""

    situation: Situation
    lines: tuple[Line, ...]


def distance(asked: Situation, measured: Situation) -> float:
    """How different two runs are: the sum of what each difference adds, with serving's constants. Symmetric."""
    return (
        chips_apart(asked, measured)
        + models_apart(asked, measured)
        + formats_apart(asked.precision, measured.precision)
        + OTHER_METHOD * ((asked.method == "full") != (measured.method == "full"))
        + OTHER_FRAMEWORK * (asked.framework != measured.framework) / 2.0
        + doublings(asked.chips, measured.chips) / 2.0
        + doublings(asked.sequence_tokens, measured.sequence_tokens)
        + doublings(asked.batch_per_chip, measured.batch_per_chip) / 2.0
    )


def nearest(asked: Situation, runs: Iterable[Run], most: int = NEAREST) -> list[tuple[float, Run]]:
    """(distance, run) of the most similar runs, nearest first."""
    apart = sorted(((distance(asked, run.situation), n, run) for n, run in enumerate(runs)), key=lambda each: each[:2])
    return [(far, run) for far, _, run in apart[:most]]


# --- over the scorecard -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def runs_of(digest: str) -> tuple[Run, ...]:
    """The scored training rows as runs."""
    found = card()
    lines = found.training if found and found.head.digest == digest else ()
    models = ServedModel.objects.filter(hf_id__in={line.row.model for line in lines})
    sizes = {row.hf_id: sizes_of(row.shape) for row in models}
    members: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        if line.row.metric in NAMES and line.row.circumstance != "disputed":
            key = (situation_of(line.row, sizes), line.row.layout, line.row.framework_version, line.row.source_key)
            members.setdefault(key, []).append(line)
    return tuple(Run(situation=key[0], lines=tuple(own)) for key, own in members.items())


def situation_of(row: MeasuredFigure, sizes: Mapping[str, Sizes]) -> Situation:
    whole, active = sizes.get(row.model, (None, None))
    return Situation(
        accelerator=row.accelerator,
        family=row.family,
        model=row.model,
        parameters=whole,
        active_parameters=active,
        framework=kind_of_code(row.framework),
        method=row.mode,
        precision=row.weights_dtype,
        chips=row.chips,
        sequence_tokens=row.isl,
        batch_per_chip=row.concurrency * row.isl / row.chips if row.concurrency else None,
    )


def kind_of_code(framework: str) -> str:
    """hf, megatron or the framework's first word: what the rates of small kernels depend on."""
    name = framework.lower()
    if "transformers" in name:
        return "hf"
    if any(each in name for each in ("megatron", "nemo")):
        return "megatron"
    return "plain" if "plain model" in name or "torchtitan" in name else name.split(" ")[0]


def asked_for(option: TrainingOption, model: str, sizes: Sizes) -> Situation:
    chip = Accelerator.objects.filter(slug=option.accelerator).only("family").first()
    return Situation(
        accelerator=option.accelerator,
        family=chip.family.replace(" ", "-") if chip else "",
        model=model,
        parameters=sizes[0],
        active_parameters=sizes[1],
        framework=option.code,
        method=option.method,
        precision=option.precision.removesuffix("_master").replace("amp", "bf16"),
        chips=option.accelerator_count,
        sequence_tokens=option.sequence_length,
        batch_per_chip=option.global_batch_tokens / option.accelerator_count,
    )


def evidence(option: TrainingOption, model: str, sizes: Sizes) -> list[MeasuredRun]:
    """Speed and peak memory of the most similar measured runs; empty: no scorecard is loaded."""
    scorecard = card()
    if scorecard is None or not scorecard.training:
        return []
    near = nearest(asked_for(option, model, sizes), runs_of(scorecard.head.digest))
    return [measured_run(far, line, scorecard) for far, run in near for line in headlines(run.lines)]


def headlines(lines: Sequence[Line]) -> list[Line]:
    """One line on speed and one on memory, in the order of NAMES."""
    order = list(NAMES)
    ordered = sorted(lines, key=lambda line: order.index(line.row.metric))
    speed = [line for line in ordered if line.row.metric not in MEMORY]
    return [*speed[:1], *[line for line in ordered if line.row.metric in MEMORY][:1]]


def measured_run(far: float, line: Line, scorecard: Card) -> MeasuredRun:
    row = line.row
    scale, metric = unit_of(row)
    return MeasuredRun(
        id=row.key,
        accelerator=row.accelerator,
        accelerator_count=row.chips,
        model=row.model,
        framework=row.framework,
        framework_version=row.framework_version,
        method=row.mode,
        precision=row.weights_dtype,
        layout=row.layout,
        sequence_length=round(row.isl),
        global_batch=round(row.concurrency) if row.concurrency else None,
        distance=round(far, 2),
        near=far <= NEAR,
        metric=metric,
        measured=None if row.measured is None else row.measured * scale,
        predicted=None if row.predicted is None else row.predicted * scale,
        error_fraction=line.point.ape,
        source=(scorecard.head.sources.get(row.source_key) or {}).get("name", row.source_key),
        url=address([row.key]),
    )


def unit_of(row: MeasuredFigure) -> tuple[float, str]:
    """(factor, metric): memory in GiB, which sources state in bytes, GB or GiB."""
    name = NAMES[row.metric]
    if row.source_key in RESERVED_GIB and row.metric == "peak_memory_gb":
        return 1.0, "peak_reserved_gib"
    return {"peak_memory_bytes": 1 / GIB, "peak_reserved_bytes": 1 / GIB, "peak_memory_gb": 1e9 / GIB}.get(
        row.metric, 1.0
    ), name


def shown(rows: Sequence[MeasuredRun]) -> Json:
    """The evidence grouped by run for a page, with links, and whether no run is near."""
    runs: dict[tuple[Any, ...], list[MeasuredRun]] = {}
    for row in rows:
        key = (row.distance, row.accelerator, row.accelerator_count, row.model, row.layout, row.global_batch)
        runs.setdefault((*key, row.framework, row.framework_version, row.source), []).append(row)
    return {
        "runs": [{"run": own[0], "figures": own, "url": address(row.id for row in own)} for own in runs.values()],
        "none_near": bool(rows) and not any(row.near for row in rows),
        "url": address(row.id for row in rows) if rows else "",
    }
