"""One fixed deployment: what it would serve."""

from advisor.engine.estimate import closed_form
from advisor.engine.estimate.closed_form import means, prepared
from advisor.engine.estimate.simulated import (
    Estimate,
    Resources,
    estimate,
    estimate_all,
    find_framework,
    offered,
    prepare,
    quantization_for,
)

__all__ = [
    "Estimate",
    "Resources",
    "closed_form",
    "estimate",
    "estimate_all",
    "find_framework",
    "means",
    "offered",
    "prepare",
    "prepared",
    "quantization_for",
]
