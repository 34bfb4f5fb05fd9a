"""Finds the measured training runs that are most similar to a recommended one, with their prediction errors."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.fidelity.nearest_rows import (
    NEAREST,
    OTHER_FRAMEWORK,
    OnChip,
    Sizes,
    address,
    doublings,
    family_of,
    formats_apart,
    least,
    on_chip,
    row_fields,
    shown_runs,
    sizes_of,
)
from advisor.fidelity.scores.scorecard import Card, Line, card
from advisor.fidelity.training.rows import MEMORY, RESERVED_GIB
from advisor.result import MeasuredRun, TrainingOption
from catalog.models import MeasuredFigure, ServedModel

Json = dict[str, Any]
OTHER_METHOD = 1.5  # LoRA trains a small part of the weights: no gradients and no optimizer states of the others
GIB = 2.0**30
RUN = (  # what the figures of one run share
    *("distance", "accelerator", "accelerator_count", "model", "layout", "global_batch"),
    *("framework", "framework_version", "source"),
)
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
class Situation(OnChip):
    """The properties of a training run that `distance` compares."""

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
        least(asked, measured)
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
    return Situation(
        **on_chip(row.accelerator, row.family, row.model, sizes.get(row.model, (None, None))),
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
    return Situation(
        **on_chip(option.accelerator, family_of(option.accelerator), model, sizes),
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
        **row_fields(far, line, {key: about.get("name", key) for key, about in scorecard.head.sources.items()}),
        method=row.mode,
        precision=row.weights_dtype,
        sequence_length=round(row.isl),
        global_batch=round(row.concurrency) if row.concurrency else None,
        metric=metric,
        measured=None if row.measured is None else row.measured * scale,
        predicted=None if row.predicted is None else row.predicted * scale,
        error_fraction=line.point.ape,
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
    return {**shown_runs(rows, RUN), "url": address(row.id for row in rows) if rows else ""}
