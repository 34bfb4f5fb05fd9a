"""The whole answer of `advise`, of which `GET /api/v1/advice/{id}/result` and `--format json` leave out EXTRAS."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from advisor.result.base import (
    Chips,
    Count,
    Fraction,
    Json,
    KgCo2ePerMtok,
    Milliseconds,
    Number,
    Seconds,
    Section,
    TokensPerSecond,
    Unit,
    UsdPerMonth,
    UsdPerMtok,
    Watts,
)
from advisor.result.decision import Decision, Settle, first_accelerators, grows, lasting, most_accelerators, plan_ways
from advisor.result.hosted import ApiOption, HostedOffer
from advisor.result.money import Scenario, Switch, Team, Uncertainty
from advisor.result.options.demand import Owned
from advisor.result.options.option import NearMiss, Option
from advisor.result.options.sharing import Adapters, Mix, Sharing
from advisor.result.options.training_option import TrainingOption
from advisor.result.options.why_not import (
    Bookable,
    LeftOutSoftware,
    PriceBound,
    Rejection,
    SensitivityBar,
    SolidChoice,
    UnknownPlace,
    Unranked,
)
from advisor.result.portfolio import Portfolio
from advisor.result.purchase import purchase_in


class Catalog(Section):
    """The catalog that was used."""

    version: str
    """Digest of its rows."""
    prices_as_of: str
    """Day of the prices."""


class InternalRejection(Section):
    """An accelerator or a section of the answer that an internal error left out."""

    what: str
    """Catalog name of the accelerator, or the section."""
    detail: str
    """What happened, in words."""


class Candidates(Section):
    """How many deployments were looked at."""

    evaluated: Count
    """Deployments estimated."""
    pruned: Count
    """Dropped early because they cannot win."""
    feasible: Count
    """Within every limit by estimate."""
    internal_rejections: list[InternalRejection] = []
    """Left out because of internal errors, which the log describes; usually empty."""
    not_examined: list[str] = []
    """Left out because the search reached its work limit; usually empty."""


class SeparatePools(Section):
    """Prefill and decode on separate accelerators in place of the first deployment, without spare hosts."""

    chosen: bool
    """Whether the first deployment has separate pools."""
    together_accelerator_count: Chips
    """Accelerators of the deployment that computes both."""
    accelerator_count: Chips | None = None
    """Fewest accelerators whose separate pools meet the limits as estimated; absent: no fewer were found."""
    slo_probability: Fraction | None = None
    """Probability that they meet every limit, with the larger errors of such estimates."""
    said: str
    """Why separate pools were chosen or not, in one sentence."""


class Views(Section):
    """Rank of the best option by view."""

    cheapest: Count | None = None
    """Least cost."""
    fastest: Count | None = None
    """Least latency."""
    greenest: Count | None = None
    """Least carbon."""
    simplest: Count | None = None
    """Fewest accelerators."""
    balanced: Count | None = None
    """Weighted sum of cost, latency, energy and scores."""

    def ranks(self) -> dict[str, int]:
        """View to rank, for the views that have a winner."""
        return {name: rank for name, rank in self if rank is not None}


class Weights(Section):
    """Weights of the balanced view."""

    cost: Number
    """Weight of cost."""
    latency: Number
    """Weight of latency."""
    energy: Number
    """Weight of energy."""
    ecosystem: Number
    """Weight of the ecosystem score."""
    team: Number
    """Weight of the team score."""
    lead_time: Number
    """Weight of the lead time score."""
    lock_in: Number
    """Weight of the lock-in score."""
    risk: Number
    """Weight of missing facts."""


class ParetoPoint(Section):
    """One deployment in the cost-speed picture."""

    label: str
    """The deployment in one line."""
    accelerator: str
    """Catalog name."""
    accelerator_count: Chips
    """Accelerators."""
    usd_per_mtok_output: UsdPerMtok | None
    """Cost of a million output tokens; null for embeddings."""
    usd_per_mtok_input: UsdPerMtok | None = None
    """Cost of a million tokens read; absent for generating models."""
    tpot_ms: Milliseconds | None
    """p95 TPOT; null for embeddings."""
    latency_ms: Milliseconds | None = None
    """p95 latency; absent for generating models."""
    output_tokens_per_s_per_user: TokensPerSecond | None
    """1000 / tpot_ms."""
    output_tokens_per_s_per_accelerator_at_capacity: TokensPerSecond | None = None
    """Generated tokens of one accelerator at capacity; null for embeddings; absent in answers of earlier versions."""
    usd_per_mtok_blended: UsdPerMtok | None = None
    """Cost of a million tokens, prompt and output, at the mean load; absent in answers of earlier versions."""
    usd_per_month: UsdPerMonth | None = None
    """Total cost of a month (730 hours); absent in answers of earlier versions."""
    ttft_ms: Milliseconds | None = None
    """p95 TTFT; null for embeddings; absent in answers of earlier versions."""
    watts: Watts | None = None
    """Mean draw at the load, hosts and cooling included; absent in answers of earlier versions."""
    kgco2e_per_mtok: KgCo2ePerMtok | None = None
    """Carbon of a million output tokens (of tokens read for embeddings); null: the grid is not known; absent in answers
    of earlier versions."""
    rank: Count | None
    """Rank of the option; null: not ranked."""
    frontier: bool
    """Whether nothing is both cheaper and faster."""
    meets_slo: bool
    """Whether the limits hold."""
    simulated: bool
    """Whether simulated; otherwise an analytical estimate."""

    @property
    def response_ms(self) -> float | None:
        """p95 TPOT, or p95 latency of an embedding."""
        return self.tpot_ms if self.latency_ms is None else self.latency_ms

    @property
    def usd_per_mtok(self) -> float | None:
        """Cost of a million output tokens, or of a million tokens read by an embedding model."""
        return self.usd_per_mtok_output if self.latency_ms is None else self.usd_per_mtok_input


class Assumption(Section):
    """A default, and what the workload put in its place."""

    name: str
    """Key under `tco` of the workload."""
    value: Any
    """Value used; a list for hourly figures."""
    unit: str
    """Unit of value, default, low and high."""
    source: str
    """Source of the value."""
    default: Any = None
    """The catalog's value; absent for inputs without one."""
    low: Annotated[float, Unit("that of the value")] | None = None
    """Low end of its range."""
    high: Annotated[float, Unit("that of the value")] | None = None
    """High end of its range."""
    as_of: str | None = None
    """Date of the source."""


class Source(Section):
    """Source of a group of figures."""

    model_config = ConfigDict(extra="allow")

    what: str
    """What it is the source of."""
    source: str
    """Document, page or repository."""
    as_of: str | None = None
    """Date read."""


class NotUsed(Section):
    """An input that did not change the answer."""

    field: str
    """Path in the workload."""
    value: Any
    """What was given."""
    instead: str
    """Why it was not used."""


class NoLimits(Section):
    """A serving question that sets no latency limit, and what usual limits would change."""

    said: str
    """That no limit was set, the latencies of the first deployment, and the first choice under the usual limits."""
    usual_ttft_ms_p95: Milliseconds | None = None
    """TTFT limit that MLPerf Inference sets for a chat model; null for models that generate no tokens."""
    usual_tpot_ms_p95: Milliseconds | None = None
    """TPOT limit that MLPerf Inference sets for a chat model; null for models that generate no tokens."""
    label: str | None = None
    """First deployment within both, simulated as the options are; null: none, no usual limits, or no work was left."""
    usd_per_month: UsdPerMonth | None = None
    """Its monthly cost."""


class UsedCalibration(Section):
    """A calibration that the answer used."""

    id: Count
    """Its number."""
    name: str
    """Scope, such as accelerator:h200-sxm."""
    measured_on: str
    """Date."""


class Probes(Section):
    """What machines measured for this question."""

    measured: list[str]
    """Accelerators that were measured."""
    said: str
    """The same in words."""
    jobs: list[str] = []
    """IDs of the probe jobs; absent when nothing was asked of a machine."""


def kind_of_option(value: Any) -> str:
    """Which of the three kinds of option a stored or new value is."""
    stored = isinstance(value, dict)
    if (value.get("acquisition") if stored else value.acquisition) == "api":
        return "api"
    trains = "micro_batches" in value if stored else isinstance(value, TrainingOption)
    return "training" if trains else "deployment"


Ranked = Annotated[
    Annotated[Option, Tag("deployment")]
    | Annotated[ApiOption, Tag("api")]
    | Annotated[TrainingOption, Tag("training")],
    Discriminator(kind_of_option),
]
WORKLOAD = WithJsonSchema({"type": "object", "additionalProperties": True})


class Currency(Section):
    """A currency that documents convert to, at a dated rate."""

    code: str
    """ISO 4217 code."""
    per_usd: Annotated[float, Unit("currency units per USD")]
    """Units of the currency for one US dollar."""
    as_of: str
    """Date of the rate."""
    source: str
    """Where the rate was read."""


class TokenBudget(Section):
    """What a budget trains, and the compute-optimal model for it."""

    budget_usd: Annotated[float, Unit("USD")]
    """The budget."""
    tokens: Number
    """Tokens that the budget trains the model on, at the cost of the first option."""
    tokens_per_parameter: Number
    """Tokens over parameters."""
    optimal_parameters: Number
    """Parameters of the compute-optimal model for the same FLOPs."""
    optimal_tokens: Number
    """Its tokens."""
    extrapolated: bool
    """Whether that is outside the models and token counts that the rule was fitted to."""
    said: str
    """The same in words, with the limits of the rule."""


class Answer(Section):
    """What to buy or rent for a workload or portfolio, how to run it, what it costs, and why."""

    workload: Annotated[Any, WORKLOAD]
    """The workload with every default filled in."""
    engine_version: str
    """Version of the estimates."""
    catalog: Catalog
    """Version and price date of the catalog."""
    elapsed_s: Seconds | None
    """Time to compute it; null in the engine's own output."""
    candidates: Candidates
    """Size of the search."""
    verdict: str
    """The answer in a sentence."""
    decision: Decision | None = None
    """The answer at a glance; null: nothing is feasible; absent in answers from before December 2026."""
    recommendations: list[Ranked]
    """Ranked options, best first: deployments and hosted APIs, or training runs; empty for portfolios and when nothing
    is feasible."""
    views: Views = Field(default_factory=Views)
    """Which option is cheapest, fastest, simplest, greenest or best balanced."""
    price_bound: PriceBound | None = None
    """Price beyond which nothing is ranked; null: none was needed."""
    weights: Weights | None = None
    """Weights of the balanced view; absent for portfolios."""
    near_misses: list[NearMiss] = []
    """Deployments that miss one limit by little."""
    owned: list[Owned] = []
    """What to do with accelerators that are owned; absent for portfolios."""
    rejected: list[Rejection] = []
    """Why each other accelerator is not recommended."""
    unranked: list[Unranked] = []
    """What accelerators without a usable price would do, and the price at which they would win."""
    uncertainty: Uncertainty | None = None
    """Cost with everything uncertain drawn together; null where nothing is ranked."""
    scenarios: list[Scenario] = []
    """Every option's cost under low, expected and high assumptions, and under the planner's own."""
    team: Team | None = None
    """The team behind the first choice; null where nothing is ranked by cost, absent in answers of earlier versions."""
    switch: Switch | None = None
    """The cheapest change from one option to another during the horizon; null where none is possible."""
    currency: Currency | None = None
    """What documents convert to; null: USD."""
    without_weak_prices: SolidChoice | None = None
    """The first choice without weak prices; null: the first choice has a sound price, or nothing else is possible."""
    unknown_places: list[UnknownPlace] = []
    """Sellers of the ranked machines that do not say whether they are in the required regions, cheapest first."""
    bookable: list[Bookable] = []
    """Capacity to book in advance that costs less than the first machine."""
    left_out: LeftOutSoftware | None = None
    """Why other frameworks and formats are not used; absent for portfolios."""
    pareto: list[ParetoPoint] = []
    """Cost and speed of all deployments; `frontier` marks the Pareto set."""
    sensitivity: list[SensitivityBar] = []
    """What would change the choice."""
    assumptions: list[Assumption] = []
    """Every default that the answer rests on."""
    sources: list[Source]
    """Where its figures come from."""
    hosted: list[HostedOffer] = []
    """Every hosted API of the model, cheapest first, with its rank or why it is not ranked."""
    not_used: list[NotUsed] = []
    """Inputs that did not change the answer."""
    no_limits: NoLimits | None = None
    """What a serving question without latency limits leaves open; absent if it sets one."""
    calibrations: list[UsedCalibration] | None = None
    """Calibrations that it used; absent in answers from before November 2026."""
    calibration_ids: list[Count] | None = None
    """Their numbers."""
    scale_to_zero: Rejection | None = None
    """Why no deployment that scales to zero is ranked; absent: one is, or the traffic does not suit it."""
    separate_pools: SeparatePools | None = None
    """Why prefill and decode are separate or together; absent: it was not tried, or one host is enough."""
    sharing: Sharing | None = None
    """The card whole and in parts; absent unless asked for."""
    adapters: Adapters | None = None
    """LoRA adapters; absent without adapters."""
    mix: Mix | None = None
    """Several kinds of machines; only for online serving."""
    token_budget: TokenBudget | None = None
    """Tokens for a budget in USD; absent unless a training workload gives one."""
    portfolio: Portfolio | None = None
    """Several workloads; absent for a single one."""
    probes: Probes | None = None
    """What machines measured for this question; absent unless asked for."""

    @property
    def deployments(self) -> list[Option]:
        """The ranked options that are deployments, not hosted APIs."""
        return [option for option in self.recommendations if isinstance(option, Option)]

    @property
    def serving_options(self) -> list[Option | ApiOption]:
        """The ranked options that serve: deployments and hosted APIs."""
        return [option for option in self.recommendations if not isinstance(option, TrainingOption)]

    @property
    def training_runs(self) -> list[TrainingOption]:
        """The ranked training runs."""
        return [option for option in self.recommendations if isinstance(option, TrainingOption)]

    @property
    def machines(self) -> list[Option | TrainingOption]:
        """The ranked options that rent or buy machines: all but hosted APIs."""
        return [option for option in self.recommendations if not isinstance(option, ApiOption)]

    @property
    def has_apis(self) -> bool:
        """Whether hosted APIs are ranked."""
        return len(self.machines) < len(self.recommendations)

    def option(self, rank: int) -> Option | ApiOption | TrainingOption | None:
        """The option of this rank; None: there is none."""
        return next((option for option in self.recommendations if option.rank == rank), None)

    @property
    def prices_used(self) -> str:
        """The dates of the prices behind the options: one day, or the oldest and the newest; empty without options."""
        days = sorted({option.price_as_of for option in self.recommendations if option.price_as_of})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""

    @property
    def is_feasible(self) -> bool:
        """Whether something is recommended; of a portfolio, whether every workload has somewhere to run."""
        if self.portfolio is None:
            return bool(self.recommendations)
        return self.portfolio.shared is not None or self.portfolio.alone_usd_per_month is not None

    def decide(self, settle: Settle | None = None) -> Decision | None:
        """The answer at a glance, from the first option or the fleet of a portfolio; None: nothing is feasible."""
        if self.portfolio is not None:
            return self._portfolio_decision()
        if not self.recommendations:
            return None
        first = self.recommendations[0]
        ranges = first.money.ranges if first.money else None
        plan = first.money.plan if first.money else None
        steps = lasting(plan.steps, plan.bridge) if plan else []
        trains = isinstance(first, TrainingOption)
        run = first.usd_per_run if isinstance(first, TrainingOption) else None
        if isinstance(first, Option) and first.batch:
            run = first.batch.usd_per_run
        blended = first.usd_per_mtok if isinstance(first, TrainingOption) else first.usd_per_mtok_blended
        return Decision(
            ways=plan_ways([step.action for step in steps], first.acquisition, first.provider),
            label=first.label,
            accelerator_name=first.accelerator_name,
            accelerator_count=first.accelerator_count,
            provider=first.provider,
            usd_per_month=first.usd_per_month,
            usd_per_month_range=ends(ranges.usd_per_month if ranges else None),
            usd_per_run=run,
            usd_per_run_range=ends(first.usd_per_run_range) if isinstance(first, TrainingOption) else None,
            usd_per_mtok_blended=blended,
            usd_per_mtok_input=None if trains else first.figure("usd_per_mtok_input"),
            usd_per_mtok_output=None if trains else first.figure("usd_per_mtok_output"),
            best_probability=first.figure("first_probability") if not isinstance(first, ApiOption) else None,
            cheapest_probability=ranges.wins_probability if ranges else None,
            slo_probability=first.deadline_probability if isinstance(first, TrainingOption) else first.slo_probability,
            price_as_of=first.price_as_of,
            price_origin="api" if isinstance(first, ApiOption) else first.price_origin,
            price_source=first.price_source,
            price_weakness="" if isinstance(first, ApiOption) else first.price_weakness,
            machine_accelerators=most if (most := most_accelerators(steps)) > (first.accelerator_count or 0) else None,
            first_machine_accelerators=first_accelerators(steps),
            grows=plan is not None and grows(plan),
            purchase=None if isinstance(first, ApiOption) else purchase_in(first),
            bridge=plan.bridge if plan else None,
            settle=settle,
        )

    def _portfolio_decision(self) -> Decision | None:
        """The cheaper of the shared fleet and each workload alone."""
        p = self.portfolio
        if p is None or p.money is None:
            return None
        items = sorted(p.money.items, key=lambda item: -(item.unit_usd_per_month or 0.0) * (item.quantity or 0.0))
        machines = [f"{item.quantity:,.3g} x {item.item}" for item in items if item.quantity]
        oldest = min((item for item in items if item.price_as_of), key=lambda item: item.price_as_of, default=None)
        return Decision(
            ways=plan_ways([item.action for item in items if item.action], "rent", ""),
            label=", ".join(machines),
            accelerator_name="",
            accelerator_count=None,
            provider=", ".join(dict.fromkeys(item.provider for item in items)),
            usd_per_month=p.money.usd_per_month,
            usd_per_month_range=ends(p.money.ranges.usd_per_month if p.money.ranges else None),
            usd_per_mtok_blended=None,
            best_probability=None,
            cheapest_probability=None,
            slo_probability=None,
            price_as_of=oldest.price_as_of if oldest else "",
            price_origin="",
            price_source=oldest.source if oldest else "",
        )


def ends(values: Sequence[float | None] | None) -> list[float] | None:
    """The first and the last of some amounts; None: there are none, or one is not known."""
    known = [value for value in values or () if value is not None]
    return [known[0], known[-1]] if values and len(known) == len(values) > 1 else None


# What the first screen of an answer does not show, computed after it: keys by section.
SECTIONS: dict[str, tuple[str, ...]] = {
    "rejected": ("rejected", "near_misses", "unranked", "bookable", "owned", "candidates"),
    "software": ("left_out",),
    "chart": ("pareto",),
    "other_ways": ("sharing", "adapters", "mix"),
}
COMPLETED = ("bookable", "owned", "candidates")  # keys that the first screen shows and a section adds to


def with_sections(answer: Json, sections: Mapping[str, Json]) -> Json:
    """The JSON of an answer with sections by name, in the order of its fields."""
    if not sections:
        return {**answer}
    found = {**answer, **{key: value for content in sections.values() for key, value in content.items()}}
    place = {key: at for at, key in enumerate(Answer.model_fields)}
    return {key: found[key] for key in sorted(found, key=lambda key: place.get(key, len(place)))}


def sections_in(answer: Json) -> dict[str, Json]:
    """The sections in the JSON of a complete answer."""
    return {name: {key: answer[key] for key in keys if key in answer} for name, keys in SECTIONS.items()}


def without_due(answer: Json, due: Collection[str]) -> Json:
    """The JSON of an answer without the keys of sections that are not computed yet."""
    left_out = {key for name in due for key in SECTIONS[name] if key not in COMPLETED}
    return {key: value for key, value in answer.items() if key not in left_out}


EXTRAS = {
    "pareto": "cost and speed of every deployment",
    "options": "options beyond the first three that win none of `views`",
    "details": "`tuning` of every option, `money` and `step` of all but the first, also of near misses",
    "assumptions": "every default that the answer rests on",
    "hosted": "hosted APIs beyond the five cheapest",
}
MOST_OPTIONS, MOST_HOSTED = 3, 5


def extras_named(text: str) -> frozenset[str]:
    """The parts in a list such as "pareto,hosted"; "all": every part. ValueError: there is no such part."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    if unknown := sorted(names - EXTRAS.keys() - {"all"}):
        raise ValueError(f"unknown part {', '.join(unknown)}; use {', '.join(EXTRAS)} or all")
    return frozenset(EXTRAS if "all" in names else names)


def short(answer: Json, include: Collection[str] = ()) -> Json:
    """The JSON of an answer without the parts in EXTRAS that `include` does not name; the rest is the same object.

    `recommendations` are cut by their rank, so the ranks in `views` stay valid.
    """
    left_out = EXTRAS.keys() - set(include)
    found = {key: value for key, value in answer.items() if key not in left_out or key == "hosted"}
    options = answer.get("recommendations", [])
    if "options" in left_out:
        kept = {*range(1, MOST_OPTIONS + 1), *(answer.get("views") or {}).values()}
        options = [option for rank, option in enumerate(options, 1) if rank in kept]
    if "details" in left_out:
        options = [_without_details(option, first=rank == 1) for rank, option in enumerate(options, 1)]
        if "near_misses" in answer:
            found["near_misses"] = [_without_details(option, first=False) for option in answer["near_misses"]]
    found["recommendations"] = options
    if "hosted" in left_out and "hosted" in answer:
        found["hosted"] = answer["hosted"][:MOST_HOSTED]
    return found


def _without_details(option: Json, first: bool) -> Json:
    details = {"tuning"} if first else {"tuning", "money", "step"}
    return {key: value for key, value in option.items() if key not in details}
