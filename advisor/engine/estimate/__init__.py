"""Estimates of fixed deployments: by simulation, or in closed form for fits."""

from advisor.engine.estimate import closed_form
from advisor.engine.estimate.closed_form import means, prepared
from advisor.engine.estimate.simulated import (
    Estimate,
    Resources,
    estimate,
    estimate_all,
    find_framework,
    methods_of_dtype,
    prepare,
    quantization_for,
    queued_requests,
)

__all__ = [
    "Estimate",
    "Resources",
    "closed_form",
    "estimate",
    "estimate_all",
    "find_framework",
    "means",
    "methods_of_dtype",
    "prepare",
    "prepared",
    "quantization_for",
    "queued_requests",
]
