"""Bought servers that arrive after the deadline of a run are no way to make it."""

from dataclasses import replace

import pytest

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import Question
from advisor.engine.search.candidates import Catalog
from advisor.engine.terms.machines.offer import Offer
from advisor.engine.training_search.search import Found, search
from tests.engine.training_search.sample import RELIABILITY, asked, bought, rented, sold

MONTHS = 10.0
DAYS = MONTHS * HOURS_PER_MONTH / 24.0
CHEAP, DEAR = 1_000.0, 2_000.0  # of a server, and of an hour of one: buying costs less than renting


def delivered(*offers: Offer, months: float = MONTHS) -> Catalog:
    return sold(*(replace(o, order_months=months) if o.acquisition == "own" else o for o in offers))


def found(deadline_days: float | None, *offers: Offer, **changes: float | None) -> Found:
    return search(Question(asked(deadline_days=deadline_days, **changes), delivered(*offers)), RELIABILITY)


def test_a_purchase_that_arrives_after_the_deadline_is_late_and_says_why() -> None:
    (rejection,) = found(10.0, bought()).rejections
    assert rejection.reason == "misses_deadline" and rejection.limit == 10.0
    assert rejection.reached is not None and rejection.reached > DAYS
    assert "until bought servers arrive (tco.purchase-lead-months)" in rejection.detail
    assert found(float(rejection.changes[0].value), bought()).ranked


def test_a_rent_is_chosen_where_the_cheaper_purchase_arrives_too_late() -> None:
    assert found(10.0, rented(usd_per_hour=DEAR), bought(CHEAP)).ranked[0].offer.acquisition == "rent"
    assert found(DAYS + 10.0, bought(CHEAP)).ranked[0].offer.acquisition == "own"


def test_nothing_is_bought_for_less_than_a_year_where_a_run_can_be_rented() -> None:
    assert found(DAYS + 10.0, rented(usd_per_hour=DEAR), bought(CHEAP)).ranked[0].offer.acquisition == "rent"


@pytest.mark.parametrize("changes", [{"deadline_days": None}, {"deadline_days": 10.0, "every_days": 10.0}])
def test_runs_without_a_deadline_and_repeated_runs_wait_for_delivery(changes: dict[str, float | None]) -> None:
    every = changes.pop("every_days", None)
    first = found(changes["deadline_days"], bought(), every_days=every).ranked[0]
    assert first.delivery_days == 0.0 and first.end_days == first.days


def test_servers_in_stock_make_the_deadline() -> None:
    assert search(Question(asked(), delivered(bought(), months=0.0)), RELIABILITY).ranked
