"""Chips that no allowed offer prices: their best design, what it would cost, and the price at which it would win."""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from advisor.engine.cost import HOURS_PER_MONTH, NOT_PRICED, site_rejection, total_usd_per_hour
from advisor.engine.search.candidates import (
    PRICE_FIELD,
    Catalog,
    Question,
    changes_needed,
    enumerate_lanes,
    largest_connected_offer,
)
from advisor.engine.search.declared_scores import declared
from advisor.engine.search.objective import (
    MAX_RANKED,
    Scale,
    best_of_chip,
    describe,
    designs,
    equal_up_to,
    final_score,
    rows_by_chip,
    table_scores,
)
from advisor.engine.search.rejected.support_changes import with_support_changes
from advisor.engine.search.rejected.why_not import best_within_budget, does_not_fit, explain, remembered
from advisor.engine.search.simulated import Scored, Simulations
from advisor.engine.search.table import evaluate
from advisor.engine.search.views import PRICED
from advisor.engine.terms import (
    ASSUMED,
    Change,
    Constraints,
    Offer,
    Part,
    Rejection,
    Workload,
    exact_text,
    limit_change,
    list_change,
    listed,
    usd_text,
)

FACTORS = 1e-4, 1e4  # a price is searched between these multiples of the one that was simulated
HALVINGS = 28  # of the logarithm of that range: to 1e-7 of the price
NO_LAYOUT = "no host of this chip connects enough chips for a layout that fits"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unranked:
    """The best design of a chip that no allowed offer prices. It meets every limit in simulation."""

    scored: Scored  # at the price of `scored.offer`: of an offer that changes would allow, or the winning price
    assumed: bool  # no seller's price: the offer is assumed
    place: int  # rank that it would have at this price
    changes: tuple[Change, ...]  # of the workload file, that admit the offer
    usd_per_accelerator_hour: float | None  # highest price at which it would be first; None: no price is enough
    usd_per_month: float | None  # of the deployment at that price


def unranked(
    question: Question, scale: Scale, ranked: Sequence[Scored], rejections: Sequence[Rejection]
) -> tuple[list[Unranked], list[Rejection]]:
    """The chips without a usable price that would meet every limit, and all rejections with what would help these."""
    workload, catalog = question.workload, question.catalog
    connected = largest_connected_offer(question)
    small = {a.slug for a in catalog.accelerators if connected[a.slug] < a.chips_per_host}
    slugs = {r.accelerator for r in rejections if _lacks_an_offer(r, small)}
    ways = {slug: _fewest_changes(workload.constraints, catalog, slug) for slug in slugs}
    sold = {slug for slug, offers in ways.items() if offers}
    found: dict[str, Unranked] = {}
    after: dict[str, Rejection] = {}
    for asked, assumed in _questions(workload):
        chips = (slugs - sold if assumed else sold) - set(found)
        narrow = replace(catalog, offers=_offers(catalog, chips, ways, ranked, assumed))
        narrowed = replace(question, workload=asked, catalog=narrow)
        best, refused = _simulated(narrowed, scale, chips)
        after |= {r.accelerator: r for r in refused}
        scored = replace(scale, declared=declared(narrowed)) if best else scale
        found |= {slug: _priced(workload, scored, ranked, s, assumed) for slug, s in best.items()}
    told = [_told(r, workload, found, after, ways, ranked) for r in rejections]
    order = sorted(found.values(), key=lambda u: (u.assumed, u.place, u.scored.usd_per_hour, u.scored.row_index))
    return order, told


def _lacks_an_offer(r: Rejection, small: Set[str]) -> bool:
    """Whether only an offer is missing: of any number of chips, or of a whole host where only `small` ones are sold."""
    return r.reason == "unpriced" or (r.reason == "does_not_fit" and not r.changes and r.accelerator in small)


def offer_changes(o: Offer, c: Constraints) -> list[Change]:
    """All changes of the workload file that would admit an offer."""
    site = site_rejection(o, c)
    terms = o.acquisition == "rent" and o.provider != ASSUMED and o.term not in c.terms
    return [
        *([list_change("constraints.terms", [*c.terms, o.term])] if terms else []),
        *changes_needed(o, c),
        *(site.changes if site else ()),
    ]


def _fewest_changes(c: Constraints, catalog: Catalog, slug: str) -> list[Offer]:
    """The offers of a chip that the fewest changes would admit; empty if it has none or some need no change."""
    needed = [(len(offer_changes(o, c)), o) for o in (*catalog.offers, *catalog.other_offers) if o.accelerator == slug]
    least = min((n for n, _ in needed), default=0)
    return [o for n, o in needed if n == least] if least else []


def _questions(workload: Workload) -> list[tuple[Workload, bool]]:
    """(workload without the constraints on offers, whether prices are assumed): what to simulate, in this order.

    An assumed price is no reason to exceed a budget. But objectives without a price need it to choose a sensible size;
    where nothing is within it, the cheapest design counts.
    """
    c = replace(
        workload.constraints,
        acquisition=("rent", "own", "api"),
        providers_allow=(),
        providers_deny=(),
        regions_allow=(),
        regions_deny=(),
        exclude=(),
        with_doubts=True,
        max_rack_watts=None,
        cooling="any",
    )
    within = replace(workload, constraints=c)
    beyond = replace(within, constraints=replace(c, max_usd_per_month=None))
    if workload.objective in PRICED:
        return [(within, False), (beyond, True)]
    return [(within, False), (within, True), (replace(beyond, objective="cost"), True)]


def _offers(
    catalog: Catalog, chips: set[str], ways: dict[str, list[Offer]], ranked: Sequence[Scored], assumed: bool
) -> tuple[Offer, ...]:
    """The offers to simulate these chips with; assumed ones cost as much per chip as the first choice."""
    if not assumed:
        return tuple(o for slug in sorted(chips) for o in ways[slug])
    usd = ranked[0].usd_per_hour / ranked[0].chips if ranked else 1.0
    return tuple(at_price(o, usd) for o in catalog.assumed_offers if o.accelerator in chips)


def at_price(o: Offer, factor: float) -> Offer:
    """The offer with its price multiplied; staff, power and space cost what they did."""
    if not o.parts:
        return replace(o, usd_per_hour=o.usd_per_hour * factor, capital_usd=o.capital_usd * factor)
    parts = _repriced(o.parts, factor)
    return replace(
        o, parts=parts, list_parts=_repriced(o.list_parts, factor), usd_per_hour=total_usd_per_hour(parts),
        capital_usd=o.capital_usd * factor, purchase_usd=o.purchase_usd * factor,
    )  # fmt: skip


def _repriced(parts: Sequence[Part], factor: float) -> tuple[Part, ...]:
    return tuple(p if p.name in NOT_PRICED else replace(p, usd_per_hour=p.usd_per_hour * factor) for p in parts)


def _simulated(question: Question, scale: Scale, slugs: set[str]) -> tuple[dict[str, Scored], list[Rejection]]:
    """(best design by chip, rejections of the other chips)."""
    workload = question.workload
    chips = [a for a in question.catalog.accelerators if a.slug in slugs]
    lanes, refused = enumerate_lanes(question, chips) if chips else ([], [])
    refused = with_support_changes(question, refused)
    if not lanes:
        return {}, refused
    table = evaluate(question, lanes)
    refused += does_not_fit(question, table)
    simulations = Simulations(question, table)
    scale = replace(scale, declared=declared(question))
    score = table_scores(workload, table, scale)
    best: dict[str, Scored] = {}
    for slug, own in rows_by_chip(table).items():
        if not question.catalog.effort.allows("accelerators without a price"):
            break
        ask = remembered(partial(best_of_chip, simulations=simulations, own=own, score=score, scale=scale, few=True))
        design = best_within_budget(workload, ask)
        if design is not None:
            best[slug] = design
        else:
            candidates = partial(designs, table=table, own=own, score=score)
            refused.append(explain(workload, simulations, slug, ask, candidates)[0])
    return best, refused


# --- the price at which a design wins ---------------------------------------------------------------------------


def _priced(workload: Workload, scale: Scale, ranked: Sequence[Scored], s: Scored, assumed: bool) -> Unranked:
    """A design with the highest price at which it would be first, to three digits."""
    winning, rate = _winning_factor(workload, scale, ranked, s), rate_usd_per_hour(s.offer)
    usd = None if winning is None else _rounded_down(winning * rate)
    price = usd or _rounded_down(min(1.0, _affordable_factor(workload, s)) * rate)
    first = at(s, price / rate)
    shown = first if assumed else s
    place = 1 + sum(_score(workload, scale, r, s) < _score(workload, scale, shown, s) for r in ranked)
    return Unranked(
        scored=shown,
        assumed=assumed,
        place=place,
        changes=() if assumed else tuple(offer_changes(s.offer, workload.constraints)),
        usd_per_accelerator_hour=usd,
        usd_per_month=None if usd is None else first.usd_per_hour * HOURS_PER_MONTH,
    )


def _affordable_factor(workload: Workload, s: Scored) -> float:
    """The highest multiple of the price of the offer that is within the budget."""
    most = workload.constraints.max_usd_per_month
    if most is None:
        return math.inf
    fixed = at(s, 0.0).usd_per_hour
    return max((most / HOURS_PER_MONTH - fixed) / (s.usd_per_hour - fixed), FACTORS[0])


def _winning_factor(workload: Workload, scale: Scale, ranked: Sequence[Scored], s: Scored) -> float | None:
    """The highest multiple of the price, within FACTORS, at which a design is first; None: at no price."""
    if not ranked and workload.constraints.max_usd_per_month is None:
        return 1.0
    scaled, affordable = workload.objective == "balanced", _affordable_factor(workload, s)
    least = math.inf if scaled else min((final_score(workload, r, scale) for r in ranked), default=math.inf)

    def wins(factor: float) -> bool:
        own = at(s, factor)
        if factor > affordable:
            return False
        if scaled:
            most = equal_up_to(workload, _score(workload, scale, own, own))
            return all(most < _score(workload, scale, r, own) for r in ranked)
        return equal_up_to(workload, final_score(workload, own, scale)) < least  # else other things decide

    low, high = (math.log(f) for f in FACTORS)
    if not wins(math.exp(low)):
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if wins(math.exp(middle)) else (low, middle)
    return math.exp(low)


def _score(workload: Workload, scale: Scale, s: Scored, added: Scored) -> float:
    """The objective once `added` is a candidate too, which may lower the scale of `balanced`."""
    lowest = replace(
        scale,
        usd_per_hour=min(scale.usd_per_hour, added.usd_per_hour),
        tpot_s=min(scale.tpot_s, workload.kind.tail_latency_s(added.verified)),
        watts=min(scale.watts, added.watts) if math.isfinite(added.watts) else scale.watts,
    )
    return final_score(workload, s, lowest)


def at(s: Scored, factor: float) -> Scored:
    """The deployment with the price of its offer multiplied."""
    names = {p.name for p in s.offer.parts} or {"instances", "interruptions", "cloud services"}
    names -= set(NOT_PRICED)
    parts = (replace(p, usd_per_hour=p.usd_per_hour * factor) if p.name in names else p for p in s.parts)
    return replace(s, parts=tuple(parts), offer=at_price(s.offer, factor))


def rate_usd_per_hour(o: Offer) -> float:
    """The price of one chip, USD per hour: the rent without further services, or all costs of a purchase."""
    rent = [p for p in o.parts if p.name == "instances"]
    return (total_usd_per_hour(rent) if rent else o.usd_per_hour) / o.accelerators


def price_share(s: Scored) -> float:
    """The part of the cost of a deployment that moves with the price of its offer."""
    return 1.0 - at(s, 0.0).usd_per_hour / s.usd_per_hour if s.usd_per_hour else 0.0


def _rounded_down(usd: float) -> float:
    """Three significant digits, and a little below where nothing would be rounded off: a tie does not win."""
    digits = 2 - math.floor(math.log10(usd))
    return float(f"{math.floor(usd * (1 - 1e-6) * 10.0**digits) / 10.0**digits:.6g}")


# --- in words ---------------------------------------------------------------------------------------------------


def _told(
    r: Rejection,
    workload: Workload,
    found: dict[str, Unranked],
    after: dict[str, Rejection],
    ways: dict[str, list[Offer]],
    ranked: Sequence[Scored],
) -> Rejection:
    """The rejection with what its chip would do at another price or offer, and the change that leads there."""
    if r.accelerator in found:
        u = found[r.accelerator]
        return _with_price(r, u, ranked) if u.assumed else _with_offer(r, u, ranked)
    if r.accelerator not in ways or r.accelerator not in after:
        return r
    then, offers = after[r.accelerator], ways[r.accelerator]
    if r.reason == "does_not_fit":
        return r  # a larger host would not help either
    usd = _rounded_down(ranked[0].usd_per_hour / ranked[0].chips if ranked else 1.0)
    assumed = "" if offers else f"; costed at {_rate(usd)}" + (", as the first choice" if ranked else "")
    detail = "; ".join(dict.fromkeys((then.detail, r.detail))) + assumed
    if not then.changes:
        return replace(then, detail=detail, dead_end=then.dead_end or NO_LAYOUT)
    first = min((offer_changes(o, workload.constraints) for o in offers), key=listed, default=[])
    changes = (*(first or [_price_change(r.accelerator, usd)]), *then.changes)
    return replace(then, detail=detail, smallest_change=f"priced with {listed(changes)}", changes=changes)


def _price_change(slug: str, usd: float) -> Change:
    return limit_change(f"{PRICE_FIELD}.{slug}", "<=", usd)


def _label(s: Scored) -> str:
    return f"{s.chips:,} x {s.lane.choice.accelerator.name}, {describe(s.lane)}"


def _monthly(s: Scored) -> str:
    return f"{usd_text(s.usd_per_hour * HOURS_PER_MONTH)} a month"


def _with_offer(r: Rejection, u: Unranked, ranked: Sequence[Scored]) -> Rejection:
    """A chip that an offer beyond the constraints prices."""
    o, s = u.scored.offer, u.scored
    where = f"bought ({o.instance})" if o.acquisition == "own" else f"{o.instance} at {o.provider}"
    detail = (
        f"{r.detail}; {where}: {_label(s)} meets all limits in simulation at {_monthly(s)} and would rank {u.place}"
    )
    alone = [list_change("constraints.accelerators.allow", [r.accelerator])] if u.place > MAX_RANKED else []
    changes = (*u.changes, *alone)
    return replace(
        r,
        detail=detail,
        smallest_change=f"priced with {listed(changes)}",
        changes=changes,
        dead_end="",
        reason="unpriced",
    )


def _with_price(r: Rejection, u: Unranked, ranked: Sequence[Scored]) -> Rejection:
    """A chip without any offer: the price at which it would be first, or at which it would at least be ranked."""
    s, slug = u.scored, r.accelerator
    detail = f"{r.detail}; {_label(s)} meets all limits in simulation"
    if u.usd_per_accelerator_hour is not None:
        change = _price_change(slug, u.usd_per_accelerator_hour)
        against = "" if ranked else ", since nothing else meets this workload"
        detail += f" and would be first of the machines at {_rate(u.usd_per_accelerator_hour)} ({_monthly(s)}){against}"
        return replace(
            r,
            detail=detail,
            smallest_change=f"first of the machines with {change.said}",
            changes=(change,),
            dead_end="",
        )
    usd = _rounded_down(rate_usd_per_hour(s.offer))
    alone = [list_change("constraints.accelerators.allow", [slug])] if u.place > MAX_RANKED else []
    changes = (_price_change(slug, usd), *alone)
    detail += (
        f", but no price would make it first of the machines; at {_rate(usd)} ({_monthly(s)}) it would rank {u.place}"
    )
    return replace(r, detail=detail, smallest_change=f"priced with {listed(changes)}", changes=changes, dead_end="")


def _rate(usd: float) -> str:
    return f"{exact_text(usd)} per accelerator-hour"
