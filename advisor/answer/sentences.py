"""An option in words: the verdict, what it rests on, what is particular to its price, what to mind."""

import math
from typing import Any

from advisor.answer import batch, optimisation
from advisor.answer.card_sharing import said_of_cut
from advisor.engine.cost import HOURS_PER_YEAR
from advisor.engine.network import Model
from advisor.engine.search import Catalog, Scored, tpot_limit_s
from advisor.engine.spec import Outcome, Workload
from advisor.engine.step import HALF, NO_CACHE_TOKENS

GIB = 2.0**30
Json = dict[str, Any]
WAITS = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "launch": "kernel launches",
    "communication": "the links between chips",
    "host": "the host",
}
UNMEASURED = {
    "relative": "this chip's kernel efficiency is borrowed from a related chip, not measured: the interval is wide",
    "datasheet": "this chip's kernel efficiency is taken from its data sheet, not measured: the interval is wide",
}


def verdict(workload: Workload, ranked: tuple[Scored, ...], options: list[Json], near: list[Json]) -> str:
    """The answer in one sentence."""
    if not options:
        tail = f" The nearest miss is {near[0]['label']}: {near[0]['detail']}." if near else ""
        return f"Nothing in the catalog meets this workload: see why each accelerator was left out.{tail}"
    r, s = options[0], ranked[0]
    token = workload.kind.priced_token
    between = r["interval"].get(f"usd_per_mtok_{token}")
    spread = f" ({dollars(between[0])[1:]} to {dollars(between[1])[1:]})" if between else ""
    end = workload.kind.verdict_end(outcome(s, r))
    return (
        f"{r['label']}, {whence(r)}: ${r['usd_per_month']:,.0f} a month, "
        f"{dollars(r[f'usd_per_mtok_{token}'])}{spread} per million {token} tokens, {end}."
    )


def outcome(s: Scored, r: Json) -> Outcome:
    """What the sentences of the workload's kind may name."""
    return Outcome(
        ttft_p95_s=s.verified.ttft_p95_s,
        tpot_p95_s=s.verified.tpot_p95_s,
        mean_requests_per_s=s.requests_per_s_mean,
        peak_requests_per_s=s.requests_per_s_peak,
        carrying_replicas=s.replicas - s.spare_replicas,
        spare_replicas=s.spare_replicas,
        utilisation_fraction=s.utilisation_fraction,
        run=batch.run_of(r),
    )


def whence(r: Json) -> str:
    """Whose machines they are: already there, bought, or rented from somebody."""
    if r["provider"] == "owned":
        return "already there"
    return "bought" if r["acquisition"] == "own" else f"rented from {r['provider']}"


def dollars(usd: float) -> str:
    """$1.23, and $0.0012: two digits that say something."""
    return f"${usd:.2f}" if usd >= 0.1 or not usd else f"${usd:.2g}"


def reasons(workload: Workload, s: Scored, r: Json) -> list[str]:
    slo, v = workload.slo, s.verified
    c = s.lane.choice
    each = "instance" if c.accelerator.cut else "chip"
    cache = f"{s.memory.kv_capacity_tokens * c.lanes:,.0f} tokens of cache fit into a replica"
    said = [
        f"weights take {s.memory.weights_bytes / GIB:.1f} GiB of {c.accelerator.memory_bytes / GIB:.1f} GiB "
        f"per {each}; " + (cache if keeps_cache(s) else "no cache is kept"),
        f"a {workload.kind.main_step} step waits longest for {WAITS[r['bound']]}",
        *workload.kind.load_reasons(outcome(s, r)),
    ]
    said += said_of_cut(c.accelerator)
    if c.quantization.quality == "near_lossless":
        said.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    limits = (
        (workload.kind.first_result, v.ttft_p95_s, slo.ttft_p95_s, 0),
        ("TPOT", v.tpot_p95_s, tpot_limit_s(workload), 1),
        ("end-to-end time", v.e2e_p95_s, slo.e2e_p95_s, 0),
    )
    said += [
        f"p95 {name} {got * 1e3:.{digits}f} ms in simulation against a limit of {most * 1e3:.{digits}f} ms"
        for name, got, most, digits in limits
        if most is not None
    ]
    return [*said, f"priced as {s.instances} x {quoted(s.offer.instance or 'host')} on {s.offer.as_of}"]


def quoted(instance: str) -> str:
    """A host whose name begins with its own count, in brackets: 3 x (2 x L4 in an own host)."""
    return f"({instance})" if instance[:1].isdigit() else instance


def keeps_cache(s: Scored) -> bool:
    return s.memory.kv_capacity_tokens < NO_CACHE_TOKENS


def terms(catalog: Catalog, s: Scored) -> list[str]:
    """What is particular to the price: an organisation's own terms, licences, where a bought host stands."""
    c, chips = s.lane.choice, s.instances * s.offer.accelerators
    said = [f"price: {s.offer.notes}"] if s.offer.notes else []
    said += [
        f"{li.name}: ${li.usd_per_accelerator_year:,.0f} a year for each of {counted(chips, 'accelerator')}, "
        f"${li.usd_per_accelerator_year * chips / HOURS_PER_YEAR:,.2f} an hour in the price ({li.source})"
        for li in catalog.licences
        if li.covers(c.accelerator.vendor, s.lane.framework.slug)
    ]
    if s.offer.acquisition == "own" and s.offer.usd_per_kwh is not None:
        said.append(
            f"stands at {s.offer.region}: {s.offer.usd_per_kwh:.3g} USD/kWh, PUE {s.offer.pue:.3g}, "
            f"{s.offer.kgco2e_per_kwh or math.nan:.3g} kgCO2e/kWh"
        )
    return said


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def length_warnings(workload: Workload, model: Model) -> list[str]:
    """What is asked beyond the model's context; beyond it on average is refused (encoder.unsuited)."""
    context = model.max_context_tokens
    longest = workload.input_tokens.p95_tokens + workload.output_tokens.mean_tokens
    if not workload.kind.generates_tokens or longest <= context:
        return []
    return [f"more than one request in twenty is longer than the model's context of {context:,} tokens"]


def warnings(workload: Workload, s: Scored, r: Json) -> list[str]:
    said = []
    c = s.lane.choice
    said += optimisation.variant_warnings(s)
    if s.idle_chips:
        said.append(f"{s.idle_chips} of the {s.chips + s.idle_chips} chips in the instances stay idle and are paid for")
    if c.quantization.quality == "lossy":
        said.append(f"{c.quantization.name}: {c.quantization.quality_note}")
    if c.kv_dtype not in HALF:
        said.append(f"the cache is kept in {c.kv_dtype}: compare long-context answers before shipping")
    if c.efficiency.basis != "measured":
        said.append(UNMEASURED.get(c.efficiency.basis, UNMEASURED["datasheet"]))
    if s.verified.rejected_requests:
        said.append(
            f"{s.verified.rejected_requests} of {s.verified.requests} simulated requests exceed a replica's cache"
        )
    for name, limit in ((workload.kind.first_result, workload.slo.ttft_p95_s), ("TPOT", tpot_limit_s(workload))):
        high = (r["interval"].get(f"{name.lower()}_ms_p95") or (None, None))[1]
        if limit is not None and high is not None and high > limit * 1e3:
            said.append(
                f"the 90 % interval of p95 {name} reaches {high:.0f} ms, beyond the limit of {limit * 1e3:.0f} ms: "
                "load-test before signing"
            )
    if workload.kind.has_arrivals and s.capacity_requests_per_s > 2 * workload.requests_per_s_peak:
        said.append("less than half used even at the peak: smaller or shared hardware may be cheaper")
    return said
