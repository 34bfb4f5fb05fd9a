"""Why other hardware, frameworks and formats are not recommended, and what would change the choice."""

from typing import Annotated, Any

from advisor.result.base import (
    Chips,
    Count,
    Fraction,
    Milliseconds,
    Ratio,
    Section,
    TokensPerSecond,
    Unit,
    UsdPerHour,
    UsdPerMonth,
)

Days = Annotated[float, Unit("days")]
Figure = Annotated[float, Unit("that of the limit")]


class Rejection(Section):
    """Why an accelerator is not recommended."""

    accelerator: str
    """Catalog name."""
    reason: str
    """misses_slo, outranked, does_not_fit, unpriced, unsupported, too_expensive, excluded, internal_error, not_examined
    and so on."""
    detail: str
    """The reason in words, with the figure."""
    limit: Figure | None
    """The limit that it missed."""
    reached: Figure | None
    """What its best deployment reaches."""
    smallest_change: str
    """Smallest change of the workload that lets it pass, in words; empty: `dead_end` says why there is none."""
    change: dict[str, Any] = {}
    """The same as paths of the workload and their values; null removes a limit. Absent in answers from before November
    2026."""
    dead_end: str = ""
    """Why no change of the workload lets it pass; empty: `change` does."""


class LeftOut(Section):
    """Why a framework or weight format is used by no option."""

    name: str
    """Catalog name."""
    reason: str
    """As of a rejected accelerator."""
    detail: str
    """The reason in words, with the figure."""
    limit: Figure | None
    """The limit that it missed."""
    reached: Figure | None
    """What its best deployment reaches."""
    smallest_change: str
    """Smallest change of the workload that lets it pass, in words; empty: `dead_end` says why there is none."""
    change: dict[str, Any]
    """The same as paths of the workload and their values; null removes a limit."""
    dead_end: str = ""
    """Why no change of the workload lets it pass; empty: `change` does."""


class LeftOutSoftware(Section):
    """Frameworks and formats that no option uses."""

    frameworks: list[LeftOut]
    """Serving frameworks."""
    formats: list[LeftOut]
    """Weight formats."""

    def kinds(self) -> dict[str, list[LeftOut]]:
        """The lists that have entries, by what they list."""
        return {kind: items for kind, items in self if items}


class UnrankedOffer(Section):
    """A price that the workload's constraints or terms leave out."""

    provider: str
    """Seller."""
    instance: str
    """Instance or server."""
    region: str
    """Region."""
    acquisition: str
    """rent or own."""
    term: str
    """on_demand, spot, reserved_1y, reserved_3y, capacity_block or purchase."""
    usd_per_month: UsdPerMonth
    """Monthly cost of the deployment at this price."""
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""
    booking: str = ""
    """Limits of a booking, such as its longest duration; empty: none known."""
    availability: str = ""
    """That nobody says whether it is in the regions that the workload requires; empty: it is known."""


class Unranked(Section):
    """The best deployment of an accelerator that no allowed offer prices. It meets every limit in simulation."""

    accelerator: str
    """Catalog name."""
    label: str
    """The deployment in words."""
    accelerator_count: Chips
    """Accelerators, spares included."""
    replicas: Count
    """Replicas, spares included."""
    ttft_ms_p95: Milliseconds
    """95th percentile of the TTFT, or of the latency of embeddings."""
    tpot_ms_p95: Milliseconds | None
    """95th percentile of the TPOT; null for embeddings."""
    tokens_per_s_per_accelerator: TokensPerSecond
    """Output tokens, or input tokens of embeddings, at capacity."""
    usd_per_accelerator_hour_to_win: UsdPerHour | None
    """Highest price of an accelerator at which it would be first of the machines; null: at no price."""
    usd_per_month_to_win: UsdPerMonth | None
    """Monthly cost of the deployment at that price; null: at no price."""
    rank_at_price: Count
    """Rank that it would have at its offer's price, or at the assumed one."""
    offer: UnrankedOffer | None
    """Offer that a change of the workload would admit; null: the catalog has none."""
    said: str
    """The same in words."""


class UnknownPlace(Section):
    """A seller whose price holds for any region, where the workload requires one: never ranked."""

    rank: Count
    """Option with the same machines."""
    label: str
    """The deployment in words."""
    provider: str
    """Seller."""
    instance: str
    """Instance."""
    region: str
    """Region of the price: any, or global."""
    usd_per_month: UsdPerMonth
    """Monthly cost of the deployment there."""
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""
    availability: str
    """What is not known: EU availability unknown."""


class Bookable(Section):
    """Capacity that must be booked for a period and would cost less than the first machine."""

    accelerator: str
    """Catalog name."""
    rank: Count | None
    """Option that the booking would run; null: the accelerator is not ranked."""
    label: str
    """The deployment in words."""
    provider: str
    """Seller."""
    instance: str
    """Instance."""
    usd_per_month: UsdPerMonth
    """Cost of a month of bookings."""
    saving_fraction: Fraction | None
    """Share of the first machine's cost that it saves; null: no machine is recommended."""
    price_as_of: str
    """Date of the price."""
    price_source: str
    """Where the price was read."""
    booking: str
    """Limits of a booking; empty: none known."""
    change: dict[str, Any]
    """Paths of the workload and their values with which it is ranked."""
    said: str
    """The same in words."""


class SolidChoice(Section):
    """The first choice if weak prices are not used: those that are estimates, resellers', of low confidence or old."""

    label: str
    """The deployment in words."""
    accelerator: str
    """Catalog name."""
    provider: str
    """Who sells or rents it; own: bought."""
    instance: str
    """Instance type or server."""
    usd_per_month: UsdPerMonth
    """Cost per month."""
    more_fraction: Fraction
    """How much more it costs than the recommendation, as a share of the recommendation; negative: it costs less."""
    price_as_of: str
    """Date of the price."""
    price_origin: str
    """Where the price comes from; see price_origin of an option."""
    price_source: str
    """Where the price was read."""


class SensitivityBar(Section):
    """How the winner's bill moves with one assumption, and where another option wins.

    Answers from before November 2026 have no ranges: unit, value, low, high, both costs and at_value are absent.
    """

    assumption: str
    """What varies."""
    unit: str = ""
    """Unit of value, low, high and at_value."""
    value: Figure | None = None
    """Value used."""
    low: Figure | None = None
    """Low end of its 90 % range."""
    high: Figure | None = None
    """High end of its 90 % range."""
    usd_per_month_low: UsdPerMonth | None = None
    """Winner's cost at the low end."""
    usd_per_month_high: UsdPerMonth | None = None
    """Winner's cost at the high end."""
    days_low: Days | None = None
    """Days of the winner's training run at the low end; absent for other workloads."""
    days_high: Days | None = None
    """Days of the winner's training run at the high end."""
    winner_after: str | None
    """Accelerator that wins beyond the break point; null: the winner stays."""
    at_value: Figure | None = None
    """Break point."""
    at_change_fraction: Fraction | None
    """Break point as a change of the value."""
    within_range: bool = False
    """Whether the break point is within the range."""
    detail: str
    """The same in words."""


class PriceBound(Section):
    """The price beyond which nothing is ranked when the objective ignores cost."""

    usd_per_month: UsdPerMonth
    """The bound."""
    times_cheapest: Ratio
    """The bound over the cheapest feasible option."""
    said: str
    """The same in words."""
