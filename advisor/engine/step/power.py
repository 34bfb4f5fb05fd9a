"""Power by phase: draw during prefill, decode, host time and idle time."""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.cost import Assumptions, Draw, kernel_fraction
from advisor.engine.kernels import Array
from advisor.engine.network import Model
from advisor.engine.step.lane import Lanes
from advisor.engine.step.lane_times import lane_step_s, prefill_s
from advisor.engine.step.ledger import (
    Line,
    adapter_line,
    attention_line,
    context_tokens,
    linear_operators_at,
    prompt_tokens,
    source_lines,
)
from advisor.engine.step.operators import (
    Layouts,
    attention_cost,
)
from advisor.engine.terms import Accelerator, Workload

COMMUNICATION = "communication"
# times of a layout in which a kernel or a collective starts and waits, and moves or computes nothing
LATENCIES = ("kernel_s", "collective_s", "far_collective_s", "hop_s", "direct_hop_s", "exchange_s", "adapter_kernel_s")
MIN_REQUESTS = 1e-9  # avoids a division by zero


def step_fractions(
    draw: Draw, model: Model, built: Lanes, index: int, prompt: float, sequences: float, context: float
) -> tuple[float, float]:
    """Mean power of (a prefill step, a decode step) as fractions of (limit - idle).

    The prefill step has one prompt of `prompt` tokens, the decode step `sequences` requests with this `context`; lines
    are those of the two ledgers, computed in one pass.
    """
    x = built.layouts.one(index)
    tokens_at = np.array([prompt, sequences])
    operators = list(linear_operators_at(model, built, index, tokens_at))
    time_s, flops, moved = (np.array([getattr(op, name) for op in operators]) for name in ("time_s", "flops", "bytes"))
    busy = _busy_fraction(model, built, index, tokens_at, time_s)
    drawn = _drawn(draw, x, x.matmul_flops_per_s, time_s * busy, flops, moved)
    communicating = np.array([op.bound == COMMUNICATION for op in operators])
    drawn[communicating] = draw.kernel_fraction
    # a kernel that starts or ends occupies as much of the chip as it does later; a collective waits for other chips
    starting = draw.waiting_fraction + busy * (draw.kernel_fraction - draw.waiting_fraction)
    starting[communicating] = draw.waiting_fraction
    drawn = busy * drawn + (1.0 - busy) * starting
    cost = attention_cost(model, x)
    fractions = []
    for k, (phase, tokens, n, length) in enumerate(
        (("prefill", prompt, 1.0, prompt), ("decode", sequences, sequences, context))
    ):
        sources = list(source_lines(model, x, phase, n, built.source_tokens[index : index + 1]))
        lines = [attention_line(model, x, cost, phase, n, length), *sources]
        fetched_s = adapter_line(built, index, phase, sources).time_s
        sampled_s = n * float(built.times.sample_s_per_sequence[index])
        busy_s = [*time_s[:, k], *(line.time_s for line in lines), sampled_s]
        shares = [*drawn[:, k], *(_line(draw, x, line) for line in lines)]
        shares.append(float(kernel_fraction(draw, 1.0, 0.0)))
        device_s = np.array([math.fsum(busy_s) + fetched_s])
        step_s = lane_step_s(built, index, device_s, tokens, n, phase == "prefill")
        used = math.fsum(s * share for s, share in zip(busy_s, shares, strict=True))
        waited_s = max(step_s - math.fsum(busy_s), 0.0)
        fractions.append((used + waited_s * draw.waiting_fraction) / (math.fsum(busy_s) + waited_s))
    return fractions[0], fractions[1]


def _busy_fraction(model: Model, built: Lanes, index: int, tokens: Array, time_s: Array) -> Array:
    """Fraction of each operator's time in which its kernels move or compute something.

    In the rest they start, end or wait for other chips. The kernels of a model split over many chips are so short that
    they mostly wait, and draw far less than the large ones that the fractions of a kernel were fitted to.
    """
    x = built.layouts
    at_once = replace(x, one_shot_s=np.minimum(x.one_shot_s, 0.0), **{n: 0.0 * getattr(x, n) for n in LATENCIES})
    working = linear_operators_at(model, replace(built, layouts=at_once), index, tokens)
    return np.minimum(np.array([op.time_s for op in working]) / np.maximum(time_s, 1e-30), 1.0)


def _drawn(draw: Draw, x: Layouts, flops_per_s: Array, time_s: Array, flops: Array, moved: Array) -> Array:
    s = np.maximum(time_s, 1e-30)
    memory, compute = moved / s / x.memory_bytes_per_s, flops / s / flops_per_s
    return kernel_fraction(draw, np.minimum(memory, 1.0), np.minimum(compute, 1.0))


def _line(draw: Draw, x: Layouts, line: Line) -> float:
    values = (np.array([v]) for v in (line.time_s, line.flops, line.bytes))
    return float(_drawn(draw, x, x.half_flops_per_s, *values)[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Phases:
    """Power of a chip in prefill and decode, as fractions of (limit - idle), and time in each at the mean load."""

    prefill_fraction: float
    decode_fraction: float
    prefill_s_per_s: float  # seconds of prefill per second at the mean load, over all lanes
    running_requests_mean: float  # in flight over all lanes at the mean load
    by_chance: bool = True  # random arrivals; False: work is always queued, so lanes are full or off

    def busy(self, lanes: float, load: float = 1.0) -> tuple[float, float]:
        """Fractions of time that `lanes` lanes spend in (prefill, decode) at this multiple of the mean load.

        A lane runs steps while it has any request: with Poisson arrivals and a mean of m requests, 1 - exp(-m) of the
        time (M/G/infinity). By Little's law, m is proportional to the load.
        """
        prefill = min(self.prefill_s_per_s * load / lanes, 1.0)
        per_lane = self.running_requests_mean * load / lanes
        stepping = -math.expm1(-per_lane) if self.by_chance else min(per_lane, 1.0)
        return prefill, max(stepping - prefill, 0.0)

    def span_fraction(self, lanes: float, load: float = 1.0) -> float:
        """Mean power of a chip of these lanes as a fraction of (limit - idle)."""
        prefill, decode = self.busy(lanes, load)
        return prefill * self.prefill_fraction + decode * self.decode_fraction


def phases(
    a: Assumptions,
    model: Model,
    workload: Workload,
    built: Lanes,
    index: int,
    *,
    chip: Accelerator,
    running: float,
    lanes: float,
    requests_per_s: tuple[float, float],
    duty_fraction: float,
) -> Phases:
    """Phases of a deployment, from the step ledger of one lane.

    running: requests on that lane at the peak. requests_per_s: (mean, peak) of all `lanes`. duty_fraction: mean load
    over capacity, the fraction of time in which a batch or an embedding server has work.
    """
    full, (mean, peak), prompt = not workload.kind.has_arrivals, requests_per_s, prompt_tokens(workload)
    held = running if full else running * mean / peak  # on one lane
    together = held if full else held / max(-math.expm1(-held), MIN_REQUESTS)
    first, later = step_fractions(
        Draw.of(a, chip.watts, chip.idle_watts),
        model,
        built,
        index,
        prompt,
        max(together, 1.0),
        context_tokens(workload),
    )
    first_s = mean * prefill_s(built, index, prompt)
    if not workload.kind.generates_tokens:
        return with_planner_power(a, chip, _phases(first, first, duty_fraction * lanes, duty_fraction * lanes, False))
    work = (duty_fraction if full else held) * lanes
    return with_planner_power(a, chip, _phases(first, later, first_s, work, not full))


def with_planner_power(a: Assumptions, chip: Accelerator, computed: Phases) -> Phases:
    """`computed` with the planner's own fractions of the power limit, if set."""
    if not a.power_given:
        return computed
    idle = chip.idle_watts / chip.watts if math.isfinite(chip.idle_watts) else a.idle_fraction
    fractions = ((share - idle) / (1.0 - idle) for share in (a.prefill_power_fraction, a.decode_power_fraction))
    prefill, decode = (max(fraction, 0.0) for fraction in fractions)
    return replace(computed, prefill_fraction=prefill, decode_fraction=decode)


def _phases(prefill: float, decode: float, prefill_s_per_s: float, running: float, by_chance: bool) -> Phases:
    return Phases(
        prefill_fraction=prefill,
        decode_fraction=decode,
        prefill_s_per_s=prefill_s_per_s,
        running_requests_mean=running,
        by_chance=by_chance,
    )
