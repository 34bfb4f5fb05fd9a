"""Calibration: chip efficiencies, power and host times fitted to measurements."""

from advisor.engine.calibration import conditioning, least_squares
from advisor.engine.calibration.conditioning import LEVELS, Observed, Pooling
from advisor.engine.calibration.efficiency import efficiency_of
from advisor.engine.calibration.host_speed import has_host_probe
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
from advisor.engine.calibration.probe_result import Determined, determined
from advisor.engine.calibration.processor import measured_cores, measured_share

__all__ = [
    "LEVELS",
    "Observed",
    "Pooling",
    "Array",
    "BudgetError",
    "Determined",
    "Figure",
    "Interval",
    "Mask",
    "Parameter",
    "Places",
    "Solution",
    "conditioning",
    "determined",
    "efficiency_of",
    "has_host_probe",
    "least_squares",
    "measured_cores",
    "measured_share",
    "median_of",
    "samples",
    "weighted_quantile",
]
