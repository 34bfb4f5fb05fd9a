"""Which host sizes a plan may use: those that are cheap for today's load, and those that are once it has grown."""

import math
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.search.planned import NEAR, combinations
from tests.engine.catalog_sample import offer

SIZES = (1, 2, 4, 8)


def deployed(carrying: int) -> Any:
    """One replica on each accelerator."""
    return SimpleNamespace(carrying=carrying, instances=lambda o, replicas: math.ceil(replicas / o.accelerators))


@given(
    st.integers(1, 16),
    st.lists(st.floats(1.0, 6.0), min_size=1, max_size=36),
    st.lists(st.floats(0.5, 2.0), min_size=len(SIZES), max_size=len(SIZES)),
)
def test_the_cheapest_host_of_the_busiest_month_and_of_today_can_be_planned(
    carrying: int, forecast: list[float], usd_each: list[float]
) -> None:
    offers = [offer(f"host-{n}", n * usd, n) for n, usd in zip(SIZES, usd_each, strict=True)]
    workload: Any = SimpleNamespace(forecast=tuple(forecast))
    kept = {o.accelerators for mix in combinations(workload, deployed(carrying), offers) for o in mix}
    for replicas in (carrying, math.ceil(carrying * max(forecast) - 1e-9)):
        usd = {o.accelerators: o.usd_per_hour * math.ceil(replicas / o.accelerators) for o in offers}
        assert {size for size, each in usd.items() if each <= NEAR * min(usd.values())} <= kept


def test_a_large_host_that_only_the_grown_load_fills_is_planned() -> None:
    offers = [offer("one", 4.0, 1), offer("eight", 16.0, 8)]
    for forecast, sizes in (((1.0,), {1}), ((1.0, 4.0), {1, 8})):
        workload: Any = SimpleNamespace(forecast=forecast)
        kept = combinations(workload, deployed(2), offers)
        assert {o.accelerators for mix in kept for o in mix} == sizes
