"""Load tests of recommended deployments: reads result files and compares them with the predictions."""

from advisor.load_results import LoadResultError
from advisor.load_tests.records import (
    changes,
    compare,
    correct,
    correct_next,
    csv_text,
    measured_rows,
    predicted,
    record,
    set_calibrates,
    shown,
)
