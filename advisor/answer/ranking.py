"""What the choice itself says in the JSON of `advise`: scores, weights, and how sure the order is."""

import re
from typing import Any

from advisor.answer import bill
from advisor.answer.intervals import interval_fractions
from advisor.engine.search import (
    PRICE_BOUND_FACTOR,
    SCORE_NAMES,
    Answer,
    Bar,
    Ranges,
    Score,
    Scored,
    rank_uncertainty,
    tornado,
    weights_of,
)
from advisor.engine.spec import Rejection, Workload

Json = dict[str, Any]


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def scores_json(answer: Answer, s: Scored) -> Json:
    """Ecosystem, team, lead time, lock-in of one option with the facts they were counted from; 1 is best."""
    assert answer.scale.declared is not None
    found, risk = answer.scale.declared.of(s.lane, s.offer)
    return {**{name: score_json(found[name]) for name in SCORE_NAMES}, "risk_fraction": rounded(risk)}


def score_json(score: Score) -> Json:
    known = score.width_fraction == 0
    return {
        "value": rounded(score.low_fraction) if known else "unknown",
        "low": rounded(score.low_fraction),
        "high": rounded(score.high_fraction),
        "facts": list(score.facts),
    }


def bound_json(workload: Workload, answer: Answer) -> Json | None:
    """The price beyond which nothing is ranked, where the planner named none and the objective does not look at it."""
    most = answer.bound_usd_per_month
    if most is None:
        return None
    said = (
        f"sought among what costs at most ${most:,.0f} a month, {PRICE_BOUND_FACTOR:g} times the cheapest that holds: "
        f"{workload.objective} alone does not look at the price; constraints.max_usd_per_month sets another limit"
    )
    return {"usd_per_month": rounded(most), "times_cheapest": PRICE_BOUND_FACTOR, "said": said}


def weights_json(workload: Workload) -> Json:
    """Of the balanced view: the planner's own over the defaults."""
    return weights_of(workload)


# --- how sure the order is --------------------------------------------------------------------------------------


def spread_of(taken: Json, s: Scored) -> rank_uncertainty.Spread:
    """90 % factors of one option: those that its intervals are made of."""
    half = interval_fractions(taken, s.lane.choice.efficiency.basis)
    return rank_uncertainty.Spread(
        throughput_fraction=half.get("throughput", (1.0, 1.0)),
        latency_fraction=half.get("tpot", half.get("ttft", (1.0, 1.0))),
        price_fraction=bill.swings(taken, s)["price"],
    )


def with_odds(taken: Json, workload: Workload, answer: Answer, options: list[Json]) -> list[Json]:
    """The options, each with its chance to be the best of those shown and to beat each that ranks behind it."""
    if not options or not interval_fractions(taken, answer.shown[0].lane.choice.efficiency.basis):
        return options
    drawn = rank_uncertainty.scores(workload, answer.scale, answer.shown, [spread_of(taken, s) for s in answer.shown])
    beats, first = rank_uncertainty.pairwise_win_probability(drawn), rank_uncertainty.win_probability(drawn)
    return [
        r
        | {
            "first_probability": rounded(first[i]),
            "beats": [{"rank": j + 1, "probability": rounded(beats[i, j])} for j in range(i + 1, len(options))],
        }
        for i, r in enumerate(options)
    ]


def sensitivity(taken: Json, workload: Workload, answer: Answer) -> list[Json]:
    """The tornado: each assumption's range, the winner's bill at its ends, and where another wins."""
    if len(answer.ranked) < 2 or answer.table is None:
        return []
    spread = spread_of(taken, answer.ranked[0])
    ranges = Ranges(
        price_fraction=spread.price_fraction,
        performance_fraction=spread.throughput_fraction,
        load_fraction=bill.swings(taken, answer.ranked[0])["load"],
    )
    bars = tornado(workload, answer.scale, answer.table, answer.ranked, ranges)
    return [bar_json(answer.ranked, b) for b in bars]


def bar_json(ranked: tuple[Scored, ...], b: Bar) -> Json:
    after = None if b.winner_after is None else ranked[b.winner_after].lane.choice.accelerator
    change = None if b.at is None or not b.value else rounded(b.at / b.value - 1)
    return {
        "assumption": b.name,
        "unit": b.unit,
        "value": rounded(b.value),
        "low": rounded(b.low),
        "high": rounded(b.high),
        "usd_per_month_low": rounded(b.low_usd_per_month),
        "usd_per_month_high": rounded(b.high_usd_per_month),
        "winner_after": after.slug if after else None,
        "at_value": None if b.at is None else rounded(b.at),
        "at_change_fraction": change,
        "within_range": b.at is not None and b.low <= b.at <= b.high,
        "detail": told(b, after.name if after else ""),
    }


def told(b: Bar, winner: str) -> str:
    if b.at is None:
        return f"no value of the {b.name} that was tried changes the winner"
    side = "below" if b.at < b.value else "above"
    inside = "" if b.low <= b.at <= b.high else ", beyond its range"
    return f"{winner} wins {side} {plain(b.at)} {b.unit} (today {plain(b.value)}{inside})"


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
    """The smallest change as paths of the workload file and their values, from what is said of it."""
    found = {}
    for key, value, word, what, path, names in CHANGED.findall(text):
        name = (key or word).removeprefix("site.").removeprefix("batch.")
        if path:
            found[path] = names.strip("[]").split(", ")
        elif name.startswith("inventory."):
            found[name] = int(value)
        else:
            number = float(value) if value else 0.0
            found[f"{SECTIONS.get(name, 'slo')}.{name}"] = what or (int(number) if number.is_integer() else number)
    return found


def left_out(answer: Answer) -> Json:
    """Every framework and weight format of the catalog that no option uses, with why and what would change it."""
    return {
        kind: [{"name": r.accelerator, **rejection(r)} for r in rejections]
        for kind, rejections in (("frameworks", answer.frameworks_left), ("formats", answer.formats_left))
    }


def rejection(r: Rejection) -> Json:
    return {
        "reason": r.reason,
        "detail": r.detail,
        "limit": None if r.limit is None else rounded(r.limit),
        "reached": None if r.reached is None else rounded(r.reached),
        "smallest_change": r.smallest_change,
        "change": change_of(r.smallest_change),
    }
