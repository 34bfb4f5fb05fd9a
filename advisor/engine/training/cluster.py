"""Training on a cluster for days: token budgets, scaling, failures and checkpoints, stragglers, energy and cost.

A step function says how fast a layout trains while nothing fails. This module says what becomes of it in a run. Every
default is a Range whose source is the row of the same key in fixtures/overheads.yaml; docs/explanation/
training.md has the formulas and compares them with published runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from advisor.engine.network import Model
from advisor.engine.training.flops import model_flops
from advisor.engine.training.run import Recipe, Run

S_PER_DAY, HOURS_PER_DAY = 86_400.0, 24.0
# Hoffmann et al. 2022 fitted models and token counts in these ranges (abstract and section 3)
FITTED_PARAMETERS, FITTED_TOKENS = (70e6, 16e9), (5e9, 500e9)
LEAST_INTERVAL_S = 1.0  # checkpoints are no closer together than steps
SMALL_COST = 1e-6  # of a checkpoint over the mean time between failures, below which Daly's series is exact


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A figure and the ends of its range, in the unit that the name of the figure ends in."""

    value: float
    low: float
    high: float


TOKENS_PER_PARAMETER = Range(value=20.0, low=19.0, high=26.5)
FAILURES_PER_CHIP_DAY = Range(value=6.7e-4, low=2.9e-4, high=1.7e-3)  # interruptions of a job, whatever their cause
REPLACED_FRACTION = Range(value=0.415, low=0.16, high=0.54)  # of these, after which a host leaves for repair
REPLACEMENT_DAYS = Range(value=4.0, low=3.0, high=5.0)
RESTART_S = Range(value=660.0, low=300.0, high=4000.0)  # from the failure to the first new step, detection included
WRITE_BYTES_PER_S_PER_CHIP = Range(value=78e6, low=27e6, high=242e6)
READ_BYTES_PER_S_PER_CHIP = Range(value=156e6, low=59e6, high=488e6)
ASYNC_BLOCKED_FRACTION = Range(value=0.042, low=0.003, high=0.1)  # of the time of a write that stops the training
SPOT_INTERRUPTIONS_PER_INSTANCE_HOUR = Range(value=4.4e-3, low=7.0e-5, high=0.28)
SPOT_NOTICE_S = Range(value=120.0, low=30.0, high=120.0)
SPOT_WAIT_S = Range(value=600.0, low=60.0, high=21_600.0)
STRAGGLER_SPREAD_FRACTION = Range(value=0.015, low=0.0, high=0.041)
LEAST_SCALING_GAIN = Range(value=0.5, low=0.3, high=0.8)
CHECKPOINTS_KEPT = Range(value=3.0, low=1.0, high=10.0)
CONVERSION_DAYS_NOVICE = Range(value=40.0, low=10.0, high=120.0)
CONVERSION_DAYS_EXPERT = Range(value=3.0, low=1.0, high=10.0)

DEFAULTS = {
    "training-tokens-per-parameter": TOKENS_PER_PARAMETER,
    "training-failures-per-chip-day": FAILURES_PER_CHIP_DAY,
    "training-failure-replaced-fraction": REPLACED_FRACTION,
    "training-replacement-days": REPLACEMENT_DAYS,
    "training-restart-s": RESTART_S,
    "checkpoint-write-bytes-per-s-per-chip": WRITE_BYTES_PER_S_PER_CHIP,
    "checkpoint-read-bytes-per-s-per-chip": READ_BYTES_PER_S_PER_CHIP,
    "checkpoint-async-blocked-fraction": ASYNC_BLOCKED_FRACTION,
    "spot-interruptions-per-instance-hour": SPOT_INTERRUPTIONS_PER_INSTANCE_HOUR,
    "spot-notice-s": SPOT_NOTICE_S,
    "spot-wait-s": SPOT_WAIT_S,
    "straggler-spread-fraction": STRAGGLER_SPREAD_FRACTION,
    "training-least-scaling-gain": LEAST_SCALING_GAIN,
    "training-checkpoints-kept": CHECKPOINTS_KEPT,
    "conversion-engineer-days-novice": CONVERSION_DAYS_NOVICE,
    "conversion-engineer-days-expert": CONVERSION_DAYS_EXPERT,
}


# --- FLOPs and tokens -------------------------------------------------------------------------------------------


def training_flops(parameters: float, tokens: float) -> float:
    """6ND: a forward pass and two gradients, a multiply and an add each; without attention and recomputation."""
    return 6.0 * parameters * tokens


def counted_flops(model: Model, tokens: float, sequence_tokens: int) -> float:
    """The same from the model's matrices: no input embedding, the output head and causal attention included."""
    run = Run(sequence_tokens=sequence_tokens)
    return model_flops(model, run) / run.global_tokens * tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """How much of a budget of FLOPs goes into the size of a model and how much into its tokens."""

    parameters: float
    tokens: float

    @property
    def flops(self) -> float:
        return training_flops(self.parameters, self.tokens)

    @property
    def extrapolated(self) -> bool:
        """Whether it lies outside the models and token counts that the rule was fitted to."""
        within = [
            low <= amount <= high
            for amount, (low, high) in ((self.parameters, FITTED_PARAMETERS), (self.tokens, FITTED_TOKENS))
        ]
        return not all(within)


def optimal_tokens(parameters: float, tokens_per_parameter: float = TOKENS_PER_PARAMETER.value) -> Allocation:
    """The tokens at which training a model of this size is compute-optimal (Hoffmann et al. 2022, approaches 1 and 2).

    Least loss for the FLOPs of training alone. A model that serves many tokens is better smaller and trained longer,
    and the ratio depends on the data: it was fitted to one dataset, seen at most once.
    """
    return Allocation(parameters=parameters, tokens=tokens_per_parameter * parameters)


def optimal_allocation(flops: float, tokens_per_parameter: float = TOKENS_PER_PARAMETER.value) -> Allocation:
    """The compute-optimal model for a budget of FLOPs."""
    return optimal_tokens(math.sqrt(flops / 6.0 / tokens_per_parameter), tokens_per_parameter)


def run_days(tokens: float, step_tokens: float, step_s: float, goodput_fraction: float = 1.0) -> float:
    """Days until a run has seen so many tokens, in whole steps."""
    if goodput_fraction <= 0.0:
        return math.inf
    return math.ceil(tokens / step_tokens) * step_s / goodput_fraction / S_PER_DAY


# --- scaling ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A run on so many chips."""

    chips: int
    step_s: float
    goodput_fraction: float
    days: float
    usd: float


def scaling_gain(fewer: Point, more: Point) -> float:
    """Speed gained over spending per hour added: 1 where twice the chips take half the time, 0 where they gain none."""
    if math.isinf(fewer.days):
        return math.inf if math.isfinite(more.days) else 0.0
    return (fewer.days / more.days - 1.0) / (more.chips / fewer.chips - 1.0)


def pays_until(curve: Sequence[Point], least_gain: float = LEAST_SCALING_GAIN.value) -> Point:
    """The last point before the first one that gains less; the curve by number of chips."""
    for fewer, more in pairwise(curve):
        if scaling_gain(fewer, more) < least_gain:
            return fewer
    return curve[-1]


def slowest_deviations(ranks: int) -> float:
    """Mean of the largest of n standard normal values, in standard deviations."""
    x = np.linspace(0.0, 12.0, 4801)
    below_x, below_minus_x = (
        np.exp(ranks * scipy.special.log_ndtr(side)) for side in (x, -x)
    )  # the chance that all are
    return float(np.trapezoid(1.0 - below_x - below_minus_x, x))


def straggler_factor(ranks: int, spread_fraction: float = STRAGGLER_SPREAD_FRACTION.value) -> float:
    """Time of a step that waits for the slowest of n ranks over that of a mean rank; the spread: deviation over mean.

    The ranks are independent and normally distributed. Uneven pipeline stages and sequence lengths are not in it.
    """
    return 1.0 + spread_fraction * slowest_deviations(ranks)


# --- checkpoints ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Seconds to write one, and for how many of them the training stands still."""

    write_s: float
    blocked_s: float

    @property
    def behind_s(self) -> float:
        """How long training runs on before the checkpoint is safe."""
        return self.write_s - self.blocked_s


def checkpoint_bytes(trained_parameters: float, recipe: Recipe) -> float:
    """Weights, master copy and optimizer states; gradients and a frozen base are not saved."""
    return trained_parameters * (recipe.parameter_bytes + recipe.master_bytes + recipe.state_bytes)


def write_checkpoint(
    size_bytes: float, chips: int, bytes_per_s_per_chip: float, blocked_fraction: float = 1.0
) -> Checkpoint:
    """A checkpoint written by all chips to shared storage; synchronous where the blocked fraction is 1."""
    write_s = size_bytes / chips / bytes_per_s_per_chip
    return Checkpoint(write_s=write_s, blocked_s=blocked_fraction * write_s)


def young_s(blocked_s: float, mtbf_s: float) -> float:
    """Interval of compute between checkpoints, to first order (Young 1974)."""
    return math.sqrt(2.0 * blocked_s * mtbf_s)


def daly_s(blocked_s: float, mtbf_s: float) -> float:
    """The same to higher order (Daly 2006, equation 37); for checkpoints of twice the mean time and more, that time."""
    if blocked_s >= 2.0 * mtbf_s:
        return mtbf_s
    half = blocked_s / (2.0 * mtbf_s)
    return young_s(blocked_s, mtbf_s) * (1.0 + math.sqrt(half) / 3.0 + half / 9.0) - blocked_s


def best_interval_s(blocked_s: float, mtbf_s: float) -> float:
    """The interval at which Daly's cost function is least, exactly.

    With x the interval over the mean time between failures and c the cost of a checkpoint: (1 - x) exp(x + c) = 1.
    """
    cost = blocked_s / mtbf_s
    if cost < SMALL_COST:
        return daly_s(blocked_s, mtbf_s)
    return mtbf_s * (1.0 + float(scipy.special.lambertw(-math.exp(-1.0 - cost)).real))


def efficiency(interval_s: float, blocked_s: float, lost_s: float, mtbf_s: float) -> float:
    """Useful time over elapsed time (Daly 2006, equation 20): failures are memoryless and may hit a restart too.

    lost_s: what each failure costs besides the work since the last checkpoint.
    """
    if interval_s <= 0.0:
        return 0.0
    x = (interval_s + blocked_s) / mtbf_s
    return math.exp(math.log(interval_s / mtbf_s) - lost_s / mtbf_s - x - math.log(-math.expm1(-x)))


# --- failures ---------------------------------------------------------------------------------------------------


def poisson_range(mean: float, coverage: float = 0.9) -> tuple[int, int]:
    """The central range of a Poisson count: at most (1 - coverage) / 2 below it and above it."""

    def quantile(p: float) -> int:
        if mean <= 0.0 or math.exp(-mean) >= p:
            return 0
        k = max(math.ceil(float(scipy.special.pdtrik(p, mean))), 0)
        return k - 1 if k and scipy.special.pdtr(k - 1, mean) >= p else k

    tail = (1.0 - coverage) / 2.0
    return quantile(tail), quantile(1.0 - tail)


def interruptions(chips: int, days: float, failures_per_chip_day: Range = FAILURES_PER_CHIP_DAY) -> Range:
    """Interruptions of a run: expected, and the ends of the rate's range with the chance of the count."""
    rate = failures_per_chip_day
    means = [chips * days * each for each in (rate.value, rate.low, rate.high)]
    return Range(value=means[0], low=poisson_range(means[1])[0], high=poisson_range(means[2])[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The chips that one job needs, what fails, and what stands by."""

    chips: int
    chips_per_host: int = 8
    spare_hosts: int = 0
    failures_per_chip_day: float = FAILURES_PER_CHIP_DAY.value
    replaced_fraction: float = REPLACED_FRACTION.value
    replacement_days: float = REPLACEMENT_DAYS.value
    restart_s: float = RESTART_S.value

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures of the job."""
        each_day = self.chips * self.failures_per_chip_day
        return S_PER_DAY / each_day if each_day else math.inf

    @property
    def hosts_in_repair(self) -> float:
        """Hosts that would be out on average if the job never had to wait for one."""
        return self.chips * self.failures_per_chip_day * self.replaced_fraction * self.replacement_days

    @property
    def waiting_fraction(self) -> float:
        """Of the time, during which more hosts are out than stand by, so that the job waits.

        Hosts fail only while the job runs, so the hosts in repair are an Erlang loss system of spares + 1: the
        distribution of the repair time does not matter.
        """
        blocked = 1.0
        for servers in range(1, self.spare_hosts + 2):
            blocked = self.hosts_in_repair * blocked / (servers + self.hosts_in_repair * blocked)
        return blocked


def spare_hosts(cluster: Cluster, most_waiting_fraction: float) -> int:
    """The fewest spare hosts with which the job waits no longer than this fraction of the time, above 0."""
    if most_waiting_fraction <= 0.0:
        raise ValueError("no number of spare hosts rules out waiting: most_waiting_fraction must be above 0")
    spares, mean, blocked = -1, cluster.hosts_in_repair, 1.0
    while spares < 0 or blocked > most_waiting_fraction:
        spares += 1
        blocked = mean * blocked / (spares + 1 + mean * blocked)
    return spares


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """Effective training time over elapsed time, and where the rest goes; the fractions add up to 1."""

    fraction: float
    interval_s: float
    checkpoint_fraction: float
    rework_fraction: float  # work since the last safe checkpoint, done again
    restart_fraction: float  # restarts and, on spot, waiting for instances
    waiting_fraction: float  # for hosts in repair
    interruptions_per_day: float  # while the job does not wait for hosts


def goodput(cluster: Cluster, checkpoint: Checkpoint, interval_s: float | None = None) -> Goodput:
    """The goodput of a job that checkpoints every `interval_s` seconds of training; None: the best interval.

    An asynchronous checkpoint is safe only when it is written, so a failure loses that time as well, and checkpoints
    are no closer together than it takes to write one.
    """
    return _goodput(cluster, checkpoint, cluster.mtbf_s, cluster.restart_s, interval_s)


def _goodput(
    cluster: Cluster, checkpoint: Checkpoint, mtbf_s: float, restart_s: float, interval_s: float | None
) -> Goodput:
    waiting = cluster.waiting_fraction
    if math.isinf(mtbf_s):  # nothing fails, so nothing needs to be written
        return Goodput(
            fraction=1.0 - waiting, interval_s=math.inf, checkpoint_fraction=0.0, rework_fraction=0.0,
            restart_fraction=0.0, waiting_fraction=waiting, interruptions_per_day=0.0,
        )  # fmt: skip
    chosen = interval_s or max(best_interval_s(checkpoint.blocked_s, mtbf_s), checkpoint.behind_s, LEAST_INTERVAL_S)
    useful = efficiency(chosen, checkpoint.blocked_s, restart_s + checkpoint.behind_s, mtbf_s)
    saving = useful * checkpoint.blocked_s / chosen
    restarting = -math.expm1(-restart_s / mtbf_s)
    running = 1.0 - waiting
    return Goodput(
        fraction=running * useful,
        interval_s=chosen,
        checkpoint_fraction=running * saving,
        rework_fraction=running * max(1.0 - useful - saving - restarting, 0.0),
        restart_fraction=running * restarting,
        waiting_fraction=waiting,
        interruptions_per_day=S_PER_DAY / mtbf_s,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureRates:
    """Ranges of what decides the goodput of a cluster."""

    failures_per_chip_day: Range = FAILURES_PER_CHIP_DAY
    replaced_fraction: Range = REPLACED_FRACTION
    replacement_days: Range = REPLACEMENT_DAYS
    restart_s: Range = RESTART_S
    write_bytes_per_s_per_chip: Range = WRITE_BYTES_PER_S_PER_CHIP


def goodput_range(
    cluster: Cluster, saved_bytes: float, blocked_fraction: float = 1.0, reliability: FailureRates | None = None
) -> Range:
    """Goodput with every figure at its value, and its range if the figures are independent.

    Each figure is moved to the ends of its range alone. The changes of -log(goodput) add up as squares.
    """
    r = reliability or FailureRates()
    ranges = {each.name: getattr(r, each.name) for each in fields(r)}
    middle: dict[str, float] = {name: each.value for name, each in ranges.items()}

    def lost(case: dict[str, float]) -> float:
        written = write_checkpoint(saved_bytes, cluster.chips, case["write_bytes_per_s_per_chip"], blocked_fraction)
        moved: dict[str, Any] = {name: value for name, value in case.items() if hasattr(cluster, name)}
        at = replace(cluster, **moved)
        return -math.log(max(goodput(at, written).fraction, 1e-300))

    base, more, less = lost(middle), 0.0, 0.0
    for name, each in ranges.items():
        ends = [lost(middle | {name: end}) - base for end in (each.low, each.high)]
        more, less = more + max(*ends, 0.0) ** 2, less + min(*ends, 0.0) ** 2
    low, high = base + math.sqrt(more), max(base - math.sqrt(less), 0.0)
    return Range(value=math.exp(-base), low=math.exp(-low), high=math.exp(-high))


# --- spot instances ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """How often a provider takes an instance back, with which notice, and how long another one takes to come."""

    interruptions_per_instance_hour: float = SPOT_INTERRUPTIONS_PER_INSTANCE_HOUR.value
    notice_s: float = SPOT_NOTICE_S.value
    wait_s: float = SPOT_WAIT_S.value


def spot_goodput(cluster: Cluster, spot: Spot, checkpoint: Checkpoint, interval_s: float | None = None) -> Goodput:
    """Goodput on spot instances, each a host of the cluster, any of which stops the job.

    If a checkpoint can be written within the notice, an interruption costs that, the wait and a restart, but no work.
    Otherwise it is one more failure.
    """
    instances = math.ceil(cluster.chips / cluster.chips_per_host)
    taken_per_s = instances * spot.interruptions_per_instance_hour / 3600.0
    failed_per_s = 1.0 / cluster.mtbf_s
    if not taken_per_s:
        return goodput(cluster, checkpoint, interval_s)
    if checkpoint.write_s <= spot.notice_s:
        alone = goodput(cluster, checkpoint, interval_s)
        kept = math.exp(-taken_per_s * (checkpoint.write_s + spot.wait_s + cluster.restart_s))
        return replace(
            alone,
            fraction=alone.fraction * kept,
            checkpoint_fraction=alone.checkpoint_fraction * kept,
            rework_fraction=alone.rework_fraction * kept,
            restart_fraction=alone.restart_fraction * kept + (1.0 - alone.waiting_fraction) * (1.0 - kept),
            interruptions_per_day=(taken_per_s + failed_per_s) * S_PER_DAY,
        )
    both = taken_per_s + failed_per_s
    restart_s = cluster.restart_s + spot.wait_s * taken_per_s / both
    return _goodput(cluster, checkpoint, 1.0 / both, restart_s, interval_s)


# --- storage and energy -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """What a run asks of its shared storage."""

    write_bytes_per_s: float
    restore_bytes_per_s: float
    load_bytes_per_s: float  # of training data, all the time
    capacity_bytes: float


def storage_needed(
    saved_bytes: float,
    write_s: float,
    restore_s: float,
    tokens_per_s: float,
    bytes_per_token: float,
    tokens: float,
    checkpoints_kept: int = 3,
    readers: int = 1,
) -> Storage:
    """Storage to write a checkpoint and to read it back in these times; readers: replicas that each read all of it."""
    return Storage(
        write_bytes_per_s=saved_bytes / write_s,
        restore_bytes_per_s=readers * saved_bytes / restore_s,
        load_bytes_per_s=tokens_per_s * bytes_per_token,
        capacity_bytes=checkpoints_kept * saved_bytes + tokens * bytes_per_token,
    )


# --- train here, serve there ------------------------------------------------------------------------------------

MOST_SKILL = 5  # of a workload's team: 0 none, 5 expert


def conversion_days(skill: float) -> Range:
    """Engineer-days, once, to bring a trained model to another stack of chips and check its answers there.

    skill: of the team in that stack, 0 to 5; equal ratios between the ends.
    """
    share = min(max(skill / MOST_SKILL, 0.0), 1.0)

    def between(end: str) -> float:
        novice, expert = getattr(CONVERSION_DAYS_NOVICE, end), getattr(CONVERSION_DAYS_EXPERT, end)
        return float(novice * (expert / novice) ** share)

    return Range(value=between("value"), low=between("low"), high=between("high"))


def conversion_usd(engineer_days: Range, usd_per_engineer_day: float) -> Range:
    """The one-off cost of a conversion."""
    usd = [usd_per_engineer_day * d for d in (engineer_days.value, engineer_days.low, engineer_days.high)]
    return Range(value=usd[0], low=usd[1], high=usd[2])
