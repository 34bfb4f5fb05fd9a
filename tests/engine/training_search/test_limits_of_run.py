"""Limits on payments refuse plans, and the rejection names the limit."""

import pytest

from advisor.engine.terms import Offer
from tests.engine.training_search.sample import asked, bought, found_for, rented


def test_a_monthly_budget_is_kept_by_every_ranked_run() -> None:
    free = found_for(asked(), rented()).ranked[0]
    limit = free.planned.plan.most_usd_per_month * 1.05
    kept = found_for(asked({"max_usd_per_month": limit}), rented())
    assert kept.ranked and all(c.planned.plan.most_usd_per_month <= limit for c in kept.ranked)


@pytest.mark.parametrize(
    ("limit", "offers"),
    [({"max_usd_per_month": 10.0}, (rented(),)), ({"max_capex_usd": 1000.0}, (bought(),))],
    ids=["month", "purchases"],
)
def test_a_limit_that_no_plan_keeps_is_named(limit: dict[str, float], offers: tuple[Offer, ...]) -> None:
    found = found_for(asked(limit), *offers)
    (rejection,) = found.rejections
    assert found.ranked == () and rejection.reason == "too_expensive"
    assert f"constraints.{next(iter(limit))}" in rejection.detail
    assert rejection.limit == next(iter(limit.values())) and (rejection.reached or 0.0) > rejection.limit
    (change,) = rejection.changes
    assert change.field == f"constraints.{next(iter(limit))}"
    assert found_for(asked({next(iter(limit)): float(change.value)}), *offers).ranked
    assert not found_for(asked({next(iter(limit)): change.value - 2.0}), *offers).ranked


def test_a_run_that_is_late_because_of_a_limit_names_both() -> None:
    found = found_for(asked({"max_usd_per_month": 20_000.0}, tokens=5e11, deadline_days=40.0), rented())
    (rejection,) = found.rejections
    assert rejection.reason == "misses_deadline" and found.too_late["big"].chips == 8
    assert rejection.detail.startswith("the fastest run that keeps constraints.max_usd_per_month, on 8 accelerators")


def test_a_limit_on_purchases_leaves_the_rent() -> None:
    first = found_for(asked({"max_capex_usd": 1000.0}, tokens=1e11), rented(), bought()).ranked[0]
    assert first.planned.plan.capex_usd == 0.0 and first.offer.acquisition == "rent"
