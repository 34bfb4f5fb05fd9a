"""Costs of an option: bill of parts, cash flow, ways to pay, break-even, growth, provider services, energy."""

from typing import Annotated, Literal

from advisor.result.base import (
    Count,
    Fraction,
    JoulesPerToken,
    KgCo2ePerKwh,
    KgCo2ePerMtok,
    KilowattHours,
    Kilowatts,
    Months,
    Ratio,
    Section,
    Tokens,
    Unit,
    Usd,
    UsdPerGb,
    UsdPerHour,
    UsdPerKwh,
    UsdPerMonth,
    UsdPerMtok,
    Watts,
)

UsdPerKwMonth = Annotated[float, Unit("USD per kW and month")]
InstanceHours = Annotated[float, Unit("instance-hours")]
PartialMonths = Annotated[float, Unit("months")]


class CostPart(Section):
    """One line of the bill."""

    name: str
    """What is paid for: instances, accelerators, host, power, staff and so on."""
    group: str
    """rent, capital, running or services."""
    usd_per_hour: UsdPerHour
    """Averaged over all hours of the horizon."""
    usd_per_month: UsdPerMonth
    """Rounded to cents so that the lines add up to the month's total."""
    total_usd: Usd | None = None
    """Paid over the horizon without discounting, less resale; null in answers of earlier versions."""


class WaterfallStep(Section):
    """One step from the bare price of capacity to the cost of a served token."""

    name: str
    """What adds this part."""
    usd_per_mtok: UsdPerMtok
    """What it adds per million blended tokens."""


class CashFlow(Section):
    """Cash of one month; payments are positive, what sold hardware brings is a credit."""

    month: Count
    """0 is today; purchases are paid then."""
    capital_usd: Usd
    """Purchases paid in this month."""
    running_usd: Usd
    """Rent, commitments, energy, staff and other running costs of this month."""
    value_left_usd: Usd
    """Market value of the hardware that leaves service in this month, less the cost of selling."""
    total_usd: Usd
    """capital_usd + running_usd - value_left_usd."""
    present_usd: Usd
    """total_usd discounted to today."""
    rent_usd: Usd = 0.0
    """Part of running_usd: rent by the hour and payments of commitments; in the last month also those due later."""
    energy_usd: Usd = 0.0
    """Part of running_usd: electricity and cooling."""
    staff_usd: Usd = 0.0
    """Part of running_usd: staff."""
    book_value_usd: Usd = 0.0
    """Book value of the hardware in service at the end of the month: straight line over its depreciation period."""


HostPrice = Literal["priced", "estimated", "no_server", ""]


class Server(Section):
    """What one server of a step is worth, and what it takes to run it."""

    price_usd: Usd
    """List price of one today; of owned servers the lowest price of new ones with as many accelerators."""
    accelerators_usd: Usd | None
    """Part of the price that pays for the accelerators; null for owned servers."""
    superseded: bool
    """Whether the accelerator came out five or more years ago, so that it is resold for less."""
    kw_full: Kilowatts
    """Draw at full load, without cooling: what colocation is paid for."""
    kw_mean: Kilowatts | None
    """Mean draw at the load of the workload, without cooling; null where electricity costs nothing."""
    usd_per_kwh: UsdPerKwh
    """Price of electricity at the site, today."""
    pue: Ratio
    """Power usage effectiveness of the site."""
    colocation_usd_per_kw_month: UsdPerKwMonth
    """Price of space at the site."""
    accelerator_name: str = ""
    """Name of its accelerators; empty in answers stored before it was."""
    form: str = ""
    """Of a purchase: server, rack, computer or workstation."""
    host: HostPrice = ""
    """What the price covers, of a purchase: priced (the whole machine), estimated (cards, and a host at a usual price)
    or no_server (chips for which no machine is known)."""
    network_cards: Count | None = None
    """Network cards that join servers, one per accelerator; null: none, or not known."""
    network_gbit_per_s: Annotated[float, Unit("Gbit/s")] | None = None
    """Rate of each of them."""
    cooling: str = ""
    """air, liquid, or air or liquid; empty: not published."""
    rack_fraction: Fraction | None = None
    """Share of a rack's power that it draws; null: the workload states no power per rack."""
    support_usd_per_year: Usd | None = None
    """Maintenance and support; null for owned servers."""


class PlanStep(Section):
    """One thing to sign: instances that are rented, reserved or bought from one month to another."""

    action: str
    """rent (by the hour), reserve (for a term), buy, or keep (already owned)."""
    instances: Count
    """How many instances or servers; of a rent by the hour the most at the same time."""
    instance: str
    """Instance type or server."""
    provider: str
    """Who sells or rents it."""
    region: str
    """Region of the price."""
    term: str
    """on_demand, spot, reserved_1y, reserved_3y, purchase or owned."""
    from_month: Count
    """First month of service; 1 is the month that starts today."""
    until_month: Count
    """Last month of service within the horizon."""
    paid_until_month: Count
    """Last month that is paid; beyond the horizon when a term outlasts it."""
    order_months_before: PartialMonths = 0.0
    """How long before the first month a purchase has to be ordered."""
    unit_usd_once: Usd | None
    """List price of one server; null when it is rented."""
    unit_usd_per_hour: UsdPerHour | None
    """List price of one instance for an hour; null when it is bought."""
    paid_hours: InstanceHours
    """Instance-hours that are paid over the whole plan."""
    usd: Usd
    """All payments for these instances over the plan, less resale; not discounted."""
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""
    said: str
    """The step as a sentence."""
    accelerators: Count = 0
    """Accelerators of one instance or server; 0 in answers of earlier versions."""
    server: Server | None = None
    """null where it is rented, and in answers of earlier versions."""


class PlanMonth(Section):
    """What the plan has in service in one month."""

    month: Count
    """1 is the month that starts today."""
    traffic_ratio: Ratio
    """Traffic over today's."""
    replicas: Count
    """Replicas for the month's peak, spares included."""
    hourly_instances: Count
    """Instances rented by the hour, at most at once."""
    committed_instances: Count
    """Instances under a term."""
    own_instances: Count
    """Servers bought or already owned."""


class Strategy(Section):
    """One usual way to pay for the same deployment, as a plan over the horizon."""

    name: str
    """rent, reserve, buy_now, extend_later, rent_then_buy or mixed."""
    said: str
    """The strategy as a sentence."""
    usd_per_month: UsdPerMonth
    """The equal monthly payment with the same present value."""
    npv_usd: Usd
    """Present value of all payments."""
    capex_usd: Usd
    """All purchases over the horizon."""
    liability_usd: Usd
    """Payments due after the horizon, less what an exit recovers."""
    most_usd_per_month: UsdPerMonth
    """The most expensive month: its payments plus the monthly equivalent of the purchases in service."""
    chosen: bool
    """Whether the option's plan is this one."""


class BridgeSetup(Section):
    """The deployment that is rented until bought servers arrive."""

    months: Months
    """Months until the first servers arrive."""
    accelerator: str
    """Catalog name."""
    accelerators_per_replica: Count
    """Accelerators of one replica."""
    replicas: Count
    """Replicas at today's peak, without spares."""
    setup: str
    """Format, layout and framework."""
    accelerator_name: str = ""
    """Its name; empty in answers stored before it was."""

    @property
    def accelerators(self) -> int:
        return self.accelerators_per_replica * self.replicas


class Plan(Section):
    """What is rented, reserved, bought and released in which month to serve the forecast."""

    said: str
    """The plan in one sentence."""
    bridge: BridgeSetup | None = None
    """What runs on the machines that are rented until bought servers arrive; null: the same deployment, or nothing."""
    steps: list[PlanStep]
    """What to sign, in the order of the first month of service."""
    months: list[PlanMonth]
    """The forecast and what serves it, by month; empty when every month is the same."""
    capex_usd: Usd
    """All purchases over the horizon."""
    resale_usd: Usd
    """What the hardware brings when it leaves service or the horizon ends."""
    liability_usd: Usd
    """Payments due after the horizon, less what an exit recovers; they are part of the cost."""
    liability_months: Months
    """How long the longest commitment outlasts the horizon."""
    most_usd_per_month: UsdPerMonth
    """The most expensive month: its payments plus the monthly equivalent of the purchases in service."""
    exit_month: Months
    """Month of the exit that exit_usd is about."""
    exit_usd: Usd
    """Price of lock-in: cost of leaving after exit_month months (remaining commitments and loss on the sale)."""
    rent_usd_per_month: UsdPerMonth | None
    """The same deployment rented by the hour alone, to compare with; null when nobody rents it out."""
    rent_usd_by_month: list[Usd] = []
    """What it pays in each month, from month 1 on; empty where nothing is bought."""
    payback_month: Months | None
    """From the end of this month on, less cash has been paid than for rent by the hour; null: not in the horizon."""
    irr_fraction_per_year: Fraction | None
    """Internal rate of return per year of the purchase against rent by the hour; null when there is none."""
    strategies: list[Strategy]
    """The usual ways to pay for the same deployment, for comparison."""


class Team(Section):
    """The team behind the first choice, and whether its cost decides the order."""

    usd_per_month: UsdPerMonth
    """Staff and minimum team of the first choice; a hosted API needs none."""
    first_without_rank: Count
    """Rank of the option that would be the first choice if no option paid for a team."""
    said: str
    """The same in words."""


class Switch(Section):
    """Starting with one option and changing to another when its term or its hardware ends."""

    first_rank: Count
    """The option that serves first."""
    second_rank: Count
    """The option that serves after the switch."""
    month: Count
    """Last month of the first option."""
    overlap_months: Months
    """Months in which both are paid while the traffic moves."""
    usd_per_month: UsdPerMonth
    """The equal monthly payment with the same present value."""
    saving_usd: Usd
    """Present value saved against the first option of the ranking; negative when switching costs more."""
    said: str
    """The same as a sentence."""


class ServerOrder(Section):
    """Servers of one kind that are ordered together."""

    servers: Count
    """How many."""
    said: str
    """What to order: 2 servers with 8 x B200."""
    product: str
    """Name in the catalog."""
    accelerator_name: str
    """Name of the accelerators."""
    accelerators: Count
    """Accelerators of one server; 0: not known."""
    unit_usd: Usd
    """List price of one."""
    usd: Usd
    """List price of all of them."""
    order_month: Count
    """Month of the plan in which they have to be ordered; 0: today."""
    service_month: Count
    """First month in which they serve; 1 is the month that starts today."""
    delivery_months: PartialMonths
    """From order to service."""
    host: HostPrice
    """As host of a server of the plan; no_server: nobody sells a machine for these chips."""
    form: str
    """server, rack, computer or workstation."""
    network_cards: Count | None
    """Network cards of one server that join it to others; null: none, or not known."""
    network_gbit_per_s: Annotated[float, Unit("Gbit/s")] | None
    """Rate of each of them."""
    kw: Kilowatts | None
    """Draw of one at full load, without cooling."""
    cooling: str
    """air, liquid, or air or liquid; empty: not published."""
    rack_fraction: Fraction | None
    """Share of a rack's power that one draws; null: the workload states no power per rack."""
    support_usd_per_year: Usd | None
    """Maintenance and support of all of them; null: not known."""
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""


class ServerPurchase(Section):
    """What a plan buys, as servers that can be ordered."""

    orders: list[ServerOrder]
    """What to order, in the order of the first month of service."""
    servers: Count
    """Servers of all orders, replacements included."""
    accelerators: Count
    """Accelerators of the most servers that serve at the same time."""
    accelerators_needed: Count
    """How many of them run replicas in the month of the highest load, spare replicas included."""
    idle_accelerators: Count
    """The others, which come with the servers."""
    first_accelerators: Count
    """Accelerators of the servers in service in the first month of service."""
    first_accelerators_needed: Count
    """How many of them run replicas then."""
    spare_accelerators: Count
    """Part of accelerators_needed: those of spare replicas."""
    servers_usd: Usd
    """Sum of the orders."""
    beside_usd: Usd
    """Share of network, storage and spare parts, price changes until the order, and VAT."""
    capital_usd: Usd
    """Sum of both: all purchases over the horizon."""
    freight_usd: Usd | None = None
    """Freight, customs and installation; null: not in the price, to be quoted by the seller."""
    orderable: bool
    """Whether all of it can be ordered: no chips without a server to put them in."""
    said: str
    """The same in one line."""


class WayToPay(Section):
    """The same deployment under another price: rent on demand, spot, reserved, or buy."""

    acquisition: str
    """rent or own."""
    term: str
    """on_demand, spot, reserved_1y, reserved_3y, purchase or owned."""
    provider: str
    """Who sells or rents it."""
    instance: str
    """Instance type or server."""
    instances: Count
    """How many instances or servers."""
    region: str
    """Region of the price."""
    usd_per_hour: UsdPerHour
    """Total cost averaged over all hours."""
    usd_per_month: UsdPerMonth
    """Total cost of a month, depreciation included."""
    capital_usd: Usd
    """Paid today."""
    running_usd_per_month: UsdPerMonth
    """Paid each month beside the purchase."""
    life_months: Months | None
    """Depreciation period; null when nothing is bought."""
    npv_usd: Usd
    """Present value of all costs over the horizon."""
    liability_usd: Usd = 0.0
    """Payments due after the horizon, less what an exit recovers."""
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""
    basis: str
    """catalog, or assumed: the usual discount of a term on the on-demand price."""
    availability: str = ""
    """That nobody says whether it is in the regions that the workload requires; empty: it is known."""
    machines: str = ""
    """What is bought, in words: 2 servers with 8 x B200; empty where it is rented or owned, and in earlier answers."""


class CostPath(Section):
    """What one way to have the same capacity has cost by each month."""

    name: str
    """own, rent with its term, or API of a provider."""
    cumulative_usd: list[Usd]
    """Paid until the end of each month, without discounting, less resale in the last; the first is paid today."""


class BreakEven(Section):
    """Where two ways to pay cost the same."""

    between: list[str]
    """The two ways, such as own and rent on_demand."""
    month: Months | None
    """First month in which the purchase has cost less in total; null: not within the hardware's life."""
    share_of_hours: Fraction | None
    """Share of hours in use above which owning is cheaper than renting by the hour."""
    tokens_per_month: Tokens | None
    """Prompt and output tokens per month above which the machines cost less than the API."""
    within_capacity: bool | None
    """Whether the machines can serve that many tokens."""
    said: str
    """The same as a sentence."""


class BuyNowOrExtend(Section):
    """Buying for the end of the horizon today, or adding machines when the traffic comes."""

    growth_fraction_per_year: Fraction
    """Yearly growth of the traffic."""
    replicas_at_end: Count
    """Replicas that the traffic needs at the end of the horizon."""
    npv_all_now_usd: Usd
    """Present value of costs when everything is there from the first day."""
    npv_extending_usd: Usd
    """Present value of costs when machines are added as needed."""
    better: str
    """Which of the two costs less."""
    assumes: str
    """What the comparison assumes."""


class ProviderServices(Section):
    """Egress and storage at the provider."""

    egress_usd_per_gb: UsdPerGb | None
    """Price of outgoing traffic; null: not known and counted as 0."""
    storage_usd_per_gb_month: UsdPerGb | None
    """Price of a stored gigabyte for a month; null: not known and counted as 0."""
    not_known: list[str]
    """Services whose price is not known."""
    said: str
    """The same as a sentence; empty when all are known."""


class Energy(Section):
    """Power draw by phase, energy per token and carbon."""

    watts_at_load: Watts | None
    """Mean draw of the deployment at the workload's load, hosts and cooling included."""
    watts_full: Watts | None
    """Draw when every accelerator is busy all the time, hosts and cooling included."""
    chip_watts: Watts | None
    """Power limit (TDP) of one accelerator."""
    chip_idle_watts: Watts | None
    """Idle draw of one accelerator."""
    chip_prefill_watts: Watts | None
    """Draw of one accelerator during prefill."""
    chip_decode_watts: Watts | None
    """Draw of one accelerator during decode."""
    prefill_time_fraction: Fraction | None
    """Share of time spent in prefill."""
    decode_time_fraction: Fraction | None
    """Share of time spent in decode."""
    idle_time_fraction: Fraction | None
    """Share of time without work."""
    prefill_power_fraction: Fraction | None
    """chip_prefill_watts over chip_watts."""
    decode_power_fraction: Fraction | None
    """chip_decode_watts over chip_watts."""
    power_basis: str
    """given (by the workload), measured (fitted to this chip) or relative (scaled from a measured chip)."""
    power_said: str
    """The basis as a sentence."""
    joules_per_input_token: JoulesPerToken | None
    """Energy of one prompt token."""
    joules_per_output_token: JoulesPerToken | None
    """Energy of one generated token."""
    kgco2e_per_mtok_input: KgCo2ePerMtok | None
    """Carbon of a million prompt tokens."""
    kgco2e_per_mtok_output: KgCo2ePerMtok | None
    """Carbon of a million generated tokens."""
    grid_kgco2e_per_kwh: KgCo2ePerKwh | None
    """Carbon intensity used; weighted by the draw of each hour when the workload gives hourly figures."""
    grid_mean_kgco2e_per_kwh: KgCo2ePerKwh | None
    """Plain mean of the grid's carbon intensity."""
    kwh_per_month: KilowattHours | None
    """Energy of a month at the workload's load."""
    hours: str
    """Which hourly grid figures were used, or why none."""


class CostRanges(Section):
    """What one option costs when everything uncertain is drawn together: 5%, 50% and 95% of the draws are lower."""

    usd_per_month: list[UsdPerMonth]
    """Equal monthly payment: 5th, 50th and 95th percentile."""
    mean_usd_per_month: UsdPerMonth | None = None
    """Its mean over the draws: the expected cost that options are compared by; absent in answers of earlier
    versions."""
    total_usd: list[Usd]
    """All payments over the horizon without discounting, less resale: 5th, 50th and 95th percentile."""
    wins_probability: Fraction
    """Share of the draws in which this option costs least among those ranked; options within 1% share a win."""
    over_budget_probability: Fraction | None
    """Share of the draws in which a month exceeds max_usd_per_month; null without a budget."""


class Driver(Section):
    """One uncertain input of the draws."""

    name: str
    """load, performance, rent, purchase price, resale value, electricity, staff or API price."""
    low: Ratio
    """5th percentile, as a ratio to the expected value."""
    high: Ratio
    """95th percentile, as a ratio to the expected value."""
    usd_per_month_low: UsdPerMonth
    """Cost of the first option at `low`, everything else as expected."""
    usd_per_month_high: UsdPerMonth
    """Cost of the first option at `high`."""
    variance_fraction: Fraction
    """Share of the variance of the first option's cost that this input alone causes."""
    source: str
    """Where the range comes from."""


class Chance(Section):
    """How often a statement holds in the draws."""

    said: str
    """The statement, such as: owning costs less than renting."""
    probability: Fraction
    """Share of the draws."""


class Uncertainty(Section):
    """All uncertain inputs drawn together, with whole machines in every draw."""

    draws: Count
    """Number of draws."""
    seed: Count
    """Seed of the random numbers; the same question gives the same draws."""
    drivers: list[Driver]
    """The inputs, the one with the largest effect first."""
    chances: list[Chance]
    """What a buyer wants to know, with its probability."""
    said: str
    """The result in one sentence."""


class ScenarioCost(Section):
    """One option in one scenario."""

    rank: Count
    """The option."""
    usd_per_month: UsdPerMonth
    """Equal monthly payment over the horizon."""
    total_usd: Usd
    """All payments over the horizon without discounting, less resale."""


class Scenario(Section):
    """Every option under one set of assumptions."""

    name: str
    """low, base, high, or the planner's own."""
    ratios: dict[str, Ratio]
    """The inputs that differ from the expected ones, as ratios."""
    api_ratio: Ratio = 1.0
    """Cost of a hosted API over the expected one."""
    first_rank: Count
    """The option that costs least."""
    costs: list[ScenarioCost]
    """Each option."""


class Taxes(Section):
    """The option's cost with taxes, as set in the workload."""

    income_tax_fraction: Fraction
    """Tax rate that expenses and depreciation reduce."""
    vat_fraction: Fraction
    """VAT that cannot be recovered, added to everything paid but staff."""
    vat_usd: Usd
    """VAT over the horizon."""
    vat_included: bool = False
    """Whether all figures of the option include this VAT; false in answers of earlier versions, which add it here."""
    npv_after_tax_usd: Usd
    """Present value of all payments with VAT, less the tax that they save."""
    said: str
    """How it was counted."""


class Money(Section):
    """Total cost of ownership of one option over the planner's horizon."""

    currency: Literal["USD"]
    """ISO 4217 code."""
    prices_as_of: str
    """Date of the price that the option rests on."""
    parts: list[CostPart]
    """The bill, line by line."""
    usd_per_month: UsdPerMonth
    """Sum of the lines: the equal monthly payment with the present value of the plan."""
    usd_per_year: Usd
    """Twelve months."""
    usd_over_horizon: Usd
    """All payments over the horizon, less what hardware brings when it leaves service; not discounted."""
    npv_usd: Usd
    """Present value of all costs over the horizon."""
    horizon_months: Months
    """Planning horizon."""
    discount_fraction_per_year: Fraction
    """Discount rate."""
    capital_usd: Usd
    """Paid today: purchases with their share of network, storage and spares."""
    purchase_usd: Usd
    """ServerPurchase price of the servers alone."""
    waterfall: list[WaterfallStep]
    """From the price of full capacity to the cost of a served token."""
    usd_per_mtok_computed_input: UsdPerMtok | None
    """Cost of a million prompt tokens that no prefix cache held; null when all are cached."""
    split: str
    """How the bill is split between input and output tokens."""
    prefill_time_fraction: Fraction | None = None
    """Prefill's share of a request's time, which computed input pays for; null in answers of earlier versions."""
    cash_flow: list[CashFlow]
    """Month by month."""
    ways_to_pay: list[WayToPay]
    """The chosen way first, then the cheapest offer of each other way."""
    growth: BuyNowOrExtend | None
    """null: no growth was asked for, or nothing can be bought for today."""
    plan: Plan | None = None
    """What is rented, reserved, bought and released in which month; null in answers of earlier versions."""
    purchase: ServerPurchase | None = None
    """The servers that the plan buys; null: none."""
    ranges: CostRanges | None = None
    """Cost with everything uncertain drawn together; null where nothing is drawn."""
    taxes: Taxes | None = None
    """null unless the workload sets a tax."""
    services: ProviderServices | None
    """null for own hardware."""
    energy: Energy | None = None
    """Power, energy and carbon of serving; null for a training run, which has its own."""
    break_even: list[BreakEven] = []
    """Where owning, renting and the cheapest hosted API cost the same."""
    paths: list[CostPath] = []
    """What owning, renting and the cheapest hosted API have cost by each month; absent in answers from before December
    2026."""
