"""What every part of a training answer reads: the snapshot, the engine's values and what the search found."""

from dataclasses import dataclass
from typing import Any

from advisor.engine.search import Catalog, allowed, interval_ratios
from advisor.engine.spec import Accelerator, Offer, TrainingTask, Workload
from advisor.engine.step import has_experts
from advisor.engine.training import Intervals, interval
from advisor.engine.training_search import Candidate, Found, Reliability
from advisor.inputs import model_of

Json = dict[str, Any]
Ratios = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A training question with what the search found."""

    spec: Json
    snapshot: Json
    workload: Workload
    catalog: Catalog
    reliability: Reliability
    found: Found

    @property
    def task(self) -> TrainingTask:
        assert self.workload.training is not None
        return self.workload.training

    @property
    def section(self) -> str:
        """Name of the section of the workload file."""
        return self.workload.kind.name

    def offers_of(self, chip: Accelerator) -> list[Offer]:
        """The offers of a chip that the constraints allow."""
        return [o for o in self.catalog.offers if o.sells(chip) and allowed(o, self.workload.constraints)]


def speed_ratios(snapshot: Json, c: Candidate) -> Ratios:
    """90% range of the true speed of a run over the estimate.

    An iteration of DPO or GRPO has the range of training for the phases that train and that of serving for those that
    serve, by their time. Both are taken at the same end: nothing is known of how their errors go together.
    """
    basis, serving = c.trained.basis, c.trained.serving_fraction
    slow, fast = training_ratios(snapshot, basis)
    if not serving:
        return slow, fast
    served = interval_ratios(snapshot["calibrations"], basis).get("throughput", (1.0, 1.0))
    longest, shortest = (serving / s + (1.0 - serving) / t for s, t in zip(served, (slow, fast), strict=True))
    return 1.0 / longest, 1.0 / shortest


def training_ratios(snapshot: Json, basis: str) -> Ratios:
    """90% range of the true speed of a step over the estimate, by what the kernels' rates rest on."""
    known = training_intervals(snapshot, basis).step
    if known is not None:
        return 1.0 / known[1], 1.0 / known[0]
    return interval_ratios(snapshot["calibrations"], basis).get("throughput", (1.0, 1.0))


def memory_ratios(snapshot: Json, basis: str) -> Ratios | None:
    """90% range of the true peak memory over the estimate; None: not known."""
    return training_intervals(snapshot, basis).memory


def training_intervals(snapshot: Json, basis: str) -> Intervals:
    """The intervals of this model on chips of this basis."""
    return interval(snapshot["calibrations"], basis, experts=has_experts(model_of(snapshot["model"])))


def name_of(c: Candidate) -> str:
    """8 x H100 SXM"""
    return f"{c.chips:,} x {c.trained.accelerator.name}"
