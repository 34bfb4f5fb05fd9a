"""What a run pays: rented hours at the list price, a purchase less its resale, and a share of repeated months."""

import math
from typing import Any

import pytest

from advisor.engine.search import Question
from advisor.engine.terms import Offer
from advisor.engine.training_search.outcome import Candidate, candidate, months_of
from tests.engine.training_search.sample import (
    ASSUMED,
    NEVER_FAILS,
    SERVER_USD,
    USD_PER_HOUR,
    asked,
    bought,
    on_chips,
    rented,
    sold,
)

HOURS_PER_MONTH = 730.0


def run(*offers: Offer, chips: int = 8, **task: Any) -> Candidate:
    found = candidate(Question(asked(**task), sold(*offers)), NEVER_FAILS, on_chips(chips), offers)
    assert found is not None
    return found


def test_a_rented_run_pays_its_hours_at_the_list_price() -> None:
    c = run(rented(), chips=16)
    hours = c.steps * c.step_s / 3600 + 660 / 3600
    assert c.usd_per_run == pytest.approx(2 * USD_PER_HOUR * hours)
    assert c.usd_total == pytest.approx(c.usd_per_run, rel=0.01) and c.usd_total < c.usd_per_run  # paid at month's end


def test_a_run_over_several_months_pays_each_month_its_hours() -> None:
    c = run(rented(), tokens=5e11)
    hours = c.days * 24
    assert c.months == months_of(c.days) == math.ceil(hours / HOURS_PER_MONTH) > 2
    by_month = c.planned.plan.total_by_month
    assert by_month[0] == 0.0 and by_month[1] == pytest.approx(USD_PER_HOUR * HOURS_PER_MONTH)
    assert by_month[-1] == pytest.approx(USD_PER_HOUR * (hours - (c.months - 1) * HOURS_PER_MONTH))


def test_a_bought_run_sells_its_machines_when_it_ends() -> None:
    c = run(bought(), tokens=1e11)
    plan = c.planned.plan
    spent = SERVER_USD * 1.1  # with 10% of network
    assert plan.capex_usd == pytest.approx(spent)
    assert plan.resale_usd == pytest.approx(spent * ASSUMED.resale()[c.months])
    assert plan.payments["resale"][-1] < 0 and not plan.payments["resale"][:-1].any()


def test_the_chosen_way_is_the_cheapest() -> None:
    rent, own = run(rented(), tokens=1e11), run(bought(), tokens=1e11)
    assert rent.usd_total < own.usd_total  # two weeks do not pay for a server


@pytest.mark.parametrize("every_days", [7.0, 30.0])
def test_repeated_runs_pay_their_share_of_every_month(every_days: float) -> None:
    c = run(rented(), every_days=every_days)
    monthly = c.planned.plan.total_by_month[1:]
    assert len(monthly) == 36
    share = c.days / every_days
    assert monthly == pytest.approx([USD_PER_HOUR * HOURS_PER_MONTH * share] * 36)
    assert c.usd_per_run == pytest.approx(USD_PER_HOUR * c.days * 24)
    assert c.busy_fraction == pytest.approx(share)


def test_a_run_longer_than_the_time_between_runs_has_no_plan() -> None:
    assert candidate(Question(asked(every_days=0.5), sold(rented())), NEVER_FAILS, on_chips(8), (rented(),)) is None
