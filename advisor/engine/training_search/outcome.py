"""What a layout becomes on the machines of one seller: goodput, days, power, and the plan that pays for it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.cost import (
    HOURS_PER_MONTH,
    Draw,
    Prices,
    kernel_fraction,
    licence_usd_per_hour,
    watts_per_chip,
)
from advisor.engine.network import Model
from advisor.engine.plans import OWNED as OWNED_WAY
from advisor.engine.plans import PURCHASE, Demand, Limits, Overheads, Way, best_plan, named_plans, prices_until
from advisor.engine.plans import Plan as DatedPlan
from advisor.engine.search import (
    Catalog,
    Planned,
    Question,
    allowed,
    efficiency_on,
    host_watts,
    overheads_of,
    prices_of,
    ways_under,
)
from advisor.engine.terms import OWNED, Offer, TrainingTask, Workload
from advisor.engine.training import (
    Checkpoint,
    Cluster,
    FailureRates,
    Goodput,
    Range,
    Shape,
    Spot,
    checkpoint_bytes,
    goodput,
    goodput_range,
    ledger,
    rates_of,
    run_days,
    spot_goodput,
    straggler_factor,
    trained_parameters,
    write_checkpoint,
)
from advisor.engine.training_search.layouts import Trained, task_of
from advisor.engine.training_search.phases import REFERENCE, UPDATE

S_PER_DAY, HOURS_PER_DAY = 86_400.0, 24.0
MOST_SPARES = 8
SPOT = "spot"
LEAST_INTERRUPTIONS, MOST_INTERRUPTIONS = 1e-6, 60.0  # per instance-hour, of a spot instance
FAILING = ("failures_per_chip_day", "replaced_fraction", "replacement_days", "restart_s")  # of FailureRates
MEMORY_BOUND_FRACTION = 0.8  # of the bandwidth that kernels between the matrix multiplies reach


@dataclass(frozen=True, kw_only=True, slots=True)
class Reliability:
    """What stops a run and how it goes on, each with its range; the assumptions of the catalog, or the planner's."""

    failures: FailureRates
    blocked_fraction: float  # of a checkpoint's write, in which training stands still
    spot: Spot
    instance_wait_s: Range  # until a provider replaces an instance that failed
    straggler_fraction: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A layout on the machines of one seller, with the time, goodput, power and plan of the run."""

    trained: Trained
    offer: Offer  # that the plan is named after
    planned: Planned
    instances: int
    spare_hosts: int
    checkpoint: Checkpoint
    saved_bytes: float
    goodput: Goodput
    goodput_range: Range
    straggler_factor: float
    step_s: float  # of the slowest rank, which all wait for
    tokens_per_s: float
    steps: int
    days: float  # of one run, from the first step to the last token
    busy_fraction: float  # of the plan's months, in which the machines train
    watts: float  # of all instances, spares and hosts and cooling included; NaN: not published
    usd_total: float  # present value of the plan
    usd_per_run: float  # without discounting
    delivery_days: float = 0.0  # until bought servers arrive, if a run with a deadline waits for them

    @property
    def end_days(self) -> float:
        """From today to the last token."""
        return self.delivery_days + self.days

    @property
    def chips(self) -> int:
        return self.trained.chips

    @property
    def kwh(self) -> float:
        """Of one run."""
        return self.watts / 1e3 * self.days * HOURS_PER_DAY

    @property
    def kgco2e(self) -> float:
        """Of one run; NaN: not known."""
        return self.kwh * (math.nan if self.offer.kgco2e_per_kwh is None else self.offer.kgco2e_per_kwh)

    @property
    def months(self) -> int:
        return self.planned.plan.prices.months


# --- machines ---------------------------------------------------------------------------------------------------


def is_rented(offers: Sequence[Offer]) -> bool:
    return offers[0].acquisition != "own"


def failures_of(offers: Sequence[Offer], r: Reliability) -> FailureRates:
    """A provider replaces a failed instance by another; one's own host is repaired."""
    if not is_rented(offers):
        return r.failures
    wait = r.instance_wait_s
    days = Range(value=wait.value / S_PER_DAY, low=wait.low / S_PER_DAY, high=wait.high / S_PER_DAY)
    return replace(r.failures, replacement_days=days)


def cluster_of(t: Trained, offers: Sequence[Offer], r: Reliability, spares: int) -> Cluster:
    """The job's machines."""
    f, offer = failures_of(offers, r), offers[0]
    return Cluster(
        chips=t.chips,
        chips_per_host=min(offer.accelerators, t.chips),
        spare_hosts=spares,
        **{name: getattr(f, name).value for name in FAILING},
    )


def best_spares(t: Trained, offers: Sequence[Offer], r: Reliability, instances: int, saved: Checkpoint) -> int:
    """Spare hosts with which an hour of training costs least: each one costs an instance and shortens the waits."""

    def paid(spares: int) -> float:
        fraction = goodput(cluster_of(t, offers, r, spares), saved).fraction
        return (instances + spares) / max(fraction, 1e-9)

    if is_rented(offers):
        return 0
    best = 0
    while best < MOST_SPARES * max(instances // 16, 1) and paid(best + 1) < paid(best):
        best += 1
    return best


def power_watts(t: Trained, model: Model, catalog: Catalog, offer: Offer, instances: int) -> float:
    """Mean power of the machines while they train, W; NaN if the chip's is not published.

    Each operator draws power by its share of the arithmetic and memory rooflines; while the chip waits for others it
    draws what an idle kernel does.
    """
    a, chip, run = catalog.assumptions, t.accelerator, t.layout.run
    rates = rates_of(chip, efficiency_on(catalog.scopes, chip), run.recipe, run.code)
    lines = [line for line in ledger(model, Shape.of(run), rates, run) if float(line.seconds) > 0]
    draw = Draw.of(a, chip.watts, chip.idle_watts)
    seconds = np.array([float(line.seconds) * (1 if line.per_step else run.micro_batches) for line in lines])
    reached = np.array([float(line.flops) / float(line.seconds) for line in lines]) / rates.matmul_flops_per_s
    compute = np.minimum(reached, 1.0)
    fraction = kernel_fraction(draw, (1.0 - compute) * MEMORY_BOUND_FRACTION, compute)
    busy = float(seconds @ fraction) / float(t.layout.step_s)
    waiting = max(1.0 - seconds.sum() / float(t.layout.step_s), 0.0) * draw.waiting_fraction
    each = watts_per_chip(
        np.array(chip.watts),
        np.array(chip.idle_watts),
        np.array(iteration_fraction(t, draw, busy + waiting)),
        a,
        np.array(host_watts(offer, catalog)),
    )
    return float(each) * instances * offer.accelerators * offer.pue


def iteration_fraction(t: Trained, draw: Draw, update_fraction: float) -> float:
    """Mean power of all phases by their time, as a fraction of (limit - idle). Copies draw what waiting does."""
    if not t.phases:
        return update_fraction
    alike = {UPDATE: update_fraction, REFERENCE: update_fraction}
    drawn = [
        p.time_s * (p.power_fraction(draw) if p.power_fraction else alike.get(p.name, draw.waiting_fraction))
        for p in t.phases
    ]
    return math.fsum(drawn) / t.iteration_s


# --- the run ----------------------------------------------------------------------------------------------------


def candidate(question: Question, r: Reliability, t: Trained, offers: Sequence[Offer]) -> Candidate | None:
    """The run on these offers of one seller and size; None: no plan keeps the limits, or it lasts too long."""
    workload, catalog = question.workload, question.catalog
    task, offer = task_of(workload), offers[0]
    run = t.layout.run
    saved_bytes = checkpoint_bytes(trained_parameters(catalog.model, run.recipe), run.recipe)
    saved = write_checkpoint(saved_bytes, t.chips, r.failures.write_bytes_per_s_per_chip.value, r.blocked_fraction)
    whole = math.ceil(t.chips / offer.accelerators)
    spares = best_spares(t, offers, r, whole, saved)
    cluster = cluster_of(t, offers, r, spares)
    spot = all(o.term == SPOT for o in offers)
    found = spot_goodput(cluster, r.spot, saved) if spot else goodput(cluster, saved)
    spread = goodput_range(cluster, saved_bytes, r.blocked_fraction, failures_of(offers, r))
    slowed = straggler_factor(t.chips, r.straggler_fraction)
    step_s = t.iteration_s * slowed
    started_s = cluster.restart_s + (r.spot.wait_s if spot else 0.0)  # the first instances have to be found too
    days = run_days(task.tokens, run.global_tokens, step_s, found.fraction) + started_s / S_PER_DAY
    if not math.isfinite(days) or days > most_days(workload):
        return None
    instances = whole + spares
    planned = plan_for(question, t, offers, instances, days)
    if planned is None:
        return None
    plan, watts = planned.plan, power_watts(t, catalog.model, catalog, planned.offers[planned.main], instances)
    share = used_fraction(task, days)
    repeats = 1.0 if task.every_days is None else plan.prices.months * HOURS_PER_MONTH / HOURS_PER_DAY / task.every_days
    return Candidate(
        trained=t,
        offer=planned.offers[planned.main],
        planned=planned,
        instances=instances,
        spare_hosts=spares,
        checkpoint=saved,
        saved_bytes=saved_bytes,
        goodput=found,
        goodput_range=scaled(spread, found.fraction),
        straggler_factor=slowed,
        step_s=step_s,
        tokens_per_s=run.global_tokens / step_s,
        steps=math.ceil(task.tokens / run.global_tokens),
        days=days,
        busy_fraction=share,
        watts=watts,
        usd_total=plan.present_usd,
        usd_per_run=math.fsum(plan.total_by_month) / max(repeats, 1.0),
        delivery_days=delivery_days(workload, bought_offers(planned)),
    )


def delivery_days(workload: Workload, bought: Iterable[Offer]) -> float:
    """Days from order to service of what is bought, which count toward the deadline of a run that is done once."""
    task = task_of(workload)
    waits = task.deadline_days is not None and task.every_days is None
    months = max((o.order_months for o in bought), default=0.0)
    return months * HOURS_PER_MONTH / HOURS_PER_DAY if waits else 0.0


def bought_offers(planned: Planned) -> list[Offer]:
    """What a plan buys."""
    kept = planned.plan.schedule.commitments
    return [planned.offers[c.way] for c in kept if planned.plan.ways[c.way].kind == PURCHASE]


def break_even_interruptions(c: Candidate, r: Reliability, usd: float) -> float:
    """Interruptions per instance-hour at which a spot run costs as much as another one; all it pays follows its time.

    Infinite: it costs less at any rate that was tried; 0: it costs more without interruptions.
    """
    needed = c.goodput.fraction * c.usd_total / usd
    cluster = cluster_of(c.trained, (c.offer,), r, c.spare_hosts)

    def fraction(rate: float) -> float:
        spot = replace(r.spot, interruptions_per_instance_hour=rate)
        return spot_goodput(cluster, spot, c.checkpoint).fraction

    low, high = LEAST_INTERRUPTIONS, MOST_INTERRUPTIONS
    if fraction(low) < needed:
        return 0.0
    if fraction(high) >= needed:
        return math.inf
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fraction(middle) >= needed else (low, middle)
    return low


def scaled(r: Range, value: float) -> Range:
    """The range around another value, in the same proportions and at most 1."""
    return Range(value=value, low=r.low * value / r.value, high=min(r.high * value / r.value, 1.0))


def most_days(workload: Workload) -> float:
    """The longest run that a plan can describe: the horizon, or the time between runs."""
    task = task_of(workload)
    horizon = workload.horizon_months * HOURS_PER_MONTH / HOURS_PER_DAY
    return min(horizon, task.every_days or horizon)


def used_fraction(task: TrainingTask, days: float) -> float:
    """Of the months of the plan, in which machines that are released between runs are paid."""
    if task.every_days is not None:
        return min(days / task.every_days, 1.0)
    return days / (months_of(days) * HOURS_PER_MONTH / HOURS_PER_DAY)


def months_of(days: float) -> int:
    """Months (730 hours) that a run touches."""
    return max(math.ceil(days * HOURS_PER_DAY / HOURS_PER_MONTH - 1e-9), 1)


# --- the plan ---------------------------------------------------------------------------------------------------


def demand_of_run(workload: Workload, instances: int, days: float) -> Demand:
    """All instances in every hour of the run; between runs none."""
    task = task_of(workload)
    if task.every_days is not None:
        return Demand(
            counts=np.array([instances]),
            fractions=np.full((1, workload.horizon_months), min(days / task.every_days, 1.0)),
        )
    months = months_of(days)
    hours = np.full(months, HOURS_PER_MONTH)
    hours[-1] = days * HOURS_PER_DAY - (months - 1) * HOURS_PER_MONTH
    return Demand(counts=np.array([instances]), fractions=(hours / HOURS_PER_MONTH)[None, :])


def prices_of_run(question: Question, months: int) -> Prices:
    return prices_until(prices_of(question), months)


def ways_of_run(
    catalog: Catalog, t: Trained, offers: Sequence[Offer], used_fraction: float = 1.0
) -> tuple[tuple[Offer, ...], tuple[Way, ...]]:
    """(the offer behind each way, the ways). Interruptions of spot instances are in the goodput, not in the price.

    Hosts that are already owned cost what they take to run in the hours of the run: used_fraction of the plan's months.
    """
    licence = licence_usd_per_hour(catalog.licences, t.accelerator.vendor, "")
    alone = not any(o.term == OWNED for o in offers)
    pairs: list[tuple[Offer, Way]] = []
    for offer in offers:
        full = (t.accelerator.watts + host_watts(offer, catalog)) * offer.accelerators * offer.pue

        def drawn(offer: Offer = offer, full: float = full) -> float:
            mean = power_watts(t, catalog.model, catalog, offer, 1)
            return mean / full if full and math.isfinite(mean / full) else 1.0

        for way in ways_under(catalog, offer, licence, drawn, with_held=alone):
            share = used_fraction if way.kind == OWNED_WAY else 1.0
            parts = tuple(
                replace(p, usd_per_hour=p.usd_per_hour * share) for p in way.parts if p.name != "interruptions"
            )
            pairs.append((offer, replace(way, parts=parts)))
    return tuple(o for o, _ in pairs), tuple(w for _, w in pairs)


def ways_from_delivery(question: Question, ways: Sequence[Way]) -> tuple[Way, ...]:
    """The ways with month 1 as the delivery of what is bought.

    Where runs can be rented, hardware is not bought to be sold within a year; where they cannot, the sale at the end
    of the run brings what hardware brings after a year.
    """
    may_rent = any(
        o.acquisition == "rent" and allowed(o, question.workload.constraints) for o in question.catalog.offers
    )
    return tuple(replace(w, lead_months=0, least_months=w.least_months if may_rent else 0) for w in ways)


def plan_for(question: Question, t: Trained, offers: Sequence[Offer], instances: int, days: float) -> Planned | None:
    """The cheapest plan of a run on the offers of one seller; None: none keeps the limits."""
    demand = demand_of_run(question.workload, instances, days)
    months = demand.fractions.shape[1]
    of, ways = ways_of_run(question.catalog, t, offers, float(demand.fractions.mean()))
    ways = ways_from_delivery(question, ways)
    c = question.workload.constraints
    limits = Limits(max_capex_usd=c.max_capex_usd, max_usd_per_month=c.max_usd_per_month)
    limited = c.max_capex_usd is not None or c.max_usd_per_month is not None
    plan = best_plan(
        demand, ways, prices_of_run(question, months), team_of_run(question, demand),
        limits if limited else None,
    )  # fmt: skip
    return Planned(plan=plan, offers=of) if plan is not None else None


def team_of_run(question: Question, demand: Demand) -> Overheads:
    """The least team, for the share of the months in which machines run."""
    least = overheads_of(question)
    share = float(demand.fractions.mean())
    return replace(
        least, own_team_usd_per_month=least.own_team_usd_per_month * share,
        rented_team_usd_per_month=least.rented_team_usd_per_month * share, traffic=(),
    )  # fmt: skip


def strategies_of(question: Question, c: Candidate, offers: Sequence[Offer]) -> dict[str, DatedPlan]:
    """The usual strategies for the same machines and days, over all these offers."""
    demand = demand_of_run(question.workload, c.instances, c.days)
    _, ways = ways_of_run(question.catalog, c.trained, offers, float(demand.fractions.mean()))
    ways = ways_from_delivery(question, ways)
    months = demand.fractions.shape[1]
    return named_plans(demand, ways, prices_of_run(question, months), team_of_run(question, demand))
