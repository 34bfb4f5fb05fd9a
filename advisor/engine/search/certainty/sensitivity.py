"""Sensitivity of the choice: which assumption would change the winner, and at what value (tornado chart).

The contenders are the ranked deployments, each with its own layout and price. For another load or other request
lengths the closed forms give the replicas each needs, and a new winner is confirmed in simulation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.scheduler import REQUESTS, closed_loop, open_loop, scheduler_of, shares_prefixes, verify
from advisor.engine.search.certainty.rank_uncertainty import growth
from advisor.engine.search.limits import latency_excess
from advisor.engine.search.objective import Figures, Scale, declared_scores_of, equal_fraction, objective
from advisor.engine.search.owned_machines import at_load
from advisor.engine.search.simulated import PILOT_REQUESTS, Scored, excess, excess_bounds, resized_usd_per_hour
from advisor.engine.search.table import UNSERVABLE_REPLICAS, Table, demand_of, serving_estimates
from advisor.engine.search.views import PRICED
from advisor.engine.step import Lane, StepTimes, batch_capacity_requests_per_s, take, with_host_times
from advisor.engine.terms import Effort, Lengths, OutOfWork, Workload

Array = np.ndarray
STEPS = 2  # values tried on each side, log-spaced or evenly spaced, before bisection
HALVINGS = 5  # bisection steps where each takes closed forms and simulations
EXACT_HALVINGS = 14  # others: to less than the last digit that is printed
DIGITS = 3  # of a turning point
TRIES = 12  # replicas added or removed before the search stops
FAR = 2.0  # search for a new winner up to this multiple of the price and performance ranges
MAX_HIT_FRACTION = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Cost and objective of each contender at one value; a lower score is better."""

    usd_per_hour: Array
    score: Array
    equal_fraction: float  # scores that differ by no more than this are equal
    rule: "Rule | None" = None  # orders by more than the score

    @property
    def winner(self) -> int:
        """Today's winner (index 0) unless another contender is better by more than a tie, or by the rule."""
        if self.rule is not None:
            return self.rule(self.usd_per_hour)
        best = int(np.argmin(self.score))
        least = float(self.score[best])
        return 0 if self.score[0] <= least + self.equal_fraction * abs(least) else best


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One assumption: the winner's cost over its range, and the turning point (nearest value where another wins)."""

    name: str
    unit: str
    value: float  # today
    low: float  # range of the bar
    high: float
    low_usd_per_month: float  # cost of today's winner at `low`
    high_usd_per_month: float
    at: float | None  # turning point; None: no other winner within the values tried
    winner_after: int | None  # index of the new winner among the contenders


StandingAt = Callable[[float], Standing]
Rule = Callable[[Array], int]  # from the cost of each contender to the winner


@dataclass(frozen=True, kw_only=True, slots=True)
class Contenders:
    """Lanes of the contenders, and how far over the limits each one's estimate may be."""

    lanes: tuple[Lane, ...]
    times: StepTimes
    allowed_fraction: Array
    replicas: Array  # serving today's peak


def contenders_of(workload: Workload, table: Table, ranked: Sequence[Scored]) -> Contenders:
    """Contenders whose estimates may exceed a limit by as much as they do today, since they passed simulation."""
    assert table.built is not None
    rows = np.array([s.row_index for s in ranked])
    carrying = np.array([[s.replicas - s.spare_replicas] for s in ranked])
    own = np.argmin(np.abs(table.replicas[rows] - carrying), axis=1)
    late = latency_excess(workload, table.ttft_p95_s[rows, own], table.tpot_p95_s[rows, own])
    return Contenders(
        lanes=tuple(table.lanes[row] for row in rows),
        times=take(table.built.times, rows),
        allowed_fraction=np.where(np.isfinite(late), np.maximum(late, 1.0), 1.0),
        replicas=carrying[:, 0].astype(float),
    )


def standing_at(
    workload: Workload,
    scale: Scale,
    ranked: Sequence[Scored],
    share: Array,
    latency: Array,
    price: Array,
    rule: Rule | None = None,
) -> Standing:
    """The contenders with replicas, latency and price multiplied by these factors, each of shape (contenders,)."""
    figures = []
    for s, grown, slower, dearer in zip(ranked, share, latency, price, strict=True):
        known = declared_scores_of(workload, scale)
        replicas = math.ceil((s.replicas - s.spare_replicas) * grown - 1e-9) + s.spare_replicas
        figures.append(
            Figures(
                usd_per_hour=np.array(
                    float(resized_usd_per_hour(workload, s, replicas, grown, dearer))
                    + (s.economic_usd_per_hour - s.usd_per_hour)
                ),
                tpot_p95_s=np.array(workload.kind.tail_latency_s(s.verified) * slower),
                watts=np.array(s.watts * replicas / s.replicas),
                kgco2e_per_kwh=np.array(s.offer.kgco2e_per_kwh or math.nan),
                capacity_requests_per_s=np.array(s.capacity_requests_per_s * replicas / s.replicas),
                chips=np.array(float(replicas * s.chips / s.replicas)),
                lacking=known.lacking(s.lane, s.offer) if known else 0.0,
            )
        )
    usd = np.array([float(f.usd_per_hour) for f in figures])
    scores = np.array([float(objective(workload, scale, f)) for f in figures])
    return Standing(usd_per_hour=usd, score=scores, equal_fraction=equal_fraction(workload), rule=rule)


def settle_replicas(
    workload: Workload,
    scale: Scale,
    table: Table,
    ranked: Sequence[Scored],
    share: Array,
    latency: Array,
    effort: Effort,
    rule: Rule | None = None,
) -> Standing:
    """Like `standing_at`, with replicas adjusted until today's winner and any new winner meet limits in simulation.

    A contender that still misses them with TRIES more replicas than estimated cannot win.
    """
    carrying = np.array([float(s.replicas - s.spare_replicas) for s in ranked])
    replicas = np.minimum(np.ceil(carrying * share - 1e-9), UNSERVABLE_REPLICAS)
    if workload.objective in PRICED:
        replicas[0] = fewest_replicas(workload, table, ranked[0], replicas[0], effort)
    known, most = {0}, replicas + TRIES
    while True:
        standing = standing_at(workload, scale, ranked, replicas / carrying, latency, np.ones(len(ranked)), rule)
        first = standing.winner
        if first in known:
            return standing
        if holds(workload, table, ranked[first], replicas[first], effort):
            known.add(first)
        elif replicas[first] < most[first]:
            replicas[first] += 1
        else:
            replicas[first] = UNSERVABLE_REPLICAS
            known.add(first)


def fewest_replicas(workload: Workload, table: Table, s: Scored, replicas: float, effort: Effort) -> float:
    """The fewest serving replicas that meet all limits, searched in simulation around an estimate."""
    if replicas >= UNSERVABLE_REPLICAS:
        return replicas
    good = holds(workload, table, s, replicas, effort)
    for _ in range(TRIES):
        if good and (replicas == 1 or not holds(workload, table, s, replicas - 1, effort)):
            break
        replicas += -1 if good else 1
        good = good or holds(workload, table, s, replicas, effort)
    return replicas


def holds(workload: Workload, table: Table, s: Scored, replicas: float, effort: Effort) -> bool:
    """Whether this many replicas meet every limit in simulation; the full run is skipped if the pilot is conclusive.

    Raises OutOfWork.
    """
    if not effort.allows("part of the sensitivity chart"):
        raise OutOfWork
    assert table.built is not None
    rate = workload.requests_per_s_peak / (replicas * s.lane.choice.lanes)
    for requests in (PILOT_REQUESTS, REQUESTS):
        seen = verify(workload, table.built.times, s.row_index, s.lane, rate, requests)
        effort.add(seen.work, requests)
        low, high = excess_bounds(workload, seen)
        if low > 1 or high <= 1:
            break
    return excess(workload, seen) <= 1


def replicas_needed(workload: Workload, field: Contenders) -> tuple[Array, Array]:
    """(serving replicas, infinite if no number meets the limits; TPOT p95 in s) of each contender, estimated.

    The fewest that meet the limits if the objective weighs price; otherwise at least today's number, which sets the
    speed.
    """
    _, _, replicas, ttft, tpot, _ = serving_estimates(workload, field.lanes, field.times)
    good = (latency_excess(workload, ttft, tpot) <= field.allowed_fraction[:, None] * 1.0001) & (
        replicas < UNSERVABLE_REPLICAS
    )
    best = np.argmin(np.where(good, replicas + 1e-6 * tpot, np.inf), axis=1)
    rows = np.arange(len(best))
    least = np.where(good[rows, best], replicas[rows, best], np.inf)
    if workload.objective in PRICED or not workload.kind.generates_tokens:
        return least, np.maximum(tpot[rows, best], 1e-9)
    kept = np.maximum(least, field.replicas)
    return kept, np.array([_tpot_s(workload, field, i, float(n)) for i, n in enumerate(kept)])


def _tpot_s(workload: Workload, field: Contenders, i: int, replicas: float) -> float:
    """Estimated TPOT p95 in s of one contender with this many replicas; an arbitrary 1.0 if `replicas` is infinite."""
    if math.isinf(replicas):
        return 1.0
    lane = field.lanes[i]
    share = 1.0 / (replicas * lane.choice.lanes)
    rate, demand = np.array([workload.requests_per_s_peak * share]), demand_of(workload, share)
    if not shares_prefixes(lane.framework):
        demand = replace(demand, cached_fraction=0.0)
    times = take(field.times, np.array([i]))
    loaded = open_loop(times, rate, demand, scheduler_of(lane), crowds=not workload.users)
    return float(loaded.tpot_p95_estimate_s[0])


def turning_point(
    winner_at: Callable[[float], int],
    value: float,
    ends: tuple[float, float],
    even: bool = False,
    halvings: int = EXACT_HALVINGS,
) -> tuple[float, int] | None:
    """(value, new winner) where the winner at `value`, 0, first gives way, towards the nearer end; None: nowhere.

    Only values with DIGITS significant digits are tried, so what is printed changes the winner.
    """
    changes = []
    for end in ends:
        path = np.linspace(value, end, STEPS + 1) if even else np.geomspace(value, end, STEPS + 1)
        inside = value
        for far in [outward(x, value) for x in path[1:].tolist() if x != value]:
            if winner_at(far):
                changes.append(_bisect(winner_at, value, inside, far, halvings))
                break
            inside = far
    at = min(changes, key=lambda x: abs(x - value) if even else abs(math.log(x / value)), default=None)
    return None if at is None else (at, winner_at(at))


def _bisect(winner_at: Callable[[float], int], value: float, inside: float, outside: float, halvings: int) -> float:
    """A value with another winner, as near to one without as the halvings and the digits allow."""
    for _ in range(halvings):
        middle = outward((inside + outside) / 2, value)
        if middle == outside:
            break
        inside, outside = (inside, middle) if winner_at(middle) else (middle, outside)
    return outside


def outward(at: float, value: float) -> float:
    """`at` with DIGITS significant digits, rounded away from `value`."""
    unit = 10.0 ** (math.floor(math.log10(abs(at))) - DIGITS + 1) if at else 1.0
    scaled = at / unit
    return float(f"{(math.floor(scaled + 1e-6) if at < value else math.ceil(scaled - 1e-6)) * unit:.{DIGITS}g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostEffect:
    """Figures of one deployment at each host time over its estimates, shape (ratios,)."""

    speed: Array  # requests/s
    latency: Array  # TPOT; of other kinds of work, 1 / speed


def host_effect(workload: Workload, table: Table, s: Scored, ratios: Array) -> HostEffect:
    """The deployment with as many requests in flight as planned, if host work takes `ratios` times as long."""
    assert table.built is not None
    lane, every = s.lane, np.append(1.0, ratios)
    times = with_host_times(take(table.built.times, np.full(len(every), s.row_index)), every)
    demand, scheduler = demand_of(workload), scheduler_of(lane)
    if not shares_prefixes(lane.framework):
        demand = replace(demand, cached_fraction=0.0)
    running = np.full(len(every), max(s.concurrency / lane.choice.lanes, 1.0))
    if not workload.kind.generates_tokens:
        speed = batch_capacity_requests_per_s(times, running, demand, scheduler)
        return HostEffect(speed=speed[1:] / speed[0], latency=speed[0] / speed[1:])
    loop = closed_loop(times, running, demand, scheduler)
    return HostEffect(
        speed=loop.requests_per_s[1:] / loop.requests_per_s[0], latency=loop.tpot_mean_s[1:] / loop.tpot_mean_s[0]
    )


def bar(
    name: str,
    unit: str,
    asked: StandingAt,
    value: float,
    ends: tuple[float, float],
    even: bool = False,
    reach: float = 1.0,
    halvings: int = HALVINGS,
) -> Bar:
    """The bar of one assumption; turning points are searched up to `reach` times beyond the ends."""
    under = cache(asked)
    change = turning_point(lambda x: under(x).winner, value, (ends[0] / reach, ends[1] * reach), even, halvings)
    low, high = (float(under(end).usd_per_hour[0]) * HOURS_PER_MONTH for end in ends)
    return Bar(
        name=name,
        unit=unit,
        value=value,
        low=ends[0],
        high=ends[1],
        low_usd_per_month=low,
        high_usd_per_month=high,
        at=change[0] if change else None,
        winner_after=change[1] if change else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranges:
    """Uncertainty of each assumption, as (low, high) factors on today's value."""

    price_fraction: tuple[float, float]
    performance_fraction: tuple[float, float]
    load_fraction: tuple[float, float]
    output_fraction: tuple[float, float] = (0.5, 2.0)  # what-if range; no data
    host_ratio: tuple[float, float] | None = None  # host time of the winner's chip; None: given or measured


def tornado(
    workload: Workload,
    scale: Scale,
    table: Table,
    ranked: Sequence[Scored],
    ranges: Ranges,
    effort: Effort | None = None,
    rule: Rule | None = None,
    of_chip: bool = False,
) -> list[Bar]:
    """Bars for price, performance, host time, load, output length and prefix cache hit rate; the widest first.

    A bar for which no work is left is left out. With users or a trace, or `of_chip`, only price, performance and host
    time; the load and lengths are then given.
    """
    if len(ranked) < 2:
        return []
    effort = effort or Effort()
    field, ones, chip = contenders_of(workload, table, ranked), np.ones(len(ranked)), ranked[0].lane.choice.accelerator
    on_winner_chip = np.array([s.lane.choice.accelerator.slug == chip.slug for s in ranked])

    @cache
    def replicas_needed_today() -> tuple[Array, Array]:
        return replicas_needed(workload, field)

    def at_price(x: float) -> Standing:
        return standing_at(workload, scale, ranked, ones, ones, np.where(on_winner_chip, x, 1.0), rule)

    def at_performance(x: float) -> Standing:
        grown = [
            float(growth(workload, s, np.array(x))) if own else 1.0
            for s, own in zip(ranked, on_winner_chip, strict=True)
        ]
        return standing_at(workload, scale, ranked, np.array(grown), np.where(on_winner_chip, 1 / x, 1.0), ones, rule)

    def at_workload(changed: Workload) -> Standing:
        now, now_s = replicas_needed(changed, field)
        today, today_s = replicas_needed_today()
        share = np.where(np.isfinite(now), now / np.where(np.isfinite(today), today, now), UNSERVABLE_REPLICAS)
        return settle_replicas(changed, scale, table, ranked, share, now_s / today_s, effort, rule)

    def at_host(x: float) -> Standing:
        grown, latency = ones.copy(), ones.copy()
        for k in np.flatnonzero(on_winner_chip).tolist():
            effect = host_effect(workload, table, ranked[k], np.array([x]))
            grown[k] = growth(workload, ranked[k], effect.speed)[0]
            latency[k] = effect.latency[0]
        return standing_at(workload, scale, ranked, grown, latency, ones, rule)

    bars = [
        bar(
            f"price of {chip.name}",
            "times today's price",
            at_price,
            1.0,
            ranges.price_fraction,
            reach=FAR,
            halvings=EXACT_HALVINGS,
        ),
        bar(
            f"performance of {chip.name}",
            "times the estimate",
            at_performance,
            1.0,
            ranges.performance_fraction,
            reach=FAR,
            halvings=EXACT_HALVINGS,
        ),
    ]
    if ranges.host_ratio:
        bars.append(bar(f"host time of {chip.name}", "times the assumed host time", at_host, 1.0, ranges.host_ratio))
    given = of_chip or workload.users is not None or workload.trace is not None
    if not given:
        load = lambda x: at_workload(at_load(workload, x))  # noqa: E731
        bars += examined(bar, "load", "times today's requests/s", load, 1.0, ranges.load_fraction)
    if not given and workload.kind.generates_tokens:
        mean, hits = workload.output_tokens.mean_tokens, workload.prefix_cache_hit_fraction
        span = (mean * ranges.output_fraction[0], mean * ranges.output_fraction[1])
        bars += examined(bar, "output length", "tokens", lambda x: at_workload(_longer(workload, x)), mean, span)
        span = (0.0, min(max(2 * hits, 0.5), MAX_HIT_FRACTION))
        hit = lambda x: at_workload(replace(workload, prefix_cache_hit_fraction=x))  # noqa: E731
        bars += examined(bar, "prefix cache hit rate", "of the prompt", hit, hits, span, True)
    return sorted(bars, key=lambda b: -abs(b.high_usd_per_month - b.low_usd_per_month))


def examined(make: Callable[..., Bar], *about: Any) -> list[Bar]:
    """The bar, or none if the work runs out."""
    try:
        return [make(*about)]
    except OutOfWork:
        return []


def _longer(workload: Workload, mean_tokens: float) -> Workload:
    """The workload with another mean output length and the same p95-to-mean ratio."""
    output = workload.output_tokens
    p95_tokens = output.p95_tokens * mean_tokens / output.mean_tokens
    return replace(workload, output_tokens=Lengths(mean_tokens=mean_tokens, p95_tokens=p95_tokens))
