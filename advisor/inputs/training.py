"""A training question in engine values: the task, and what stops a run, from the assumptions or the planner's own."""

import math
from typing import Any, Literal

from advisor.engine.terms import Lengths, Rollout, TrainingTask, TuningObjective, kind_named
from advisor.engine.training import DEFAULTS, FailureRates, Range, Spot
from advisor.engine.training_search import Reliability
from advisor.inputs.snapshot import Snapshot
from advisor.workload import LONGEST_RATIO, MULTIPLE_TOKENS

Json = dict[str, Any]
FAILURES = {
    "failures_per_chip_day": "training-failures-per-chip-day",
    "replaced_fraction": "training-failure-replaced-fraction",
    "replacement_days": "training-replacement-days",
    "restart_s": "training-restart-s",
    "write_bytes_per_s_per_chip": "checkpoint-write-bytes-per-s-per-chip",
}
TRAINING_ASSUMPTIONS = tuple(DEFAULTS)
BYTES_PER_TOKEN = 4.0  # a token as a 32-bit number
REFERENCES: dict[str, Literal["kept", "none", "precomputed"]] = {
    "yes": "kept", "no": "none", "precomputed": "precomputed",
}  # fmt: skip
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
    tuning = tuning_of(section)
    sequence, batch = sequence_and_batch(section, tuning)
    method = section.get("method", "full")
    asked = section["precision"]
    exact = method != "full"  # adapters compute in 16 bits
    precisions = (asked,) if asked != "auto" else ("bf16",) if exact else PRECISIONS[spec["constraints"]["quality"]]
    recompute = section["recompute"]
    return TrainingTask(
        tokens=float(tokens if tokens is not None else trained_tokens(section, tuning, sequence, batch)),
        sequence_tokens=sequence,
        global_batch=batch,
        method=method,
        adapter_rank=0 if method == "full" else int(section["rank"]),
        optimizer=section["optimizer"],
        precisions=precisions,
        recompute=("none", "selective", "full") if recompute == "auto" else (recompute,),
        deadline_days=section["deadline_days"],
        every_days=section["every_days"],
        continued=not kind.trains_whole_model or section["continued"] == "yes",
        bytes_per_token=BYTES_PER_TOKEN,
        tuning=tuning,
    )


def tuning_of(section: Json) -> TuningObjective | None:
    """What a step of DPO or GRPO does beside the update; None: supervised."""
    name = section.get("objective", "sft")
    if name == "sft":
        return None
    return TuningObjective(
        name=name,
        reference=REFERENCES[section["reference"]],
        rollout=rollout_of(section) if name == "grpo" else None,
    )


def rollout_of(section: Json) -> Rollout:
    mean = float(section["response_tokens"])
    return Rollout(
        prompt_tokens=float(section["prompt_tokens"]),
        response_tokens=mean,
        longest_response_tokens=float(section["longest_response_tokens"] or LONGEST_RATIO * mean),
    )


def sequence_and_batch(section: Json, tuning: TuningObjective | None) -> tuple[int, int]:
    """(mean tokens of a sequence, sequences of a step).

    GRPO trains on prompts and responses without padding: its trainers pack them, or take them one by one. DPO trains
    on whole pairs.
    """
    if tuning is not None and tuning.rollout is not None:
        mean = tuning.rollout.prompt_tokens + tuning.rollout.response_tokens
        sequence = math.ceil(mean / MULTIPLE_TOKENS) * MULTIPLE_TOKENS
        return sequence, int(section["prompts_per_iteration"]) * int(section["samples_per_prompt"])
    sequence = int(section["sequence_length"])
    batch = max(round(section["global_batch_tokens"] / sequence), 1)
    return sequence, batch if tuning is None else max(2 * round(batch / 2), 2)


def trained_tokens(section: Json, tuning: TuningObjective | None, sequence: int, batch: int) -> float:
    """Tokens that the run trains on: of the pairs of DPO, padding included, or of all iterations of GRPO."""
    if tuning is None:
        return float(section["tokens"] or 0.0)
    if tuning.name == "dpo":
        return 2.0 * float(section["pairs"]) * sequence
    return float(section["iterations"]) * batch * sequence


def lengths_of_task(task: TrainingTask) -> Lengths:
    longest = float(max(task.sequence_tokens, task.longest_tokens))
    return Lengths(mean_tokens=longest, p95_tokens=longest)


def reliability_of(spec: Json, snapshot: Snapshot) -> Reliability:
    """Failures, repairs, checkpoints, spot and stragglers. A value that the planner sets has no range."""
    rows, tco = snapshot.assumptions, spec.get("tco") or {}

    def known(key: str) -> Range:
        row = rows[key]
        if key in tco:
            return Range(value=float(tco[key]), low=float(tco[key]), high=float(tco[key]))
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


def figure_of(spec: Json, snapshot: Snapshot, key: str) -> float:
    """One assumption of training clusters, as the planner or the catalog has it."""
    tco, row = spec.get("tco") or {}, snapshot.assumptions[key]
    value = tco.get(key, row["value"])
    return float(value) if math.isfinite(float(value)) else DEFAULTS[key].value
