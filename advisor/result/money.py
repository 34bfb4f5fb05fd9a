"""Costs of an option: bill of parts, cash flow, ways to pay, break-even, growth, provider services, energy."""

from typing import Literal

from advisor.result.base import (
    Count,
    Fraction,
    JoulesPerToken,
    KgCo2ePerKwh,
    KgCo2ePerMtok,
    KilowattHours,
    Months,
    Section,
    Tokens,
    Usd,
    UsdPerGb,
    UsdPerHour,
    UsdPerMonth,
    UsdPerMtok,
    Watts,
)


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


class WaterfallStep(Section):
    """One step from the bare price of capacity to the cost of a served token."""

    name: str
    """What adds this part."""
    usd_per_mtok: UsdPerMtok
    """What it adds per million blended tokens."""


class CashFlow(Section):
    """Cash of one month; payments are positive, the value left at the end is a credit."""

    month: Count
    """0 is today; purchases are paid then."""
    capital_usd: Usd
    """Purchases paid in this month."""
    running_usd: Usd
    """Rent, energy, staff and other running costs of this month."""
    value_left_usd: Usd
    """Carrying value of bought hardware at the end of the horizon."""
    total_usd: Usd
    """capital_usd + running_usd - value_left_usd."""
    present_usd: Usd
    """total_usd discounted to today."""


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
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""
    basis: str
    """catalog, or assumed: the usual discount of a term on the on-demand price."""


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


class Money(Section):
    """Total cost of ownership of one option over the planner's horizon."""

    currency: Literal["USD"]
    """ISO 4217 code."""
    prices_as_of: str
    """Date of the price that the option rests on."""
    parts: list[CostPart]
    """The bill, line by line."""
    usd_per_month: UsdPerMonth
    """Sum of the lines."""
    usd_per_year: Usd
    """Twelve months."""
    usd_over_horizon: Usd
    """All months of the horizon, not discounted."""
    npv_usd: Usd
    """Present value of all costs over the horizon."""
    horizon_months: Months
    """Planning horizon."""
    discount_fraction_per_year: Fraction
    """Discount rate."""
    capital_usd: Usd
    """Paid today: purchases with their share of network, storage and spares."""
    purchase_usd: Usd
    """Purchase price of the servers alone."""
    waterfall: list[WaterfallStep]
    """From the price of full capacity to the cost of a served token."""
    usd_per_mtok_computed_input: UsdPerMtok | None
    """Cost of a million prompt tokens that no prefix cache held; null when all are cached."""
    split: str
    """How the bill is split between input and output tokens."""
    cash_flow: list[CashFlow]
    """Month by month."""
    ways_to_pay: list[WayToPay]
    """The chosen way first, then the cheapest offer of each other way."""
    growth: BuyNowOrExtend | None
    """null: no growth was asked for."""
    services: ProviderServices | None
    """null for own hardware."""
    energy: Energy
    """Power, energy and carbon."""
    break_even: list[BreakEven] = []
    """Where owning, renting and the cheapest hosted API cost the same."""
