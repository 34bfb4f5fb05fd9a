"""The choice itself: declared scores, weights, how certain the order is, and why the others were not chosen."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from advisor.answer import money as bill
from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import (
    PRICE_BOUND_FACTOR,
    SCORE_NAMES,
    Bar,
    Ranges,
    Scored,
    SearchResult,
    describe,
    distributions,
    equal_fraction,
    rank_uncertainty,
    tornado,
    weights_of,
)
from advisor.engine.search import Score as DeclaredScore
from advisor.engine.search import Unranked as Found
from advisor.engine.terms import CERTAIN, Offer, Workload, usd_text
from advisor.engine.terms import Rejection as EngineRejection
from advisor.inputs import Snapshot, host_ratios, number, rounded
from advisor.result import (
    Beats,
    Bookable,
    LeftOut,
    LeftOutSoftware,
    Option,
    PriceBound,
    Rejection,
    Score,
    Scores,
    SensitivityBar,
    SolidChoice,
    Unranked,
    UnrankedOffer,
    Weights,
)
from advisor.workload import terms_of

Json = dict[str, Any]
Array = np.ndarray


def four_digits(value: float) -> float:
    return rounded(value, 4)


def scores(outcome: SearchResult, s: Scored) -> Scores:
    """Ecosystem, team, lead time and lock-in of one option with the facts that were counted; 1 is best."""
    assert outcome.scale.declared is not None
    by_name, risk = outcome.scale.declared.of(s.lane, s.offer)
    return Scores(**{name: score(by_name[name]) for name in SCORE_NAMES}, risk_fraction=four_digits(risk))


def score(counted: DeclaredScore) -> Score:
    return Score(
        value=four_digits(counted.low_fraction) if counted.width_fraction == 0 else "unknown",
        low=four_digits(counted.low_fraction),
        high=four_digits(counted.high_fraction),
        facts=list(counted.facts),
    )


def price_bound(workload: Workload, outcome: SearchResult) -> PriceBound | None:
    """The price beyond which nothing is ranked, for objectives that ignore cost when the planner gave no budget."""
    most = outcome.bound_usd_per_month
    if most is None:
        return None
    return PriceBound(
        usd_per_month=four_digits(most),
        times_cheapest=PRICE_BOUND_FACTOR,
        said=(
            f"options above {usd_text(most)} a month ({PRICE_BOUND_FACTOR:g} times the cheapest feasible one) are not "
            f"ranked, because {workload.objective} alone ignores cost; set constraints.max_usd_per_month for another "
            "limit"
        ),
    )


def weights(workload: Workload) -> Weights:
    """Of the balanced view: the planner's own over the defaults."""
    return Weights(**weights_of(workload))


# --- how certain the order is -----------------------------------------------------------------------------------


def spread_of(question: Question, s: Scored) -> rank_uncertainty.Spread:
    """The distributions of one option's figures: those that its intervals are made of."""
    known = distributions(question.snapshot.calibrations, s.lane.choice.efficiency.basis, s.lane.choice)
    return rank_uncertainty.Spread(
        throughput_fraction=known.get("throughput", CERTAIN),
        latency_fraction=known.get("tpot", known.get("ttft", CERTAIN)),
        price_fraction=bill.price_and_load_ranges(question, s)["price"],
    )


def with_probabilities(
    question: Question, outcome: SearchResult, options: list[Option], drawn: Sequence[Any] = ()
) -> list[Option]:
    """The options, each with its chance to be the best of those shown and to beat each that ranks behind it.

    drawn: USD per hour of each option's plan in each draw.
    """
    if not options or not distributions(question.snapshot.calibrations, outcome.shown[0].lane.choice.efficiency.basis):
        return options
    spreads = [spread_of(question, s) for s in outcome.shown]
    scores = rank_uncertainty.scores(question.workload, outcome.scale, outcome.shown, spreads, drawn)
    equal = equal_fraction(question.workload)
    wins = rank_uncertainty.pairwise_win_probability(scores, equal)
    first = _first_of_sellers(outcome.shown, scores, equal)
    return [
        option.changed(
            first_probability=four_digits(first[i]),
            tied_with=[j + 1 for j in range(len(options)) if j != i and rank_uncertainty.is_tie(wins[i, j])],
            beats=[Beats(rank=j + 1, probability=four_digits(wins[i, j])) for j in range(i + 1, len(options))],
        )
        for i, option in enumerate(options)
    ]


def _first_of_sellers(shown: Sequence[Scored], scores: Array, equal: float) -> Array:
    """Chance of each option's chip, provider and way to pay to be the best; variants of one choice share it."""
    sellers = [(s.lane.choice.accelerator.slug, s.offer.provider, s.offer.acquisition) for s in shown]
    names = list(dict.fromkeys(sellers))
    best = np.array([np.min(scores[[k for k, other in enumerate(sellers) if other == name]], axis=0) for name in names])
    return rank_uncertainty.win_probability(best, equal)[[names.index(each) for each in sellers]]


def sensitivity(
    question: Question,
    outcome: SearchResult,
    costs: bill.CostModel,
    rule: Callable[[Array], int] | None,
    of_chip: bool = False,
) -> list[SensitivityBar]:
    """For each assumption: its range, the winner's bill at both ends, and where another option wins.

    rule: the first of `outcome.shown` at given costs; None: the objective alone orders. of_chip: only what is assumed
    of the first choice's chip, which its decision needs.
    """
    if len(outcome.ranked) < 2 or outcome.table is None:
        return []
    contenders = outcome.ranked if rule is None else outcome.shown
    spread = spread_of(question, outcome.ranked[0])
    ranges = Ranges(
        price_fraction=bill.price_ends(costs),
        performance_fraction=spread.throughput_fraction.ends,
        load_fraction=bill.price_and_load_ranges(question, outcome.ranked[0])["load"],
        host_ratio=host_ratios(question.spec["tco"], question.snapshot, outcome.ranked[0].lane.choice.accelerator.slug),
    )
    bars = tornado(question.workload, outcome.scale, outcome.table, contenders, ranges, outcome.effort, rule, of_chip)
    return [sensitivity_bar(contenders, b) for b in bars]


def sensitivity_bar(ranked: tuple[Scored, ...], b: Bar) -> SensitivityBar:
    after = None if b.winner_after is None else ranked[b.winner_after].lane.choice.accelerator
    return SensitivityBar(
        assumption=b.name,
        unit=b.unit,
        value=four_digits(b.value),
        low=four_digits(b.low),
        high=four_digits(b.high),
        usd_per_month_low=four_digits(b.low_usd_per_month),
        usd_per_month_high=four_digits(b.high_usd_per_month),
        winner_after=after.slug if after else None,
        at_value=None if b.at is None else four_digits(b.at),
        at_change_fraction=None if b.at is None or not b.value else four_digits(b.at / b.value - 1),
        within_range=b.at is not None and bool(b.low <= b.at <= b.high),
        detail=break_point(b, after.name if after else ""),
    )


def break_point(b: Bar, winner: str) -> str:
    if b.at is None:
        return "no value that was tried changes the winner"
    side = "below" if b.at < b.value else "above"
    inside = "" if b.low <= b.at <= b.high else ", outside its range"
    today = "" if b.unit.startswith("times") else f"today {plain(b.value)}"
    note = f" ({today}{inside})" if today else inside
    return f"{winner} wins {side} {plain(b.at)} {b.unit}{note}"


def plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# --- why not the others -----------------------------------------------------------------------------------------


def change_of(r: EngineRejection) -> Json:
    """The smallest change as paths of the workload file and their values."""
    return {change.field: change.value for change in r.changes}


def left_out(outcome: SearchResult) -> LeftOutSoftware:
    """Every framework and weight format of the catalog that no option uses, with why and what would change it."""
    return LeftOutSoftware(
        frameworks=[software(r) for r in outcome.frameworks_left], formats=[software(r) for r in outcome.formats_left]
    )


def software(r: EngineRejection) -> LeftOut:
    return LeftOut(
        name=r.accelerator,
        reason=r.reason,
        detail=r.detail,
        limit=None if r.limit is None else four_digits(r.limit),
        reached=None if r.reached is None else four_digits(r.reached),
        smallest_change=r.smallest_change,
        change=change_of(r),
        dead_end=r.dead_end,
    )


def rejection(r: EngineRejection) -> Rejection:
    return Rejection(
        accelerator=r.accelerator,
        reason=r.reason,
        detail=r.detail,
        limit=None if r.limit is None else number(r.limit),
        reached=None if r.reached is None else number(r.reached),
        smallest_change=r.smallest_change,
        change=change_of(r),
        dead_end=r.dead_end,
    )


# --- chips without a usable price, and capacity to book --------------------------------------------------------
BOOKED = "capacity_block"
TERMS = "constraints.terms"
LIMITS = (  # assumption of a provider's bookings, and its words
    ("capacity-block-days", "at most {:.0f} days"),
    ("capacity-block-instances", "{:.0f} instances"),
    ("capacity-block-weeks-ahead", "starting within {:.0f} weeks"),
)
MOST = 5  # bookings to suggest


def unranked(question: Question, outcome: SearchResult) -> list[Unranked]:
    """The chips that no allowed offer prices and that meet every limit in simulation, best first."""
    said = {r.accelerator: r.detail for r in outcome.rejections}
    return [_unranked(question, u, said) for u in outcome.unranked]


def _unranked(question: Question, u: Found, said: dict[str, str]) -> Unranked:
    workload = question.workload
    s, v = u.scored, u.scored.verified
    slug = s.lane.choice.accelerator.slug
    generates = workload.kind.generates_tokens
    tokens = workload.output_tokens.mean_tokens if generates else workload.given_tokens
    return Unranked(
        accelerator=slug,
        label=label(s),
        accelerator_count=s.chips,
        replicas=s.replicas,
        ttft_ms_p95=rounded(v.ttft_p95_s * 1e3),
        tpot_ms_p95=rounded(v.tpot_p95_s * 1e3) if generates else None,
        tokens_per_s_per_accelerator=rounded(s.capacity_requests_per_s * tokens / s.chips),
        usd_per_accelerator_hour_to_win=number(u.usd_per_accelerator_hour) if u.usd_per_accelerator_hour else None,
        usd_per_month_to_win=rounded(u.usd_per_month) if u.usd_per_month else None,
        rank_at_price=u.place,
        offer=None if u.assumed else _offer(question, s),
        said=said.get(slug, ""),
    )


def label(s: Scored) -> str:
    """The deployment in words: 16 x Trainium2, BF16, TP8, NxD Inference 2.26."""
    return f"{s.chips:,} x {s.lane.choice.accelerator.name}, {describe(s.lane)}"


def _offer(question: Question, s: Scored) -> UnrankedOffer:
    o = s.offer
    return UnrankedOffer(
        provider=o.provider,
        instance=o.instance,
        region=o.region,
        acquisition=o.acquisition,
        term=o.term,
        usd_per_month=rounded(s.usd_per_hour * HOURS_PER_MONTH),
        price_as_of=o.as_of,
        price_source=o.source,
        booking=booking(question.snapshot, o.provider) if o.term == BOOKED else "",
        availability=bill.availability_text(o, question.workload.constraints.regions_allow),
    )


def booking(snapshot: Snapshot, provider: str) -> str:
    """The limits of a provider's bookings; empty if none are known."""
    rows = snapshot.assumptions
    known = [said.format(rows[f"{key}-{provider}"]["value"]) for key, said in LIMITS if f"{key}-{provider}" in rows]
    return f"a booking has {', '.join(known)}" if known else ""


def bookable(question: Question, options: Sequence[Option], left: Sequence[Unranked]) -> list[Bookable]:
    """Bookings that cost less than the first machine, cheapest first; without one, all that are found."""
    most = options[0].usd_per_month if options else None
    terms = [*terms_of(question.spec), BOOKED]
    if BOOKED in terms[:-1]:
        return []
    found = [*_of_options(question.snapshot, options, terms, most), *_of_unranked(left, terms, most)]
    return sorted(found, key=lambda b: b.usd_per_month)[:MOST]


def _of_options(
    snapshot: Snapshot, options: Sequence[Option], terms: list[str], most: float | None
) -> Iterator[Bookable]:
    for option in options:
        for way in option.money.ways_to_pay if option.money else ():
            if way.term == BOOKED and _saves(way.usd_per_month, most):
                yield _bookable(
                    option.accelerator, option.label, _limits(snapshot, way), way.usd_per_month, most,
                    rank=option.rank, change={TERMS: terms},
                )  # fmt: skip


def _limits(snapshot: Snapshot, way: Any) -> Json:
    return {
        "provider": way.provider,
        "instance": way.instance,
        "price_as_of": way.price_as_of,
        "price_source": way.price_source,
        "booking": booking(snapshot, way.provider),
    }


def _of_unranked(left: Sequence[Unranked], terms: list[str], most: float | None) -> Iterator[Bookable]:
    for u in left:
        if u.offer is not None and u.offer.term == BOOKED and _saves(u.offer.usd_per_month, most):
            o = u.offer
            seller = {
                name: getattr(o, name) for name in ("provider", "instance", "price_as_of", "price_source", "booking")
            }
            yield _bookable(u.accelerator, u.label, seller, o.usd_per_month, most, rank=None, change={TERMS: terms})


def _saves(usd_per_month: float, most: float | None) -> bool:
    return most is None or usd_per_month < most


def _bookable(
    accelerator: str, name: str, seller: Json, usd: float, most: float | None, *, rank: int | None, change: Json
) -> Bookable:
    saving = None if most is None else 1 - usd / most
    less = "" if saving is None else f", {saving:.0%} less than the first machine"
    limits = f"; {seller['booking']}" if seller["booking"] else ""
    return Bookable(
        accelerator=accelerator,
        rank=rank,
        label=name,
        usd_per_month=rounded(usd),
        saving_fraction=None if saving is None else rounded(saving),
        change=change,
        said=f"{name} as {seller['instance']} at {seller['provider']}: {usd_text(usd)} a month{less}{limits}",
        **seller,
    )


def weak_price_note(options: Sequence[Option], solid: SolidChoice | None) -> str:
    """What the verdict adds if the price of the first choice is weak: why, and the first choice without such prices."""
    if not options or not options[0].price_weakness:
        return ""
    first = options[0]
    said = f" The price used is weak ({first.price_weakness}; dated {first.price_as_of}): {_next(first.acquisition)}."
    if solid is None:
        return f"{said} No other option that meets the limits has a better price."
    if solid.accelerator == first.accelerator and solid.instance == first.instance:
        return (
            f"{said} The same choice at a sound price, {_seller(solid)}, costs {usd_text(solid.usd_per_month)} a month."
        )
    return (
        f"{said} Without weak prices, the first choice is {solid.label}, {_seller(solid)}: "
        f"{usd_text(solid.usd_per_month)} a month."
    )


def _seller(choice: SolidChoice) -> str:
    return "bought" if choice.provider == "own" else f"rented from {choice.provider}"


def weak_price_warnings(o: Offer) -> list[str]:
    """What to check before signing at a weak price."""
    if not o.weakness:
        return []
    return [f"weak price: {o.weakness}, dated {o.as_of}; {_next(o.acquisition)}"]


def sold_out_warnings(provider: str, day: str) -> list[str]:
    """That a seller had none left when it was read last; day: of that reading, empty if it had some."""
    if not day:
        return []
    return [f"sold out at {provider} on {day}, when it was read last: check that it is available before you sign"]


def unit_warnings(o: Offer, chips: int, usd_per_hour: float) -> list[str]:
    """What a deployment costs if the seller only sells whole units, where nobody says how many are sold together."""
    whole = o.unknown_unit_chips
    if not whole or chips % whole == 0:
        return []
    sold = -(-chips // whole) * whole
    usd = usd_per_hour * HOURS_PER_MONTH
    return [
        f"{o.provider} does not say how many accelerators it rents out together: {usd_text(usd)} a month if you can "
        f"rent {chips}, about {usd_text(usd * sold / chips)} if it rents only multiples of {whole}; ask before you sign"
    ]


def doubt_warnings(o: Offer) -> list[str]:
    """Why a price is shown and not recommended by itself."""
    return [f"doubtful price: {o.doubt}"] if o.doubt else []


def _next(acquisition: str) -> str:
    return "get a quote before you sign" if acquisition == "own" else "check the seller's current price"
