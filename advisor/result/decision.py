"""The answer at a glance: what to do, what it costs, how sure that is, and what would settle the doubt."""

from collections.abc import Sequence
from typing import Annotated, Literal

from advisor.result.base import (
    Count,
    Fraction,
    Milliseconds,
    PerSecond,
    Ratio,
    Section,
    Unit,
    Usd,
    UsdPerMonth,
    UsdPerMtok,
)
from advisor.result.money import BridgeSetup, Plan, PlanStep, ServerPurchase

# A hosted API for at most this share of the first choice's cost is measured before machines are committed: a rule of
# this project (docs/explanation/ranking.md).
MUCH_CHEAPER_FRACTION = 0.5
UsdRange = list[Annotated[float, Unit("USD")]]


class Measurement(Section):
    """The load test, an hour with the start of the server, that is most likely to change the first choice."""

    rank: Count
    """The option to test."""
    machine: str
    """One replica's machine."""
    serve: str
    """Starts the server; empty where no command is known."""
    command: str
    """Runs the load test; empty where none is known."""
    predicted_tpot_ms: Milliseconds | None
    """Mean TPOT that is predicted for it."""
    turning_tpot_ms: Milliseconds | None
    """Mean TPOT at which another option becomes the first choice; null: none within the interval."""
    winner_after: str = ""
    """That option in one line; empty: none."""
    flips_fraction: Fraction
    """Share of the plausible results at which it does."""
    said: str
    """The same in words."""


class Settle(Section):
    """The one quote or measurement that is most likely to change the first choice.

    Each uncertain input moves alone over its 90% range, all others as expected. The one that changes the first choice
    in the largest share of its values is named.
    """

    kind: Literal["quote", "measurement", "none"]
    """What to get; none: no single input changes the first choice."""
    input: str
    """The uncertain input; empty: none."""
    flips_fraction: Fraction
    """Share of the input's plausible values at which another option is the first choice."""
    winner_after: str = ""
    """The option that is first then, in one line."""
    winner_after_rank: Count | None = None
    """Its rank in this answer."""
    at_ratio: Ratio | None = None
    """Ratio of the input to its expected value from which on it is; null: the input is a path over time."""
    worth_usd_per_month: UsdPerMonth = 0.0
    """Expected cost of the best choice now less that after the result; 0: no result changes it, or the choice is not by
    cost."""
    said: str
    """The same in words."""
    measurement: Measurement | None = None
    """The load test to run first, also where a quote would settle more; null: no option can be load-tested."""


class Gate(Section):
    """What to learn before signing: one metric, the value at which the choice changes, and the worth of a test."""

    kind: Literal["load_test", "api", "budget", "quote", "other"] = "load_test"
    """What the test is about: load_test of the option, api (a hosted API that may replace it), budget, quote, other."""
    metric: str
    """What to measure or to ask for, such as mean TPOT of one replica."""
    value: Annotated[float, Unit("unit")] | None
    """The value at which the choice changes; null: any result that confirms the estimate."""
    unit: str
    """Unit of value."""
    better_than_value: str
    """What to sign if the result is better than the value (faster, or cheaper)."""
    worse_than_value: str
    """What to sign if it is worse."""
    test: str
    """The test or quote in one line."""
    test_usd: Usd | None
    """What it costs: machine hours of the test; null: a quote, or not known."""
    worth_usd_per_month: UsdPerMonth
    """Expected cost of the best choice now less that after the result; 0: no result changes the choice."""
    worth_usd: Usd
    """The same over the horizon."""
    sign_today: str
    """What can be signed today without the test; empty: nothing."""
    said: str
    """The same in words."""


class LadderStep(Section):
    """One margin of safety of the first choice: its size and its cost with this margin and all before it."""

    name: Literal["mean_traffic", "stated_peak", "one_host_lost", "confidence"]
    """The margin."""
    included: bool
    """Whether the first choice includes it."""
    replicas: Count
    """Replicas with it."""
    accelerators: Count
    """Accelerators in whole machines with it."""
    usd_per_month: UsdPerMonth
    """Monthly cost with it."""
    switch: str
    """The field of the workload that switches it; empty: none does."""
    said: str
    """The same in words."""


class TermOffer(Section):
    """A commitment that is not the first choice: what it saves, and what it binds."""

    term: str
    """reserved_1y or reserved_3y."""
    provider: str
    """Who offers it."""
    label: str
    """The machines in one line."""
    saves_fraction: Fraction
    """Expected saving over paying by the hour."""
    liability_usd: Usd
    """What must be paid whatever happens."""
    stays_cheapest_probability: Fraction
    """Share of the draws, falling rents and loads included, in which it costs less than paying by the hour."""
    said: str
    """The same in words."""


class Decision(Section):
    """What the first choice comes to. All amounts are those of the first option, unrounded."""

    action: Literal["sign", "keep", "do_not_sign", "get_quote", "no_clear_winner"] = "sign"
    """What to do now: sign the first option, keep what is owned, sign nothing yet, get a quote first, or choose among
    options that the estimates cannot tell apart (the first is still a good choice)."""
    gate: Gate | None = None
    """What would settle the choice; null: nothing that can be tested or asked for would change it."""
    expected_usd_per_month: UsdPerMonth | None = None
    """Mean monthly cost over the draws, adding what slower machines or more load need; null: nothing was drawn."""
    budget_usd_per_month: UsdPerMonth | None = None
    """Monthly cost that is enough in 80% of the draws; null: nothing was drawn."""
    team_usd_per_month: UsdPerMonth | None = None
    """Part of the monthly cost that pays the team; the rest is the bill. Null: not known."""
    tied_ranks: list[Count] = []
    """Ranks of the options that cannot be told apart from the first, itself left out."""
    tie_breaker: str = ""
    """What would break the tie; empty: there is none."""
    ladder: list[LadderStep] = []
    """The margins of safety and what each costs, smallest first."""
    terms: list[TermOffer] = []
    """Commitments beside the first choice; empty: none was evaluated, or the first choice is one."""
    ways: list[str]
    """What to do: rent, reserve, buy, keep (already owned) or api; several if the plan mixes them."""
    label: str
    """The first option in one line."""
    accelerator_name: str
    """Its accelerator; of an API that the provider names one, else empty."""
    accelerator_count: Count | None
    """How many; null: an API or a portfolio."""
    provider: str
    """Who sells, rents or serves it; own: bought; owned: already there."""
    usd_per_month: UsdPerMonth
    """Monthly cost."""
    usd_per_month_range: UsdRange | None
    """90% of the draws lie between these two; null: nothing was drawn."""
    usd_per_run: Usd | None = None
    """Cost of one run of a batch or a training."""
    usd_per_run_range: UsdRange | None = None
    """90% range of that cost; null: nothing was drawn."""
    usd_per_mtok_blended: UsdPerMtok | None
    """Cost of a million tokens, input and output together; of a training, of a million trained tokens."""
    usd_per_mtok_input: UsdPerMtok | None = None
    """Cost of a million input tokens."""
    usd_per_mtok_output: UsdPerMtok | None = None
    """Cost of a million output tokens; null for embeddings and trainings."""
    best_probability: Fraction | None
    """Probability that it is the best option shown, under the objective; null: not drawn."""
    cheapest_probability: Fraction | None
    """Probability that it costs least of the options shown; null: not drawn."""
    slo_probability: Fraction | None
    """Probability that it meets every latency limit, or the deadline; null: not known, or nothing is limited."""
    price_as_of: str
    """Date of the price."""
    price_origin: str
    """Where the price comes from, as price_origin of an option; api: published by the provider."""
    price_source: str
    """Where it was read."""
    price_weakness: str = ""
    """Why a buyer should not sign at it; empty: nothing is known."""
    machine_accelerators: Count | None = None
    """Accelerators in the machines of the plan at its largest, idle ones included; null: as many, or not known."""
    first_machine_accelerators: Count | None = None
    """Accelerators in the machines that the plan starts with, idle ones included; null: not known."""
    grows: bool = False
    """Whether the plan has more machines later than today."""
    purchase: ServerPurchase | None = None
    """The servers to order; null: nothing is bought."""
    bridge: BridgeSetup | None = None
    """What is rented until bought servers arrive; null: nothing."""
    settle: Settle | None = None
    """The one quote or measurement that would settle the doubt; null: not computed for this kind of answer."""


# --- an answer in at most 4 kB, for programs that need the decision alone ----------------------------------------


class SummaryFact(Section):
    """One line of the first screen, beside the decision."""

    label: str
    """What it is about, such as Cost or Rests on."""
    text: str
    """The line."""


class SummaryGate(Section):
    """What to learn before signing."""

    kind: str
    """load_test, api, budget, quote or other."""
    metric: str
    """What to measure or to ask for."""
    value: Annotated[float, Unit("unit")] | None
    """The value at which the choice changes; null: any result that confirms the estimate."""
    unit: str
    """Unit of value."""
    said: str
    """The same in words."""


class SummaryOption(Section):
    """Key figures of one option; a figure that it does not have is null."""

    rank: Count
    """Its place in the answer."""
    label: str
    """The option in one line."""
    accelerator: str | None
    """Slug of the accelerator; null: a hosted API."""
    accelerator_count: Count | None
    """How many; null: a hosted API."""
    provider: str
    """Who sells, rents or serves it; own: bought; owned: already there."""
    region: str
    """Where it is offered; empty: not stated."""
    acquisition: str
    """rent, own or api."""
    framework: str | None
    """Serving or training framework."""
    weights_dtype: str | None
    """Format of the weights."""
    replicas: Count | None
    """Identical replicas."""
    ttft_ms_p95: Milliseconds | None
    """95th percentile of the time to first token."""
    tpot_ms_p95: Milliseconds | None
    """95th percentile of the time per output token."""
    slo_probability: Fraction | None
    """Probability that it meets every latency limit, or the deadline."""
    capacity_requests_per_s: PerSecond | None
    """Highest request rate that meets the limits."""
    usd_per_month: UsdPerMonth
    """Monthly cost."""
    usd_per_mtok_blended: UsdPerMtok | None
    """Cost of a million tokens, input and output together."""
    warning_count: Count
    """How many warnings the answer has on it."""


class SummaryCost(Section):
    """What the first choice costs."""

    usd_per_month: UsdPerMonth
    """Monthly cost as planned."""
    usd_per_month_range: UsdRange | None
    """90% of the draws lie between these two; null: nothing was drawn."""
    expected_usd_per_month: UsdPerMonth | None
    """Mean monthly cost over the draws."""
    budget_usd_per_month: UsdPerMonth | None
    """Monthly cost that is enough in 80% of the draws."""
    usd_per_run: Usd | None
    """Cost of one run of a batch or a training."""
    usd_per_run_range: UsdRange | None
    """90% range of that cost."""
    price_as_of: str
    """Date of the price."""
    price_origin: str
    """Where the price comes from."""


class SummaryLinks(Section):
    """Addresses of the page, the full answer and the workload."""

    html: str
    """The page of the answer."""
    result: str
    """The full answer as JSON."""
    workload: str
    """What was asked, as a workload file."""


class AnswerSummary(Section):
    """An answer in at most 4 kB of JSON."""

    id: str
    """ID of the advice."""
    name: str
    """Name of the workload."""
    title: str
    """What was asked, as a title."""
    question: str
    """What was asked, in a sentence; left out where there is no room."""
    action: str | None
    """sign, keep, do_not_sign, get_quote or no_clear_winner; null: nothing meets the requirements."""
    said: str
    """The decision in one sentence, as on the first screen."""
    best_probability: Fraction | None
    """Probability that the first choice is the best option shown; null: not drawn."""
    facts: list[SummaryFact]
    """The lines of the first screen; the last ones are left out where there is no room."""
    gate: SummaryGate | None
    """What would settle the choice; null: nothing that can be tested or asked for would change it."""
    first: SummaryOption | None
    """The first option; null: there is none, or the answer is a portfolio."""
    cost: SummaryCost | None
    """What the first choice costs; null: there is none."""
    runner_up: SummaryOption | None
    """The second option; null: there is none."""
    option_count: Count
    """How many options are ranked."""
    rejected_count: Count | None
    """How many accelerators are rejected, each with its reason, in the full answer; null: still being computed."""
    sections_due: list[str] = []
    """Sections of the full answer that are not computed yet; absent: it is complete."""
    reused_from: str | None = None
    """ID of the earlier answer to the same question that is given again; absent: this one was computed."""
    prices_as_of: str
    """Date of the newest price."""
    engine_version: str
    """Version of the engine."""
    links: SummaryLinks
    """Where to read more."""


def lasting(steps: Sequence[PlanStep], bridge: BridgeSetup | None) -> list[PlanStep]:
    """The steps of a plan, largest first, without the rent that ends when bought servers arrive."""
    arrival = min((step.from_month for step in steps if step.action == "buy"), default=0) if bridge else 0
    return sorted((s for s in steps if s.action == "buy" or s.until_month >= arrival), key=lambda step: -step.usd)


def most_accelerators(steps: Sequence[PlanStep]) -> int:
    """Accelerators in the machines of the steps, in the month with the most."""
    months = {step.from_month for step in steps}
    return max(
        (sum(s.instances * s.accelerators for s in steps if s.from_month <= m <= s.until_month) for m in months),
        default=0,
    )


def first_accelerators(steps: Sequence[PlanStep]) -> int | None:
    """Accelerators in the machines of the steps, in their first month; None: there are no steps."""
    first = min((step.from_month for step in steps), default=None)
    return None if first is None else most_accelerators([step for step in steps if step.from_month == first])


def grows(plan: Plan) -> bool:
    """Whether it serves with more replicas later than in its first month, or after the delivery of what it buys."""
    replicas = [month.replicas for month in plan.months[plan.bridge.months if plan.bridge else 0 :]]
    return bool(replicas) and max(replicas) > replicas[0]


def plan_ways(steps: list[str], acquisition: str, provider: str) -> list[str]:
    """What to do: the actions of a plan, largest first, else how the option is paid for."""
    if steps:
        return list(dict.fromkeys(steps))
    return ["keep" if provider == "owned" else "buy" if acquisition == "own" else acquisition]
