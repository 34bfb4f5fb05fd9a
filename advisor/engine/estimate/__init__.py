"""Estimates of fixed deployments: by simulation, or in closed form for fits."""

from advisor.engine.estimate.closed_form import Means, means, means_on, prepared, vectors_on
from advisor.engine.estimate.simulated import (
    Calibrations,
    Estimate,
    Resources,
    Seen,
    Spread,
    at_numbers_of,
    estimate,
    estimate_all,
    find_framework,
    methods_of_dtype,
    prepare,
    quantization_for,
    queued_requests,
    unknown_bandwidth,
)
