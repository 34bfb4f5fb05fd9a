"""Ahead-of-time compilation: the cost saved by a shorter cold start. Tokens/s do not change."""

from dataclasses import replace

import numpy as np

from advisor.engine.search import Scored, autoscales, table
from advisor.engine.terms import ColdStart, Workload


def paid_fraction(workload: Workload, s: Scored, cold_start_s: float) -> float:
    """Paid fraction of the peak instances' hours in a week with this cold start."""
    carrying = np.array([float(s.replicas - s.spare_replicas)])
    asked = replace(workload, cold_start_s=cold_start_s)
    return float(table.paid_fraction(asked, s.offer, carrying, table.packing_of(s.lane.choice, s.offer))[0])


def cold_start_saving(workload: Workload, s: Scored, start: ColdStart | None) -> tuple[str, str]:
    """(change, effect) as text; both empty if the plan's instances never restart."""
    if start is None or not autoscales(workload, s.offer) or s.pools is not None or workload.cold_start_s <= 0:
        return "", ""
    now, then = (paid_fraction(workload, s, t) for t in (workload.cold_start_s, start.cold_start_s))
    change = f"cold start of {start.cold_start_s:.0f} s instead of {workload.cold_start_s:.0f} s"
    saved = s.usd_per_hour - s.usd_per_hour_paid(then * s.paid_fraction / now)
    return change, (
        f"paid hours per week fall from {now:.2%} to {then:.2%}, saving {saved:.3g} USD/h on average; tokens/s do not "
        f"change, and load spikes wait less ({start.source})"
    )
