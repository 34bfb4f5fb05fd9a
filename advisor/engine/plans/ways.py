"""Ways to have an instance: by the hour, for a committed term, bought, or already owned; and the demand they serve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.engine.cost import Prices
from advisor.engine.terms import HOURS_PER_MONTH, Part

Array = NDArray[np.float64]
RENT, COMMITMENT, CAPITAL, RESALE, ENERGY, STAFF, SERVICES, OTHER = (
    "rent", "commitment", "capital", "resale", "energy", "staff", "services", "other",
)  # fmt: skip
DRIVERS = (RENT, COMMITMENT, CAPITAL, RESALE, ENERGY, STAFF, SERVICES, OTHER)
RENTED = ("instances", "interruptions", "cloud services")  # parts at the rental price
DRIVER_OF = {"electricity": ENERGY, "cooling": ENERGY, "staff": STAFF}
HOURLY, TERM, PURCHASE, OWNED = "hourly", "term", "bought", "owned"


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to have an instance of one size; amounts in USD for one instance."""

    kind: str  # HOURLY | TERM | PURCHASE | OWNED
    parts: tuple[Part, ...]  # of a full hour in service, without capital; an hourly way pays for the hours needed
    kept_parts: tuple[Part, ...] = ()  # paid in full in every month with an hour of service, such as licenses
    term_months: int = 0  # of a commitment
    capital_usd: float = 0.0  # of a purchase, with its share of network, storage and spares
    capital_shares: tuple[tuple[str, float], ...] = ()  # (name, fraction) of the capital; they add up to 1
    life_months: int = 1  # of a purchase; then it is sold and replaced
    book_months: int = 0  # of its depreciation; 0: as long as its life
    resale: tuple[float, ...] = ()  # fraction of the capital by months in service, after the cost of selling
    least_months: int = 0  # of a purchase; it is not sold earlier
    sale_usd: float = 0.0  # of an owned one, sold today instead of kept
    later_sale_usd: float = 0.0  # of the same at the end of the horizon
    lead_months: int = 0  # a purchase cannot serve earlier
    most: int | None = None  # instances at the same time; None: no limit


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Demand:
    """Instances needed by month: groups of instances that are needed in the same hours, the base first.

    Equal by value, so that the same demand is planned once.
    """

    counts: NDArray[np.int_]  # instances of each group, shape (groups,)
    fractions: Array  # of the hours of each month in which the group is needed, shape (groups, months)

    def _value(self) -> tuple[object, ...]:
        return self.fractions.shape, tuple(self.counts.tolist()), self.fractions.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Demand) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    @property
    def needed(self) -> NDArray[np.int_]:
        """Most instances needed at once in each month, shape (months,)."""
        return np.asarray((self.counts[:, None] * (self.fractions > 0)).sum(axis=0))

    @property
    def never_shrinks(self) -> bool:
        """Whether no group is needed less in a later month, until all end at once: each can be covered by itself."""
        end = int(np.flatnonzero(self.needed)[-1:].sum()) + 1
        return bool((np.diff(self.fractions[:, :end], axis=1) >= -1e-12).all())


def demand_by_month(
    serving: Sequence[float] | Array,
    instances: Callable[[Array], Array],
    levels: tuple[Array, Array, Array, Array, Array] | None = None,
    start_hours: float = 0.0,
    run_fraction: float = 1.0,
) -> Demand:
    """The demand of a deployment that needs `serving` replicas at the peak of each month.

    instances: whole instances for a number of serving replicas, with what may be lost. levels: of a week, (load levels,
    hours at each, level before, level after, number of such changes); None: constant load.
    start_hours: paid before an additional instance serves. run_fraction: of the hours, if a batch releases its
    instances.
    """
    peaks = np.asarray(serving, dtype=float)
    shares = levels[0] if levels else np.ones(1)
    carried = np.where(
        (shares > 0) & (peaks[:, None] > 0), np.maximum(np.ceil(peaks[:, None] * shares - 1e-9), 1.0), 0.0
    )
    held = np.where(carried > 0, instances(carried), 0.0)
    tops = np.unique(held[held > 0])
    if not len(tops):
        return Demand(counts=np.zeros(1, dtype=int), fractions=np.zeros((1, len(peaks))))
    counts = np.diff(np.concatenate([[0.0], tops])).round().astype(int)
    on = held[None, :, :] >= tops[:, None, None]
    if not levels:
        always: Array = on[:, :, 0] * np.float64(run_fraction)
        return Demand(counts=counts, fractions=always)
    _, hours, before, after, times = levels
    fractions: Array = on @ hours / hours.sum()
    starts = (on[:, :, after] & ~on[:, :, before]) @ times
    paid: Array = np.minimum(fractions + starts * start_hours / hours.sum(), 1.0).astype(np.float64)
    return Demand(counts=counts, fractions=paid)


def monthly_usd(parts: Sequence[Part], prices: Prices, fixed_rent: bool = False) -> dict[str, Array]:
    """USD of each driver by month of the horizon for an instance in service all month."""
    paid: dict[str, Array] = {}
    for part in parts:
        driver = driver_of(part)
        path = prices.path("energy") if driver == ENERGY else np.ones(prices.months)
        if driver == RENT and not fixed_rent:
            path = prices.path("rent")
        paid[driver] = paid.get(driver, np.zeros(prices.months)) + part.usd_per_hour * HOURS_PER_MONTH * path
    return paid


def driver_of(part: Part) -> str:
    """What moves the price of this part."""
    if part.name in RENTED:
        return RENT
    return DRIVER_OF.get(part.name, SERVICES if part.group == "services" else OTHER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits on a plan; None: no limit."""

    max_capex_usd: float | None = None  # all purchases over the horizon
    max_usd_per_month: float | None = (
        None  # payments of a month plus the monthly equivalent of the purchases in service
    )
