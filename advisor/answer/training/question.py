"""What every part of a training answer reads: the snapshot, the engine's values and what the search found."""

from dataclasses import dataclass
from typing import Any

from advisor.engine.search import Catalog, allowed, interval_ratios
from advisor.engine.spec import Accelerator, Offer, TrainingTask, Workload
from advisor.engine.training_search import Candidate, Found, Reliability

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


def speed_ratios(snapshot: Json, basis: str) -> Ratios:
    """90% range of the true speed of a step over the estimate, by what the kernels' rates rest on."""
    rows = snapshot["calibrations"]
    own = rows.get(f"interval:training:{basis}") or {}
    if "step_low_ratio" in own:
        return 1.0 / float(own["step_high_ratio"]), 1.0 / float(own["step_low_ratio"])
    return interval_ratios(rows, basis).get("throughput", (1.0, 1.0))


def memory_ratios(snapshot: Json, basis: str) -> Ratios | None:
    """90% range of the true peak memory over the estimate; None: not known."""
    own = snapshot["calibrations"].get(f"interval:training:{basis}") or {}
    if "memory_low_ratio" not in own:
        return None
    return float(own["memory_low_ratio"]), float(own["memory_high_ratio"])


def name_of(c: Candidate) -> str:
    """8 x H100 SXM"""
    return f"{c.chips:,} x {c.trained.accelerator.name}"
