"""All deployments by cost and speed: which are on the frontier and which are ranked."""

import math
from collections.abc import Sequence

import numpy as np

from advisor.engine.cost import JOULES_PER_KWH, usd_per_mtok
from advisor.engine.search import Point, SearchResult
from advisor.engine.terms import HOURS_PER_MONTH, Workload
from advisor.inputs import number
from advisor.result import Option, ParetoPoint


def pareto(workload: Workload, outcome: SearchResult, options: Sequence[Option]) -> list[ParetoPoint]:
    """The points of the chart; a ranked point has its option's own figures."""
    by_rank = {option.rank: option for option in options}
    draw = token_point if workload.kind.generates_tokens else embedding_point
    points = [as_its_option(draw(workload, p), by_rank.get(p.rank)) for p in outcome.points]
    best = frontier(points)
    return [point.changed(frontier=k in best) for k, point in enumerate(points)]


def frontier(points: Sequence[ParetoPoint]) -> set[int]:
    """Indices of the Pareto front of cost and time; among equal points the first.

    Only ranked points count, because estimates look better than simulated results. If nothing is ranked, the points
    within the limits are compared, and if there are none, all points.
    """
    known = [k for k, p in enumerate(points) if p.usd_per_mtok is not None and p.response_ms is not None]
    pool = [k for k in known if points[k].rank is not None]
    pool = pool or [k for k in known if points[k].meets_slo] or known
    kept, least_ms = set(), math.inf
    for _, ms, k in sorted((points[k].usd_per_mtok or 0.0, points[k].response_ms or 0.0, k) for k in pool):
        if ms < least_ms:
            kept.add(k)
            least_ms = ms
    return kept


def embedding_point(workload: Workload, p: Point) -> ParetoPoint:
    """Cost of a million tokens read against the latency of a request."""
    tokens_per_s = p.requests_per_s * workload.given_tokens
    usd = number(float(usd_per_mtok(np.array(p.usd_per_hour), tokens_per_s)))
    return token_point(workload, p).changed(
        usd_per_mtok_output=None,
        usd_per_mtok_input=usd,
        usd_per_mtok_blended=usd,
        tpot_ms=None,
        ttft_ms=None,
        latency_ms=number(p.tpot_s * 1e3),
        output_tokens_per_s_per_user=None,
        output_tokens_per_s_per_accelerator_at_capacity=None,
        kgco2e_per_mtok=kgco2e_per_mtok(p, tokens_per_s),
    )


def token_point(workload: Workload, p: Point) -> ParetoPoint:
    """Cost of a million output tokens against the time per output token."""
    output = workload.output_tokens.mean_tokens
    bill = np.array(p.usd_per_hour * (1 - p.prefill_fraction))  # the output's part, as in an option's own cost
    all_tokens_per_s = p.requests_per_s * (workload.given_tokens + output)
    return ParetoPoint(
        label=p.label,
        accelerator=p.accelerator,
        accelerator_count=p.chips,
        usd_per_mtok_output=number(float(usd_per_mtok(bill, p.requests_per_s * output))),
        usd_per_mtok_blended=number(float(usd_per_mtok(np.array(p.usd_per_hour), all_tokens_per_s))),
        usd_per_month=number(p.usd_per_hour * HOURS_PER_MONTH),
        tpot_ms=number(p.tpot_s * 1e3),
        ttft_ms=number(p.ttft_s * 1e3),
        output_tokens_per_s_per_user=number(1.0 / p.tpot_s if p.tpot_s else math.inf),
        output_tokens_per_s_per_accelerator_at_capacity=number(p.capacity_requests_per_s * output / p.chips),
        watts=number(p.watts),
        kgco2e_per_mtok=kgco2e_per_mtok(p, p.requests_per_s * output),
        rank=p.rank,
        frontier=False,
        meets_slo=bool(p.meets_slo),
        simulated=p.rank is not None,
    )


def kgco2e_per_mtok(p: Point, tokens_per_s: float) -> float | None:
    return number(p.watts / tokens_per_s * 1e6 / JOULES_PER_KWH * p.kgco2e_per_kwh if tokens_per_s else math.nan)


def as_its_option(point: ParetoPoint, option: Option | None) -> ParetoPoint:
    """The point with the figures of its option, which count growth, cached prompts and the hours of the grid."""
    if option is None:
        return point
    return point.changed(
        usd_per_mtok_output=option.usd_per_mtok_output,
        usd_per_mtok_input=option.usd_per_mtok_input if option.is_embedding else point.usd_per_mtok_input,
        usd_per_mtok_blended=option.usd_per_mtok_blended,
        usd_per_month=option.usd_per_month,
        watts=option.watts,
        kgco2e_per_mtok=option.kgco2e_per_mtok,
    )
