"""Several workloads: each alone, all on one fleet, and small models packed on shared cards."""

from typing import Annotated, Literal

from pydantic import Field

from advisor.result.base import (
    Chips,
    Count,
    Fraction,
    Gib,
    Milliseconds,
    Months,
    Number,
    PerSecond,
    Ratio,
    Section,
    Usd,
    UsdPerHour,
    UsdPerMonth,
)
from advisor.result.money import CashFlow, CostPart, CostRanges, InstanceHours
from advisor.result.options.option import Batch


class AloneOption(Section):
    """First choice of one workload by itself."""

    label: str
    """The deployment in one line."""
    accelerator: str
    """Catalog name."""
    accelerator_count: Chips
    """Accelerators."""
    provider: str
    """Seller."""
    instance: str
    """Instance type or server."""
    instances: Count
    """Instances or servers."""
    region: str
    """Region of the price."""
    acquisition: str
    """rent or own."""
    term: str
    """Term of the price."""
    usd_per_month: UsdPerMonth
    """Total cost."""
    utilisation: Fraction | None
    """Mean load over capacity."""
    days: Annotated[float, Field(json_schema_extra={"x-unit": "days"})] | None = None
    """Length of a training run; absent for other workloads."""
    usd_total: Usd | None = None
    """Present value of a training run; absent for other workloads."""
    batch: Batch | None = None
    """One run of a batch; absent for other workloads."""


class Alone(Section):
    """One workload by itself."""

    name: str
    """The workload's name."""
    kind: str
    """serving, batch or embedding."""
    verdict: str
    """Its answer in a sentence."""
    option: AloneOption | None
    """Its first choice; null: nothing meets it."""


class FleetMachine(Section):
    """Machines of the shared fleet."""

    machine: str
    """Instance type or server."""
    accelerator: str
    """Catalog name."""
    accelerators_each: Chips
    """Accelerators per machine."""
    count: Number | None
    """Machines; a fraction when paid by the hour."""
    paid: str
    """while it runs, or around the clock."""
    usd_per_month: UsdPerMonth | None
    """Cost of all of them."""


class RunHours(Section):
    """Hours of the week with the same number of replicas."""

    when: str
    """Such as Mon-Fri 9-17."""
    hours_per_week: Annotated[int, Field(json_schema_extra={"x-unit": "h"})]
    """How many hours."""
    requests_per_s: PerSecond | None
    """Load of each of these hours."""
    replicas: Number | None
    """Replicas that run; a mean for batches."""


class FleetRun(Section):
    """One workload on one kind of machine of the fleet."""

    workload: str
    """Its name."""
    kind: str
    """serving, batch or embedding."""
    setup: str
    """Format, layout and framework."""
    machine: str
    """Instance type or server."""
    accelerator: str
    """Catalog name."""
    provider: str
    """Seller."""
    region: str
    """Region of the price."""
    replicas_per_machine: Count
    """Replicas on a machine."""
    paid: str
    """while it runs, or around the clock."""
    hours: list[RunHours]
    """When it runs."""
    ttft_ms_p95: Milliseconds | None
    """p95 time to first token; null for batches."""
    tpot_ms_p95: Milliseconds | None
    """p95 time per output token; null for batches."""


class SharedFleet(Section):
    """All workloads on one fleet."""

    usd_per_month: UsdPerMonth
    """Total cost."""
    proven: bool
    """Whether the solver proved it optimal."""
    machines: list[FleetMachine]
    """What to rent or buy."""
    team_usd_per_month: UsdPerMonth | None = None
    """Minimum team; with the machines it adds up to the total. Absent in old answers."""
    runs: list[FleetRun]
    """Who runs where and when."""


class FleetItem(Section):
    """A line of the fleet's bill of materials."""

    for_workload: Annotated[str, Field(alias="for")]
    """all, or the workload's name."""
    quantity: Number | None
    """How many."""
    item: str
    """Instance type or server."""
    provider: str
    """Seller."""
    region: str
    """Region of the price."""
    term: str
    """Term of the price."""
    unit_usd_once: Usd | None
    """Purchase of one with its share of network, storage and spares; null: rented. Not a list price."""
    unit_usd_per_month: UsdPerMonth | None
    """Everything that one costs in a month: rent or purchase, power, staff and so on. Not a list price."""
    price_as_of: str
    """Date of the price."""
    source: str
    """Where the price was read."""
    action: str = ""
    """rent (by the hour), reserve (for a term), buy or keep (already owned); empty in answers of earlier versions."""
    from_month: Count | None = None
    """First month of service; 1 is the month that starts today; null in answers of earlier versions."""
    until_month: Count | None = None
    """Last month of service within the horizon."""
    paid_until_month: Count | None = None
    """Last month that is paid; beyond the horizon when a term outlasts it."""
    list_usd_once: Usd | None = None
    """List price of one server; null when it is rented, and in answers of earlier versions."""
    list_usd_per_hour: UsdPerHour | None = None
    """List price of one instance for an hour; null when it is bought, and in answers of earlier versions."""
    paid_hours: InstanceHours | None = None
    """Instance-hours that are paid over the horizon, of all of them together; null when it is bought."""
    machine: str = ""
    """What is bought, in words: server with 8 x B200; empty where it is rented or owned, and in earlier answers."""

    @property
    def is_paid(self) -> bool:
        """Whether it is bought or rented, and not already owned."""
        return self.action != "keep"


class PortfolioMoney(Section):
    """Costs of the shared fleet, or of all workloads by themselves."""

    of: str
    """one shared fleet, or each workload alone."""
    currency: Literal["USD"]
    """ISO 4217 code."""
    prices_as_of: str
    """Date of the oldest price."""
    horizon_months: Months
    """Planning horizon."""
    discount_fraction_per_year: Fraction
    """Discount rate."""
    usd_per_month: UsdPerMonth
    """Total cost."""
    capital_usd: Usd
    """Paid today."""
    npv_usd: Usd
    """Present value of all costs over the horizon."""
    parts: list[CostPart]
    """The bill, line by line."""
    cash_flow: list[CashFlow]
    """Month by month."""
    items: list[FleetItem]
    """Bill of materials."""
    ranges: CostRanges | None = None
    """Cost with uncertain inputs drawn together; of a shared fleet prices alone, its machines as planned."""


class Tenant(Section):
    """A copy of a model on a shared card."""

    workload: str
    """Its name."""
    setup: str
    """Format, layout and framework."""
    partition: str | None
    """Hardware instance; null: a process that shares the card."""
    memory_gib: Gib | None
    """Memory that it is given."""
    memory_fraction: Fraction | None
    """Its share of the card (or instance) memory."""
    needed_gib: Gib | None
    """Memory that it needs."""
    requests_per_s: PerSecond | None
    """Its load."""
    load_fraction: Fraction | None
    """Share of the card's time that it takes alone."""
    busy_fraction: Fraction | None
    """Share of time in which it has work."""
    step_stretch: Ratio | None
    """How much longer its steps take beside its neighbors."""
    ttft_ms_p95: Milliseconds | None
    """p95 time to first token."""
    tpot_ms_p95: Milliseconds | None
    """p95 time per output token."""
    flags: str
    """Server options that limit its share."""


class Card(Section):
    """One shared card."""

    tenants: list[Tenant]
    """Models on it."""


class Packing(Section):
    """Small models on shared cards, in one way."""

    title: str
    """The way, for people."""
    accelerator: str = ""
    """Catalog name; absent when nothing fits."""
    accelerator_count: Chips = 0
    """Cards."""
    provider: str = ""
    """Seller."""
    instance: str = ""
    """Instance type or server."""
    instances: Count = 0
    """Instances or servers."""
    region: str = ""
    """Region of the price."""
    price_as_of: str = ""
    """Date of the price."""
    usd_per_month: UsdPerMonth | None
    """Total cost; null: no packing holds the limits."""
    reason: str
    """Why not."""
    cards: list[Card]
    """Who is where."""


class Packed(Section):
    """Small models as processes on shared cards, and in hardware instances."""

    processes: Packing
    """As processes that share a card."""
    instances: Packing
    """In hardware instances of a card."""
    said: str
    """The comparison in words."""


class RunOnFleet(Section):
    """A training run on the machines of a service of the portfolio, against the run by itself."""

    workload: str
    """The training workload."""
    service: str
    """The service whose machines it uses."""
    way: Literal["idle_hours", "one_plan", "alone"]
    """idle_hours: while the service leaves machines idle; one_plan: machines for both; alone: by itself."""
    accelerator: str
    """Catalog name."""
    accelerator_count: Chips
    """Accelerators of the run."""
    days: Annotated[float, Field(json_schema_extra={"x-unit": "days"})]
    """From the first step to the last token."""
    hours_per_week: Annotated[float, Field(json_schema_extra={"x-unit": "h"})] | None
    """Hours of the service's idle time in which it trains; null: it has machines of its own."""
    mean_hours_per_week: Annotated[float, Field(json_schema_extra={"x-unit": "h"})] | None = None
    """Hours a week in which it trains, on average; for a one-time run, in its first week. Absent in old answers."""
    usd_total: Usd
    """What the run adds to the present value of the service's cost."""
    saving_usd: Usd
    """Against the run by itself."""
    said: str
    """The same in words."""


class Portfolio(Section):
    """Answer of a portfolio."""

    alone: list[Alone]
    """Each workload by itself, with its share of one team for all."""
    alone_usd_per_month: UsdPerMonth | None
    """Sum of these; null: one has no answer."""
    shared: SharedFleet | None
    """All on one fleet; null: not cheaper."""
    saving_usd_per_month: UsdPerMonth | None
    """What sharing saves."""
    saving_fraction: Fraction | None
    """The same over each alone."""
    reason: str
    """Why there is no shared fleet; empty: there is one."""
    packed: Packed | None
    """Small models on shared cards; null: not all workloads are serving."""
    said: str
    """The answer in words."""
    training: list[RunOnFleet] = []
    """Training runs on the machines of a service; absent without training workloads."""
    money: PortfolioMoney | None = None
    """Costs; null: a workload has no answer; absent in answers from before November 2026."""

    @property
    def has_no_costs_stored(self) -> bool:
        """Whether a version computed it that kept no costs of portfolios."""
        return "money" not in self.model_fields_set
