"""Quick answers: the whole catalog ranked by closed formulas."""

from advisor.answer.quick.kept import Busy, forget
from advisor.answer.quick.ranking import missing_from, quick_answer, quick_ranking

__all__ = ["Busy", "forget", "missing_from", "quick_answer", "quick_ranking"]
