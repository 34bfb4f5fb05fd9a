"""Why other hardware, frameworks and formats are not recommended, and what would change the choice."""

from typing import Annotated, Any

from advisor.result.base import Fraction, Ratio, Section, Unit, UsdPerMonth

Figure = Annotated[float, Unit("that of the limit")]


class Rejection(Section):
    """Why an accelerator is not recommended."""

    accelerator: str
    """Catalog name."""
    reason: str
    """misses_slo, outranked, does_not_fit, unpriced, unsupported, too_expensive, excluded and so on."""
    detail: str
    """The reason in words, with the figure."""
    limit: Figure | None
    """The limit that it missed."""
    reached: Figure | None
    """What its best deployment reaches."""
    smallest_change: str
    """Smallest change of the workload that lets it pass; empty: none is known."""
    change: dict[str, Any] = {}
    """The same as paths of the workload and their values; absent in answers from before November 2026."""


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
    """Smallest change of the workload that lets it pass; empty: none is known."""
    change: dict[str, Any]
    """The same as paths of the workload and their values."""


class LeftOutSoftware(Section):
    """Frameworks and formats that no option uses."""

    frameworks: list[LeftOut]
    """Serving frameworks."""
    formats: list[LeftOut]
    """Weight formats."""

    def kinds(self) -> dict[str, list[LeftOut]]:
        """The lists that have entries, by what they list."""
        return {kind: items for kind, items in self if items}


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
