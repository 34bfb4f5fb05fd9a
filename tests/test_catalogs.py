"""Tests of behavior load the frozen catalog. The modules that may load the shipped one are listed here."""

import csv
import re
from datetime import date
from pathlib import Path

from tests.clocks import TODAY
from tests.conftest import FROZEN

TESTS = Path(__file__).resolve().parent
SHIPPED = re.compile(
    r'usefixtures\("shipped"|\bshipped: None\b|\bshipped\)|load_once\(SHIPPED|call_command\("load_catalog"'
)
# They check the data that is shipped, or need all of it: every chip, every measured row, the loader itself (also of a
# small catalog of their own).
DATA = set(
    """answer/test_advice_every_chip answer/test_estimate answer/test_live_estimate answer/test_purchases
    answer/test_recipes answer/test_sharing_answer answer/test_training_properties engine/step/test_memory_measured
    fidelity/test_calibrate fidelity/test_score_files fidelity/test_track_record
    answer/test_supported_only fidelity/test_local_engines catalog/test_load_catalog claims/test_claims
    commands/test_training_commands
    docs/test_commands engine/search/test_release_drift
    fidelity/test_h100_served_points fidelity/test_host_time fidelity/test_served_points
    fidelity/test_unknown_clients inputs/test_current_prices inputs/test_hosts inputs/test_prices
    inputs/test_smallest_units ops/test_price_moves ops/test_warm questions/test_questions""".split()
)


def test_new_prices_change_no_test_of_behavior() -> None:
    load = {
        str(file.relative_to(TESTS).with_suffix(""))
        for file in TESTS.rglob("test_*.py")
        if SHIPPED.search(file.read_text()) and file != Path(__file__)
    }
    assert load - DATA == set(), 'usefixtures("frozen"), or say why the test needs the shipped catalog'
    assert DATA - load == set(), "take it off the list"


def test_the_frozen_catalog_is_not_newer_than_the_day_of_the_tests() -> None:
    newest = date.min
    for file in FROZEN.rglob("*.csv"):
        with file.open(newline="") as lines:
            newest = max(
                [newest, *(date.fromisoformat(row["as_of"]) for row in csv.DictReader(lines) if row.get("as_of"))]
            )
    assert date(2026, 1, 1) < newest <= TODAY
