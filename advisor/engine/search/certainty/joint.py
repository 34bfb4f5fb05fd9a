"""What options cost when everything uncertain is drawn together: performance, load, prices, resale, energy and staff.

Each draw needs whole replicas on whole machines. The machines that a draw needs are planned like the option itself, so
growth, commitments and resale are those of a plan. Prices that have yet to be paid move along paths: the logarithm of a
price moves by an amount that grows with the square root of the time. Options on the same chip share its draws, and all
rents share the path of the market.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from advisor.engine.cost import Prices
from advisor.engine.plans import (
    CAPITAL,
    COMMITMENT,
    ENERGY,
    HOURLY,
    OTHER,
    OWNED,
    PURCHASE,
    RENT,
    SERVICES,
    STAFF,
    TERM,
    Plan,
    purchase_payments,
)
from advisor.engine.search.candidates import Question
from advisor.engine.search.certainty.rank_uncertainty import growth
from advisor.engine.search.limits import accepted_share, performance_draw, standard_normal
from advisor.engine.search.planned import replanned
from advisor.engine.search.simulated import Scored, commits, deployed
from advisor.engine.terms import (
    OWNED_MONTHS,
    Z95,
    Offer,
    RatioDistribution,
    Ratios,
    Workload,
    around_estimate,
    evaluating,
)

Array = np.ndarray
MOST_SIZES = 12  # sizes of one option that are planned; larger fleets cost in proportion between them
DRIVERS = ("load", "performance", "rent", "hardware", "resale", "electricity", "staff", "api")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Uncertain:
    """90% ranges of the inputs, as (low, high) ratios to the expected value; yearly changes as (low, high)."""

    load: Ratios = (1.0, 1.0)
    staff: Ratios = (1.0, 1.0)
    api: Ratios = (1.0, 1.0)
    rent_change: Ratios = (0.0, 0.0)  # per year
    energy_change: Ratios = (0.0, 0.0)
    hardware_change: Ratios = (0.0, 0.0)
    resale_low: tuple[float, ...] = ()  # ratio to the expected value by months in service; empty: certain
    resale_high: tuple[float, ...] = ()
    paths: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = field(default_factory=dict)  # (low, high) ratios


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Draws:
    """Standard normal values of each input, shape (draws,); `price` and `performance` by chip."""

    load: Array
    rent: Array
    hardware: Array
    resale: Array
    electricity: Array
    staff: Array
    api: Array
    delivery: Array
    performance: Array | None = None  # of every chip (NaN: as estimated); None: each chip has its own
    prices: Mapping[str, Array] | None = None  # of today, by rent and own; None: each chip has its own

    @staticmethod
    def all() -> "Draws":
        values: dict[str, Any] = {name: standard_normal(f"joint {name}") for name in NORMALS}
        return Draws(**values)

    @staticmethod
    def none(count: int = 1) -> "Draws":
        """Everything as expected."""
        values: dict[str, Any] = dict.fromkeys(NORMALS, np.zeros(count))
        return Draws(**values, performance=np.full(count, np.nan), prices={})


NORMALS = tuple(f.name for f in fields(Draws) if f.name not in ("performance", "prices"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Exposure:
    """What a plan pays, by what moves it; amounts in USD by month 0 .. horizon."""

    prices: Prices
    rent: Array
    commitment: Array  # by the month of signing
    commitment_present: Array
    energy: Array
    staff: Array
    other: Array
    capital: Array
    sales: tuple[tuple[int, int, float], ...]  # (month, months in service, USD)
    kept_usd: tuple[float, float] = (0.0, 0.0)  # what kept owned machines sell for today and at the end of the horizon

    @staticmethod
    def of(plan: Plan) -> "Exposure":
        p, months = plan.payments, plan.prices.months
        present = plan.prices.present(np.arange(months + 1))
        signed, signed_present = np.zeros(months + 1), np.zeros(months + 1)
        sales = []
        whole = float(p[COMMITMENT].sum())
        for c in plan.schedule.commitments:
            way = plan.ways[c.way]
            if way.kind == PURCHASE:
                _, back = purchase_payments(way, plan.prices, c.start_month, c.until_month)
                sales.append((c.until_month, c.until_month - c.start_month, back * c.instances))
            if way.kind == TERM and whole:
                signed[c.start_month] += c.instances * way.term_months
        share = signed / signed.sum() if signed.any() else signed
        signed_present = share * float(p[COMMITMENT] @ present)
        return Exposure(
            prices=plan.prices,
            rent=p[RENT],
            commitment=share * whole,
            commitment_present=signed_present,
            energy=p[ENERGY],
            staff=p[STAFF],
            other=p[OTHER] + p[SERVICES],
            capital=p[CAPITAL],
            sales=tuple(sales),
            kept_usd=plan.sales_usd,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Costs of one option in each draw, USD."""

    present_usd: Array
    total_usd: Array  # not discounted, less resale
    usd_per_month: Array
    economic_usd_per_month: Array  # with the forgone sale of owned machines that are kept


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option as the draws need it."""

    scored: Scored
    throughput: RatioDistribution  # over the estimate
    price: Mapping[str, Ratios]  # of today's price: rent, own
    sizes: Array  # serving replicas that were planned, ascending
    exposures: tuple[Exposure, ...]  # of each size, and of each delivery time of it
    deliveries: tuple[float, ...] = ()  # standard normal values between one delivery time and the next
    thinned: bool = False  # not every size was planned: costs between two sizes are in proportion
    committed: bool = False  # whether the plan buys machines or signs a term
    most: float = math.inf  # serving replicas for which there are machines; draws that need more pay for these


@lru_cache(maxsize=4)  # all options of an answer share them
def paths(uncertain: Uncertain, months: int, draws: Draws) -> dict[str, Array]:
    """Factor of rent, electricity and hardware on the expected price of each month, shape (draws, months + 1)."""
    years = np.arange(months + 1) / 12.0
    made = {}
    for name, change, z in (
        ("rent", uncertain.rent_change, draws.rent),
        ("electricity", uncertain.energy_change, draws.electricity),
        ("hardware", uncertain.hardware_change, draws.hardware),
    ):
        if name in uncertain.paths:
            low, high = (np.log(np.asarray(each)) for each in uncertain.paths[name])
            side = np.where(z[:, None] < 0, -low[None, :], high[None, :])
            made[name] = np.exp(z[:, None] / Z95 * side)
            continue
        low, high = (math.log1p(each) for each in change)
        middle = 0.0  # the expected path is the planner's
        wide = np.where(z < 0, middle - low, high - middle) / Z95
        made[name] = np.exp((z * wide)[:, None] * np.sqrt(years)[None, :])
    return made


@lru_cache(maxsize=256)
def resale_factor(uncertain: Uncertain, held_months: int, month: int, draws: Draws) -> Array:
    """Factor on the expected resale value, shape (draws,)."""
    if "resale" in uncertain.paths:
        low, high = (each[month] for each in uncertain.paths["resale"])
    elif uncertain.resale_low:
        held = min(held_months, len(uncertain.resale_low) - 1)
        low, high = uncertain.resale_low[held], uncertain.resale_high[held]
    else:
        return np.ones(len(draws.resale))
    z = draws.resale / Z95
    return np.where(z < 0, max(low, 1e-3) ** -np.minimum(z, 0), max(high, 1.0) ** np.maximum(z, 0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """Every input over its expected value, one value for each draw; prices also by month 0 .. horizon."""

    speed: Array
    load: Array
    rent_today: Array
    own_today: Array
    rent: Array  # shape (draws, months + 1)
    electricity: Array
    hardware: Array
    resale: Callable[[int, int], Array]  # (months in service, month) -> factor on the resale value
    staff: Array
    delivery: Array  # standard normal values


def factors_of(option: Option, uncertain: Uncertain, draws: Draws) -> Factors:
    """The factors of one option in each draw."""
    lane = option.scored.lane
    if draws.performance is None:
        speed = option.throughput.at(performance_draw(lane)) * accepted_share(lane.draft)
    else:
        # the estimate need not be the median of what is measured
        speed = np.where(np.isnan(draws.performance), 1.0, option.throughput.at(draws.performance))
    chip = lane.choice.accelerator.slug
    z = {
        way: price_draw(chip, way) if draws.prices is None else draws.prices.get(way, draws.load * 0.0)
        for way in option.price
    }
    today = {way: centered(ratios, z[way]) for way, ratios in option.price.items()}
    return Factors(
        speed=np.asarray(speed),
        load=centered(uncertain.load, draws.load),
        rent_today=today["rent"],
        own_today=today["own"],
        **paths(uncertain, option.exposures[0].prices.months, draws),
        resale=lambda held, month: resale_factor(uncertain, held, month, draws),
        staff=centered(uncertain.staff, draws.staff),
        delivery=draws.delivery,
    )


def price_draw(chip: str, way: str) -> Array:
    """Standard normal values of today's price of a chip, rented (`rent`) or bought (`own`)."""
    return standard_normal(f"price of {chip} {way}")


def constant_factors(ratios: Mapping[str, float], months: int) -> Factors:
    """One case in which every input is this many times its expected value; inputs that are not named stay."""

    def one(name: str) -> Array:
        return np.array([float(ratios.get(name, 1.0))])

    flat = np.ones((1, months + 1))
    return Factors(
        speed=one("performance"), load=one("load"), rent_today=one("rent"), own_today=one("hardware"), rent=flat,
        electricity=flat * one("electricity"), hardware=flat, resale=lambda held, month: one("resale"),
        staff=one("staff"), delivery=np.zeros(1),
    )  # fmt: skip


def costs(workload: Workload, option: Option, f: Factors) -> Costs:
    """The costs of one option in each draw."""
    s, count = option.scored, len(f.load)
    # machines that turn out faster than estimated have been ordered all the same; committed ones are paid at any load
    least_load = np.maximum(f.load, 1.0) if option.committed else f.load
    needed = (s.replicas - s.spare_replicas) * growth(workload, s, np.minimum(f.speed, 1.0) / least_load)
    needed = np.minimum(needed, option.most)
    runs = np.ones(count)
    if workload.kind.released_after_run:
        runs, needed = f.load / f.speed, np.full(count, float(s.replicas - s.spare_replicas))
    place = np.minimum(np.searchsorted(option.sizes, np.ceil(needed - 1e-9)), len(option.sizes) - 1)
    whole = np.ceil(needed - 1e-9) / option.sizes[place]
    scale = whole if option.thinned else np.maximum(whole, 1.0)
    present, total, forgone = np.zeros(count), np.zeros(count), np.zeros(count)
    arrives = np.searchsorted(np.asarray(option.deliveries), np.broadcast_to(f.delivery, (count,)))
    place = place * (len(option.deliveries) + 1) + arrives
    for k, e in enumerate(option.exposures):
        rows = np.flatnonzero(place == k)
        if len(rows):
            discount = e.prices.present(np.arange(e.prices.months + 1))
            present[rows] = _usd(e, f, rows, runs, discount, e.commitment_present) * scale[rows]
            total[rows] = _usd(e, f, rows, runs, np.ones(len(discount)), e.commitment) * scale[rows]
            forgone[rows] = _forgone_usd(e, f, rows) * scale[rows]
    annuity = option.exposures[0].prices.annuity
    return Costs(
        present_usd=present, total_usd=total, usd_per_month=present / annuity,
        economic_usd_per_month=(present + forgone) / annuity,
    )  # fmt: skip


def _forgone_usd(e: Exposure, f: Factors, rows: Array) -> Array:
    """Present value that is forgone by selling owned machines at the end of the horizon instead of today."""
    now, later = e.kept_usd
    if not now:
        return np.zeros(len(rows))
    months = e.prices.months
    soon, late = (np.broadcast_to(f.resale(OWNED_MONTHS + month, month), f.load.shape)[rows] for month in (0, months))
    return np.asarray(f.own_today[rows] * (now * soon - later * late * float(e.prices.present(months))))


def _usd(e: Exposure, f: Factors, rows: Array, runs: Array, weights: Array, commitment: Array) -> Array:
    """Payments of one size in these draws, each month with its weight."""
    usd = f.rent_today[rows] * (runs[rows] * (f.rent[rows] @ (e.rent * weights)) + f.rent[rows] @ commitment)
    usd += f.electricity[rows] @ (e.energy * weights) + f.staff[rows] * float(e.staff @ weights)
    bought = f.own_today[rows]
    usd += bought * (f.hardware[rows] @ (e.capital * weights)) + float(e.other @ weights)
    most = bought * float(e.capital.sum())
    for month, held, back in e.sales:
        value = np.minimum(bought * np.broadcast_to(f.resale(held, month), f.load.shape)[rows] * back, most)
        usd -= value * float(weights[month])
    return np.asarray(usd)


def centered(ratios: Ratios, z: Array) -> Array:
    """Factors with median 1 and these 5% and 95% quantiles."""
    return around_estimate(ratios).at(z)


def options_of(
    question: Question,
    shown: Sequence[Scored],
    throughput: Sequence[RatioDistribution],
    price: Sequence[Mapping[str, Ratios]],
    uncertain: Uncertain,
    kinds: Sequence[str] | None = None,
) -> list[Option | None]:
    """The options with the plans of every size that the draws may need; `kinds`: with these ways alone, or None."""
    made = []
    for s, t, p in zip(shown, throughput, price, strict=True):
        with evaluating(s.lane.choice.accelerator.slug):
            made.append(_option(question, s, t, p, uncertain, kinds))
    return made


def _option(
    question: Question,
    s: Scored,
    throughput: RatioDistribution,
    price: Any,
    uncertain: Uncertain,
    kinds: Any,
) -> Option | None:
    if s.planned is None:
        return None
    d, planned = deployed(question, s), s.planned
    offered = list(zip(planned.plan.ways, planned.offers, strict=True))[: planned.own_ways]
    kept = [(w, o) for w, o in offered if not kinds or w.kind in kinds]
    if not kept:
        return None
    alone = planned
    if kinds:
        ways = [w if planned.bridge else replace(w, lead_months=0) for w, _ in kept]
        bridge = planned.bridge if any(w.kind == PURCHASE for w in ways) else None
        more = (tuple(bridge.plan.ways), bridge.offers) if bridge else ((), ())
        alone = replace(
            planned, plan=replace(planned.plan, ways=(*ways, *more[0])), offers=(*(o for _, o in kept), *more[1]),
            bridge=bridge,
        )  # fmt: skip
    sizes, thinned = sizes_of(question.workload, s, throughput, uncertain)
    deliveries, ratios = delivery_times([o for w, o in kept if w.kind == PURCHASE] if planned.plan.capex_usd else [])
    had: dict[int, tuple[Plan, ...]] = {}
    for n in sizes:
        plans = [
            planned.plan if not kinds and n == d.carrying and ratio == 1.0
            else replanned(question, alone, d, n, ratio)
            for ratio in ratios
        ]  # fmt: skip
        if found := tuple(plan for plan in plans if plan is not None):
            had |= {n: found} if len(found) == len(ratios) else {}
    if d.carrying not in had:
        return None
    return Option(
        scored=s, throughput=throughput, price=price, sizes=np.array(list(had), dtype=float),
        exposures=tuple(Exposure.of(plan) for found in had.values() for plan in found), thinned=thinned,
        deliveries=deliveries, committed=commits(s), most=math.inf if len(had) == len(sizes) else float(max(had)),
    )  # fmt: skip


def delivery_times(bought: Sequence[Offer]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(standard normal values between two delivery times, each time over the expected one): early, expected, late.

    Each stands for a third of the draws. One time alone where nothing that takes months is bought, or it is certain.
    """
    o = max(bought, key=lambda o: o.order_months, default=None)
    if o is None or round(o.order_months) == 0 or o.order_low_months == o.order_high_months:
        return (), (1.0,)
    middle = NormalDist().inv_cdf(5 / 6)
    spread = max(o.order_low_months, 1e-3) / o.order_months, o.order_high_months / o.order_months
    early, late = centered(spread, np.array([-middle, middle])).tolist()
    return (NormalDist().inv_cdf(1 / 3), NormalDist().inv_cdf(2 / 3)), (early, 1.0, late)


def sizes_of(
    workload: Workload, s: Scored, throughput: RatioDistribution, uncertain: Uncertain
) -> tuple[list[int], bool]:
    """(serving replicas to plan for, whether some were left out): today's, and MOST_SIZES of what most draws need."""
    carrying = s.replicas - s.spare_replicas
    if workload.kind.released_after_run:
        return [carrying], False
    z = np.linspace(-3.0, 3.0, 201)
    speed = throughput.at(z)[:, None] / centered(uncertain.load, z)[None, :]
    needed = np.unique(np.ceil(carrying * growth(workload, s, speed) - 1e-9))
    thinned = len(needed) > MOST_SIZES
    if thinned:
        needed = np.unique(needed[np.linspace(0, len(needed) - 1, MOST_SIZES).round().astype(int)])
    return sorted({carrying, *(max(int(n), 1) for n in needed)}), thinned


OWN_KINDS, RENT_KINDS = (PURCHASE, OWNED), (HOURLY, TERM)
