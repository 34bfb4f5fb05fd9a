"""Amounts in words: prices that stay readable when small or unknown, and pairs of figures that read differently."""

import math
from collections.abc import Callable

from advisor.engine.terms.workload import Workload

HOURS_PER_MONTH = 730.0
MORE_DIGITS = 8


def usd_text(usd: float) -> str:
    """$1,234; cents below $10; two significant digits below a cent; "an unknown price" if it is not finite."""
    if not math.isfinite(usd):
        return "an unknown price"
    if usd >= 10 or not usd:
        return f"${usd:,.0f}"
    return f"${usd:.2f}" if usd >= 0.01 else f"${usd:.2g}"


def unlike(written: Callable[[int], tuple[str, str]]) -> tuple[str, str]:
    """Two figures with as many more digits (the argument) as tell them apart; equal figures stay as they are."""
    pairs = (written(more) for more in range(MORE_DIGITS))
    return next((pair for pair in pairs if pair[0] != pair[1]), written(0))


def cost_text(workload: Workload, usd_per_hour: float) -> str:
    """The cost of a run for workloads that run and end, else of a month."""
    if workload.kind.has_deadline and workload.deadline_s is not None:
        every_s = workload.deadline_s * workload.requests_per_s_peak / workload.requests_per_s_mean
        return f"{usd_text(usd_per_hour * every_s / 3600.0)} a run"
    return f"{usd_text(usd_per_hour * HOURS_PER_MONTH)} a month"
