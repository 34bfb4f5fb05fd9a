"""The choice itself: declared scores, weights, how certain the order is, and why the others were not chosen."""

import re
from typing import Any

from advisor.answer import bill
from advisor.answer.intervals import interval_fractions
from advisor.engine.search import (
    PRICE_BOUND_FACTOR,
    SCORE_NAMES,
    Bar,
    Ranges,
    Scored,
    SearchResult,
    rank_uncertainty,
    tornado,
    weights_of,
)
from advisor.engine.search import Score as DeclaredScore
from advisor.engine.spec import Rejection as EngineRejection
from advisor.engine.spec import Workload
from advisor.inputs import number, rounded
from advisor.result import (
    Beats,
    LeftOut,
    LeftOutSoftware,
    Option,
    PriceBound,
    Rejection,
    Score,
    Scores,
    SensitivityBar,
    Weights,
)

Json = dict[str, Any]


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
            f"options above ${most:,.0f} a month ({PRICE_BOUND_FACTOR:g} times the cheapest feasible one) are not "
            f"ranked, because {workload.objective} alone ignores cost; set constraints.max_usd_per_month for another "
            "limit"
        ),
    )


def weights(workload: Workload) -> Weights:
    """Of the balanced view: the planner's own over the defaults."""
    return Weights(**weights_of(workload))


# --- how certain the order is -----------------------------------------------------------------------------------


def spread_of(snapshot: Json, s: Scored) -> rank_uncertainty.Spread:
    """90 % factors of one option: those that its intervals are made of."""
    half = interval_fractions(snapshot, s.lane.choice.efficiency.basis)
    return rank_uncertainty.Spread(
        throughput_fraction=half.get("throughput", (1.0, 1.0)),
        latency_fraction=half.get("tpot", half.get("ttft", (1.0, 1.0))),
        price_fraction=bill.price_and_load_ranges(snapshot, s)["price"],
    )


def with_probabilities(
    snapshot: Json, workload: Workload, outcome: SearchResult, options: list[Option]
) -> list[Option]:
    """The options, each with its chance to be the best of those shown and to beat each that ranks behind it."""
    if not options or not interval_fractions(snapshot, outcome.shown[0].lane.choice.efficiency.basis):
        return options
    spreads = [spread_of(snapshot, s) for s in outcome.shown]
    drawn = rank_uncertainty.scores(workload, outcome.scale, outcome.shown, spreads)
    wins, first = rank_uncertainty.pairwise_win_probability(drawn), rank_uncertainty.win_probability(drawn)
    return [
        option.changed(
            first_probability=four_digits(first[i]),
            beats=[Beats(rank=j + 1, probability=four_digits(wins[i, j])) for j in range(i + 1, len(options))],
        )
        for i, option in enumerate(options)
    ]


def sensitivity(snapshot: Json, workload: Workload, outcome: SearchResult) -> list[SensitivityBar]:
    """For each assumption: its range, the winner's bill at both ends, and where another option wins."""
    if len(outcome.ranked) < 2 or outcome.table is None:
        return []
    spread = spread_of(snapshot, outcome.ranked[0])
    ranges = Ranges(
        price_fraction=spread.price_fraction,
        performance_fraction=spread.throughput_fraction,
        load_fraction=bill.price_and_load_ranges(snapshot, outcome.ranked[0])["load"],
    )
    bars = tornado(workload, outcome.scale, outcome.table, outcome.ranked, ranges)
    return [sensitivity_bar(outcome.ranked, b) for b in bars]


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
        return f"no value of the {b.name} that was tried changes the winner"
    side = "below" if b.at < b.value else "above"
    inside = "" if b.low <= b.at <= b.high else ", outside its range"
    today = "" if b.unit.startswith("times") else f"today {plain(b.value)}"
    note = f" ({today}{inside})" if today else inside
    return f"{winner} wins {side} {plain(b.at)} {b.unit}{note}"


def plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# --- why not the others -----------------------------------------------------------------------------------------

SECTIONS = {"deadline_hours": "batch", "max_kw": "constraints.site"} | {
    name: "constraints" for name in ("max_accelerators", "max_usd_per_month", "quality")
}
CHANGED = re.compile(
    r"([a-z_.0-9-]+) (?:>=|<=) ([0-9.]+)|(quality): (any)|(constraints\.[a-z]+(?:\.allow)?): (\[[^]]+\])"
)


def change_of(text: str) -> Json:
    """The smallest change as paths of the workload file and their values, read from its sentence."""
    changes: Json = {}
    for key, value, quality, any_quality, path, names in CHANGED.findall(text):
        name = (key or quality).removeprefix("site.").removeprefix("batch.")
        if path:
            changes[path] = names.strip("[]").split(", ")
        elif name.startswith("inventory."):
            changes[name] = int(value)
        else:
            limit = float(value) if value else 0.0
            whole = int(limit) if limit.is_integer() else limit
            changes[f"{SECTIONS.get(name, 'slo')}.{name}"] = any_quality or whole
    return changes


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
        change=change_of(r.smallest_change),
    )


def rejection(r: EngineRejection) -> Rejection:
    return Rejection(
        accelerator=r.accelerator,
        reason=r.reason,
        detail=r.detail,
        limit=None if r.limit is None else number(r.limit),
        reached=None if r.reached is None else number(r.reached),
        smallest_change=r.smallest_change,
        change=change_of(r.smallest_change),
    )
