"""Calibration: chip efficiencies, power and host times fitted to measurements."""

from advisor.engine.calibration import conditioning, least_squares
from advisor.engine.calibration.conditioning import LEVELS, Observed, Pooling
from advisor.engine.calibration.efficiency import efficiency_of
from advisor.engine.calibration.kernel_samples import Figure, median_of, samples
from advisor.engine.calibration.least_squares import (
    Array,
    BudgetError,
    Interval,
    Mask,
    Parameter,
    Places,
    Solution,
    weighted_quantile,
)

__all__ = [
    "LEVELS",
    "Observed",
    "Pooling",
    "Array",
    "BudgetError",
    "Figure",
    "Interval",
    "Mask",
    "Parameter",
    "Places",
    "Solution",
    "conditioning",
    "efficiency_of",
    "least_squares",
    "median_of",
    "samples",
    "weighted_quantile",
]
