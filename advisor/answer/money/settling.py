"""The one quote or measurement that would settle the doubt: the input that changes the first choice most often.

Each uncertain input moves alone over its distribution, with all others as expected. The costs are those of the ranges
and probabilities (money/uncertainty.py): plans are resized where performance or load ask for other machines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from advisor.answer.money.uncertainty import CostModel
from advisor.engine.calibration import has_host_probe
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import (
    Figures,
    Scored,
    SearchResult,
    accepted_share,
    declared_scores_of,
    equal_fraction,
    host_effect,
    hosted_score,
    joint,
    objective,
    outward,
    rank_uncertainty,
)
from advisor.engine.terms import Workload
from advisor.inputs import host_ratios, rounded
from advisor.result import Answer, ApiOption, Measurement, Option, Settle, TrainingOption

Array = np.ndarray
Json = dict[str, Any]
VALUES = 201  # of each input, equally likely
NORMAL = np.array([NormalDist().inv_cdf((k + 0.5) / VALUES) for k in range(VALUES)])
RARE_FRACTION = 0.01  # an input that changes the choice in fewer of its values is not named


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One uncertain input: what to get, and the option or chip that it is about."""

    name: str  # of joint.DRIVERS, or price, host, host time, acceptance, goodput
    chip: str = ""  # slug; empty: it moves every option
    way: str = ""  # of a price: rent or own


ADVICE: Mapping[str, tuple[str, str]] = {  # kind, what to do; {option} is the option that the input is about
    "price": ("quote", "Get a written quote for {option}"),
    "rent": ("quote", "Get rental quotes with a price that is fixed for the whole term"),
    "hardware": ("quote", "Get a written quote with prices for later purchases"),
    "resale": ("quote", "Get a buy-back offer for the machines"),
    "electricity": ("quote", "Get the electricity price of your contract"),
    "staff": ("quote", "Find out what your staff costs"),
    "api": ("quote", "Get the API price in writing"),
    "performance": ("measurement", "Load-test {option}"),
    "speed": ("measurement", "Time some training steps on {option}"),
    "host": ("measurement", "Measure the host of {option} with a launch probe"),
    "host time": ("measurement", "Load-test {option}"),  # no probe for it
    "acceptance": ("measurement", "Measure on your own requests how many drafted tokens {option} accepts"),
    "load": ("measurement", "Measure your traffic"),
    "goodput": ("measurement", "Ask for the failure rate of {option}"),
}
WORDS = {
    "price": "times today's price",
    "api": "times today's price",
    "performance": "times the estimated speed",
    "speed": "times the estimated speed",
    "load": "times the expected load",
    "host": "times the assumed host time",
    "host time": "times the assumed host time",
    "acceptance": "times the expected tokens per step",
    "goodput": "times the expected share of time that trains",
    "staff": "times the expected cost",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """The objective of every option at each value of one input, shape (options, VALUES), and the input's ratios."""

    input: Input
    scores: Array
    ratios: Array | None  # to the expected value, shape (VALUES,); None: a path over time


Turn = Callable[[Input, int], tuple[float, int] | None]  # (input, who may win) -> (ratio, winner)


def settle_serving(
    workload: Workload,
    outcome: SearchResult,
    costs: CostModel,
    spreads: Sequence[rank_uncertainty.Spread],
    answer: Answer,
) -> Settle | None:
    """What would settle the first choice of a serving question; None: nothing is drawn, or it does not lead by cost."""
    apis = [o for o in answer.recommendations if isinstance(o, ApiOption)]
    first = answer.recommendations[0] if answer.recommendations else None
    known = [o for o in answer.deployments if o.scale_to_zero is None]
    options = costs.options()
    if first is None or not known or len(answer.recommendations) < 2 or len(known) != len(options) or None in options:
        return None
    if isinstance(first, Option) and first.scale_to_zero is not None:
        return None
    shown: list[Option | ApiOption] = [*known, *apis[:1]]
    moved = _serving(workload, outcome, costs, spreads, [o for o in options if o], apis[0] if apis else None)
    at = next(k for k, option in enumerate(shown) if option.rank == first.rank)
    each, equal = list(moved), equal_fraction(workload)
    tests = [m for m in each if m.input.name == "performance"]
    if not leads(each, at, equal):
        return None
    turn = turns_of(answer, outcome, shown, at)
    hours = HOURS_PER_MONTH if workload.objective == "cost" else None
    return settle(shown, at, each, equal, turn, hours).changed(measurement=measurement(shown, at, tests, equal, turn))


def turns_of(answer: Answer, outcome: SearchResult, options: Sequence[Option | ApiOption], first: int) -> Turn:
    """The turning points of the sensitivity chart, which is about the first deployment and the others."""
    bars = {bar.assumption: bar for bar in answer.sensitivity}
    chip = outcome.ranked[0].lane.choice.accelerator
    mine = [o for o in options if isinstance(o, Option) and o.accelerator == chip.slug]

    def turn(moved: Input, after: int) -> tuple[float, int] | None:
        bar = bars.get(f"{moved.name} of {chip.name}")
        if moved.chip != chip.slug or options[first] not in mine or bar is None or bar.at_value is None:
            return None
        if isinstance(options[after], ApiOption) or any(moved.way and o.acquisition != moved.way for o in mine):
            return None  # the chart leaves APIs out, and moves all prices of a chip
        others = (k for k in (after, *range(len(options))) if k != first)
        wins = [k for k in others if _accelerator(options[k]) == bar.winner_after]
        return (bar.at_value, wins[0]) if wins else None

    return turn


def _accelerator(option: Option | ApiOption) -> str:
    return "" if isinstance(option, ApiOption) else option.accelerator


def _serving(
    workload: Workload,
    outcome: SearchResult,
    costs: CostModel,
    spreads: Sequence[rank_uncertainty.Spread],
    options: Sequence[joint.Option],
    api: ApiOption | None,
) -> Iterator[Moved]:
    u = costs.uncertain

    def row(k: int, speed: Array | float, slower: Array | float, draws: joint.Draws) -> Array:
        """The objective of one option; speed, slower: over the estimates."""
        o, s = options[k], options[k].scored
        factors = replace(joint.factors_of(o, u, draws), speed=np.broadcast_to(speed, (VALUES,)))
        usd = joint.costs(workload, o, factors).economic_usd_per_month / HOURS_PER_MONTH
        return _objective(workload, outcome, s, usd, np.broadcast_to(speed, (VALUES,)), slower)

    def api_row(load: Array | float, price: Array | float) -> Array:
        assert api is not None
        tpot_s = 1.0 / api.published_output_tokens_per_s if api.published_output_tokens_per_s else None
        usd = np.broadcast_to(api.usd_per_hour * load * price, (VALUES,))
        return np.array([hosted_score(workload, outcome.scale, float(each), tpot_s) for each in usd])

    still = joint.Draws.none(VALUES)
    base = np.array([row(k, 1.0, 1.0, still) for k in range(len(options))])
    base_api = api_row(1.0, 1.0) if api else None

    def all_rows(changed: Mapping[int, Array], of_api: Array | None = None) -> Array:
        rows = np.array([changed.get(k, base[k]) for k in range(len(options))])
        last = base_api if of_api is None else of_api
        return rows if last is None else np.vstack([rows, last])

    chips = [o.scored.lane.choice.accelerator.slug for o in options]
    for chip in dict.fromkeys(chips):
        mine = [k for k, slug in enumerate(chips) if slug == chip]
        speeds = {k: options[k].throughput.at(NORMAL) for k in mine}
        slower = {k: spreads[k].latency_fraction.at(-NORMAL) for k in mine}
        yield Moved(
            input=Input(name="performance", chip=chip),
            scores=all_rows({k: row(k, speeds[k], slower[k], still) for k in mine}),
            ratios=speeds[mine[0]],
        )
        for way in ("rent", "own"):
            paid = [k for k in mine if _pays(options[k].scored, way)]
            if paid:
                draws = replace(still, prices={way: NORMAL})
                yield Moved(
                    input=Input(name="price", chip=chip, way=way),
                    scores=all_rows({k: row(k, 1.0, 1.0, draws) for k in paid}),
                    ratios=joint.centered(options[paid[0]].price[way], NORMAL),
                )
        known = host_ratios(costs.question.spec["tco"], costs.question.snapshot, chip)
        if known and outcome.table is not None and outcome.table.built is not None:
            times = joint.centered(known, NORMAL)
            on_host = {k: host_effect(workload, outcome.table, options[k].scored, times) for k in mine}
            has_probe = has_host_probe(options[mine[0]].scored.lane.choice.accelerator.stacks)
            yield Moved(
                input=Input(name="host" if has_probe else "host time", chip=chip),
                scores=all_rows({k: row(k, e.speed, e.latency, still) for k, e in on_host.items()}),
                ratios=times,
            )
    for method in dict.fromkeys(o.scored.lane.draft.method for o in options if o.scored.lane.draft):
        drafted = [k for k, o in enumerate(options) if o.scored.lane.draft and o.scored.lane.draft.method == method]
        shares = {k: _quantiles(accepted_share(options[k].scored.lane.draft)) for k in drafted}
        yield Moved(
            input=Input(name="acceptance", chip=chips[drafted[0]]),
            scores=all_rows({k: row(k, shares[k], 1.0 / shares[k], still) for k in drafted}),
            ratios=shares[drafted[0]],
        )
    for name in ("load", "rent", "hardware", "resale", "electricity", "staff"):
        changed: Json = {name: NORMAL}
        draws = replace(still, **changed)
        load = joint.centered(u.load, NORMAL) if name == "load" else None
        yield Moved(
            input=Input(name=name),
            scores=all_rows(
                {k: row(k, 1.0, 1.0, draws) for k in range(len(options))},
                api_row(load, 1.0) if api and load is not None else None,
            ),
            ratios=load if load is not None else joint.centered(u.staff, NORMAL) if name == "staff" else None,
        )
    if api:
        price = joint.centered(u.api, NORMAL)
        yield Moved(input=Input(name="api"), scores=all_rows({}, api_row(1.0, price)), ratios=price)


def _pays(s: Scored, way: str) -> bool:
    """Whether the deployment's plan pays a price of this kind: rent, or a purchase (own)."""
    offers = s.planned.offers if s.planned else (s.offer,)
    return any(o.acquisition == way and (way == "rent" or o.capital_usd) for o in offers)


def _quantiles(drawn: Array | float) -> Array:
    return np.quantile(np.asarray(drawn), (np.arange(VALUES) + 0.5) / VALUES)


def _objective(
    workload: Workload, outcome: SearchResult, s: Scored, usd: Array, speed: Array, slower: Array | float
) -> Array:
    carrying = s.replicas - s.spare_replicas
    share = (
        1 / speed
        if workload.kind.released_after_run
        else rank_uncertainty.growth(workload, s, speed) * carrying / s.replicas
    )
    known = declared_scores_of(workload, outcome.scale)
    figures = Figures(
        usd_per_hour=usd,
        tpot_p95_s=np.asarray(workload.kind.tail_latency_s(s.verified) * slower),
        watts=s.watts * share,
        kgco2e_per_kwh=np.array(s.offer.kgco2e_per_kwh or np.nan),
        capacity_requests_per_s=s.capacity_requests_per_s * speed * share,
        chips=s.chips * share,
        lacking=known.lacking(s.lane, s.offer) if known else 0.0,
    )
    return np.broadcast_to(objective(workload, outcome.scale, figures), (VALUES,))


# --- the choice -------------------------------------------------------------------------------------------------


def settle(
    options: Sequence[Option | ApiOption | TrainingOption],
    first: int,
    moved: Sequence[Moved],
    equal: float,
    turn: Turn = lambda moved, after: None,
    hours: float | None = None,
) -> Settle:
    """The input that most often puts another option before `first`; ties go to the one named first.

    hours: a month's, where the scores are USD per hour; None: they are not.
    """
    shares = [float(flips(m.scores, first, equal).mean()) for m in moved]
    best = int(np.argmax(shares)) if shares else 0
    if not shares or shares[best] < RARE_FRACTION:
        said = "No single price or measurement within its plausible range is likely to change the first choice."
        return Settle(kind="none", input="", flips_fraction=0.0, said=said)
    m, flipped = moved[best], flips(moved[best].scores, first, equal)
    at, after, share = turned(m, flipped, turn)
    about = subject(options, first, m.input)
    kind, advice = ADVICE[m.input.name]
    where = "" if at is None else f" {'Below' if at < 1 else 'Above'} {at:g} {WORDS.get(m.input.name, '')},"
    then = f"{where} {options[after].label} is the better choice".strip()
    return Settle(
        kind="quote" if kind == "quote" else "measurement",
        input=f"{m.input.name} of {about}" if m.input.chip else m.input.name,
        flips_fraction=rounded(share, 3),
        winner_after=options[after].label,
        winner_after_rank=options[after].rank,
        at_ratio=at,
        worth_usd_per_month=0.0 if hours is None else rounded(worth(m.scores) * hours),
        said=f"{advice.format(option=about)}. {then[0].upper()}{then[1:]}; the probability of that is {share:.0%}.",
    )


def worth(scores: Array) -> float:
    """Expected score of the best option now less that after the input is known; 0: one option is best at every value.

    scores: of every option at equally likely values of one input, shape (options, values).
    """
    return float(max(scores.mean(axis=1).min() - scores.min(axis=0).mean(), 0.0))


def turned(m: Moved, flipped: Array, turn: Turn) -> tuple[float | None, int, float]:
    """(the flipped ratio nearest to what is expected, the option that is first then, its probability); None: a path.

    Where the sensitivity chart has a turning point on the same side, it is that one.
    """
    after = int(np.bincount(np.argmin(m.scores, axis=0)[flipped]).argmax())
    if m.ratios is None:
        return None, after, float(flipped.mean())
    near = float(m.ratios[flipped][np.argmin(np.abs(np.log(m.ratios[flipped])))])
    known = turn(m.input, after)
    if known is None or (known[0] < 1) != (near < 1):
        return outward(near, 1.0), after, float(flipped.mean())
    at, after = known
    return at, after, float((m.ratios <= at if at < 1 else m.ratios >= at).mean())


def measurement(
    options: Sequence[Option | ApiOption], first: int, moved: Sequence[Moved], equal: float, turn: Turn
) -> Measurement | None:
    """The load test that most often puts another option first, and the TPOT from which on it does; None: no option."""
    if not moved:
        return None
    shares = [float(flips(m.scores, first, equal).mean()) for m in moved]
    m = moved[int(np.argmax(shares))]
    on = [o for o in [options[first], *options] if isinstance(o, Option) and o.accelerator == m.input.chip]
    tested = next((o for o in on if o.launch.load_test is not None), None)
    if tested is None or tested.launch.load_test is None:
        return None
    flipped = flips(m.scores, first, equal)
    predicted_ms = tested.tpot_ms.mean if tested.tpot_ms else None
    turning_ms, winner, then = None, "", "no plausible result changes the first choice, but its intervals narrow"
    if flipped.any() and predicted_ms and m.ratios is not None:
        at, best, _ = turned(m, flipped, turn)
        turning_ms, after = outward(predicted_ms / (at or 1.0), predicted_ms), options[best]
        winner = after.label
        side = "at least" if turning_ms > predicted_ms else "at most"
        known = f"option {after.rank}, {after.label}," if after.rank else after.label
        then = f"if it is {side} {turning_ms:.3g} ms, {known} is the better choice"
    expected = f" The predicted mean TPOT is {predicted_ms:.3g} ms." if predicted_ms else ""
    what = f"Load-test one replica of option {tested.rank}"
    machine = f"{tested.tp * tested.pp * tested.dp:,} x {tested.accelerator_name}"
    where = f" at {tested.provider}" if tested.acquisition == "rent" and tested.provider else ""
    return Measurement(
        rank=tested.rank or 0,
        machine=machine + where,
        serve=tested.launch.command,
        command=next(iter(tested.launch.load_test.commands.values()), ""),
        predicted_tpot_ms=predicted_ms,
        turning_tpot_ms=None if turning_ms is None else rounded(turning_ms, 4),
        winner_after=winner,
        flips_fraction=rounded(max(shares), 3),
        said=f"{what} on {machine}{where}.{expected} {then[0].upper()}{then[1:]}.",
    )


def flips(scores: Array, first: int, equal: float) -> Array:
    """At which values another option is better than `first`; options within `equal` of the best count as it."""
    least = scores.min(axis=0)
    return np.asarray(scores[first] > least + equal * np.abs(least))


def leads(moved: Sequence[Moved], first: int, equal: float) -> bool:
    """Whether `first` is first as expected. Owned machines may stand before what costs less but is not certain to."""
    expected = [m.scores[:, VALUES // 2 : VALUES // 2 + 1] for m in moved if m.input.name == "load"]
    return not any(flips(scores, first, equal).any() for scores in expected)


def subject(options: Sequence[Option | ApiOption | TrainingOption], first: int, moved: Input) -> str:
    """The machines that an input is about: the first choice, or the best option on the chip."""
    if not moved.chip:
        return ""
    on = [options[first], *options]
    of = next(o for o in on if not isinstance(o, ApiOption) and o.accelerator == moved.chip)
    seller = f" at {of.provider}" if moved.way == "rent" and of.acquisition == "rent" else ""
    return f"{of.accelerator_count:,} x {of.accelerator_name}{seller}"
