"""Quick answers: the whole catalog ranked by closed formulas, and a rough estimate while a question is written."""

from advisor.answer.quick.kept import Busy, forget
from advisor.answer.quick.ranking import quick_answer, quick_ranking
from advisor.answer.quick.rough import missing_from, quick_estimate

__all__ = ["Busy", "forget", "missing_from", "quick_answer", "quick_estimate", "quick_ranking"]
