"""Scale to zero as options: one serverless replica per chip, with its bill, its cold start and the TTFT with it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.answer.options.option import option
from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import (
    ColdStartTimes,
    OnDemand,
    Scored,
    SearchResult,
    final_score,
    scaled_to_zero,
    search,
)
from advisor.engine.terms import Workload, usd_text
from advisor.inputs import number, rounded, serverless_of
from advisor.result import Option, Rejection, ScaleToZero

MOST_SHOWN = 2  # chips; more differ little
BUSY_REQUESTS = 2.0  # requests within the idle timeout at the mean load, above which a replica hardly ever stops


@dataclass(frozen=True, kw_only=True)
class Found:
    """The serverless deployments of a question: those that keep every limit, and the nearest that does not."""

    options: tuple[tuple[float, Option], ...]  # with their objective, best first
    rejection: Rejection | None


NOTHING = Found(options=(), rejection=None)


def found(question: Question, outcome: SearchResult) -> Found:
    """Serverless deployments that scale to zero, by the same objective as the others.

    Only for requests that arrive at random, at a rate that leaves a replica idle; without spare replicas.
    """
    workload, catalog = question.workload, question.catalog
    assumed = serverless_of(question.spec, question.snapshot.assumptions)
    if not suits(workload, assumed):
        return NOTHING
    if not catalog.serverless_offers:
        return NOTHING
    unbound = replace(workload, constraints=replace(workload.constraints, max_usd_per_month=None, bound_factor=None))
    cheap = replace(catalog, offers=catalog.serverless_offers, other_offers=())
    best = search(replace(question, workload=unbound, catalog=cheap), choice_alone=True)
    single = [s for s in best.ranked if s.replicas == 1]
    scaled = [(s, *scaled_to_zero(workload, s, times_of(s, assumed))) for s in single]
    scaled.sort(key=lambda each: final_score(workload, each[1], outcome.scale))
    kept = [each for each in scaled if misses(workload, each[1]) is None][:MOST_SHOWN]
    options = tuple(
        (final_score(workload, s, outcome.scale), shown(replace(question, catalog=cheap), best, s, steady))
        for _, s, steady in kept
    )
    if options or not scaled:
        return Found(options=options, rejection=None)
    _, s, steady = scaled[0]
    return Found(options=(), rejection=rejected(workload, s, steady))


def suits(workload: Workload, assumed: Mapping[str, float]) -> bool:
    """Whether requests arrive at random, may be served on demand, and leave a replica idle for long."""
    slo = workload.slo
    return (
        workload.kind.has_arrivals
        and not workload.kind.has_deadline
        and "rent" in workload.constraints.acquisition
        and not slo.spare_hosts
        and not slo.doubled
        and workload.users is None
        and workload.trace is None
        and workload.requests_per_s_mean * assumed["idle_timeout_s"] < BUSY_REQUESTS
    )


def times_of(s: Scored, assumed: Mapping[str, float]) -> ColdStartTimes:
    """The cold start of this deployment: container, weights at the assumed rate, framework."""
    weights_bytes = s.memory.weights_bytes * s.chips
    return ColdStartTimes(
        container_s=assumed["container_s"],
        weights_s=weights_bytes / (assumed["read_gb_per_s"] * 1e9),
        engine_s=assumed["engine_s"],
        idle_timeout_s=assumed["idle_timeout_s"],
    )


def misses(workload: Workload, s: Scored) -> Rejection | None:
    """The limit that the deployment misses on demand; None: it keeps all."""
    most, usd = workload.constraints.max_usd_per_month, s.usd_per_hour * HOURS_PER_MONTH
    a = s.lane.choice.accelerator
    if most is not None and usd > most:
        said = f"{usd_text(usd)} a month > {usd_text(most)}"
        return miss(a.slug, "too_expensive", said, "constraints.max_usd_per_month", most, usd)
    limits = (("ttft_ms_p95", "TTFT", workload.slo.ttft_p95_s, s.verified.ttft_p95_s),
              ("e2e_ms_p95", "end-to-end latency", workload.slo.e2e_p95_s, s.verified.e2e_p95_s))  # fmt: skip
    for key, name, limit_s, reached_s in limits:
        if limit_s is not None and reached_s > limit_s:
            detail = f"p95 {name} {reached_s:,.0f} s with cold starts > {limit_s:g} s"
            return miss(a.slug, "misses_slo", detail, f"slo.{key}", limit_s * 1e3, reached_s * 1e3)
    return None


def miss(slug: str, reason: str, detail: str, path: str, limit: float, reached: float) -> Rejection:
    needed = int(reached) + 1
    return Rejection(
        accelerator=slug,
        reason=reason,
        detail=detail,
        limit=number(limit),
        reached=number(reached),
        smallest_change=f"{path} >= {needed}",
        change={path: needed},
    )


def rejected(workload: Workload, s: Scored, steady: OnDemand) -> Rejection | None:
    """Why the best serverless deployment is not ranked, with what it would cost."""
    why = misses(workload, s)
    if why is None:
        return None
    monthly = usd_text(s.usd_per_hour * HOURS_PER_MONTH)
    cost = f"{s.offer.instance} at {s.offer.provider} with scale to zero would cost {monthly} a month"
    share = f"{steady.waiting_fraction:.0%} of the requests wait up to {steady.times.total_s:.0f} s for a cold start"
    return why.changed(detail=f"{cost}, but {share}: {why.detail}")


# --- as an option -----------------------------------------------------------------------------------------------


def shown(question: Question, outcome: SearchResult, s: Scored, steady: OnDemand) -> Option:
    """The deployment as an option: its figures include the cold starts."""
    result = option(question, outcome, s, None)
    section = scale_to_zero(s, steady)
    running = [line for line in result.demand if not line.startswith(("fixed at", "autoscaled between"))]
    return result.changed(
        label=f"{result.label}, scale to zero",
        scale_to_zero=section,
        week=None,
        demand=[section.said, *running],
        reasons=[section.said, *(line for line in result.reasons if line not in result.demand), *running],
        warnings=[
            f"deploy the container as a serverless function of {s.offer.provider} with no minimum of workers and an "
            f"idle timeout of {steady.times.idle_timeout_s:g} s; the launch files start a server that stays up",
            "cold start times are assumptions: measure them with your image before relying on them",
            *([f"price: {s.offer.notes}"] if s.offer.notes else []),
            *(line for line in result.warnings if not line.startswith("utilization stays below")),
        ],
    )


def scale_to_zero(s: Scored, steady: OnDemand) -> ScaleToZero:
    t, seconds = steady.times, HOURS_PER_MONTH * 3600.0
    said = (
        f"starts on demand and stops after {t.idle_timeout_s:g} s without requests: billed "
        f"{steady.billed_fraction:.1%} of the time, {usd_text(s.usd_per_hour * HOURS_PER_MONTH)} a month; "
        f"{steady.cold_fraction:.0%} of the requests start a replica and wait {t.total_s:.0f} s (container "
        f"{t.container_s:.0f} s, weights {t.weights_s:.0f} s, framework {t.engine_s:.0f} s), "
        f"{steady.waiting_fraction:.0%} wait in all"
    )
    return ScaleToZero(
        idle_timeout_s=rounded(t.idle_timeout_s),
        cold_start_s=rounded(t.total_s),
        container_s=rounded(t.container_s),
        weights_s=rounded(t.weights_s),
        engine_s=rounded(t.engine_s),
        cold_fraction=rounded(steady.cold_fraction),
        waiting_fraction=rounded(steady.waiting_fraction),
        wait_mean_s=rounded(steady.wait_mean_s),
        wait_p95_s=rounded(steady.wait_p95_s),
        wait_p99_s=rounded(steady.wait_p99_s),
        billed_fraction=rounded(steady.billed_fraction),
        billed_s_per_month=rounded(steady.billed_fraction * seconds),
        said=said,
    )
