"""Calibration: chip efficiencies, power and host times fitted to measurements."""

from advisor.engine.calibration import conditioning
from advisor.engine.calibration.conditioning import Observed, Pooling
from advisor.engine.calibration.host_speed import has_host_probe
from advisor.engine.calibration.kernel_samples import Figure, median_of, samples
from advisor.engine.calibration.probe_result import Determined, determined
from advisor.engine.calibration.processor import measured_cores, measured_share
