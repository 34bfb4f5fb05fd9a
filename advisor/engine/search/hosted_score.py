"""The objective of a hosted API, on the same scale as that of the deployments."""

import math

import numpy as np

from advisor.engine.search.declared_scores import SCORE_NAMES, Score, lacking
from advisor.engine.search.objective import Figures, Scale, objective
from advisor.engine.spec import Workload

UNKNOWN = Score(low_fraction=0.0, high_fraction=1.0, facts=())
NOT_PUBLISHED = {  # objective -> the figure that it needs and that no API publishes
    "throughput": "throughput per chip",
    "energy": "power",
    "carbon": "power",
}


def missing_figure(workload: Workload, tpot_s: float | None) -> str | None:
    """The figure that the objective needs and that this API does not publish; None: it can be ranked."""
    if workload.objective == "latency" and tpot_s is None:
        return "speed"
    return NOT_PUBLISHED.get(workload.objective)


def hosted_score(workload: Workload, scale: Scale, usd_per_hour: float, tpot_s: float | None) -> float:
    """The objective at this bill (USD per hour) and time per output token (s; None: unknown); lower is better.

    Under `balanced` an unknown speed counts as that of the slowest request allowed, or twice the fastest deployment;
    power counts as the median chip's, the declared scores as half, and the risk of missing facts is full.
    """
    limit = workload.slo.tpot_p95_s
    tpot = tpot_s if tpot_s is not None else (limit or 2.0 * scale.tpot_s)
    figures = Figures(
        usd_per_hour=np.array(usd_per_hour),
        tpot_p95_s=np.array(tpot),
        watts=np.array(math.nan),
        kgco2e_per_kwh=np.array(math.nan),
        capacity_requests_per_s=np.array(math.nan),
        chips=np.array(math.nan),
        lacking=lacking(workload, dict.fromkeys(SCORE_NAMES, UNKNOWN), 1.0),
    )
    return float(objective(workload, scale, figures))
