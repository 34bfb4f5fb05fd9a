"""Totals are the sums of what stands above them: an API's of its months, a portfolio's of its rows."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.answer.hosted import bill
from advisor.answer.one_ranking import api_money
from advisor.answer.portfolios.cost import alone_items
from advisor.answer.portfolios.shared_fleet import alone_total
from advisor.answer.portfolios.train_and_serve import mean_hours_per_week, run_parts
from advisor.result import CostPart
from tests.engine.catalog_sample import question

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
usd = st.floats(0.01, 1e6)


@SETTINGS
@given(
    st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60).filter(lambda x: sum(x) > 0.1),
    st.floats(0.0, 0.3),
    st.floats(0.0, 0.3),
    st.floats(1e3, 1e8),
)
def test_an_apis_totals_are_the_sums_of_its_months(
    forecast: list[float], rate: float, vat: float, requests: float
) -> None:
    row = {"usd_per_mtok_input": 0.13, "usd_per_mtok_cached_input": 0.05, "usd_per_mtok_output": 0.4}
    workload = question(horizon_months=len(forecast), forecast=tuple(forecast), discount_fraction=rate)
    months = range(1, len(forecast) + 1)
    annuity = math.fsum((1 + rate) ** (-m / 12) for m in months)
    mean = math.fsum(x * (1 + rate) ** (-m / 12) for m, x in zip(months, forecast, strict=True)) / annuity
    charges = bill({"input": 900.0, "cached": 100.0, "output": 300.0}, row, requests * mean, 1 + vat)
    monthly = math.fsum(charge.usd_per_month for charge in charges)
    found = api_money(workload, SimpleNamespace(bill=charges, usd_per_month=monthly, as_of="2026-11-01"))  # type: ignore[arg-type]
    paid = [flow.total_usd for flow in found.cash_flow]
    assert paid[0] == 0 and len(paid) == len(forecast) + 1
    each = requests * (1 + vat) * (800 * 0.13 + 100 * 0.05 + 300 * 0.4) / 1e6
    for usd_of_month, traffic in zip(paid[1:], forecast, strict=True):
        assert usd_of_month == pytest.approx(each * traffic, rel=1e-4, abs=0.03)
    assert math.fsum(paid) == pytest.approx(math.fsum(part.total_usd or 0.0 for part in found.parts), abs=0.01)
    assert found.npv_usd == pytest.approx(found.usd_per_month * annuity, rel=1e-4, abs=0.02 * len(paid))
    assert math.fsum(part.usd_per_month for part in found.parts) == pytest.approx(found.usd_per_month, abs=0.006)


def step(instances: int, paid: float) -> Any:
    return SimpleNamespace(
        instances=instances, usd=paid, instance="x", provider="p", region="any", term="on_demand",
        price_as_of="2026-11-01", price_source="s", action="rent", from_month=1, until_month=12, paid_until_month=12,
        unit_usd_once=None, unit_usd_per_hour=1.0, paid_hours=5.0,
    )  # fmt: skip


@SETTINGS
@given(st.lists(st.tuples(st.integers(1, 50), usd), min_size=1, max_size=6), usd)
def test_the_items_of_a_workload_share_its_month(steps: list[tuple[int, float]], month: float) -> None:
    money: Any = SimpleNamespace(
        plan=SimpleNamespace(steps=[step(*each) for each in steps]), usd_per_month=1.0, capital_usd=0.0
    )
    answer, option = SimpleNamespace(workload={"name": "w"}), SimpleNamespace(instances=1)
    items = list(alone_items(answer, option, money, month))  # type: ignore[arg-type]
    total = math.fsum((i.quantity or 0.0) * (i.unit_usd_per_month or 0.0) for i in items)
    assert total == pytest.approx(month, rel=1e-9)


@SETTINGS
@given(st.lists(usd, min_size=1, max_size=8), st.one_of(st.none(), usd))
def test_the_total_of_a_portfolio_is_that_of_its_rows_in_cents(amounts: list[float], one_team: float | None) -> None:
    saved = None if one_team is None else round(one_team, 2)
    rows: Any = [SimpleNamespace(option=SimpleNamespace(usd_per_month=round(x, 2))) for x in amounts]
    total = math.fsum(round(x, 2) for x in amounts) - (saved or 0.0)
    assert alone_total(rows, saved) == pytest.approx(total, abs=1e-6)
    assert alone_total([*rows, SimpleNamespace(option=None)], saved) is None  # type: ignore[list-item]


@SETTINGS
@given(st.lists(usd, min_size=1, max_size=8), st.floats(1.0, 60.0))
def test_the_parts_of_a_run_add_up_to_its_month(amounts: list[float], annuity: float) -> None:
    parts = [CostPart(name=f"p{k}", group="rent", usd_per_hour=x / 730, usd_per_month=x) for k, x in enumerate(amounts)]
    money: Any = SimpleNamespace(parts=parts, npv_usd=3 * math.fsum(amounts), usd_per_month=math.fsum(amounts))
    found = run_parts(SimpleNamespace(workload={"name": "w"}), money, annuity)  # type: ignore[arg-type]
    total = math.fsum(part.usd_per_month for part in found)
    assert total == pytest.approx(money.npv_usd / annuity, abs=0.0051)


def test_a_short_run_is_drawn_for_its_hours() -> None:
    monthly, once, long = (SimpleNamespace(every_days=days) for days in (30.0, None, None))
    assert mean_hours_per_week(monthly, 1 / 36) == pytest.approx(40 / 60 * 7 / 30, rel=1e-4)  # type: ignore[arg-type]
    assert mean_hours_per_week(once, 1 / 36) == pytest.approx(40 / 60, rel=1e-4)  # type: ignore[arg-type]
    assert mean_hours_per_week(long, 60.0) == 168  # type: ignore[arg-type]
