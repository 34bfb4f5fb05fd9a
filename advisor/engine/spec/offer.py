"""One way to pay for chips."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One named share of what an hour costs."""

    name: str
    usd_per_hour: float
    group: str  # capital | running | rent | services


OWNED = "owned"  # term of an offer: hosts that are there already, and no more of them


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One way to pay for chips: a whole instance by the hour, or a bought host."""

    provider: str
    instance: str
    region: str
    accelerator: str
    accelerators: int  # per instance
    acquisition: str  # rent | own
    term: str  # on_demand | spot | reserved_1y | reserved_3y | purchase
    usd_per_hour: float
    as_of: str
    source: str
    kgco2e_per_kwh: float | None = None
    usd_per_kwh: float | None = None
    pue: float = 1.0
    host_watts_per_accelerator: float | None = None  # each chip's share of the host; None: the default of servers
    joined_accelerators: int = 0  # sold by the chip out of a host: how many one host joins (0: those of the instance)
    notes: str = ""
    parts: tuple[Part, ...] = ()  # of usd_per_hour; empty: one part
    capital_usd: float = 0.0  # bought, with its share of network, storage and spares
    purchase_usd: float = 0.0  # within it: the host alone
    purchase_low_usd: float = 0.0  # as the source of the price prints a range; 0: it does not
    purchase_high_usd: float = 0.0
    full_watts: float | None = None  # of the instance, before PUE; None: not known
    cooling: str = ""  # air | liquid | air or liquid; empty: not published
    held_instances: int = 0  # there already: they cost what they draw and take, and are not bought
    held_parts: tuple[Part, ...] = ()  # of an hour of one of those, where more can be bought

    @property
    def together(self) -> int:
        """Chips that a tensor-parallel group can have from this offer."""
        return max(self.accelerators, self.joined_accelerators)
