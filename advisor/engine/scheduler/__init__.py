"""Serving under load: TTFT, TPOT and throughput from step times, in closed form and by simulation."""

from advisor.engine.scheduler.closed_form import ClosedLoop, OpenLoop, burst, closed_loop, open_loop
from advisor.engine.scheduler.disaggregated import PoolLanes, matched, simulate_pools
from advisor.engine.scheduler.percentiles import (
    P95_UNSERVED_FRACTION,
    REQUESTS,
    SEED,
    Bounds,
    Verified,
    at_rate,
    log_normal_cv2,
    request_lengths,
    scheduler_of,
    shares_prefixes,
    verify,
    verify_trace,
    whole_users,
)
from advisor.engine.scheduler.response import Response, response_of
from advisor.engine.scheduler.sampling import gaps
from advisor.engine.scheduler.simulation import Simulation, simulate
