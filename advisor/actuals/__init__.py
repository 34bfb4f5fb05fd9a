"""What a workload really cost: a bill in FOCUS and the tokens served, beside the forecast of an answer."""

from advisor.actuals.comparison import in_words
from advisor.actuals.files import ActualsError
from advisor.actuals.views import AdviceActuals, measured, option_of, page
