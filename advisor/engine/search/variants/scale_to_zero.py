"""Scale to zero: one replica that starts with a request and stops after an idle time, billed by the second.

Arrivals are Poisson with the rate of each hour. The replica stops when nothing has arrived for the service time plus
the idle timeout, D. From a renewal argument over one cycle (idle, cold start, busy until a gap of D), with rate r and
cold start c:

- requests per cycle  N = r c + exp(r D): those during the start, and those until the first gap longer than D;
- billed per cycle    B = c + (exp(r D) - 1) / r; the cycle lasts B + 1 / r;
- the first request waits c, one that arrives t into the start waits c - t, the others do not wait:
  P(wait > x) = (1 + r (c - x)) / N for 0 <= x < c.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.search.simulated import Scored
from advisor.engine.terms import Part, Workload

LONGEST_GAPS = 50.0  # r D beyond which the replica never stops; keeps exp() finite
TERM = "scale_to_zero"


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdStartTimes:
    """From the first request until the replica serves it, by part, and how long it stays up without requests, s."""

    container_s: float
    weights_s: float
    engine_s: float
    idle_timeout_s: float

    @property
    def total_s(self) -> float:
        return self.container_s + self.weights_s + self.engine_s


@dataclass(frozen=True, kw_only=True, slots=True)
class OnDemand:
    """How long a replica that scales to zero is billed, and how long requests wait for its cold start."""

    times: ColdStartTimes
    billed_fraction: float  # of all hours
    cold_fraction: float  # of requests: those that start a replica
    waiting_fraction: float  # of requests: those that wait for a start at all
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float


def on_demand(rates_per_s: Sequence[float], service_s: float, times: ColdStartTimes) -> OnDemand:
    """The steady state at these arrival rates (requests/s, one for each hour; service time in s)."""
    rate = np.array([r for r in rates_per_s if r > 0], dtype=float)
    c, stay = times.total_s, service_s + times.idle_timeout_s
    renewed = np.exp(np.minimum(rate * stay, LONGEST_GAPS))
    requests = rate * c + renewed
    billed = c + (renewed - 1.0) / rate
    weight = rate / rate.sum()

    def waiting(x: float) -> float:
        return float(weight @ ((1.0 + rate * (c - x)) / requests))

    def quantile(q: float) -> float:
        """The wait that a fraction q of the requests do not exceed; its distribution is linear between 0 and c."""
        beyond, none, full = 1.0 - q, waiting(0.0), waiting(c)
        if none <= beyond:
            return 0.0
        return c if full >= beyond else c * (none - beyond) / (none - full)

    return OnDemand(
        times=times,
        billed_fraction=float((billed / (billed + 1.0 / rate)).sum() / len(rates_per_s)),
        cold_fraction=float(weight @ (1.0 / requests)),
        waiting_fraction=waiting(0.0),
        wait_mean_s=float(weight @ ((c + rate * c * c / 2.0) / requests)),
        wait_p50_s=quantile(0.5),
        wait_p95_s=quantile(0.95),
        wait_p99_s=quantile(0.99),
    )


def hourly_rates(workload: Workload) -> list[float]:
    """Arrivals per second in each hour of the week; one value if the load is constant."""
    mean = workload.requests_per_s_mean
    if not workload.week:
        return [mean]
    average = sum(workload.week) / len(workload.week)
    return [mean * level / average for level in workload.week]


def scaled_to_zero(workload: Workload, s: Scored, times: ColdStartTimes) -> tuple[Scored, OnDemand]:
    """The deployment with the cost and the latencies that it has if it runs only on demand.

    Waits add to the warm latencies, percentile by percentile, which is an upper bound.
    """
    v = s.verified
    steady = on_demand(hourly_rates(workload), v.e2e_mean_s or v.ttft_mean_s, times)
    verified = replace(
        v,
        ttft_mean_s=v.ttft_mean_s + steady.wait_mean_s,
        ttft_p50_s=v.ttft_p50_s + steady.wait_p50_s,
        ttft_p95_s=v.ttft_p95_s + steady.wait_p95_s,
        ttft_p99_s=v.ttft_p99_s + steady.wait_p99_s,
        e2e_mean_s=v.e2e_mean_s + steady.wait_mean_s,
        e2e_p95_s=v.e2e_p95_s + steady.wait_p95_s,
    )
    share = steady.billed_fraction
    return (
        replace(
            s,
            verified=verified,
            offer=replace(s.offer, term=TERM),
            parts=tuple(Part(name=p.name, usd_per_hour=p.usd_per_hour * share, group=p.group) for p in s.parts),
            licence_usd_per_hour=s.licence_usd_per_hour * share,
            watts=s.watts * share,
            utilisation_fraction=min(s.utilisation_fraction / share, 1.0) if share else 0.0,
            paid_fraction=share,
        ),
        steady,
    )
