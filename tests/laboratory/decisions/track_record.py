"""Decisions made from held-out predictions and checked by measurement."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from advisor.engine.terms import EXPECTED_CONFIDENCE, SURE_CONFIDENCE
from tests.laboratory.decisions import first_choice
from tests.laboratory.decisions.cases import Group, Limits, limits_of, usd_per_mtok
from tests.laboratory.decisions.errors import Errors
from tests.laboratory.least_squares import Array

DRAWS = 1024
RESAMPLES = 2000
STEPS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The settings of a group as predicted without it, and the limits to decide for.

    `predicted` and `errors` are of measured settings; `blend` makes the settings between them.
    """

    group: Group
    limits: tuple[Limits, ...]
    usd_per_chip_hour: Mapping[str, float]
    predicted: tuple[Array, Array]  # TPOT and TTFT, ms
    errors: Errors | None = None  # None: a tool that states none
    blend: Array | None = None  # (settings, measured settings) shares; None: every setting was measured

    def at(self, latency: Array) -> Array:
        """A latency of each setting, from that of each measured one."""
        return latency if self.blend is None else np.exp(self.blend @ np.log(latency))

    @property
    def measured(self) -> tuple[Array, Array]:
        s = self.group.settings
        return np.array([each.tpot_ms for each in s]), np.array([each.ttft_ms for each in s])

    def cost(self, tpot_ms: Array, ttft_ms: Array) -> Array:
        """USD per million output tokens of each setting; latencies (settings, ...)."""
        rows = [
            usd_per_mtok(s, self.group.osl, self.usd_per_chip_hour[s.chip], tpot, ttft)
            for s, tpot, ttft in zip(self.group.settings, tpot_ms, ttft_ms, strict=True)
        ]
        return np.array(rows)

    def drawn(self, errors: Errors, limits: Limits) -> first_choice.Table:
        tpot, ttft = errors.draws(DRAWS, crc32(self.group.name.encode()))
        tpot, ttft = self.at(tpot * self.predicted[0][:, None]), self.at(ttft * self.predicted[1][:, None])
        return first_choice.Table(
            options=[s.chip for s in self.group.settings], holds=limits.met(tpot, ttft), cost=self.cost(tpot, ttft)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What happened to one decision."""

    group: str
    first: int | None = None  # setting; None: not answered
    chip: str = ""
    probability: float | None = None  # stated
    met: bool = False
    tests: int = 0  # load tests until one holds, the first choice included
    extra: float = 0.0  # cost of the setting that holds over that of the best that does, less 1


def checked(q: Question, limits: Limits, order: Sequence[int], probability: float | None = None) -> Outcome:
    """Tests settings in this order until one holds."""
    tpot, ttft = q.measured
    good, usd = limits.met(tpot, ttft), q.cost(tpot, ttft)
    found = next(n for n, s in enumerate(order) if good[s])
    return Outcome(
        group=q.group.name,
        first=order[0],
        chip=q.group.settings[order[0]].chip,
        probability=probability,
        met=found == 0,
        tests=found + 1,
        extra=float(usd[order[found]] / usd[good].min()) - 1.0,
    )


# --- methods ------------------------------------------------------------------------------------------------------

Method = Callable[[Question, Limits], Outcome]


def by_rule(least: float = EXPECTED_CONFIDENCE, sure: float = SURE_CONFIDENCE) -> Method:
    """The rule of answers. least, sure: probabilities, as for `arrange`."""

    def method(q: Question, limits: Limits) -> Outcome:
        assert q.errors is not None
        choice = first_choice.first_choice(q.drawn(q.errors, limits), least, sure)
        return Outcome(group=q.group.name) if choice is None else checked(q, limits, choice.tests, choice.probability)

    return method


def cheapest_predicted(chips: Callable[[Group], Sequence[str]] | None = None) -> Method:
    """The cheapest setting that is predicted to meet the limits, on some chips; then the next cheapest."""

    def method(q: Question, limits: Limits) -> Outcome:
        tpot, ttft = corrected(q)
        allowed = chips(q.group) if chips else q.group.chips
        good = limits.met(tpot, ttft) & np.array([s.chip in allowed for s in q.group.settings])
        if not good.any():
            return Outcome(group=q.group.name)
        usd = q.cost(tpot, ttft)
        late = np.maximum(tpot / limits.tpot_ms, 0.0 if limits.ttft_ms is None else ttft / limits.ttft_ms)
        rest = [int(s) for s in np.argsort(late, kind="stable") if not good[s]]
        return checked(q, limits, [*sorted(np.flatnonzero(good).tolist(), key=lambda s: usd[s]), *rest])

    return method


def corrected(q: Question) -> tuple[Array, Array]:
    factor = 1.0 if q.errors is None else q.errors.factor
    return q.at(q.predicted[0] * factor), q.at(q.predicted[1] * factor)


def finer(q: Question) -> Question:
    """With STEPS concurrencies to each doubling between neighbors that were measured, latencies interpolated."""
    lines: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for n, s in enumerate(q.group.settings):  # in order of concurrency
        lines[s.deployment].append(n)
    shares, settings = [], []
    for line in lines.values():
        for here, there in zip(line, [*line[1:], line[-1]], strict=True):
            a, b = q.group.settings[here], q.group.settings[there]
            steps = max(1, round(STEPS * np.log2(b.concurrency / a.concurrency)))
            for k in range(steps):
                share = np.zeros(len(q.group.settings))
                share[here] += 1 - k / steps
                share[there] += k / steps
                shares.append(share)
                settings.append(replace(a, concurrency=a.concurrency * (b.concurrency / a.concurrency) ** (k / steps)))
    made = replace(q, blend=np.array(shares))
    tpot, ttft = (made.at(latency).tolist() for latency in q.measured)
    settings = [replace(s, tpot_ms=t, ttft_ms=f) for s, t, f in zip(settings, tpot, ttft, strict=True)]
    return replace(made, group=replace(q.group, settings=tuple(settings)), limits=tuple(limits_of(settings)))


NEWEST = ("b300", "b200", "h200-sxm", "h100-sxm")


def newest(group: Group) -> tuple[str, ...]:
    """The newest chip of a group."""
    return next((chip,) for chip in (*NEWEST, *group.chips) if chip in group.chips)


def b200(group: Group) -> tuple[str, ...]:
    """The B200, or the newest chip of a group without one."""
    return ("b200",) if "b200" in group.chips else newest(group)


# --- one load test ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """A decision before and after one load test of the first choice's deployment, at another concurrency."""

    before: Outcome
    after: Outcome
    promised: float  # fall of the expected cost, over the expected cost, as stated before the test


def with_one_test(q: Question, limits: Limits) -> Learned | None:
    """None: the first choice's deployment was not measured at another concurrency, or there is no first choice."""
    assert q.errors is not None
    table = q.drawn(q.errors, limits)
    choice = first_choice.first_choice(table)
    tested = None if choice is None else neighbour(q, choice.setting)
    if choice is None or tested is None:
        return None
    s = q.group.settings[tested]
    knowing = q.errors.given(tested, s.tpot_ms / q.predicted[0][tested], s.ttft_ms / q.predicted[1][tested])
    after = by_rule()(replace(q, errors=knowing), limits)
    sizing = first_choice.Sizing(table)
    plans = np.array([sizing.cost(each) for each in sizing.frontier])
    worth = first_choice.value_of_result(plans, table.cost[tested], table.holds[sizing.frontier])
    before = checked(q, limits, choice.tests, choice.probability)
    return Learned(before=before, after=after, promised=worth / choice.expected_cost)


def neighbour(q: Question, setting: int) -> int | None:
    """The setting of the same deployment with the nearest other concurrency."""
    here = q.group.settings[setting]
    others = [
        n
        for n, s in enumerate(q.group.settings)
        if s.deployment == here.deployment and s.concurrency != here.concurrency
    ]
    return min(others, key=lambda n: abs(np.log(q.group.settings[n].concurrency / here.concurrency)), default=None)


# --- summaries ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A method over many decisions. Shares are of answered decisions, except `unanswered`."""

    decisions: int
    groups: int
    unanswered: float
    met: float
    met_low: float  # 90 % interval, groups drawn with replacement
    met_high: float
    stated: float | None  # mean probability that the method stated
    extra_mean: float
    extra_median: float
    extra_p90: float
    extra_top_tenth: float  # share of all extra cost in the dearest tenth of the decisions
    extra_mean_met: float | None
    extra_mean_missed: float | None
    tests: float


def summary(outcomes: Sequence[Outcome]) -> Summary | None:
    """None without an answered decision."""
    answered = [o for o in outcomes if o.first is not None]
    if not answered:
        return None
    by_group: defaultdict[str, list[bool]] = defaultdict(list)
    for o in answered:
        by_group[o.group].append(o.met)
    low, high = bootstrap(list(by_group.values()))
    extra = np.array([o.extra for o in answered])
    stated = [o.probability for o in answered if o.probability is not None]
    return Summary(
        decisions=len(outcomes),
        groups=len({o.group for o in outcomes}),
        unanswered=1.0 - len(answered) / len(outcomes),
        met=float(np.mean([o.met for o in answered])),
        met_low=low,
        met_high=high,
        stated=float(np.mean(stated)) if stated else None,
        extra_mean=float(extra.mean()),
        extra_median=float(np.median(extra)),
        extra_p90=float(np.quantile(extra, 0.9)),
        extra_top_tenth=share_of_dearest(extra),
        extra_mean_met=mean_or_none([o.extra for o in answered if o.met]),
        extra_mean_missed=mean_or_none([o.extra for o in answered if not o.met]),
        tests=float(np.mean([o.tests for o in answered])),
    )


def share_of_dearest(extra: Array, fraction: float = 0.1) -> float:
    """Share of the sum that its largest values have; 0 where nothing is extra."""
    count = max(round(len(extra) * fraction), 1)
    return float(np.sort(extra)[-count:].sum() / extra.sum()) if extra.sum() > 0 else 0.0


def mean_or_none(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def bootstrap(groups: Sequence[Sequence[bool]], seed: int = 0) -> tuple[float, float]:
    """90 % interval of the share of true values, whole groups drawn with replacement."""
    true, count = (np.array([f(g) for g in groups]) for f in (sum, len))
    picks = np.random.default_rng(seed).integers(0, len(groups), (RESAMPLES, len(groups)))
    shares = true[picks].sum(axis=1) / count[picks].sum(axis=1)
    low, high = np.quantile(shares, (0.05, 0.95))
    return float(low), float(high)
