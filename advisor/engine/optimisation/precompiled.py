"""Compiling ahead of time: the same paid hours of a week with a shorter start. Tokens/s stay what they are."""

from dataclasses import replace

import numpy as np

from advisor.engine.search import Scored, autoscales, table
from advisor.engine.spec import ColdStart, Workload


def paid_fraction(workload: Workload, s: Scored, cold_start_s: float) -> float:
    """Paid share of a week's hours of the instances for the peak, each started so long before it serves."""
    c, carrying = s.lane.choice, np.array([float(s.replicas - s.spare_replicas)])
    asked = replace(workload, cold_start_s=cold_start_s)
    return float(table.paid_fraction(asked, s.offer, carrying, c.tp * c.pp * c.dp, c.pp)[0])


def gained(workload: Workload, s: Scored, start: ColdStart | None) -> tuple[str, str]:
    """(what changes, what it does here) in words; both empty where nothing of this plan starts more than once."""
    if start is None or not autoscales(workload, s.offer) or s.pools is not None or workload.cold_start_s <= 0:
        return "", ""
    now, then = (paid_fraction(workload, s, t) for t in (workload.cold_start_s, start.cold_start_s))
    change = f"an instance serves {start.cold_start_s:.0f} s after it is asked for, not {workload.cold_start_s:.0f} s"
    saved = s.usd_per_hour - s.usd_per_hour_paid(then * s.paid_fraction / now)
    return change, (
        f"paid hours of a week fall from {now:.2%} to {then:.2%} of all, {saved:.3g} USD/h of the mean; tokens/s are "
        f"the same, and a sudden load waits less ({start.source})"
    )
