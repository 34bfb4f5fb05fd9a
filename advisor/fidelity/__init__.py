"""Compares predictions with published measurements, and fits the calibration to them."""

from advisor.fidelity import (
    calibrate,
    calibration_files,
    conditioning,
    disputed,
    host_time,
    nearest_rows,
    nearest_training,
    peers,
    reliability,
    report,
    score_files,
    scorecard,
    scoring,
    training_intervals,
    training_layouts,
    training_probes,
    training_report,
    training_scores,
)
from advisor.fidelity.calibration_files import Setup
from advisor.fidelity.checked_rows import read
from advisor.fidelity.report import PEERS, REASONS
from advisor.fidelity.rows import COLUMNS, MeasurementsError, Row
from advisor.fidelity.scorecard import Card, Json, Line, kind_of

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
    "disputed",
    "host_time",
    "kind_of",
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
