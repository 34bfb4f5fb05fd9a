"""A chip whose power nobody publishes is neither green nor out: `balanced` counts the middle chip's, and more risk."""

import math
from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.search import Question
from advisor.engine.search.declared_scores import risk_fraction
from advisor.engine.search.objective import Figures, Scale, objective
from advisor.engine.search.run import search
from tests.engine.catalog_sample import VLLM, catalog, question

KNOWN = catalog(frameworks=(VLLM,))
DARK = replace(
    KNOWN,
    accelerators=tuple(
        replace(a, watts=math.nan, idle_watts=math.nan) if a.slug == "small" else a for a in KNOWN.accelerators
    ),
)
EASY = {"variants": "no", "requests_per_s_mean": 0.2, "requests_per_s_peak": 0.5}


def first(known, objective):
    asked = question(objective=objective, weights=(("latency", 0.0),), **EASY)
    return search(Question(asked, known)).ranked[0].lane.choice.accelerator.slug


def test_the_balance_does_not_drop_what_publishes_no_power():
    assert first(KNOWN, "cost") == first(DARK, "cost") == first(DARK, "balanced")


def test_what_publishes_no_power_comes_after_what_does():
    for name in ("energy", "carbon"):
        known, unknown = (float(objective(question(objective=name), Scale(), figures(w))) for w in (1e7, math.nan))
        assert known < unknown < math.inf


def test_an_unknown_power_counts_as_the_middle_one():
    scale = Scale(watts=100.0, unknown_watts=300.0)
    at = {
        watts: float(objective(question(objective="balanced"), scale, figures(watts)))
        for watts in (100.0, 300.0, 500.0, math.nan)
    }
    assert at[math.nan] == pytest.approx(at[300.0]) and at[100.0] < at[300.0] < at[500.0]


def test_the_middle_is_of_the_chips_that_hold():
    scale = search(Question(question(objective="balanced", **EASY), DARK)).scale
    assert scale.watts <= scale.unknown_watts < 1e4
    dark = replace(KNOWN, accelerators=tuple(replace(a, watts=math.nan) for a in KNOWN.accelerators))
    assert search(Question(question(objective="balanced", **EASY), dark)).scale.unknown_watts == 1.0


def test_an_unknown_power_widens_the_risk():
    answer = search(Question(question(objective="balanced", **EASY), KNOWN))
    s = answer.ranked[0]
    scores, risk = answer.scale.declared.of(s.lane, s.offer)
    assert risk_fraction(scores, (0.9, 1.1)) < risk_fraction(scores, (0.9, 1.1), power_known=False)
    chip = replace(s.lane.choice.accelerator, watts=math.nan)
    dark = replace(s.lane, choice=replace(s.lane.choice, accelerator=chip))
    assert answer.scale.declared.of(dark, s.offer)[1] > risk


def figures(watts):
    return Figures(
        usd_per_hour=np.array(1.0),
        tpot_p95_s=np.array(1.0),
        watts=np.array(watts),
        kgco2e_per_kwh=np.array(0.3),
        capacity_requests_per_s=np.array(1.0),
        chips=np.array(1.0),
    )
