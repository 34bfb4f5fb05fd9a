"""Load tests of recommended deployments: reads result files and compares them with the predictions."""

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
from advisor.load_tests.result_files import LoadResult, LoadResultError, cv_of_shape, percentiles_of
from advisor.load_tests.result_files import parse_runs as read_runs
from advisor.load_tests.result_files import read as read_result
