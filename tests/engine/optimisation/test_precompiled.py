"""A shorter start saves paid hours of a week that rises and falls, and nothing else."""

from dataclasses import replace

import pytest

from advisor.engine.optimisation.plan import optimisation_plan
from advisor.engine.optimisation.precompiled import cold_start_saving, paid_fraction
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from advisor.engine.terms.machines.cold_start import ColdStart, cold_start_of
from tests.engine.catalog_sample import catalog, question
from tests.engine.terms.test_demand import HALF_DAYS

START = ColdStart(cold_start_s=40.0, source="sample")
WORLD = catalog(prepared_start=START)
ASKED = question(week=HALF_DAYS, cold_start_s=1800.0, requests_per_s_mean=30.0, requests_per_s_peak=60.0)


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(ASKED, WORLD)).ranked[0]


def test_the_week_is_paid_as_the_search_pays_it(best: Scored) -> None:
    assert paid_fraction(ASKED, best, ASKED.cold_start_s) == pytest.approx(best.paid_fraction)


def test_seven_rises_of_half_days_pay_seven_starts_by_hand(best: Scored) -> None:
    """HALF_DAYS rises once a day: what is started anew each morning is paid 1,760 s less, seven times in 168 h."""
    carrying = best.replicas - best.spare_replicas
    now, then = (paid_fraction(ASKED, best, t) for t in (1800.0, 40.0))
    night = min(level for level in HALF_DAYS)
    anew = carrying - max(-(-carrying * night // 1), 1 if night else 0)
    assert now - then == pytest.approx(7 * anew * 1760 / 3600 / (168 * carrying), rel=0.02)


def test_it_is_told_in_hours_and_enters_no_product(best: Scored) -> None:
    plan = optimisation_plan(Question(ASKED, WORLD), best)
    assert plan is not None
    (step,) = [x for x in plan.steps if x.technique.slug == "ahead_of_time"]
    assert step.state == "hours" and step.estimate is None and "40 s" in step.change and "sample" in step.because


def test_a_level_load_or_an_unknown_start_stays_cited(best: Scored) -> None:
    level = replace(ASKED, week=())
    assert cold_start_saving(level, best, START) == cold_start_saving(ASKED, best, None) == ("", "")
    plan = optimisation_plan(Question(level, WORLD), best)
    assert plan is not None
    assert [x.state for x in plan.steps if x.technique.slug == "ahead_of_time"] == ["cited"]


def test_the_start_is_the_low_end_of_the_assumption() -> None:
    assert cold_start_of({"cold-start-s": {"value": 360, "low": 40, "source": "s"}}) == ColdStart(
        cold_start_s=40, source="s"
    )
    assert cold_start_of({"cold-start-s": {"value": 360, "low": None, "source": "s"}}) is None
