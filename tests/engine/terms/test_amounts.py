"""Amounts stay readable when they are small, unknown or nearly equal to their limit."""

import math
from dataclasses import replace

import pytest

from advisor.engine.search.rejected.why_not import above
from advisor.engine.terms.amounts import cost_text, unlike
from advisor.engine.terms.workloads.kinds import BATCH
from tests.engine.catalog_sample import question


def test_a_month_of_twenty_cents_is_not_free() -> None:
    assert cost_text(question(), 0.2 / 730) == "$0.20 a month"
    assert cost_text(question(), math.inf) == "an unknown price a month"


def test_a_batch_costs_a_run() -> None:
    nightly = replace(
        question(), kind=BATCH, deadline_s=8 * 3600.0, requests_per_s_mean=1.0, requests_per_s_peak=3.0
    )  # a run every 24 h
    assert cost_text(nightly, 2.0) == "$48.00 a run"


@pytest.mark.parametrize(
    ("reached_s", "limit_s", "text"),
    [
        (1.0004, 1.0, "1000.4 ms > 1000.0 ms"), (1.441, 1.0, "1441 ms > 1000 ms"),
        (0.05002, 0.05, "50.02 ms > 50.00 ms"), (28801.0, 28800.0, "8.0003 h > 8 h"),
    ],
)  # fmt: skip
def test_a_missed_limit_differs_from_what_was_reached(reached_s: float, limit_s: float, text: str) -> None:
    assert above(reached_s, limit_s) == text


def test_equal_figures_stay_as_they_are() -> None:
    assert unlike(lambda more: (f"{1.0:.{more}f}", f"{1.0:.{more}f}")) == ("1", "1")
