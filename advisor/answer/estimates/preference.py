"""DPO and GRPO as a composition: what `estimate` asks of it, and what every answer says about it."""

import math
from collections.abc import Sequence

from advisor.engine.terms import TuningObjective
from advisor.engine.training import PeakMemory, Rates, StepTime, reference_bytes
from advisor.engine.training_search import Phase, Servers, Trainer, iteration
from advisor.inputs import REFERENCES, host_copy_fraction, resources_with, rounded
from advisor.result import Phase as PhaseSection
from advisor.workload import FixedRun, TrainingRun, WorkloadError, error, rollout_of

GIB = 2.0**30
UNCHECKED_ESTIMATE = "no published measurement checks this composition of phases: time one iteration before you commit"
UNCHECKED = (
    f"{UNCHECKED_ESTIMATE}; its ranges combine those of training and serving and do not cover the assumptions on "
    "response lengths and memory"
)


def tuning_of(d: TrainingRun) -> TuningObjective | None:
    """What the step does beside the update; None: supervised."""
    if d.objective == "sft":
        return None
    rollout = rollout_of(d) if d.objective == "grpo" else None
    return TuningObjective(name=d.objective, reference=REFERENCES[d.reference], rollout=rollout)


def phases(fixed: FixedRun, peak: PeakMemory, rates: Rates, step: StepTime) -> list[PhaseSection]:
    """The parts of one step or iteration; their times add up to it. None: plain fine-tuning."""
    tuning = tuning_of(fixed.asked)
    if tuning is None:
        return []
    _, known = resources_with(fixed.asked.model)
    servers = Servers(
        policy=fixed.model_id, reward="", resources=known, host_copy_fraction=host_copy_fraction()
    )  # fmt: skip
    trainer = Trainer(model=fixed.model, chip=fixed.chip, run=fixed.run, peak=peak, rates=rates, step=step)
    found = iteration(tuning, trainer, servers)
    if isinstance(found, str):
        allowed = "a smaller global_batch or sequence_length, or more accelerators"
        raise WorkloadError([error("objective", f"generation cannot be estimated: {found}", allowed)])
    return sections(found)


def sections(found: Sequence[Phase]) -> list[PhaseSection]:
    """Phases as answers show them."""
    total = math.fsum(p.time_s for p in found)
    return [
        PhaseSection(
            name=p.name, engine=p.engine, time_s=rounded(p.time_s), fraction=rounded(p.time_s / total), said=p.said
        )
        for p in found
    ]


def extra_gib(fixed: FixedRun) -> float:
    """What the reference model takes on a rank."""
    tuning = tuning_of(fixed.asked)
    kept = tuning is not None and tuning.reference == "kept"
    return reference_bytes(fixed.model, fixed.run) / GIB if kept else 0.0
