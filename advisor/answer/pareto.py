"""All deployments by cost and speed: which are on the frontier and which are ranked."""

import math

import numpy as np

from advisor.engine.cost import usd_per_mtok
from advisor.engine.search import Point, SearchResult, frontier
from advisor.engine.spec import Workload
from advisor.inputs import number
from advisor.result import ParetoPoint


def pareto(workload: Workload, outcome: SearchResult) -> list[ParetoPoint]:
    best = frontier(outcome.points)
    if not workload.kind.generates_tokens:
        given = workload.given_tokens
        return [embedding_point(p, p.requests_per_s * given, k in best) for k, p in enumerate(outcome.points)]
    output = workload.output_tokens.mean_tokens
    return [token_point(p, p.requests_per_s * output, k in best) for k, p in enumerate(outcome.points)]


def embedding_point(p: Point, tokens_per_s: float, on_frontier: bool) -> ParetoPoint:
    """Cost of a million tokens read against the latency of a request."""
    return token_point(p, tokens_per_s, on_frontier).changed(
        usd_per_mtok_output=None,
        usd_per_mtok_input=number(float(usd_per_mtok(np.array(p.usd_per_hour), tokens_per_s))),
        tpot_ms=None,
        latency_ms=number(p.tpot_s * 1e3),
        output_tokens_per_s_per_user=None,
    )


def token_point(p: Point, output_tokens_per_s: float, on_frontier: bool) -> ParetoPoint:
    """Cost of a million output tokens against the time per output token."""
    bill = np.array(p.usd_per_hour * (1 - p.prefill_fraction))  # the output's part, as in an option's own cost
    return ParetoPoint(
        label=p.label,
        accelerator=p.accelerator,
        accelerator_count=p.chips,
        usd_per_mtok_output=number(float(usd_per_mtok(bill, output_tokens_per_s))),
        tpot_ms=number(p.tpot_s * 1e3),
        output_tokens_per_s_per_user=number(1.0 / p.tpot_s if p.tpot_s else math.inf),
        rank=p.rank,
        frontier=on_frontier,
        meets_slo=bool(p.meets_slo),
        simulated=p.rank is not None,
    )
