"""What results change: fits, the calibrations that they make, and undoing them."""

from probes.fitted import calibrations, fitting
