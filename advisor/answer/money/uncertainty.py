"""Cost with everything uncertain drawn together: ranges, chances, drivers, scenarios."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.answer.money.bill import price_and_load_ranges
from advisor.answer.money.plan import cents
from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH, priced_usd_per_hour
from advisor.engine.scheduler import SEED
from advisor.engine.search import DRAWS, EQUAL_FRACTION, Scored, distributions, joint, rank_uncertainty
from advisor.engine.terms import CERTAIN, SURE_CONFIDENCE, Z95, RatioDistribution, Ratios, usd_text
from advisor.inputs import PATHS, RESALE_YEARS, SWINGS, number, price_path, rounded
from advisor.result import (
    Chance,
    CostRanges,
    Driver,
    HostedOffer,
    Intervals,
    Option,
    PortfolioMoney,
    Scenario,
    ScenarioCost,
    Uncertainty,
)

Json = dict[str, Any]
Array = np.ndarray
QUANTILES = (0.05, 0.5, 0.95)
QUARTILE = 0.6745  # standard normal value below which three quarters of the draws lie
STAFF, RENT, ENERGY, HARDWARE = (
    "operator-usd-per-year", "rent-change-per-year", "electricity-change-per-year", "hardware-price-change-per-year",
)  # fmt: skip
NAMES = {
    "load": "load", "performance": "performance", "rent": "rent", "hardware": "hardware prices",
    "resale": "resale value", "electricity": "electricity price", "staff": "staff cost", "api": "API prices",
}  # fmt: skip
RAISES = {
    "delivery": 1,
    "load": 1,
    "performance": -1,
    "rent": 1,
    "hardware": 1,
    "resale": -1,
    "electricity": 1,
    "staff": 1,
    "api": 1,
}


class CostModel:
    """The cost model of the shown options under draws."""

    def __init__(
        self,
        question: Question,
        shown: Sequence[Scored],
    ) -> None:
        self.question, self.shown = question, shown
        self.uncertain = uncertain_of(question)
        self.draws = joint.Draws.all()
        self.api_usd: float | None = None
        self.api_ranked = False
        self._options: dict[tuple[str, ...], list[joint.Option | None]] = {}
        self._drawn: dict[int, tuple[joint.Option, joint.Costs]] = {}  # in the joint draws, by id of the option

    def of(self, places: Sequence[int]) -> "CostModel":
        """The model of some of its options, with what is already computed for them."""
        found = CostModel(self.question, [self.shown[i] for i in places])
        found.draws, found._drawn = self.draws, self._drawn
        found._options = {kinds: [known[i] for i in places] for kinds, known in self._options.items()}
        return found

    def reorder(self, order: Sequence[int]) -> None:
        """Takes the shown options in another order, by their places now."""
        self.shown = [self.shown[i] for i in order]
        self._options = {kinds: [found[i] for i in order] for kinds, found in self._options.items()}

    def drawn_api(self, usd_per_month: float) -> Array:
        """Equal monthly payment for an API that costs this much as expected, in each draw, USD."""
        u, draws = self.uncertain, self.draws
        return np.asarray(usd_per_month * joint.centered(u.load, draws.load) * joint.centered(u.api, draws.api))

    def compare_with(self, hosted: Sequence[HostedOffer], ranked: bool) -> None:
        """Takes the cheapest hosted API that nothing rules out into the comparison; ranked: APIs may win."""
        usd = [h.usd_per_month for h in hosted if h.rejection is None and h.usd_per_month]
        self.api_usd, self.api_ranked = min(usd, default=None), ranked

    def usd_per_month(self) -> list[Array | None]:
        """Cost of each option's plan in each draw, with the forgone sale of owned machines that it keeps.

        Nobody has offered to buy them, and a sale cannot be undone: it counts at what it brings with the probability
        that such a step needs.
        """
        return [with_sure_sale(c) if c else None for c in self.costs(self.draws)]

    def paid_usd_per_month(self) -> list[Array | None]:
        """Cost of each option's plan in each draw, without what a sale would bring."""
        return [c.usd_per_month if c else None for c in self.costs(self.draws)]

    def usd_per_hour(self) -> list[Array | None]:
        return [usd / HOURS_PER_MONTH if usd is not None else None for usd in self.usd_per_month()]

    def options(self, kinds: tuple[str, ...] = ()) -> list[joint.Option | None]:
        """The options, with these ways to pay alone if any are named."""
        if kinds not in self._options:
            known = [ranges_of(self.question, s) for s in self.shown]
            throughput, price = [t for t, _ in known], [p for _, p in known]
            self._options[kinds] = joint.options_of(
                self.question, self.shown, throughput, price, self.uncertain, kinds or None
            )
        return self._options[kinds]

    def costs(self, draws: joint.Draws, kinds: tuple[str, ...] = ()) -> list[joint.Costs | None]:
        """Costs of each option in each draw."""
        return [self._costs_of(option, draws) if option else None for option in self.options(kinds)]

    def _costs_of(self, option: joint.Option, draws: joint.Draws) -> joint.Costs:
        if draws is self.draws and id(option) in self._drawn:
            return self._drawn[id(option)][1]
        found = joint.costs(self.question.workload, option, joint.factors_of(option, self.uncertain, draws))
        if draws is self.draws:
            self._drawn[id(option)] = option, found
        return found

    def api(self, draws: joint.Draws) -> Array | None:
        """Equal monthly payment for the cheapest API in each draw, USD; None: there is none."""
        if self.api_usd is None:
            return None
        load, price = (
            joint.centered(r, z) for r, z in ((self.uncertain.load, draws.load), (self.uncertain.api, draws.api))
        )
        return np.asarray(self.api_usd * load * price)


def with_sure_sale(c: joint.Costs) -> Array:
    forgone = c.economic_usd_per_month - c.usd_per_month
    return np.asarray(c.usd_per_month + float(np.quantile(forgone, 1.0 - SURE_CONFIDENCE)))


def uncertain_of(question: Question) -> joint.Uncertain:
    """The ranges of the assumptions. A value that the workload sets is certain, but for load, prices and paths."""
    rows, tco = question.snapshot.assumptions, question.spec["tco"]
    a = question.catalog.site_assumptions or question.catalog.assumptions

    def ends(key: str) -> tuple[float, float]:
        row = rows.get(key)
        if row is None or key in tco or row.get("low") is None or row.get("high") is None:
            return (0.0, 0.0)
        return float(row["low"]) - float(row["value"]), float(row["high"]) - float(row["value"])

    staff = rows.get(STAFF) or {}
    known = staff.get("low") and staff.get("high") and STAFF not in tco
    swing = {key: float(tco.get(key, rows[key]["value"])) for key in SWINGS}
    load, rent = swing["load-swing-ratio"], swing["rent-price-swing-ratio"]
    return joint.Uncertain(
        load=(1 / load, load),
        staff=(staff["low"] / staff["value"], staff["high"] / staff["value"]) if known else (1.0, 1.0),
        api=(1 / rent, rent),
        rent_change=ends(RENT),
        energy_change=ends(ENERGY),
        hardware_change=ends(HARDWARE),
        **resale_ends(rows, tco, len(a.resale())),
        paths=given_paths(tco.get("price_paths") or {}, question.workload.horizon_months),
    )


def resale_ends(rows: Json, tco: Json, months: int) -> dict[str, tuple[float, ...]]:
    """(low, high) ratios to the expected resale value by months in service; empty where the workload sets the value."""
    if any(key in tco for key in ("residual_fraction", "residual-value-fraction")) or any(
        key not in rows or rows[key].get("low") is None for key in RESALE_YEARS
    ):
        return {}
    made = {}
    for end in ("low", "high"):
        ratios = [
            1.0,
            *(rows[k][end] / rows[k]["value"] if k not in tco and rows[k]["value"] else 1.0 for k in RESALE_YEARS),
        ]
        at = [12 * year for year in range(len(ratios))]
        made[f"resale_{end}"] = tuple(np.interp(np.arange(months), at, ratios).tolist())
    return made


def given_paths(paths: Json, months: int) -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
    """(low, high) ratios to the planner's own path by month 0 .. horizon, where a path has a range."""
    made = {}
    for name, _ in PATHS.values():
        points = paths.get(name) or []
        if any(p.get("low") or p.get("high") for p in points):
            middle, low, high = (
                np.array(price_path(paths, name, 0.0, months + 1, end)) for end in ("ratio", "low", "high")
            )
            made[name] = tuple((low / middle)[: months + 1].tolist()), tuple((high / middle)[: months + 1].tolist())
    return made


def ranges_of(question: Question, s: Scored) -> tuple[RatioDistribution, dict[str, tuple[float, float]]]:
    """(distribution of the throughput over the estimate, range of today's price by rent and own)."""
    known = distributions(question.snapshot.calibrations, s.lane.choice.efficiency.basis, s.lane.choice)
    ratio = {"rent": (1.0, 1.0), "own": (1.0, 1.0)}
    for o in s.planned.offers if s.planned else (s.offer,):
        ratio[o.acquisition] = price_and_load_ranges(question, replace(s, offer=o))["today"]
    return known.get("throughput", CERTAIN), ratio


# --- sections ---------------------------------------------------------------------------------------------------


def with_ranges(money: CostModel, options: Sequence[Option]) -> list[Option]:
    """The options, each with its cost ranges and its chance to cost least; APIs take part."""
    draws = money.draws
    found = money.costs(draws)
    api = money.api(draws)
    monthly = [c.usd_per_month if c else np.full(len(draws.load), np.inf) for c in found]
    compared = [c.economic_usd_per_month if c else np.full(len(draws.load), np.inf) for c in found]
    rivals = np.array([*compared, *([api] if api is not None and money.api_ranked else [])])
    wins = rank_uncertainty.win_probability(rivals, EQUAL_FRACTION) if len(rivals) else np.zeros(0)
    budget = money.question.workload.constraints
    limit = None if budget.bound_factor else budget.max_usd_per_month
    made = []
    for option, s, c, each, won in zip(options, money.shown, found, monthly, wins, strict=False):
        if c is None or option.money is None or s.planned is None:
            made.append(option)
            continue
        peak = s.planned.plan.most_usd_per_month / max(s.planned.plan.usd_per_month, 1e-9)
        ranges = cost_ranges(each, c.total_usd, float(won), peak, limit)
        made.append(
            option.changed(money=option.money.changed(ranges=ranges), interval=with_costs(money, option, s, c, each))
        )
    return [*made, *options[len(made) :]]


def cost_ranges(
    monthly_usd: Array, total_usd: Array, won: float, peak: float = 1.0, limit_usd: float | None = None
) -> CostRanges:
    """The ranges of one plan. peak: its most expensive month over its mean; limit_usd: the budget of a month."""
    over = None if limit_usd is None else rounded(float((monthly_usd * peak > limit_usd).mean()), 4)
    return CostRanges(
        usd_per_month=quantiles(monthly_usd),
        mean_usd_per_month=rounded(float(monthly_usd.mean())),
        total_usd=quantiles(total_usd),
        wins_probability=rounded(won, 4),
        over_budget_probability=over,
    )


def quantiles(usd: Array) -> list[float]:
    """5%, 50% and 95% of the draws, to the cent."""
    return [cents(float(np.quantile(usd, q))) for q in QUANTILES]


def with_costs(money: CostModel, option: Option, s: Scored, drawn: joint.Costs, monthly: Array) -> Intervals:
    """The option's intervals with those of its costs from the draws; costs per token also move with the load."""
    if not option.interval.model_fields_set:
        return option.interval
    load = joint.centered(money.uncertain.load, money.draws.load)
    base = s.planned.plan.usd_per_month if s.planned else option.usd_per_month
    tokens = [float(np.quantile(monthly / load, q)) / base for q in (QUANTILES[0], QUANTILES[2])]
    fields: Json = {
        "usd_per_month": [number(float(np.quantile(monthly, q))) for q in (QUANTILES[0], QUANTILES[2])],
        "tco_usd": [number(float(np.quantile(drawn.present_usd, q))) for q in (QUANTILES[0], QUANTILES[2])],
    }
    for name in ("usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_blended"):
        value = getattr(option, name)
        if value is not None and name in option.interval.model_fields_set:
            fields[name] = [number(value * ratio) for ratio in tokens]
    return option.interval.changed(**fields)


def price_ends(money: CostModel) -> tuple[float, float]:
    """Prices of the first option's machines that cost as much as both ends of its price range, over today's."""
    first = money.options()[0] if money.shown else None
    if first is None or first.scored.planned is None:
        return 1.0, 1.0
    way = "hardware" if first.scored.offer.acquisition == "own" else "rent"
    factors = joint.factors_of(first, money.uncertain, only(way, np.array([-Z95, Z95])))
    low, high = (
        joint.costs(money.question.workload, first, factors).usd_per_month / first.scored.planned.plan.usd_per_month
    ).tolist()
    share = priced_usd_per_hour(first.scored.parts) / first.scored.usd_per_hour
    if not share:  # machines that are already owned have no price left to pay
        return 1.0, 1.0
    return max(1.0 + (low - 1.0) / share, 0.01), 1.0 + (high - 1.0) / share


def uncertainty(money: CostModel) -> Uncertainty | None:
    """Drivers of the first option's cost, and the chances that a buyer asks about; None where nothing is ranked."""
    draws = money.draws
    if not money.shown or money.options()[0] is None:
        return None
    first = money.options()[0]
    assert first is not None
    everything = joint.costs(money.question.workload, first, joint.factors_of(first, money.uncertain, draws))
    drivers = sorted(
        drivers_of(money, first, draws, everything), key=lambda d: -abs(d.usd_per_month_high - d.usd_per_month_low)
    )
    low, middle, high = (float(np.quantile(everything.usd_per_month, q)) for q in QUANTILES)
    return Uncertainty(
        draws=DRAWS,
        seed=SEED,
        drivers=drivers,
        chances=chances(money, draws),
        said=(
            f"The first deployment costs {usd_text(low)} to {usd_text(high)} a month in 90% of {DRAWS:,} random "
            f"draws of the uncertain inputs (median {usd_text(middle)}); {drivers[0].name} matters most."
            if drivers
            else f"The first deployment costs {usd_text(middle)} a month; nothing is uncertain."
        ),
    )


def drivers_of(money: CostModel, first: joint.Option, draws: joint.Draws, everything: joint.Costs) -> list[Driver]:
    """Each input alone: the cost at both ends of its range, and its share of the variance."""
    variance = float(everything.present_usd.var())
    made = []
    chip = first.scored.lane.choice.accelerator.slug
    for name in joint.DRIVERS:
        if name == "api":
            continue
        ends, alone = (
            joint.costs(money.question.workload, first, joint.factors_of(first, money.uncertain, moved))
            for moved in (only(name, np.array([-Z95, Z95])), alone_in(name, draws, chip))
        )
        low, high = ends.usd_per_month.tolist()
        if math.isclose(low, high, rel_tol=1e-6) and float(alone.present_usd.var()) <= 1e-9 * variance:
            continue
        share = float(alone.present_usd.var()) / variance if variance else 0.0
        made.append(driver(NAMES[name], ends_of(money, first, name), (low, high), share, source_of(money, name)))
    return made


def driver(name: str, ratios: Ratios, usd_per_month: tuple[float, float], share: float, source: str) -> Driver:
    """One input at both ends of its range, and its share of the variance."""
    return Driver(
        name=name,
        low=rounded(ratios[0], 4),
        high=rounded(ratios[1], 4),
        usd_per_month_low=cents(usd_per_month[0]),
        usd_per_month_high=cents(usd_per_month[1]),
        variance_fraction=rounded(min(share, 1.0), 4),
        source=source,
    )


def alone_in(name: str, draws: joint.Draws, chip: str) -> joint.Draws:
    """The joint draws with one input alone moving; today's price and its path stay independent."""
    z = draws.load if name == "performance" else np.asarray(getattr(draws, name))
    moved = only(name, z)
    way = {"rent": "rent", "hardware": "own"}.get(name)
    return replace(moved, prices={way: joint.price_draw(chip, way)}) if way else moved


def only(name: str, z: Array) -> joint.Draws:
    """Draws in which one input alone moves; with `rent` and `hardware` also today's price."""
    draws = joint.Draws.none(len(z))
    if name == "performance":
        return replace(draws, performance=z)
    changed: Json = {name: z}
    draws = replace(draws, **changed)
    way = {"rent": "rent", "hardware": "own"}.get(name)
    return replace(draws, prices={way: z}) if way else draws


def ends_of(money: CostModel, first: joint.Option, name: str) -> tuple[float, float]:
    """5th and 95th percentile of an input over its expected value; of prices at the end of the horizon."""
    u, years = money.uncertain, math.sqrt(money.question.workload.horizon_months / 12.0)
    if name in ("rent", "hardware", "electricity"):
        change = {"rent": u.rent_change, "hardware": u.hardware_change, "electricity": u.energy_change}[name]
        later = [math.exp(math.log1p(c) * years) for c in change]
        if name in u.paths:
            later = [path[-1] for path in u.paths[name]]
        elif name == "hardware":
            later = [1.0, 1.0]  # a purchase is paid at its start
        today = first.price.get({"rent": "rent", "hardware": "own"}.get(name, ""), (1.0, 1.0))
        low, high = (t * c for t, c in zip(today, later, strict=True))
        return low, high
    if name == "resale":
        if "resale" in u.paths:
            low, high = (path[-1] for path in u.paths["resale"])
            return low, high
        held = max((held for e in first.exposures for _, held, _ in e.sales), default=0)
        at = min(held, len(u.resale_low) - 1)
        return (u.resale_low[at], u.resale_high[at]) if u.resale_low else (1.0, 1.0)
    return {"load": u.load, "performance": first.throughput.ends, "staff": u.staff}[name]


def source_of(money: CostModel, name: str) -> str:
    """Where the range of an input comes from."""
    if name == "performance":
        return "errors of the estimates on measured rows that were left out"
    if name in money.uncertain.paths:
        return f"tco.price_paths.{name} of the workload"
    key = {
        "load": "load-swing-ratio", "rent": RENT, "hardware": "purchase-price-swing-ratio", "resale": RESALE_YEARS[2],
        "electricity": ENERGY, "staff": STAFF,
    }.get(name, "")  # fmt: skip
    return str((money.question.snapshot.assumptions.get(key) or {"source": ""})["source"])


def chances(money: CostModel, draws: joint.Draws) -> list[Chance]:
    """How often owning beats renting, either beats the API, and the budget is exceeded."""

    def least(kinds: tuple[str, ...]) -> Array | None:
        known = [c.usd_per_month for c in money.costs(draws, kinds) if c]
        return np.min(known, axis=0) if known else None

    own, rent, api = least(joint.OWN_KINDS), least(joint.RENT_KINDS), money.api(draws)
    pairs = (
        ("owning costs less than renting", own, rent),
        ("owning costs less than the cheapest hosted API", own, api),
        ("renting costs less than the cheapest hosted API", rent, api),
    )
    made = [
        Chance(said=said, probability=rounded(float((a < b).mean()), 4))
        for said, a, b in pairs
        if a is not None and b is not None
    ]
    limit = money.question.workload.constraints.max_usd_per_month
    first = money.costs(draws)[0]
    if limit is not None and not money.question.workload.constraints.bound_factor and first is not None:
        plan = money.shown[0].planned
        peak = plan.plan.most_usd_per_month / max(plan.plan.usd_per_month, 1e-9) if plan else 1.0
        over = float((first.usd_per_month * peak > limit).mean())
        made.append(Chance(said="the first deployment exceeds the monthly budget", probability=rounded(over, 4)))
    return made


def portfolio_ranges(
    models: Sequence[CostModel], money: PortfolioMoney, shared: bool
) -> tuple[Array | None, CostRanges | None]:
    """(monthly cost of a portfolio in each draw, its range): the workloads' first choices drawn together.

    Of a shared fleet prices alone are drawn, in the proportions of the workloads alone; its machines stay as planned.
    """
    draws = joint.Draws.all()
    if shared:
        draws = replace(draws, load=draws.load * 0.0, performance=draws.load * 0.0)
    drawn = [c[0] for model in models if (c := model.costs(draws)) and c[0] is not None]
    if len(drawn) < len(models) or not drawn:
        return None, None
    base = [s.planned.plan for model in models for s in model.shown[:1] if s.planned]
    monthly = np.sum([c.usd_per_month for c in drawn if c], axis=0)
    total = np.sum([c.total_usd for c in drawn if c], axis=0)
    if shared:
        monthly = monthly / sum(plan.usd_per_month for plan in base) * money.usd_per_month
        paid = sum(flow.total_usd for flow in money.cash_flow)
        total = total / sum(float(plan.total_by_month.sum()) for plan in base) * paid
    ranges = CostRanges(
        usd_per_month=quantiles(monthly),
        mean_usd_per_month=cents(float(monthly.mean())),
        total_usd=quantiles(total),
        wins_probability=1.0,
        over_budget_probability=None,
    )
    return np.asarray(monthly), ranges


# --- scenarios --------------------------------------------------------------------------------------------------


def scenarios(money: CostModel, options: Sequence[Option], own: Sequence[Json]) -> list[Scenario]:
    """Every option with all inputs at the quartile that lowers (raises) its cost, as expected, and as given.

    None where no option can be planned at the sizes that the draws need, for example on owned machines alone.
    """
    if not any(money.options()):
        return []
    cases: list[tuple[str, joint.Draws, Json]] = [
        ("low", at_quartile(-QUARTILE), quartile_ratios(money, -QUARTILE)),
        ("base", joint.Draws.none(1), {}),
        ("high", at_quartile(QUARTILE), quartile_ratios(money, QUARTILE)),
    ]
    made = [
        scenario(options, name, money.costs(draws), ratios, api_ratio(money, draws)) for name, draws, ratios in cases
    ]
    return [*made, *(own_scenario(money, options, case) for case in own)]


def api_ratio(money: CostModel, draws: joint.Draws) -> float:
    """Cost of a hosted API in one case over the expected cost: its load and its price."""
    load, price = (
        float(joint.centered(r, z)[0])
        for r, z in ((money.uncertain.load, draws.load), (money.uncertain.api, draws.api))
    )
    return load * price


def at_quartile(z: float) -> joint.Draws:
    values = {name: np.array([z * RAISES[name]]) for name in joint.NORMALS}
    return joint.Draws(**values, performance=np.array([-z]), prices={"rent": np.array([z]), "own": np.array([z])})


def quartile_ratios(money: CostModel, z: float) -> dict[str, float]:
    """What a scenario assumes, as ratios to the expected values of the first deployment."""
    first = money.options()[0]
    if first is None:
        return {}
    made = {}
    for name in joint.DRIVERS:
        low, high = money.uncertain.api if name == "api" else ends_of(money, first, name)
        value = (low if z * RAISES[name] < 0 else high) ** (abs(z) / Z95)
        if name == "performance":
            value = float(first.throughput.at(z * RAISES[name]))
        if not math.isclose(value, 1.0) and (name != "api" or money.api_ranked):
            made[NAMES[name]] = rounded(value, 4)
    return made


def scenario(
    options: Sequence[Option], name: str, costs: Sequence[joint.Costs | None], ratios: Json, api: float
) -> Scenario:
    """One case for every deployment; hosted APIs are added when they are ranked among them."""
    found = [(option.rank or 0, c) for option, c in zip(options, costs, strict=False) if c is not None]
    first = min(found, key=lambda each: float(each[1].usd_per_month[0]))
    costs_of = [(rank, float(c.usd_per_month[0]), float(c.total_usd[0])) for rank, c in found]
    return case_of(name, ratios, first[0], costs_of).changed(api_ratio=rounded(api))


def case_of(name: str, ratios: Json, first: int, found: Sequence[tuple[int, float, float]]) -> Scenario:
    """One case. first: the rank that costs least; found: (rank, USD per month, USD in all) of each option."""
    shown = [ScenarioCost(rank=rank, usd_per_month=cents(usd), total_usd=cents(total)) for rank, usd, total in found]
    return Scenario(name=name, ratios=ratios, first_rank=first, costs=shown)


def own_scenario(money: CostModel, options: Sequence[Option], case: Json) -> Scenario:
    """One of the planner's cases: every input at the given ratio."""
    ratios = {name: float(case[name]) for name in joint.DRIVERS if float(case.get(name, 1.0)) != 1.0}
    factors = joint.constant_factors(ratios, money.question.workload.horizon_months)
    found = [joint.costs(money.question.workload, o, factors) if o else None for o in money.options()]
    api = ratios.get("load", 1.0) * ratios.get("api", 1.0)
    return scenario(options, str(case["name"]), found, {NAMES[name]: ratio for name, ratio in ratios.items()}, api)
