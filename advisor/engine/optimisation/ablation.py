"""Optimization steps for one chip and a given number of users, in an order that can be measured on a real server.

Every step is a server option: --enforce-eager and --max-num-seqs 1, graphs, --quantization fp8, --kv-cache-dtype fp8,
prefix caching, n-gram drafts. Paged KV cache and fused attention cannot be switched off in a server, so unlike in the
optimization plan they are on from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.network import Model
from advisor.engine.optimisation.plan import Setup, scheduler_for, times_of
from advisor.engine.scheduler import closed_loop
from advisor.engine.step import Demand, Draft, Lane, Lanes, lanes
from advisor.engine.terms import Quantization


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationStep:
    """One step: its name, setup and the server's cap on running requests."""

    name: str
    setup: Setup
    max_running_requests: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEstimate:
    """Estimated performance of a step in a closed loop, for one replica."""

    output_tokens_per_s: float
    ttft_mean_s: float
    tpot_mean_s: float


def ablation_steps(
    lane: Lane, users: int, fp8: Quantization | None, shared_fraction: float, draft: Draft | None
) -> list[AblationStep]:
    """Steps from eager mode and batch size 1; each changes one field. `fp8` or `draft` None skips those steps."""
    eager = Setup(lane=lane, graphs=False)
    steps = [("eager, one request at a time", replace(eager, batching="one"), 1), ("eager", eager, users)]
    at = replace(eager, graphs=True)
    steps.append(("graphs", at, users))
    if fp8 is not None:
        at = replace(at, lane=replace(lane, choice=replace(lane.choice, quantization=fp8)))
        steps.append(("FP8 weights", at, users))
    if fp8 is not None and "fp8" in lane.framework.kv_dtypes:
        at = replace(at, lane=replace(at.lane, choice=replace(at.lane.choice, kv_dtype="fp8")))
        steps.append(("FP8 cache", at, users))
    at = replace(at, cached_fraction=shared_fraction)
    steps.append((f"prefix caching, {shared_fraction:.0%} of a prompt cached", at, users))
    if draft is not None:
        steps.append((f"speculative decoding, {draft.method}, {draft.tokens} tokens", replace(at, draft=draft), users))
    return [AblationStep(name=name, setup=setup, max_running_requests=seats) for name, setup, seats in steps]


def estimate_steps(model: Model, steps: Sequence[AblationStep], demand: Demand, users: int) -> list[StepEstimate]:
    """Estimates of each step with `users` requests in flight; those above the cap queue."""
    built = lanes(model, [s.setup.as_run for s in steps])
    return [_estimate_step(model, s, built, i, demand, users) for i, s in enumerate(steps)]


def _estimate_step(model: Model, s: AblationStep, built: Lanes, i: int, demand: Demand, users: int) -> StepEstimate:
    times = times_of(model, s.setup, built, i)
    # batch size 1 keeps the server's continuous scheduler, with a cap of one running request
    scheduler = replace(
        scheduler_for(replace(s.setup, batching="continuous")), max_running_requests=s.max_running_requests
    )
    asked = replace(demand, cached_fraction=s.setup.cached_fraction)
    loop = closed_loop(times, np.array([float(users)]), asked, scheduler)
    return StepEstimate(
        output_tokens_per_s=float(loop.output_tokens_per_s[0]),
        ttft_mean_s=float(loop.ttft_mean_s[0]),
        tpot_mean_s=float(loop.tpot_mean_s[0]),
    )
