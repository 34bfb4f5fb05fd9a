"""A replica that starts on demand, by the formulas and by playing the arrivals."""

import numpy as np
import pytest

from advisor.engine.search.variants.scale_to_zero import ColdStartTimes, on_demand

TIMES = ColdStartTimes(container_s=30.0, weights_s=20.0, engine_s=40.0, idle_timeout_s=60.0)


def played(rate: float, service_s: float, times: ColdStartTimes, count: int = 200_000) -> dict[str, float]:
    """The same by simulation: waits of each request, and the time that is billed."""
    arrivals = np.cumsum(np.random.default_rng(7).exponential(1 / rate, count))
    stay, ready, last, billed = service_s + times.idle_timeout_s, -1.0, -np.inf, 0.0
    waits = np.zeros(count)
    for i, t in enumerate(arrivals):
        if t > max(last + stay, ready + stay):  # stopped: this request starts it
            billed += max(last, ready) + stay - ready if i else 0.0
            ready = t + times.total_s
            billed += times.total_s
        waits[i] = max(ready - t, 0.0)
        last = t
    return {
        "cold": float((waits >= times.total_s - 1e-9).mean()),
        "waiting": float((waits > 0).mean()),
        "mean": float(waits.mean()),
        "p95": float(np.quantile(waits, 0.95)),
        "billed": float(billed / arrivals[-1]),
    }


@pytest.mark.parametrize("rate", [0.001, 0.005, 0.02])
def test_the_formulas_agree_with_arrivals_played_one_by_one(rate: float) -> None:
    told, found = on_demand([rate], 8.0, TIMES), played(rate, 8.0, TIMES)
    assert told.cold_fraction == pytest.approx(found["cold"], rel=0.02)
    assert told.waiting_fraction == pytest.approx(found["waiting"], rel=0.02)
    assert told.wait_mean_s == pytest.approx(found["mean"], rel=0.02)
    assert told.wait_p95_s == pytest.approx(found["p95"], rel=0.02)
    assert told.billed_fraction == pytest.approx(found["billed"], rel=0.02)


def test_a_busy_replica_never_stops_and_a_rare_one_is_always_cold() -> None:
    busy, rare = on_demand([1.0], 8.0, TIMES), on_demand([1e-6], 8.0, TIMES)
    assert busy.billed_fraction == pytest.approx(1.0) and busy.wait_p99_s == 0.0
    assert rare.cold_fraction == pytest.approx(1.0, abs=1e-3) and rare.wait_p50_s == pytest.approx(TIMES.total_s)
    assert rare.billed_fraction == pytest.approx(1e-6 * (90 + 68), rel=1e-3)


def test_hours_without_requests_cost_nothing() -> None:
    day = on_demand([0.01] * 12 + [0.0] * 12, 8.0, TIMES)
    assert day.billed_fraction == pytest.approx(on_demand([0.01], 8.0, TIMES).billed_fraction / 2)
    assert day.cold_fraction == pytest.approx(on_demand([0.01], 8.0, TIMES).cold_fraction)
