"""An option in words: the verdict, the reasons, notes on its price, the warnings."""

import math
from collections.abc import Sequence
from functools import partial

from advisor.answer.options.card_sharing import partition_notes
from advisor.answer.options.tuning import variant_warnings
from advisor.engine.cost import HOURS_PER_YEAR
from advisor.engine.kernels import HALF
from advisor.engine.launch import rare_request_tokens
from advisor.engine.network import Model
from advisor.engine.search import Catalog, Scored, tpot_limit_s
from advisor.engine.step import NO_CACHE_TOKENS, yarn_warning
from advisor.engine.terms import JobRun, Outcome, Workload, amount_digits, exact_text, unlike, usd_text
from advisor.result import Batch, NearMiss, Option, Speculative

GIB = 2.0**30
NO_P99 = ", so the p99 of every latency is infinite"
MOST_TIES = 3  # named in the verdict
BOUND_BY = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "launch": "bound by kernel launches",
    "communication": "bound by communication between chips",
    "host": "bound by the host",
}
UNMEASURED = {
    "relative": "performance was extrapolated from a related chip, not measured on this one, so the interval is wide",
    "datasheet": "performance was estimated from this chip's datasheet, not from measurements, so the interval is wide",
}


def verdict(
    workload: Workload, ranked: Sequence[Scored], options: Sequence[Option], near_misses: Sequence[NearMiss]
) -> str:
    """The answer in one sentence."""
    if not options:
        nearest = f" The nearest miss is {near_misses[0].label}: {near_misses[0].detail}." if near_misses else ""
        return f"Nothing in the catalog meets this workload; the reasons are listed per accelerator.{nearest}"
    first, token = options[0], workload.kind.priced_token
    usd_per_mtok = first.usd_per_mtok_input if token == "input" else first.usd_per_mtok_output
    low, high = first.interval.of(f"usd_per_mtok_{token}") or (None, None)
    between = f" ({amount_digits(low)} to {amount_digits(high)})" if low is not None and high is not None else ""
    each = f"{usd_text(usd_per_mtok or 0.0)}{between} per million {token} tokens"
    if first.unit_cost and first.unit_cost.usd is not None and not workload.kind.generates_tokens:
        each = f"{usd_text(first.unit_cost.usd)} per {first.unit_cost.count:,} {first.unit_cost.unit}s"
    return (
        f"{first.label}, {provenance(first)}: {price_of(first)}, {each}, "
        f"{workload.kind.verdict_end(outcome(ranked[0], first.batch))}.{spot_risk(first.batch)}{certainty(options)}"
        f"{after_a_loss(first)}"
    )


def spot_risk(run: Batch | None) -> str:
    """What a batch on spot instances counts on to meet its deadline; empty if it uses none."""
    if run is None or run.spot_lost_fraction is None or run.run_hours is None or run.deadline_hours is None:
        return ""
    return (
        f" This assumes that interruptions cost {run.spot_lost_fraction:.0%} of the hours and that spot capacity is "
        f"available after {(run.spot_wait_hours or 0.0) * 60:.3g} minutes; if it is unavailable for more than "
        f"{max(run.deadline_hours - run.run_hours, 0.0):.3g} h, the run is late."
    )


def after_a_loss(option: Option) -> str:
    """What the loss of one host does, with a space before it; empty for a batch."""
    return f" {option.one_host_lost.said}" if option.one_host_lost else ""


def price_of(option: Option) -> str:
    """What a run costs, with the month if runs repeat; for other workloads the month."""
    monthly, run = f"{usd_text(option.usd_per_month)} a month", option.batch
    if run is None or run.usd_per_run is None:
        return f"{monthly} as planned"  # the screen shows the mean over loads and prices
    repeated = run.every_hours is not None and run.deadline_hours is not None and run.every_hours > run.deadline_hours
    return f"{usd_text(run.usd_per_run)} per run" + (
        f" ({monthly} at a run every {run.every_hours:g} h)" if repeated else ""
    )


def certainty(options: Sequence[Option]) -> str:
    """How likely the first option is to meet the limits and to be the best, and which others tie with it."""
    first = options[0]
    parts = []
    if first.slo_probability is not None:
        limits = "deadline" if first.batch is not None and first.batch.deadline_hours else "limits"
        parts.append(f"meets the {limits} with {likely(first.slo_probability)} probability")
    if first.first_probability is not None and len(options) > 1:
        parts.append(
            f"is the best of the {len(options)} deployments with {likely(first.first_probability)} probability"
        )
    sentences = [f"It {' and '.join(parts)}."] if parts else []
    tied = [option.accelerator_name for option in options if option.rank in (first.tied_with or [])]
    if ties := [name for name in dict.fromkeys(tied) if name != first.accelerator_name]:
        named = ties[:MOST_TIES] + ([f"{len(ties) - MOST_TIES} more"] if len(ties) > MOST_TIES else [])
        others = f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
        sentences.append(f"Its lead over {others} is within the margin of error.")
    if first.speculative is not None and (stated := first.speculative).acceptance:
        sentences.append(drafting(stated))
    return "".join(f" {sentence}" for sentence in sentences)


def drafting(stated: Speculative) -> str:
    """What the first option owes to the acceptance of its drafts, and what to do if fewer are accepted."""
    least, rate = stated.break_even_acceptance, f"speculative decoding with an acceptance of {stated.acceptance:.2f}"
    below = f"; below {least:.2f} it misses a limit" if least else ""
    if stated.meets_slo_without and least is not None:
        return f"It uses {rate}{below}; without drafts it meets every limit{' again' if below else ' too'}."
    return f"It relies on {rate}{below}."


def likely(probability: float) -> str:
    """72%; at the ends more than 99% and less than 1%."""
    if probability > 0.99:
        return "more than 99%"
    return "less than 1%" if probability < 0.01 else f"{probability:.0%}"


def outcome(s: Scored, run: Batch | None) -> Outcome:
    """What the sentences of the workload's kind may name."""
    return Outcome(
        ttft_p95_s=s.verified.ttft_p95_s,
        tpot_p95_s=s.verified.tpot_p95_s,
        mean_requests_per_s=s.requests_per_s_mean,
        peak_requests_per_s=s.requests_per_s_peak,
        carrying_replicas=s.replicas - s.spare_replicas,
        spare_replicas=s.spare_replicas,
        utilisation_fraction=s.utilisation_fraction,
        busy_fraction=sum(s.phases.busy(s.carrying_lanes, 1.0 / (s.paid_fraction or 1.0))),
        run=job_run(run) if run else None,
    )


def job_run(run: Batch) -> JobRun:
    return JobRun(
        requests=run.requests,
        hours=run.run_hours or math.nan,
        start_hours=run.start_hours or 0.0,
        deadline_hours=run.deadline_hours or math.nan,
        every_hours=run.every_hours or math.nan,
        usd=run.usd_per_run or 0.0,
        released=run.given_back,
    )


def provenance(option: Option) -> str:
    """Already owned, bought, or rented and from whom."""
    if option.provider == "owned":
        return "already owned"
    if option.acquisition == "own":
        return "bought"
    return f"rented{' as spot instances' if option.term == 'spot' else ''} from {option.provider}"


def _in_ms(reached_ms: float, limit_ms: float, more: int) -> tuple[str, str]:
    return f"{reached_ms:.{more}f} ms", f"{limit_ms:.{more}f} ms"


def reasons(workload: Workload, s: Scored, option: Option) -> list[str]:
    """Why the deployment fits: memory, bottleneck, load, limits, price."""
    slo, v = workload.slo, s.verified
    c = s.lane.choice
    each = "instance" if c.accelerator.cut else "chip"
    cache = f"a replica holds {s.memory.kv_capacity_tokens * c.lanes:,.0f} tokens of KV cache"
    lines = [
        f"weights take {s.memory.weights_bytes / GIB:.1f} GiB of {c.accelerator.memory_bytes / GIB:.1f} GiB "
        f"per {each}; " + (cache if keeps_cache(s) else "no KV cache is kept"),
        f"{workload.kind.main_step} is {BOUND_BY[option.bound]}",
        *workload.kind.load_reasons(outcome(s, option.batch)),
    ]
    lines += partition_notes(c.accelerator)
    weights = option.launch.checkpoint
    if weights is not None:
        lines.append(f"weights: {weights.step}")
    if weights is not None and weights.quality == "near_lossless":
        lines.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    limits = (
        (workload.kind.first_result, v.ttft_p95_s, slo.ttft_p95_s, 0),
        ("TPOT", v.tpot_p95_s, tpot_limit_s(workload), 1),
        ("end-to-end latency", v.e2e_p95_s, slo.e2e_p95_s, 0),
    )
    lines += [
        f"simulated p95 {name} is {reached * 1e3:.{digits}f} ms; the limit is {most * 1e3:.{digits}f} ms"
        for name, reached, most, digits in limits
        if most is not None
    ]
    return [*lines, f"priced as {s.instances:,} x {bracketed(s.offer.instance or 'server')} on {s.offer.as_of}"]


def bracketed(instance: str) -> str:
    """A server whose name begins with a count, in brackets: 3 x (2 x L4 in an own server)."""
    return f"({instance})" if instance[:1].isdigit() else instance


def keeps_cache(s: Scored) -> bool:
    return s.memory.kv_capacity_tokens < NO_CACHE_TOKENS


def price_notes(catalog: Catalog, s: Scored) -> list[str]:
    """What is particular to the price: the organization's own terms, licenses, the site of a bought server."""
    c, chips = s.lane.choice, s.instances * s.offer.accelerators
    lines = [f"price: {s.offer.notes}"] if s.offer.notes else []
    lines += [
        f"{li.name}: {exact_text(li.usd_per_accelerator_year)} a year for each of {counted(chips, 'accelerator')}, "
        f"{usd_text(li.usd_per_accelerator_year * chips / HOURS_PER_YEAR)} an hour of the price ({li.source})"
        for li in catalog.licences
        if li.covers(c.accelerator.vendor, s.lane.framework.slug)
    ]
    if s.offer.acquisition == "own" and s.offer.usd_per_kwh is not None:
        lines.append(
            f"site {s.offer.region}: {exact_text(s.offer.usd_per_kwh)} per kWh, PUE {s.offer.pue:.3g}, "
            f"{s.offer.kgco2e_per_kwh or math.nan:.3g} kgCO2e/kWh"
        )
    return lines


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def length_warnings(workload: Workload, model: Model) -> list[str]:
    """Requests near the model's context length; if the mean or the p95 is beyond it, the workload is refused."""
    if not workload.kind.generates_tokens:
        return []
    lines = [yarn_warning(model)] if workload.p95_request_tokens > model.max_context_tokens else []
    if workload.trace is None and rare_request_tokens(workload) > model.longest_context_tokens:
        lines.append(
            "with your mean and p95, the longest requests exceed the model's context of "
            f"{model.longest_context_tokens:,} tokens; they are simulated at that length, as if clients shortened them"
        )
    return lines


def warnings(workload: Workload, s: Scored, option: Option) -> list[str]:
    """What to check before signing."""
    c = s.lane.choice
    lines = variant_warnings(s)
    if s.idle_chips and not (option.money and option.money.purchase):  # else the purchase says it, over time
        verb = "is" if s.idle_chips == 1 else "are"
        chips = f"{s.idle_chips} of the {s.chips + s.idle_chips} chips"
        lines.append(f"{chips} in the instances {verb} paid for but idle")
    if option.launch.checkpoint is not None and option.launch.checkpoint.quality == "lossy":
        lines.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    if c.kv_dtype not in HALF:
        lines.append(f"the KV cache is stored in {c.kv_dtype}: compare answers to long prompts before shipping")
    if c.efficiency.basis != "measured":
        lines.append(UNMEASURED.get(c.efficiency.basis, UNMEASURED["datasheet"]))
    if s.verified.rejected_requests:
        lines.append(
            f"{s.verified.rejected_requests} of {s.verified.requests} simulated requests exceed a replica's KV cache "
            f"and count as infinitely late{NO_P99 if s.verified.unserved_fraction > 0.01 else ''}"
        )
    if option.correction is not None and option.correction.imported:
        plural = "s" if option.correction.rows != 1 else ""
        rows = f"{option.correction.rows} imported measurement{plural} of this chip, model and framework"
        lines.append(f"step times rest on {rows}, made by others: load-test before signing")
    for name, limit_s in ((workload.kind.first_result, workload.slo.ttft_p95_s), ("TPOT", tpot_limit_s(workload))):
        high = (option.interval.of(f"{name.lower()}_ms_p95") or (None, None))[1]
        if limit_s is not None and high is not None and high > limit_s * 1e3:
            reached, limit = unlike(partial(_in_ms, high, limit_s * 1e3))
            lines.append(
                f"the 90% interval of p95 {name} reaches {reached}, above the limit of {limit}: load-test before "
                "signing"
            )
    if workload.kind.has_arrivals and s.capacity_requests_per_s > 2 * workload.requests_per_s_peak:
        lines.append("utilization stays below half even at the peak: smaller or shared hardware may be cheaper")
    return lines
