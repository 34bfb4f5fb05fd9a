"""The picture of all deployments: cost against speed, which are on the frontier, which are ranked."""

import math
from typing import Any

import numpy as np

from advisor.engine.cost import usd_per_mtok
from advisor.engine.search import Answer, Point, frontier
from advisor.engine.spec import Workload
from advisor.inputs import number

Json = dict[str, Any]


def pareto_json(workload: Workload, answer: Answer) -> list[Json]:
    best = frontier(answer.points)
    if not workload.kind.generates_tokens:
        given = workload.given_tokens
        return [vector_point_json(p, p.requests_per_s * given, k in best) for k, p in enumerate(answer.points)]
    output = workload.output_tokens.mean_tokens
    return [point_json(p, p.requests_per_s * output, k in best) for k, p in enumerate(answer.points)]


def vector_point_json(p: Point, tokens_per_s: float, on_frontier: bool) -> Json:
    """A deployment of an embedding model: what a million tokens cost against how long a request takes."""
    usd = number(float(usd_per_mtok(np.array(p.usd_per_hour), tokens_per_s)))
    return point_json(p, tokens_per_s, on_frontier) | {
        "usd_per_mtok_output": None,
        "usd_per_mtok_input": usd,
        "tpot_ms": None,
        "latency_ms": number(p.tpot_s * 1e3),
        "output_tokens_per_s_per_user": None,
    }


def point_json(p: Point, output_tokens_per_s: float, on_frontier: bool) -> Json:
    bill = np.array(p.usd_per_hour * (1 - p.prefill_fraction))  # the output's part, as in an option's own cost
    return {
        "label": p.label,
        "accelerator": p.accelerator,
        "accelerator_count": p.chips,
        "usd_per_mtok_output": number(float(usd_per_mtok(bill, output_tokens_per_s))),
        "tpot_ms": number(p.tpot_s * 1e3),
        "output_tokens_per_s_per_user": number(1.0 / p.tpot_s if p.tpot_s else math.inf),
        "rank": p.rank,
        "frontier": on_frontier,
        "meets_slo": p.meets_slo,
        "simulated": p.rank is not None,
    }
