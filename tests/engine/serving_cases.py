"""Invented lanes of plausible magnitude, and how far the closed forms are from the simulation on them.

`python -m tests.engine.serving_cases [N]` prints the errors of N cases per policy and client.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.engine.scheduler.closed_form import burst, capacity_requests_per_s, closed_loop, open_loop
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.step.step_time import POLICIES, STATIC, Client, Demand, Scheduler, StepTimes
from advisor.engine.terms import Z95, Lengths

GRID_TOKENS = 2.0 ** np.arange(16)


@dataclass(frozen=True)
class Case:
    times: StepTimes
    scheduler: Scheduler
    input_tokens: int
    output_tokens: int
    concurrency: int
    utilisation_fraction: float
    seed: int


def lane(**changes: float | np.ndarray) -> StepTimes:
    """One lane with round costs: 10 ms a step and 10 us a token, nothing else unless asked for."""
    names = [name for name in StepTimes.__slots__ if name not in ("grid_tokens", "linear_s")]
    values = dict.fromkeys(names, 0.0) | {
        "window_tokens": 1024.0,
        "graph_max_tokens": 512.0,
        "kv_capacity_tokens": 1e6,
        "block_tokens": 16.0,
    }
    linear_s = np.asarray(changes.pop("linear_s", 0.01 + 1e-5 * GRID_TOKENS), float)
    scalars = {name: np.array([float(value)]) for name, value in (values | changes).items()}
    return StepTimes(grid_tokens=GRID_TOKENS, linear_s=linear_s[None], **scalars)


def fixed(tokens: float) -> Lengths:
    return Lengths(mean_tokens=tokens, p95_tokens=tokens)


def case(policy: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    read_s = between(1.5e-3, 2.5e-2)
    token_s = read_s / between(60, 500)
    windowed = rng.random() < 0.25
    context_s, pair_s = between(3e-9, 6e-8), between(1e-11, 6e-10)
    times = lane(
        linear_s=np.maximum(read_s, GRID_TOKENS * token_s) + 0.1 * (read_s + GRID_TOKENS * token_s),
        sample_s_per_sequence=between(2e-7, 3e-6),
        decode_s_per_context_token=context_s * (0.5 if windowed else 1),
        window_s_per_context_token=context_s * 0.5 * windowed,
        window_tokens=rng.choice([512, 1024, 4096]),
        decode_s_per_sequence=between(1e-7, 3e-6),
        prefill_s_per_pair=pair_s,
        window_prefill_s_per_pair=pair_s * 0.5 * windowed,
        host_s=between(1e-3, 6e-3),
        host_s_per_sequence=between(1e-6, 1e-5),
        serial_s=between(5e-5, 1e-3),
        serial_s_per_sequence=between(1e-7, 3e-6),
        eager_floor_s=between(2e-3, 4e-2),
        kv_capacity_tokens=between(2e5, 2e6),
        request_s=rng.choice([0, 1e-3, 5e-3]),
        prompt_floor_s=between(1e-4, 5e-3),
    )
    scheduler = Scheduler(
        policy=policy,
        max_batched_tokens=int(rng.choice([2048, 8192])),
        chunked_prefill=bool(rng.random() < 0.5),
        asynchronous=bool(rng.random() < 0.7),
        reserve_full=bool(rng.random() < 0.3),
    )
    return Case(
        times=times,
        scheduler=scheduler,
        input_tokens=int(rng.choice([128, 512, 1024, 2048, 4096, 8192])),
        output_tokens=int(rng.choice([32, 128, 256, 512, 1024])),
        concurrency=int(rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 256])),
        utilisation_fraction=float(rng.uniform(0.05, 0.8)),
        seed=seed,
    )


def _errors(answer, simulated: Simulation) -> list[float]:
    pairs = (
        (answer.output_tokens_per_s, simulated.output_tokens_per_s),
        (answer.tpot_mean_s, simulated.mean("tpot_s")),
        (answer.ttft_mean_s, simulated.mean("ttft_s")),
    )
    return [float(np.ravel(predicted)[0]) / measured - 1 for predicted, measured in pairs]


def loop_errors(c: Case, low_fraction: float, rounds: int = 0) -> list[float] | None:
    """Relative errors of tokens/s, TPOT and TTFT in a steady loop (or a burst of so many rounds); None: saturated."""
    cv2 = ((1 - low_fraction) / (1 + low_fraction)) ** 2 / 3
    middle = (1 + low_fraction) / 2
    demand = Demand(
        input_tokens=c.input_tokens * middle, output_tokens=c.output_tokens * middle, input_cv2=cv2, output_cv2=cv2
    )
    users = np.array([float(c.concurrency)])
    if closed_loop(c.times, users, demand, c.scheduler).saturating[0]:
        return None
    kind = STATIC if c.scheduler.policy == STATIC else "burst" if rounds else "steady"
    client = Client(kind=kind, requests_per_user=rounds, length_low_fraction=low_fraction)
    answer = (
        burst(c.times, users, demand, c.scheduler, rounds)
        if rounds
        else closed_loop(c.times, users, demand, c.scheduler)
    )
    lengths = fixed(c.input_tokens), fixed(c.output_tokens)
    count = max(400, 6 * c.concurrency)
    run = simulate(c.times, 0, c.scheduler, client, *lengths, concurrency=c.concurrency, requests=count, seed=c.seed)
    return _errors(answer, run)


def open_errors(c: Case, cv2: float, requests: int) -> list[float] | None:
    """The same under Poisson arrivals below 80 % of capacity, lengths log-normal where cv2 > 0."""
    demand = Demand(input_tokens=c.input_tokens, output_tokens=c.output_tokens, input_cv2=cv2, output_cv2=cv2)
    rate = float(capacity_requests_per_s(c.times, demand, c.scheduler)[0]) * c.utilisation_fraction
    if rate <= 0:
        return None
    sigma = math.sqrt(math.log1p(cv2))
    wide = math.exp(Z95 * sigma - sigma**2 / 2)
    lengths = [Lengths(mean_tokens=t, p95_tokens=t * wide) for t in (c.input_tokens, c.output_tokens)]
    client = Client(kind="poisson", rate_per_s=rate)
    run = simulate(c.times, 0, c.scheduler, client, *lengths, requests=requests, seed=c.seed)
    return _errors(open_loop(c.times, rate, demand, c.scheduler), run)


CLIENTS: dict[str, Callable[[Case], list[float] | None]] = {
    "steady, equal lengths": lambda c: loop_errors(c, 1.0),
    "steady, lengths 0.8-1.0": lambda c: loop_errors(c, 0.8),
    "burst of 10, lengths 0.8-1.0": lambda c: loop_errors(c, 0.8, 10),
    "Poisson, equal lengths": lambda c: open_errors(c, 0.0, 1000),
    "Poisson, log-normal": lambda c: open_errors(c, 0.5, 1000),
}


def errors(policy: str, client: str, count: int) -> np.ndarray:
    """(cases below saturation, [tokens/s, TPOT, TTFT]) relative errors of the closed form."""
    rows = (CLIENTS[client](case(policy, seed)) for seed in range(count))
    return np.array([row for row in rows if row is not None])


if __name__ == "__main__":
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'policy':<14}{'client':<31}{'n':>4}  |error| of tokens/s, TPOT, TTFT: median / 90th percentile / worst")
    for policy in POLICIES:
        for client in CLIENTS:
            found = np.abs(errors(policy, client, cases))
            three = [np.median(found, 0), np.percentile(found, 90, axis=0), found.max(0)]
            cells = "   ".join(" / ".join(f"{v[j]:6.1%}" for v in three) for j in range(3))
            print(f"{policy:<14}{client:<31}{len(found):>4}  {cells}")
