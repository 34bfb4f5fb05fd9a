"""Engine values to a typed answer: options, costs, explanations."""

from advisor.answer import quick
from advisor.answer.advice import part_of_portfolio, recommend, verdict_first
from advisor.answer.estimates import closed_estimates, single_estimate, training_estimate
from advisor.answer.money import CURRENCY
from advisor.answer.options import calibration_marks, waterfall
from advisor.answer.options.launch_flags import known_options
from advisor.answer.question_notes import with_probes
from advisor.answer.sentences import likely
