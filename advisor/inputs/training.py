"""A training question in engine values: the task, and what stops a run, from the assumptions or the planner's own."""

import math
from typing import Any

from advisor.engine.spec import Lengths, TrainingTask, kind_named
from advisor.engine.training import DEFAULTS, FailureRates, Range, Spot
from advisor.engine.training_search import Reliability

Json = dict[str, Any]
FAILURES = {
    "failures_per_chip_day": "training-failures-per-chip-day",
    "replaced_fraction": "training-failure-replaced-fraction",
    "replacement_days": "training-replacement-days",
    "restart_s": "training-restart-s",
    "write_bytes_per_s_per_chip": "checkpoint-write-bytes-per-s-per-chip",
}
TRAINING_ASSUMPTIONS = tuple(DEFAULTS)
DATA = "training-bytes-per-token"
BYTES_PER_TOKEN = 4.0  # a token as a 32-bit number
PRECISIONS = {  # what `precision: auto` may use by constraints.quality, the most exact first
    "lossless": ("bf16",),
    "near_lossless": ("bf16", "fp8", "mxfp8"),
    "any": ("bf16", "fp8", "mxfp8", "nvfp4"),
}


def section_of(spec: Json) -> Json:
    """The section of the workload file that describes the run."""
    section: Json = spec[spec["kind"]]
    return section


def task_of(spec: Json, tokens: float | None = None) -> TrainingTask:
    """The run of a validated workload file. tokens: of a budget, once they are known."""
    section, kind = section_of(spec), kind_named(spec["kind"])
    sequence = int(section["sequence_length"])
    method = section.get("method", "full")
    asked = section["precision"]
    exact = method != "full"  # adapters compute in 16 bits
    precisions = (asked,) if asked != "auto" else ("bf16",) if exact else PRECISIONS[spec["constraints"]["quality"]]
    recompute = section["recompute"]
    return TrainingTask(
        tokens=float(tokens if tokens is not None else section["tokens"] or 0.0),
        sequence_tokens=sequence,
        global_batch=max(round(section["global_batch_tokens"] / sequence), 1),
        method=method,
        adapter_rank=0 if method == "full" else int(section["rank"]),
        optimizer=section["optimizer"],
        precisions=precisions,
        recompute=("none", "selective", "full") if recompute == "auto" else (recompute,),
        deadline_days=section["deadline_days"],
        every_days=section["every_days"],
        continued=not kind.trains_whole_model or section["continued"] == "yes",
        bytes_per_token=BYTES_PER_TOKEN,
    )


def lengths_of_task(task: TrainingTask) -> Lengths:
    return Lengths(mean_tokens=float(task.sequence_tokens), p95_tokens=float(task.sequence_tokens))


def reliability_of(spec: Json, snapshot: Json) -> Reliability:
    """Failures, repairs, checkpoints, spot and stragglers. A value that the planner sets has no range."""
    rows, tco = snapshot["assumptions"], spec.get("tco") or {}

    def known(key: str) -> Range:
        row = rows.get(key)
        if key in tco:
            return Range(value=float(tco[key]), low=float(tco[key]), high=float(tco[key]))
        if row is None:  # an old snapshot
            return DEFAULTS[key]
        value = float(row["value"])
        low, high = (float(value if row.get(end) is None else row[end]) for end in ("low", "high"))
        return Range(value=value, low=low, high=high)

    return Reliability(
        failures=FailureRates(**{name: known(key) for name, key in FAILURES.items()}),
        blocked_fraction=known("checkpoint-async-blocked-fraction").value,
        spot=Spot(
            interruptions_per_instance_hour=known("spot-interruptions-per-instance-hour").value,
            notice_s=known("spot-notice-s").value,
            wait_s=known("spot-wait-s").value,
        ),
        instance_wait_s=known("spot-wait-s"),
        straggler_fraction=known("straggler-spread-fraction").value,
    )


def figure_of(spec: Json, snapshot: Json, key: str) -> float:
    """One assumption of training clusters, as the planner or the catalog has it."""
    tco, row = spec.get("tco") or {}, snapshot["assumptions"].get(key)
    value = tco.get(key, row["value"] if row else DEFAULTS[key].value)
    return float(value) if math.isfinite(float(value)) else DEFAULTS[key].value
