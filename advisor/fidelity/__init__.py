"""Compares predictions with published measurements, and fits the calibration to them."""

from advisor.fidelity import calibrate, calibration_files, conditioning, host_time, nearest_rows
from advisor.fidelity.calibration_files import Setup
from advisor.fidelity.checked_rows import fault, read
from advisor.fidelity.decisions import document as decision_document
from advisor.fidelity.decisions import record as decision_record
from advisor.fidelity.rows import COLUMNS, MeasurementsError, Row
from advisor.fidelity.rows import count as layout_count
from advisor.fidelity.scores import disputed, peers, reliability, report, score_files, scorecard, scoring
from advisor.fidelity.scores.report import PEERS, REASONS
from advisor.fidelity.scores.scorecard import Card, Json, Line, kind_of
from advisor.fidelity.training import intervals as training_intervals
from advisor.fidelity.training import layouts as training_layouts
from advisor.fidelity.training import nearest as nearest_training
from advisor.fidelity.training import probes as training_probes
from advisor.fidelity.training import report as training_report
from advisor.fidelity.training import scores as training_scores

__all__ = [
    "COLUMNS",
    "Card",
    "Json",
    "Line",
    "MeasurementsError",
    "PEERS",
    "REASONS",
    "Row",
    "Setup",
    "calibrate",
    "calibration_files",
    "conditioning",
    "decision_document",
    "decision_record",
    "disputed",
    "fault",
    "host_time",
    "kind_of",
    "layout_count",
    "nearest_rows",
    "nearest_training",
    "peers",
    "read",
    "reliability",
    "report",
    "score_files",
    "scorecard",
    "scoring",
    "training_intervals",
    "training_layouts",
    "training_probes",
    "training_report",
    "training_scores",
]
