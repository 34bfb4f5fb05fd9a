"""Quick answers: the whole catalog ranked by closed formulas."""

from advisor.answer.quick.kept import Busy
from advisor.answer.quick.ranking import missing_from, quick_answer, quick_ranking
