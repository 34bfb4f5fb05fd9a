"""How certain a training answer is: ranges of each run's cost, chances, drivers and scenarios."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from advisor.answer import money as bill
from advisor.answer.training.question import Question
from advisor.engine.scheduler import SEED
from advisor.engine.search import DRAWS, EQUAL_FRACTION, rank_uncertainty, turning_point
from advisor.engine.terms import Z95, usd_text
from advisor.engine.training_search import (
    UNCERTAIN,
    Candidate,
    CostDraws,
    Uncertainties,
    at_quantile,
    cost_draws,
    uncertainties,
    with_ratios,
)
from advisor.inputs import rounded
from advisor.result import (
    Beats,
    Chance,
    Driver,
    Scenario,
    TrainingOption,
    Uncertainty,
)

Json = dict[str, Any]
FARTHEST = 5.0  # times what is expected: turning points are looked for up to here
NAMES = {
    "performance": "performance",
    "goodput": "goodput",
    "rent": "rent",
    "hardware": "hardware prices",
    "resale": "resale value",
    "staff": "staff cost",
    "load": "tokens",
    "electricity": "electricity price",
}
RAISES = {"performance": -1, "goodput": -1, "rent": 1, "hardware": 1, "resale": -1, "staff": 1}
SOURCES = {
    "rent": "price-age-swing-ratio",
    "hardware": "purchase-price-swing-ratio",
    "resale": "residual-value-year-3",
    "staff": "operator-usd-per-year",
    "goodput": "training-failures-per-chip-day",
}
ERRORS = "errors of the estimates on measured training runs of other chips (docs/explanation/training.md)"


def ranges_of(q: Question, c: Candidate) -> Uncertainties:
    """What is uncertain about a run."""
    price = {o.acquisition: bill.price_ranges(q, o) for o in c.planned.offers}
    assumed = bill.uncertain_of(q)
    return uncertainties(c, q.speed_distribution(c), price, assumed)


def drawn(q: Question, c: Candidate) -> CostDraws:
    return cost_draws(c, ranges_of(q, c))


def costs_at(q: Question, ratios: Callable[[int], Mapping[str, Any]], count: int = 1) -> Any:
    """Present value of each ranked run with its inputs at these ratios, shape (runs, count); too late: infinite."""
    rows = []
    for k, c in enumerate(q.found.ranked):
        moved = with_ratios(c, ratios(k))
        late = moved.days + c.delivery_days > (q.task.deadline_days or np.inf)
        rows.append(np.broadcast_to(np.where(late, np.inf, moved.usd_total), (count,)))
    return np.array(rows)


def turning_ratio(q: Question, name: str, chip: str = "") -> tuple[float, int] | None:
    """(ratio of an input to what is expected, the run that costs least then); None: the first one at every ratio.

    chip: it moves the runs on this accelerator alone.
    """
    mine = [not chip or c.trained.accelerator.slug == chip for c in q.found.ranked]

    def winner(ratio: float) -> int:
        usd = costs_at(q, lambda k: {name: ratio} if mine[k] else {})[:, 0]
        return 0 if usd[0] <= usd.min() + EQUAL_FRACTION * abs(usd.min()) else int(np.argmin(usd))

    return None if winner(1.0) else turning_point(winner, 1.0, (1.0 / FARTHEST, FARTHEST))


def with_chances(q: Question, options: Sequence[TrainingOption], draws: Sequence[CostDraws]) -> list[TrainingOption]:
    """The options with their cost ranges, and their chances to cost least among those that end in time."""
    if not options:
        return []
    usd = np.array([d.usd_total for d in draws])
    wait = [c.delivery_days for c in q.found.ranked]
    late = np.array([d.days + w > (q.task.deadline_days or np.inf) for d, w in zip(draws, wait, strict=True)])
    cost = np.where(late, np.inf, usd)
    wins = rank_uncertainty.win_probability(cost, EQUAL_FRACTION)
    return [
        r.changed(
            money=with_ranges(q, r, c, d, float(won)),
            first_probability=rounded(float(won), 4),
            beats=[
                Beats(rank=j + 1, probability=rounded(float((usd[i] < usd[j]).mean()), 4))
                for j in range(i + 1, len(options))
            ],
        )
        for i, (r, c, d, won) in enumerate(zip(options, q.found.ranked, draws, wins, strict=True))
    ]


def with_ranges(q: Question, r: TrainingOption, c: Candidate, d: CostDraws, won: float) -> Any:
    """The run's money with the range of its cost."""
    if r.money is None:
        return None
    plan, limit = c.planned.plan, q.workload.constraints.max_usd_per_month
    monthly = plan.usd_per_month * (d.usd_total / c.usd_total if c.usd_total else np.ones(DRAWS))
    peak = plan.most_usd_per_month / max(plan.usd_per_month, 1e-9)
    return r.money.changed(ranges=bill.cost_ranges(monthly, d.paid_usd, won, peak, limit))


def uncertainty(q: Question, options: Sequence[TrainingOption], draws: Sequence[CostDraws]) -> Uncertainty | None:
    """What moves the cost of the first run, and what a buyer wants to know."""
    if not options:
        return None
    per_run = options[0].usd_per_run / math.fsum(q.found.ranked[0].planned.plan.total_by_month)
    low, middle, high = (per_run * float(np.quantile(draws[0].paid_usd, at)) for at in (0.05, 0.5, 0.95))
    found = drivers(q, q.found.ranked[0], draws[0])
    largest = f"; the largest driver is {found[0].name}" if found else ""
    return Uncertainty(
        draws=DRAWS,
        seed=SEED,
        drivers=found,
        chances=chances(q, options, draws),
        said=(
            f"The first run costs {usd_text(low)} to {usd_text(high)} in 90% of {DRAWS:,} random draws of the "
            f"uncertain inputs (median {usd_text(middle)}){largest}."
        ),
    )


def chances(q: Question, options: Sequence[TrainingOption], draws: Sequence[CostDraws]) -> list[Chance]:
    first = options[0]
    made = [Chance(said="the first option costs least of those shown", probability=first.first_probability or 0.0)]
    if q.task.deadline_days is not None:
        said = f"the first run ends within {q.task.deadline_days:g} days"
        made.append(Chance(said=said, probability=first.deadline_probability or 0.0))
    sides = [
        [d.usd_total for r, d in zip(options, draws, strict=True) if (r.acquisition == "own") == own]
        for own in (True, False)
    ]
    if all(sides):
        owns, rents = (np.min(side, axis=0) for side in sides)
        made.append(Chance(said="owning costs less than renting", probability=rounded(float((owns < rents).mean()), 4)))
    return made


def drivers(q: Question, c: Candidate, together: CostDraws) -> list[Driver]:
    """Each input alone: the cost at both ends of its range, and its share of the variance; the largest first."""
    ranges, variance = ranges_of(q, c), float(together.usd_total.var())
    monthly = c.planned.plan.usd_per_month / c.usd_total if c.usd_total else 0.0
    made = []
    for name in UNCERTAIN:
        ends = [at_quantile(ranges, c, {name: z}).usd_total[0] * monthly for z in (-Z95, Z95)]
        if math.isclose(*ends, rel_tol=1e-6):
            continue
        alone = float(cost_draws(c, ranges.alone(name)).usd_total.var())
        share = alone / variance if variance else 0.0
        monthly_ends = float(ends[0]), float(ends[1])
        made.append(bill.driver(NAMES[name], ranges.of(name), monthly_ends, share, source_of(q, name)))
    return sorted(made, key=lambda d: -abs(d.usd_per_month_high - d.usd_per_month_low))


def source_of(q: Question, name: str) -> str:
    if name == "performance":
        return ERRORS
    return str((q.snapshot.assumptions.get(SOURCES[name]) or {"source": ""})["source"])


# --- scenarios --------------------------------------------------------------------------------------------------


def scenarios(q: Question, options: Sequence[TrainingOption]) -> list[Scenario]:
    """Every run with all inputs at the quartile that lowers (raises) its cost, as expected, and as the planner says."""
    if not options:
        return []
    runs, first = q.found.ranked, ranges_of(q, q.found.ranked[0])
    made = []
    for name, z in (("low", -bill.QUARTILE), ("base", 0.0), ("high", bill.QUARTILE)):
        at = {each: z * RAISES[each] for each in UNCERTAIN} if z else {}  # the median need not be what is expected
        costs = [at_quantile(ranges_of(q, c), c, at) for c in runs]
        made.append(scenario(name, costs, runs, quartile_ratios(first, at) if z else {}))
    for case in q.spec["tco"].get("scenarios") or []:
        ratios = {key: float(case.get(key, 1.0)) for key in NAMES if float(case.get(key, 1.0)) != 1.0}
        costs = [with_ratios(c, ratios) for c in runs]
        made.append(scenario(str(case["name"]), costs, runs, {NAMES[key]: ratio for key, ratio in ratios.items()}))
    return made


def quartile_ratios(ranges: Uncertainties, at: dict[str, float]) -> dict[str, float]:
    """What a scenario assumes of the first run, as ratios to the expected values."""
    values = {name: float(ranges.distribution(name).at(z)) for name, z in at.items()}
    return {NAMES[name]: rounded(value, 4) for name, value in values.items() if not math.isclose(value, 1.0)}


def scenario(name: str, costs: Sequence[CostDraws], runs: Sequence[Candidate], ratios: dict[str, float]) -> Scenario:
    usd = [float(d.usd_total[0]) for d in costs]
    monthly = (each / c.planned.plan.prices.annuity for each, c in zip(usd, runs, strict=True))
    found = [(k, month, float(d.paid_usd[0])) for k, (month, d) in enumerate(zip(monthly, costs, strict=True), 1)]
    return bill.case_of(name, ratios, int(np.argmin(usd)) + 1, found)
