"""Engine values to an answer: options, costs, explanations."""

from advisor.answer import bill, calibration_marks, launch_flags, portfolio, single_estimate, waterfall
from advisor.answer.advice import recommend
from advisor.answer.bill import CURRENCY
from advisor.answer.mix import joined
from advisor.answer.portfolio import feasible
from advisor.answer.unused_inputs import with_probes

__all__ = [
    "CURRENCY",
    "bill",
    "calibration_marks",
    "feasible",
    "joined",
    "launch_flags",
    "portfolio",
    "recommend",
    "single_estimate",
    "waterfall",
    "with_probes",
]
