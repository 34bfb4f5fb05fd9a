"""Estimates of fixed deployments: by simulation, or in closed form for fits."""

from advisor.engine.estimate.closed_form import demand_of, means, prepared
from advisor.engine.estimate.simulated import (
    Estimate,
    Resources,
    Seen,
    Spread,
    estimate,
    estimate_all,
    find_framework,
    methods_of_dtype,
    prepare,
    quantization_for,
    queued_requests,
)
