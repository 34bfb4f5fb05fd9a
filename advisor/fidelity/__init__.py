"""Measured rows, scoring, calibration and load tests."""

from advisor.fidelity import (
    calibrate,
    calibration_files,
    disputed,
    host_time,
    nearest_rows,
    report,
    score_files,
    scorecard,
    scoring,
)
from advisor.fidelity.calibration_files import Setup
from advisor.fidelity.protocols import Run, run_of
from advisor.fidelity.report import PEERS, REASONS
from advisor.fidelity.rows import COLUMNS, MeasurementsError, Row, read
from advisor.fidelity.scorecard import Card, Json, Line, kind_of

__all__ = [
    "COLUMNS",
    "PEERS",
    "REASONS",
    "Card",
    "Json",
    "Line",
    "MeasurementsError",
    "Row",
    "Run",
    "Setup",
    "calibrate",
    "calibration_files",
    "disputed",
    "host_time",
    "kind_of",
    "nearest_rows",
    "read",
    "report",
    "run_of",
    "score_files",
    "scorecard",
    "scoring",
]
