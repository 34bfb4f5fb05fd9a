"""The choice: which size and way to pay stand for each chip, and in which order."""

from advisor.answer.choice.alternatives import Choice, apart, chosen, needed, rule_at
from advisor.answer.choice.rule import Arranged, Candidate, arrange
from advisor.answer.choice.signing import signed

__all__ = ["Arranged", "Candidate", "Choice", "apart", "arrange", "chosen", "needed", "rule_at", "signed"]
