"""Rate, TTFT and TPOT of continuous and static batching, from the mean composition of steps."""

from dataclasses import dataclass

import numpy as np

from advisor.engine.step import CHUNKED, MIXED, PREFILL_FIRST, Array, Demand, Load, Scheduler

# (requests/s, TTFT, TPOT, whether the prompt budget is the limit, seconds of a step without prompts)
Rates = tuple[Array, ...]
RAMP_SCATTER = 1.0  # how much an initial ramp of one step's prompts scatters evenly spaced requests


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """Distribution of prompts over steps."""

    requests_per_step: Array  # prompts in a step that has any
    whole_steps: Array  # full chunks of a prompt before its last step
    last_fraction: Array  # of the prompt, in its last step
    prompt_steps_per_step: Array  # steps with prompts per step


def prompts_of(arrivals: Array, room: Array, random: Array, clump: Array = 1.0) -> Prompts:
    """Prompts by step for `arrivals` per step, when a step has room for `room` prompts.

    random: 0 for evenly spaced arrivals, 1 for independent ones. clump: arrivals that come together.
    """
    hit = np.minimum(arrivals, 1.0) * (1 - random) + (1 - np.exp(-arrivals)) * random
    hit = np.minimum(hit, arrivals / clump)
    whole = np.maximum(np.ceil(1 / room - 1e-9) - 1, 0.0)
    share = np.maximum(np.where(whole > 0, arrivals * (whole + 1), hit), arrivals / room)
    requests_per_step = np.where(whole > 0, room, arrivals / np.maximum(share, 1e-30))
    return Prompts(
        requests_per_step=requests_per_step,
        whole_steps=whole,
        last_fraction=1 - whole * room,
        prompt_steps_per_step=share,
    )


def own_prompt_s(load: Load, decodes: Array, prompts: Prompts, sequences: Array, idle: Array = 0.0) -> Array:
    """Seconds of the steps with a request's own prompt; idle: probability that no step ran before the first of them."""
    idle_per_step = idle / (prompts.whole_steps + 1)
    filled_s = load.step_s(decodes, prompts.requests_per_step, sequences, idle_per_step)
    last_s = load.step_s(decodes, prompts.last_fraction, sequences, idle_per_step)
    return np.where(prompts.whole_steps > 0, prompts.whole_steps * filled_s + last_s, filled_s)


def rank_wait_factor(load: Load, prompts: Prompts) -> Array:
    """Share of steps in which any attention-DP rank has a prompt, over the share in which this rank has one (>= 1).

    Ranks have prompts independently of each other, as in simulation._waited_s; 1 for a lane that waits for no other.
    """
    share = np.clip(prompts.prompt_steps_per_step, 1e-30, 1.0)
    return np.where(load.ranks > 1, -np.expm1(load.ranks * np.log1p(-np.minimum(share, 1 - 1e-12))) / share, 1.0)


def room_of(load: Load, scheduler: Scheduler, decodes: Array) -> Array:
    """Prompts that a step has room for; below 1: the fraction of a prompt."""
    budget = scheduler.max_batched_tokens
    if scheduler.policy == MIXED and not scheduler.chunked_prefill:
        return np.maximum(np.floor(budget / load.prompt_tokens), 1.0)
    return np.maximum(budget - (decodes if scheduler.policy == CHUNKED else 0.0), 1.0) / load.prompt_tokens


def _added_s(
    load: Load,
    decodes: Array,
    step_s: Array,
    p: Prompts,
    room: Array,
    arrivals: Array,
    sequences: Array,
    idle: Array,
) -> tuple[Array, Array]:
    """(mean seconds that prompts add to a decode step, seconds of the steps with a request's own prompt)."""
    own_s = own_prompt_s(load, decodes, p, sequences, idle)
    spread_s = arrivals * (own_s - (p.whole_steps + 1) * step_s)
    filled = np.maximum(p.requests_per_step, np.minimum(room, 1.0))
    packed_s = arrivals / room * (load.step_s(decodes, filled, sequences) - step_s)
    several_s = p.prompt_steps_per_step * (own_s - step_s)
    return np.where(p.whole_steps > 0, np.where(p.prompt_steps_per_step > 1, packed_s, spread_s), several_s), own_s


def continuous(
    load: Load,
    running: Array,
    demand: Demand,
    scheduler: Scheduler,
    request_s: Array,
    clump: Array = 1.0,
) -> Rates:
    """Rates of continuous batching with `running` requests always in flight."""
    if scheduler.policy == PREFILL_FIRST:
        return _alternating(load, running, demand, scheduler, request_s, clump)
    mixed = _mixed(load, running, demand, scheduler, request_s, clump)
    if scheduler.policy == CHUNKED:
        return mixed
    crowded = crowded_of(load, running, demand, scheduler)
    if not crowded.any():
        return mixed
    alternating = _alternating(load, running, demand, scheduler, request_s, clump)
    return tuple(np.where(crowded, a, m) for a, m in zip(alternating, mixed, strict=True))


def crowded_of(load: Load, running: Array, demand: Demand, scheduler: Scheduler) -> Array:
    """Whether prompts use up the token budget, so that prefill and decode steps alternate."""
    prompts = np.minimum(np.maximum(running / demand.output_tokens, 1.0), room_of(load, scheduler, 0.0))
    decodes = np.minimum(running, prompts * demand.output_tokens)
    return prompts * load.prompt_tokens + decodes > scheduler.max_batched_tokens


def _randomness(load: Load, running: Array, demand: Demand, scheduler: Scheduler, arrivals: Array) -> Array:
    """How far the initial ramp of prompts has scattered evenly spaced equal requests (0 to 1); 1 if lengths vary."""
    if demand.output_cv2 > 0:
        return 1.0
    scatter = RAMP_SCATTER * arrivals * (running - 1) * load.prompt_tokens / scheduler.max_batched_tokens
    return scatter / (1 + scatter)


def _others_fraction(load: Load, running: Array) -> Array:
    """Fraction of the prompts that are not a request's own, over all ranks that step together."""
    together = running * np.maximum(load.ranks, 1.0)
    return np.maximum(together - 1, 0.0) / np.maximum(together, 1e-9)


def _mixed(
    load: Load,
    running: Array,
    demand: Demand,
    scheduler: Scheduler,
    request_s: Array,
    clump: Array,
) -> Rates:
    """Rates if prompts and decodes share steps."""
    after_first = np.maximum(demand.output_tokens - 1, 0.0)  # decode steps of a request
    others, busy = _others_fraction(load, running), np.clip(running - 1, 0.0, 1.0)
    step_s = load.step_s(running, 0.0, running)
    most = scheduler.max_batched_tokens / (load.prompt_tokens + after_first)
    chunks = np.ceil(1 / room_of(load, scheduler, np.minimum(running, most * after_first)))
    lag = busy * (scheduler.asynchronous + np.ceil(request_s / step_s))
    unbounded = running / np.maximum(after_first + lag + chunks, 1.0)
    arrivals = np.minimum(unbounded, most)
    room = room_of(load, scheduler, arrivals * after_first)
    p = prompts_of(arrivals, room, _randomness(load, running, demand, scheduler, arrivals), clump)
    alone_n = arrivals * (after_first + chunks)
    decode_s = np.where(after_first > 0, load.step_s(alone_n, 0.0, alone_n), 0.0)
    with_n = np.maximum(alone_n - arrivals * chunks / np.maximum(p.prompt_steps_per_step, 1e-30), 0.0)
    added_s, own_s = _added_s(load, with_n, decode_s, p, room, arrivals, alone_n, 1 - busy)
    added_s = added_s * rank_wait_factor(load, p)
    step_s = decode_s + added_s
    tpot_s = decode_s + others * added_s
    rate = arrivals / step_s
    first_s = own_s + np.where(busy > 0, lag * tpot_s + (1 - busy) * request_s, request_s)
    full = unbounded > most
    queued_s = running / rate - after_first * tpot_s
    return rate, np.where(full, np.maximum(first_s, queued_s), first_s), tpot_s, full, decode_s


def _alternating(
    load: Load,
    running: Array,
    demand: Demand,
    scheduler: Scheduler,
    request_s: Array,
    clump: Array,
) -> Rates:
    """Rates if steps have either prompts or decodes."""
    after_first = np.maximum(demand.output_tokens - 1, 0.0)
    others, busy = _others_fraction(load, running), np.clip(running - 1, 0.0, 1.0)
    step_s, share = load.step_s(running, 0.0, running), 0.0
    room = room_of(load, scheduler, 0.0)
    for _ in range(2):
        lag = busy * (scheduler.asynchronous + np.ceil(request_s / step_s))  # in steps of either kind
        arrivals = running / np.maximum(after_first + lag / (1 + share), 1.0)  # per decode step
        p = prompts_of(arrivals, room, float(demand.output_cv2 > 0), clump)
        decodes = arrivals * after_first
        decode_s = np.where(after_first > 0, load.step_s(decodes, 0.0, decodes), 0.0)
        own_s = own_prompt_s(load, 0.0, p, p.requests_per_step, 1 - busy)
        share = np.minimum(p.prompt_steps_per_step, 1.0)
        added_s = p.prompt_steps_per_step * own_s / (p.whole_steps + 1) * rank_wait_factor(load, p)
        step_s = (decode_s + added_s) / (1 + share)
    tpot_s = decode_s + others * added_s
    rate = arrivals / (decode_s + added_s)
    in_a_row = np.maximum(arrivals / np.maximum(room, 1.0), 1.0)
    first_s = own_s * (in_a_row + 1) / 2
    first_s = first_s + np.where(busy > 0, lag * step_s + (1 - busy) * request_s, request_s)
    return rate, first_s, tpot_s, np.zeros(rate.shape, bool), decode_s


def opening_of(load: Load, running: Array, scheduler: Scheduler) -> tuple[Array, Array]:
    """(steps that `running` simultaneous prompts fill, step in which the mean request gets its first token)."""
    room = room_of(load, scheduler, 0.0)
    steps = np.maximum(np.ceil(running / room - 1e-9), 1.0)
    grouped = steps * (1 - (steps - 1) * room / (2 * running))
    split = (running + 1) / 2 / room + np.where(1 / room % 1 > 0, 0.5, 0.0)
    return steps, np.minimum(np.where(room >= 1, grouped, split), steps)


def static_of(load: Load, running: Array, demand: Demand, scheduler: Scheduler, request_s: Array) -> Rates:
    """Rates of static batching: batches run to completion, one after another."""
    after_first = np.maximum(demand.output_tokens - 1, 0.0)
    longest = after_first * (1 + np.sqrt(3 * demand.output_cv2) * (running - 1) / (running + 1))
    steps, first = opening_of(load, running, scheduler)
    prompt_s = load.step_s(0.0, running / steps, np.maximum(running / steps, 1.0), 1 / steps)
    decode_s = load.step_s(running, 0.0, running)
    tpot_s = decode_s + (steps - first) * prompt_s / np.maximum(after_first, 1.0)
    rate = running / (steps * prompt_s + longest * decode_s + request_s)
    return rate, request_s + first * prompt_s, tpot_s, np.zeros(rate.shape, bool), decode_s
