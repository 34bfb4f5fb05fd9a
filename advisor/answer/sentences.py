"""An option in words: the verdict, the reasons, notes on its price, the warnings."""

import math
from collections.abc import Sequence

from advisor.answer.card_sharing import partition_notes
from advisor.answer.tuning import variant_warnings
from advisor.engine.cost import HOURS_PER_YEAR
from advisor.engine.network import Model
from advisor.engine.search import Catalog, Scored, tpot_limit_s
from advisor.engine.spec import JobRun, Outcome, Workload
from advisor.engine.step import HALF, NO_CACHE_TOKENS
from advisor.result import Batch, NearMiss, Option

GIB = 2.0**30
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
    between = f" ({dollars(low)[1:]} to {dollars(high)[1:]})" if low is not None and high is not None else ""
    return (
        f"{first.label}, {provenance(first)}: ${first.usd_per_month:,.0f} a month, "
        f"{dollars(usd_per_mtok or 0.0)}{between} per million {token} tokens, "
        f"{workload.kind.verdict_end(outcome(ranked[0], first.batch))}."
    )


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
    return "bought" if option.acquisition == "own" else f"rented from {option.provider}"


def dollars(usd: float) -> str:
    """$1.23, and $0.0012: two significant digits below ten cents."""
    return f"${usd:.2f}" if usd >= 0.1 or not usd else f"${usd:.2g}"


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
    if c.quantization.quality == "near_lossless":
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
    return [*lines, f"priced as {s.instances} x {bracketed(s.offer.instance or 'server')} on {s.offer.as_of}"]


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
        f"{li.name}: ${li.usd_per_accelerator_year:,.0f} a year for each of {counted(chips, 'accelerator')}, "
        f"${li.usd_per_accelerator_year * chips / HOURS_PER_YEAR:,.2f} an hour of the price ({li.source})"
        for li in catalog.licences
        if li.covers(c.accelerator.vendor, s.lane.framework.slug)
    ]
    if s.offer.acquisition == "own" and s.offer.usd_per_kwh is not None:
        lines.append(
            f"site {s.offer.region}: {s.offer.usd_per_kwh:.3g} USD/kWh, PUE {s.offer.pue:.3g}, "
            f"{s.offer.kgco2e_per_kwh or math.nan:.3g} kgCO2e/kWh"
        )
    return lines


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def length_warnings(workload: Workload, model: Model) -> list[str]:
    """Requests beyond the model's context length; if the mean is beyond it, the workload is rejected at intake."""
    context = model.max_context_tokens
    longest = workload.input_tokens.p95_tokens + workload.output_tokens.mean_tokens
    if not workload.kind.generates_tokens or longest <= context:
        return []
    return [f"more than one request in twenty is longer than the model's context of {context:,} tokens"]


def warnings(workload: Workload, s: Scored, option: Option) -> list[str]:
    """What to check before signing."""
    c = s.lane.choice
    lines = variant_warnings(s)
    if s.idle_chips:
        verb = "is" if s.idle_chips == 1 else "are"
        chips = f"{s.idle_chips} of the {s.chips + s.idle_chips} chips"
        lines.append(f"{chips} in the instances {verb} paid for but idle")
    if c.quantization.quality == "lossy":
        lines.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    if c.kv_dtype not in HALF:
        lines.append(f"the KV cache is stored in {c.kv_dtype}: compare answers to long prompts before shipping")
    if c.efficiency.basis != "measured":
        lines.append(UNMEASURED.get(c.efficiency.basis, UNMEASURED["datasheet"]))
    if s.verified.rejected_requests:
        lines.append(
            f"{s.verified.rejected_requests} of {s.verified.requests} simulated requests exceed a replica's KV cache"
        )
    for name, limit_s in ((workload.kind.first_result, workload.slo.ttft_p95_s), ("TPOT", tpot_limit_s(workload))):
        high = (option.interval.of(f"{name.lower()}_ms_p95") or (None, None))[1]
        if limit_s is not None and high is not None and high > limit_s * 1e3:
            lines.append(
                f"the 90% interval of p95 {name} reaches {high:.0f} ms, above the limit of {limit_s * 1e3:.0f} ms: "
                "load-test before signing"
            )
    if workload.kind.has_arrivals and s.capacity_requests_per_s > 2 * workload.requests_per_s_peak:
        lines.append("utilization stays below half even at the peak: smaller or shared hardware may be cheaper")
    return lines
