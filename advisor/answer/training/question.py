"""What every part of a training answer reads: the snapshot, the engine's values and what the search found."""

from dataclasses import dataclass
from typing import Any

from advisor.answer import question
from advisor.engine.search import allowed, distributions
from advisor.engine.step import has_experts
from advisor.engine.terms import CERTAIN, SHARES, Accelerator, Offer, RatioDistribution, Ratios, TrainingTask
from advisor.engine.training import interval, step_distribution
from advisor.engine.training_search import Candidate, Found, Reliability

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
        return [o for o in self.catalog.offers if o.sells(chip) and allowed(o, self.workload.constraints)]

    def speed_distribution(self, c: Candidate) -> RatioDistribution:
        """The true speed of a run over the estimate.

        An iteration of DPO or GRPO has the errors of training in the phases that train and those of serving in those
        that serve, by their time. Both are taken at the same quantile: how their errors go together is unknown.
        """
        basis, serving = c.trained.basis, c.trained.serving_fraction
        trained = self._training_distribution(basis)
        if not serving:
            return trained
        served = self._serving_distribution(basis)

        def both(share: float) -> float:
            return 1.0 / (serving / served.quantile(share) + (1.0 - serving) / trained.quantile(share))

        return RatioDistribution.of({share: both(share) for share in SHARES})

    def _training_distribution(self, basis: str) -> RatioDistribution:
        """The true speed of a step over the estimate, by what the kernels' rates rest on."""
        known = step_distribution(self.snapshot.calibrations, basis, experts=has_experts(self.catalog.model))
        return known.inverse() if known is not None else self._serving_distribution(basis)

    def _serving_distribution(self, basis: str) -> RatioDistribution:
        return distributions(self.snapshot.calibrations, basis).get("throughput", CERTAIN)

    def memory_ratios(self, basis: str) -> Ratios | None:
        """90% range of the true peak memory over the estimate; None: not known."""
        return interval(self.snapshot.calibrations, basis, experts=has_experts(self.catalog.model)).memory


def name_of(c: Candidate) -> str:
    """8 x H100 SXM"""
    return f"{c.chips:,} x {c.trained.accelerator.name}"
