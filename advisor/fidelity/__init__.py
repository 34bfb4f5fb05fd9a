"""The errors of predictions on measured rows, and the rows nearest to a question, as answers and pages show them."""

from advisor.fidelity import nearest_rows, stored
from advisor.fidelity.checked_rows import fault
from advisor.fidelity.rows import COLUMNS, Row
from advisor.fidelity.rows import count as layout_count
from advisor.fidelity.scores import score_rows, scorecard, scoring
from advisor.fidelity.scores.scorecard import Card, Json, Line, kind_of
from advisor.fidelity.training import nearest as nearest_training
from advisor.fidelity.training import probes as training_probes
