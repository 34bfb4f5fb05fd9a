"""Watts by phase: what chips draw while they read prompts, write answers, wait for their host, or rest."""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.cost import Assumptions, Draw, kernel_fraction
from advisor.engine.network import Model
from advisor.engine.spec import Accelerator, Workload
from advisor.engine.step.lane import Lanes
from advisor.engine.step.lane_times import lasting_s, prefill_s
from advisor.engine.step.ledger import (
    Line,
    adapter_line,
    attention_line,
    context_tokens,
    linear_operators_at,
    prompt_tokens,
    source_lines,
)
from advisor.engine.step.operators import Array, Layouts, attention_cost

TALKS = "communication"
LEAST_REQUESTS = 1e-9


def step_fractions(
    draw: Draw, model: Model, built: Lanes, index: int, prompt: float, sequences: float, context: float
) -> tuple[float, float]:
    """Mean share of (limit - idle) over a step that computes one whole prompt, and over one decode step.

    The lines are those of the two ledgers, in one pass: `prompt` tokens alone; `sequences` requests of this `context`.
    """
    x = built.layouts.one(index)
    operators = list(linear_operators_at(model, built, index, np.array([prompt, sequences])))
    time_s, flops, moved = (np.array([getattr(op, name) for op in operators]) for name in ("time_s", "flops", "bytes"))
    drawn = _drawn(draw, x, x.matmul_flops_per_s, time_s, flops, moved)
    talks = np.array([op.bound == TALKS for op in operators])
    drawn[talks] = draw.kernel_fraction
    cost = attention_cost(model, x)
    found = []
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
        whole_s = lasting_s(built, index, device_s, tokens, n, phase == "prefill")
        used = math.fsum(s * share for s, share in zip(busy_s, shares, strict=True))
        waited_s = max(whole_s - math.fsum(busy_s), 0.0)
        found.append((used + waited_s * draw.waiting_fraction) / (math.fsum(busy_s) + waited_s))
    return found[0], found[1]


def _drawn(draw: Draw, x: Layouts, flops_per_s: Array, time_s: Array, flops: Array, moved: Array) -> Array:
    s = np.maximum(time_s, 1e-30)
    memory, compute = moved / s / x.memory_bytes_per_s, flops / s / flops_per_s
    return kernel_fraction(draw, np.minimum(memory, 1.0), np.minimum(compute, 1.0))


def _line(draw: Draw, x: Layouts, line: Line) -> float:
    values = (np.array([v]) for v in (line.time_s, line.flops, line.bytes))
    return float(_drawn(draw, x, x.half_flops_per_s, *values)[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Phases:
    """What the lanes of a deployment do at its mean load, and the power of a chip in each, of (limit - idle)."""

    prefill_fraction: float
    decode_fraction: float
    prefill_s_per_s: float  # seconds of prefill that a second of the mean load brings, over all lanes
    running_requests_mean: float  # in flight over all lanes at the mean load
    by_chance: bool = True  # requests arrive by chance; False: work waits, and lanes are full or off

    def busy(self, lanes: float, load: float = 1.0) -> tuple[float, float]:
        """(prefill's, decode's) share of the time of so many lanes at this multiple of the mean load.

        A lane steps while it holds any request: with Poisson arrivals and m of them on average, 1 - exp(-m) of the
        time (M/G/infinity), however few run at once. Little's law ties m to the load.
        """
        prefill = min(self.prefill_s_per_s * load / lanes, 1.0)
        held = self.running_requests_mean * load / lanes
        stepping = -math.expm1(-held) if self.by_chance else min(held, 1.0)
        return prefill, max(stepping - prefill, 0.0)

    def span_fraction(self, lanes: float, load: float = 1.0) -> float:
        """Mean power of a chip of these lanes, of (limit - idle)."""
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
    """From the step ledger of one lane: `running` requests on it at the peak; (mean, peak) rate of all `lanes`.

    `duty_fraction`: mean load over capacity, the share of time in which a batch or an embedding server has work.
    """
    full, (mean, peak), prompt = not workload.kind.has_arrivals, requests_per_s, prompt_tokens(workload)
    held = running if full else running * mean / peak  # on one lane
    together = held if full else held / max(-math.expm1(-held), LEAST_REQUESTS)
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
        return given(a, chip, _phases(first, first, duty_fraction * lanes, duty_fraction * lanes, False))
    return given(a, chip, _phases(first, later, first_s, (duty_fraction if full else held) * lanes, not full))


def given(a: Assumptions, chip: Accelerator, found: Phases) -> Phases:
    """The planner's own shares of the power limit in the place of the ledger's, where there are such."""
    if not a.power_given:
        return found
    idle = chip.idle_watts / chip.watts if math.isfinite(chip.idle_watts) else a.idle_fraction
    shares = ((share - idle) / (1.0 - idle) for share in (a.prefill_power_fraction, a.decode_power_fraction))
    first, later = (max(share, 0.0) for share in shares)
    return replace(found, prefill_fraction=first, decode_fraction=later)


def _phases(prefill: float, decode: float, prefill_s_per_s: float, running: float, by_chance: bool) -> Phases:
    return Phases(
        prefill_fraction=prefill,
        decode_fraction=decode,
        prefill_s_per_s=prefill_s_per_s,
        running_requests_mean=running,
        by_chance=by_chance,
    )
