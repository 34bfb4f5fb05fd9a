"""What every part of a training answer reads: the snapshot, the engine's values and what the search found."""

from dataclasses import dataclass
from typing import Any

from advisor.answer import question
from advisor.engine.search import allowed
from advisor.engine.step import has_experts
from advisor.engine.terms import Accelerator, Offer, RatioDistribution, Ratios, TrainingTask
from advisor.engine.training import interval
from advisor.engine.training_search import Candidate, Found, Reliability, speed_distribution

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question(question.Question):
    """A training question with what the search found."""

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
        return [o for o in self.catalog.offers_of(chip.slug) if o.sells(chip) and allowed(o, self.workload.constraints)]

    def speed_distribution(self, c: Candidate) -> RatioDistribution:
        """The true speed of a run over the estimate."""
        experts = has_experts(self.catalog.model)
        return speed_distribution(self.snapshot.calibrations, c.trained.basis, experts, c.trained.serving_fraction)

    def memory_ratios(self, basis: str) -> Ratios | None:
        """90% range of the true peak memory over the estimate; None: not known."""
        return interval(self.snapshot.calibrations, basis, experts=has_experts(self.catalog.model)).memory


def name_of(c: Candidate) -> str:
    """8 x H100 SXM"""
    return f"{c.chips:,} x {c.trained.accelerator.name}"
