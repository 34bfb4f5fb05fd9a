"""Serving under load: TTFT, TPOT and throughput from step times, in closed form and by simulation."""

from advisor.engine.scheduler import disaggregated
from advisor.engine.scheduler.closed_form import ClosedLoop, OpenLoop, burst, closed_loop, open_loop
from advisor.engine.scheduler.disaggregated import matched
from advisor.engine.scheduler.percentiles import (
    REQUESTS,
    SEED,
    Bounds,
    Verified,
    at_rate,
    log_normal_cv2,
    scheduler_of,
    shares_prefixes,
    verify,
    verify_trace,
)
from advisor.engine.scheduler.simulation import Simulation, simulate, token_lengths

__all__ = [
    "Bounds",
    "ClosedLoop",
    "OpenLoop",
    "REQUESTS",
    "SEED",
    "Simulation",
    "Verified",
    "at_rate",
    "burst",
    "closed_loop",
    "disaggregated",
    "log_normal_cv2",
    "matched",
    "open_loop",
    "scheduler_of",
    "shares_prefixes",
    "simulate",
    "token_lengths",
    "verify",
    "verify_trace",
]
