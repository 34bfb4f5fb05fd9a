"""The choice: which size and way to pay stand for each chip, and in which order."""

from advisor.answer.choice.alternatives import (
    Choice,
    apart,
    availability_reasons,
    chosen,
    needed,
    rule_at,
    sold_out_on,
)
from advisor.answer.choice.signing import BUDGET_QUANTILE, signed
from advisor.engine.search import Arranged, Candidate, arrange
