"""Rental and purchase offers."""

from collections.abc import Collection
from dataclasses import dataclass

from advisor.engine.terms.machines.hardware import Accelerator, SocketShare
from advisor.engine.terms.machines.host import Host


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One named part of an hourly cost."""

    name: str
    usd_per_hour: float
    group: str  # capital | running | rent | services


# what `constraints.exclude` can rule out, and how a rejection says it
MARKS = {
    "consumer": "a consumer card",
    "marketplace": "offered on marketplaces only",
    "second_hand": "offered second-hand, or at a price known second-hand, only",
    "quote": "priced by quote only",
    "preview": "offered as a preview only",
    "bookable": "offered only as capacity that is booked ahead",
    "estimate": "priced by an estimate only",
    "unconfirmed": "offered only at prices that could not be confirmed",
    "weak_price": "known only at a weak or old price",
}
UNKNOWN_UNIT = "unknown_unit"  # the mark of a board's chips if nobody says how many are sold together
DOUBTFUL = "doubtful"  # the mark of a listed price that is far from the median of marketplace prices
NEVER_FIRST = {  # marks of offers that are shown and never recommended, and how a rejection says it
    UNKNOWN_UNIT: "sold only in units of unknown size",
    DOUBTFUL: "priced only far from marketplace prices",
}
WEAK_PRICE = "weak_price"  # the mark of every offer with a `weakness`
NO_SERVER = "no_server"  # the mark of chips to buy for which no server, rack or computer is known
ANYWHERE = ("any", "global", "")  # regions of prices that hold everywhere
OWNED_MONTHS = 12  # age of machines that are already owned, for their market value
OWNED = "owned"  # term of an offer of existing hosts only; more of them cannot be bought
ASSUMED = "assumed"  # provider of an offer at a price that the planner assumes


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One rental or purchase offer: a whole instance by the hour, or a server to buy."""

    provider: str
    instance: str
    region: str
    accelerator: str
    accelerators: int  # per instance
    acquisition: str  # rent | own
    term: str  # on_demand | spot | reserved_1y | reserved_3y | purchase | owned
    usd_per_hour: float
    as_of: str
    source: str
    kgco2e_per_kwh: float | None = None
    usd_per_kwh: float | None = None
    pue: float = 1.0
    host_watts_per_accelerator: float | None = None  # each chip's share of the host's power; None: the default
    joined_accelerators: int = 0  # chips in the host that sells them one by one; 0: those of the instance
    marks: tuple[str, ...] = ()  # names of MARKS
    areas: tuple[str, ...] = ()  # that its region lies in: country, its ISO code, eu ..., in lower case
    fabric_accelerators: int = 0  # chips that its provider connects across instances; 0: none known
    notes: str = ""
    origin: str = ""  # where the price comes from: official_list | provider_api | reseller ...; empty: not stated
    weakness: str = ""  # why a buyer should not sign at this price, in words; empty: nothing is known
    sold_out_on: str = ""  # ISO date of its last reading, if it was sold out then; empty: available, or not known
    unknown_unit_chips: int = 0  # of a whole unit, if the smallest one that is sold is unknown; 0: it is known
    doubt: str = ""  # why it cannot be the first choice, in words; empty: nothing is known
    rent_low_ratio: float = 1.0  # of the marketplaces' lowest price to this one, if it is lower
    rent_high_ratio: float = 1.0  # and of their highest, if it is higher
    over_a_year_old: bool = False  # its price, whatever it comes from
    stale: bool = False  # over a year old; used because the chip has no current price of this acquisition type
    parts: tuple[Part, ...] = ()  # of usd_per_hour, over the horizon; empty: a single part
    list_parts: tuple[Part, ...] = ()  # of a rent: an hour at today's list price, without commitments; empty: `parts`
    capital_shares: tuple[tuple[str, float], ...] = ()  # (component, fraction) of capital_usd
    resale: tuple[float, ...] = ()  # market value by months in service, as a fraction of capital_usd
    capital_usd: float = 0.0  # purchase with its share of network, storage and spares
    purchase_usd: float = 0.0  # part of capital_usd: the server only
    purchase_low_usd: float = 0.0  # price range in the source; 0: it gives none
    purchase_high_usd: float = 0.0
    order_months: float = 0.0  # from order to service of a purchase
    order_low_months: float = 0.0
    order_high_months: float = 0.0
    vat_fraction: float = 0.0  # VAT that cannot be recovered, in all parts but staff and in capital_usd
    full_watts: float | None = None  # of the instance at full load, before PUE; None: unknown
    cooling: str = ""  # air | liquid | air or liquid; empty: not published
    form: str = ""  # of a purchase: server | rack | computer | workstation; empty: not bought
    estimated_host: bool = False  # the price is that of cards, with a host at a usual price around them
    held_instances: int = 0  # already owned: they have running costs and no purchase price
    sale_usd: float = 0.0  # of one already owned, sold today; 0: not known
    later_sale_usd: float = 0.0  # of the same at the end of the horizon
    held_parts: tuple[Part, ...] = ()  # hourly cost of one of these, if more can be bought
    host: Host | None = None  # around the chips; None: unknown
    share: SocketShare | None = None  # of each socket, if the chips are processors; None: whole sockets

    def is_in(self, places: Collection[str]) -> bool:
        """Whether its region, or an area that the region lies in, is one of these."""
        return self.region in places or any(area in places for area in self.areas)

    def may_be_elsewhere(self, places: Collection[str]) -> bool:
        """Whether nobody says where it is, although one of these places is required: a rent of any region."""
        rented = self.acquisition == "rent" and self.provider != ASSUMED
        return bool(places) and rented and self.region in ANYWHERE and not self.areas

    @property
    def orderable(self) -> bool:
        """Whether a buyer can order it as it stands: not chips without a server to put them in."""
        return NO_SERVER not in self.marks

    @property
    def tensor_parallel_chips(self) -> int:
        """Largest tensor-parallel group inside one host of this offer, chips."""
        return max(self.accelerators, self.joined_accelerators)

    def sells(self, a: Accelerator) -> bool:
        """Whether these are the chips that the offer has, in the same part of a socket."""
        return self.accelerator == a.slug and self.share == a.share
