"""Equal steps are taken at once, and nothing differs from taking them one by one."""

from collections.abc import Iterator

import numpy as np
import pytest

from advisor.engine.scheduler import loop
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.step.step_time import POISSON, POLICIES, STEADY, USERS, Client, Scheduler, StepTimes
from advisor.engine.terms.workloads.workload import Lengths
from tests.engine.serving_cases import lane

IN, OUT = Lengths(mean_tokens=90, p95_tokens=300), Lengths(mean_tokens=60, p95_tokens=150)


def lanes() -> Iterator[tuple[str, StepTimes]]:
    attention = {"decode_s_per_context_token": 3e-6, "prefill_s_per_pair": 1e-7, "sample_s_per_sequence": 1e-4}
    yield "plenty of cache", lane(**attention)
    yield "little cache", lane(**attention, kv_capacity_tokens=1600)
    windows = {"window_s_per_context_token": 2e-6, "window_tokens": 128, "window_prefill_s_per_pair": 1e-7}
    yield "a window", lane(**attention, **windows)
    yield "host and eager floors", lane(
        **attention, host_s=0.013, host_s_per_sequence=2e-4, serial_s_per_sequence=1e-5, graph_max_tokens=4,
        eager_floor_s=0.02, request_s=0.004, slow_share=0.3, slow_ratio=2.0,
    )  # fmt: skip
    yield (
        "no graphs, whole tiles, prompts prepared",
        lane(**attention, graph_max_tokens=0, eager_floor_s=0.02, prepare_s=0.01, tile_tokens=32),
    )


def both_ways(monkeypatch: pytest.MonkeyPatch, *args, **options) -> tuple[Simulation, Simulation]:
    jumped = simulate(*args, **options)
    run_steps = loop.run_steps
    monkeypatch.setattr(loop, "run_steps", lambda *given: run_steps(*given, True))
    return jumped, simulate(*args, **options)


@pytest.mark.parametrize("max_batched_tokens", [8192, 20])  # prompts in one step; in parts, with few left for decodes
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("kind", [POISSON, STEADY, USERS])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("name", "times"), list(lanes()))
def test_jumps_change_no_bit_of_what_is_simulated(
    name: str,
    times: StepTimes,
    policy: str,
    kind: str,
    asynchronous: bool,
    max_batched_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = Scheduler(
        policy=policy,
        max_batched_tokens=max_batched_tokens,
        reserve_full=policy == "mixed",
        asynchronous=asynchronous,
        max_running_requests=12,
    )
    client = Client(kind=kind, rate_per_s=4.0, users=20, think_s=2.0)
    jumped, stepped = both_ways(monkeypatch, times, 0, scheduler, client, IN, OUT, concurrency=12, requests=300, seed=7)
    for field in [name for name in Simulation.__slots__ if name != "work"]:
        np.testing.assert_array_equal(getattr(jumped, field), getattr(stepped, field), err_msg=f"{name}: {field}")
    assert jumped.work < stepped.work
    assert jumped.steps > 300
