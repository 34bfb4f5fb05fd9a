"""Engine values to a typed answer: options, costs, explanations."""

from advisor.answer import calibration_marks, launch_flags, quick, single_estimate, training_estimate, waterfall
from advisor.answer.advice import recommend
from advisor.answer.money import CURRENCY
from advisor.answer.sentences import likely
from advisor.answer.unused_inputs import with_probes

__all__ = [
    "CURRENCY",
    "calibration_marks",
    "launch_flags",
    "likely",
    "quick",
    "recommend",
    "single_estimate",
    "training_estimate",
    "waterfall",
    "with_probes",
]
