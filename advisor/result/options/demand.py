"""Traffic over time: users, a recorded trace, hours of the week, growth, spare replicas, the site."""

from advisor.result.base import (
    Chips,
    Count,
    Fraction,
    Kilowatts,
    Milliseconds,
    Months,
    Number,
    Percentiles,
    PerSecond,
    Seconds,
    Section,
    Usd,
    UsdPerMonth,
)


class MeanAndTail(Section):
    """End-to-end latency of a request."""

    mean: Milliseconds | None
    """Arithmetic mean."""
    p95: Milliseconds | None
    """95 of 100 requests are at least this fast."""


class Availability(Section):
    """Replicas that may fail at the peak without breaking the limits."""

    carrying_replicas: Count
    """Replicas that carry the peak."""
    spare_replicas: Count
    """Replicas beyond these."""
    capacity_requests_per_s_without_spares: PerSecond | None
    """Capacity when all spares have failed."""


class HostLost(Section):
    """The peak after the loss of any one host: a server, a rented instance, or one machine of a rack or slice."""

    hosts: Count
    """Hosts in service."""
    replicas_left: Count
    """Replicas that still run, whichever host is lost."""
    idle_instances: Count
    """Idle instances that are already owned; one of them takes over."""
    limits_hold: bool
    """Whether the latency limits hold at the peak without the host."""
    capacity_requests_per_s: PerSecond | None
    """The most requests/s that the remaining replicas can serve, whatever the latency."""
    ttft_ms_p95: Milliseconds | None
    """p95 TTFT at the peak without the host; null: no replica is left, or the queue grows without limit."""
    tpot_ms_p95: Milliseconds | None
    """p95 TPOT at the peak without the host; null: see `ttft_ms_p95`."""
    spare_usd_per_month: UsdPerMonth | None
    """Cost of a spare with which the limits hold; null: none is needed or known."""
    said: str
    """The same in words."""


class Users(Section):
    """Active users who wait for an answer, think, and ask again."""

    active: Number
    """Users at the peak."""
    think_s: Seconds
    """Pause between an answer and the next request."""
    e2e_ms_mean: Milliseconds | None
    """Mean time until a whole answer."""
    requests_per_s: PerSecond | None
    """What these users ask together."""


class Recorded(Section):
    """Replay of the workload's recorded trace on one scheduler lane."""

    requests: Count
    """Requests of the trace that this lane got."""
    requests_per_s: PerSecond | None
    """Their mean rate."""
    ttft_ms: Percentiles
    """Time to first token."""
    tpot_ms: Percentiles
    """Time per output token."""
    e2e_ms_p95: Milliseconds | None
    """End-to-end latency, 95th percentile."""


class WeekBill(Section):
    """What a way of paying for the week's replicas costs."""

    usd_per_month: UsdPerMonth | None
    """Total cost."""
    utilisation: Fraction | None
    """Mean load over paid capacity."""


class Day(Section):
    """One day of the week."""

    name: str
    """Mon to Sun."""
    replicas: list[Count]
    """Replicas needed in each of 24 hours."""


class Week(Section):
    """Replicas by hour of the week, and autoscaling against a fixed size."""

    mean_fraction_of_peak: Fraction | None
    """Mean traffic over peak traffic."""
    replicas_by_hour: list[Count]
    """168 hours from Monday 0:00."""
    days: list[Day]
    """The same by day."""
    paid: str
    """autoscaled or fixed."""
    autoscaled: WeekBill | None
    """Instances follow the load; null where they cannot."""
    fixed: WeekBill
    """All instances around the clock."""
    paid_fraction_of_hours: Fraction | None
    """Share of instance hours that is paid."""
    cold_start_s: Seconds | None
    """Time from starting an instance until it serves."""
    why: str
    """Why it is paid this way."""


class GrowthStep(Section):
    """A month in which the number of replicas changes."""

    month: Months
    """Counted from today."""
    replicas: Count
    """Replicas from this month on, spares included."""
    accelerators: Chips
    """Accelerators of these replicas."""
    instances: Count
    """Instances that hold them."""
    more_instances: Count
    """Instances added in this month."""


class GrowthSchedule(Section):
    """How the deployment grows with the traffic."""

    fraction_per_year: Fraction
    """Yearly growth."""
    months: Months
    """Planning horizon."""
    peak_requests_per_s_today: PerSecond | None
    """Peak today."""
    peak_requests_per_s_at_end: PerSecond | None
    """Peak at the end of the horizon."""
    replicas_at_end: Count
    """Replicas at the end of the horizon."""
    accelerators_at_end: Chips
    """Accelerators at the end of the horizon."""
    instances_at_end: Count
    """Instances at the end of the horizon."""
    steps: list[GrowthStep]
    """Months in which something changes."""


class Site(Section):
    """Servers, racks and power at the planner's own site."""

    hosts: Count
    """Servers."""
    hosts_there_already: Count
    """Servers already owned."""
    hosts_to_buy: Count
    """Servers to buy."""
    kw_per_host: Kilowatts | None
    """Maximum draw of a server."""
    kw_per_rack: Kilowatts | None
    """Power limit of a rack; null: the workload gives none."""
    hosts_per_rack: Count | None
    """Servers that a rack can power."""
    racks: Count | None
    """Racks needed."""
    cooling: str
    """air, liquid, both, or unknown."""
    kw_with_cooling: Kilowatts | None
    """Maximum draw of all servers with the site's overhead (PUE)."""


class OwnedPlan(Section):
    """One of the two ways to go on with hardware that is owned."""

    rank: Count
    """The option's rank in this answer."""
    accelerator: str
    """Catalog name of its accelerator."""
    hosts: Count
    """Servers or instances."""
    usd_per_month: UsdPerMonth | None
    """Total cost of a month."""
    present_usd: Usd | None
    """Present value of costs over the horizon, less the resale of what is owned when that is sold."""


class Owned(Section):
    """Accelerators that the planner has: keep them, sell them, or add to them."""

    accelerator: str
    """Catalog name."""
    count: Chips
    """How many are owned."""
    in_whole_hosts: Chips
    """How many of these fill whole servers; the others are not used."""
    resale_usd: Usd | None
    """Expected resale of all; null: no price of a new server is known."""
    resale_source: str
    """What the resale figure rests on."""
    keep: OwnedPlan | None
    """Best option that uses them; null: none is among the answers."""
    adds_hosts: Count
    """Servers that this option buys in addition."""
    sell: OwnedPlan | None
    """Best option without them; null: none is among the answers."""
    advice: str = ""
    """keep or sell: which ranks first; empty: they are in no option, or the answer is of an earlier version."""
    idle_hosts: Count | None = None
    """Owned servers that stay idle if the machines are kept; null in answers of earlier versions."""
    sell_saves_fraction: Fraction | None = None
    """What the best option without them saves against keeping them, with the forgone sale; negative: it costs more."""
    sell_saves_probability: Fraction | None = None
    """Share of the draws in which the best option without them costs less, with the forgone sale included."""
    said: str
    """The comparison as a sentence."""
    suffices: bool | None = None
    """Whether they serve the whole workload on their own, within every limit; null in answers from before December
    2026."""
    rank: Count | None = None
    """Rank of the option on these machines alone; null: they do not suffice, or another option stands for it."""
    label: str = ""
    """What runs on them alone, in one line; empty: nothing does within the limits."""
    hosts: Count = 0
    """Whole servers that are owned."""
    hosts_used: Count = 0
    """Servers that this deployment uses."""
    usd_per_month: UsdPerMonth | None = None
    """What running this deployment costs; without one, what the servers cost to run at full power."""
    carried_fraction: Fraction | None = None
    """Share of the load, with its peak, that they serve on their own within the limits; null: not known for a recorded
    trace."""
    more_hosts: Count = 0
    """Servers of the same kind that are missing; 0: none, or no number of them serves the load."""
    more_accelerators: Count = 0
    """Accelerators in these."""
    missing: str = ""
    """What they lack, as a sentence; empty: nothing."""
