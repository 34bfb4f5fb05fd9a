"""Quick answers: the whole catalog ranked by closed formulas."""

from advisor.answer.quick.kept import Busy, lanes_key
from advisor.answer.quick.ranking import check_kind, missing_from, quick_answer, quick_ranking, quick_row
