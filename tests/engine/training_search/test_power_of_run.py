"""The power of a run lies between that of idle and of fully loaded machines, cooling included."""

from dataclasses import replace

import pytest

from advisor.engine.search import Question, host_watts
from advisor.engine.training_search.outcome import candidate, power_watts
from tests.engine.training_search.sample import BIG, LLAMA, RELIABILITY, asked, on_chips, rented, sold


@pytest.mark.parametrize("pue", [1.0, 1.4])
@pytest.mark.parametrize("chips", [8, 64])
def test_it_is_between_idle_and_tdp(chips: int, pue: float) -> None:
    o = rented(pue=pue)
    catalog = sold(o)
    watts = power_watts(on_chips(chips), LLAMA, catalog, o, chips // 8)
    host = host_watts(o, catalog)
    assert chips * pue * (BIG.idle_watts + host) < watts < chips * pue * (BIG.watts + host)
    assert watts > 0.5 * chips * pue * (BIG.watts + host)  # a training step is mostly matrix multiplies


def test_energy_is_power_over_the_days_and_carbon_its_share_of_the_grid() -> None:
    o = rented()
    c = candidate(Question(asked(), sold(o)), RELIABILITY, on_chips(8), (o,))
    assert c is not None
    assert c.kwh == pytest.approx(c.watts / 1e3 * c.days * 24)
    assert c.kgco2e == pytest.approx(c.kwh * 0.3)


def test_without_a_published_power_it_is_not_a_number() -> None:
    t = replace(on_chips(8), accelerator=replace(BIG, watts=float("nan"), idle_watts=float("nan")))
    o = rented()
    watts = power_watts(t, LLAMA, sold(o), o, 1)
    assert watts != watts
