"""Engine values to an answer: options, costs, explanations."""

from advisor.answer import bill, calibration_marks, launch_flags, portfolio, single_estimate, waterfall
from advisor.answer.advice import recommend
from advisor.answer.bill import CURRENCY
from advisor.answer.card_sharing import beside
from advisor.answer.colocation import packing_json
from advisor.answer.mix import joined, mix_json
from advisor.answer.option import answer_json, choice_json
from advisor.answer.portfolio import feasible
from advisor.answer.portfolio_cost import memo_parts, money_json
from advisor.answer.unused_inputs import not_used, with_probes

__all__ = [
    "CURRENCY",
    "answer_json",
    "beside",
    "bill",
    "calibration_marks",
    "choice_json",
    "feasible",
    "joined",
    "launch_flags",
    "memo_parts",
    "mix_json",
    "money_json",
    "not_used",
    "packing_json",
    "portfolio",
    "recommend",
    "single_estimate",
    "waterfall",
    "with_probes",
]
