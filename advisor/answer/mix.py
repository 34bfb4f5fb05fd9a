"""A mix of machines: its parts, what it saves against one kind, or why there is no mix."""

from advisor.answer.options.option import setup
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import Mix as EngineMix
from advisor.engine.fleet import MixPart as EnginePart
from advisor.engine.search import describe
from advisor.engine.terms import Workload, usd_text
from advisor.inputs import number
from advisor.result import LengthClass, Mix, MixPart


def mix(workload: Workload, plan: EngineMix) -> Mix:
    """Cost against the single choice, latencies over all requests, and the parts."""
    saving = plan.single_usd_per_hour - plan.usd_per_hour
    section = Mix(
        cheaper=bool(plan.parts),
        reason=plan.reason,
        usd_per_hour=number(plan.usd_per_hour),
        usd_per_month=number(plan.usd_per_hour * HOURS_PER_MONTH),
        single_usd_per_month=number(plan.single_usd_per_hour * HOURS_PER_MONTH),
        saving_usd_per_month=number(saving * HOURS_PER_MONTH),
        saving_fraction=number(saving / plan.single_usd_per_hour, 4),
        proven=bool(plan.proven),
        ttft_ms_p95=number(plan.ttft_p95_s * 1e3),
        tpot_ms_p95=number(plan.tpot_p95_s * 1e3),
        e2e_ms_p95=number(plan.e2e_p95_s * 1e3),
        parts=[mix_part(p) for p in plan.parts],
        said="",
    )
    return section.changed(said=sentence(workload, section))


def mix_part(p: EnginePart) -> MixPart:
    c, a = p.lane.choice, p.lane.choice.accelerator
    return MixPart(
        label=f"{p.chips:,} x {a.name}, {describe(p.lane)}, {p.replicas} replica{'s' if p.replicas != 1 else ''}",
        accelerator=a.slug,
        accelerator_count=p.chips,
        provider=p.offer.provider,
        instance=p.offer.instance,
        instances=p.instances,
        region=p.offer.region,
        acquisition=p.offer.acquisition,
        term=p.offer.term,
        price_as_of=p.offer.as_of,
        **setup(p.lane),
        replicas=p.replicas,
        spare_replicas=p.spare_replicas,
        concurrency=p.concurrency,
        basis=c.efficiency.basis,
        input_tokens=[
            LengthClass(
                from_tokens=number(k.low_tokens, 4),
                below=number(k.high_tokens, 4),
                share_of_requests=number(k.share_fraction, 4),
                share_here=number(share, 4),
            )
            for k, share in p.classes
        ],
        requests_per_s_peak=number(p.requests_per_s),
        usd_per_month=number(p.usd_per_hour * HOURS_PER_MONTH),
        ttft_ms_p95=number(p.ttft_p95_s * 1e3),
        tpot_ms_p95=number(p.tpot_p95_s * 1e3),
    )


def prompt_lengths(part: MixPart) -> str:
    """Which prompts a part serves: all below 1,300 tokens, 40 % of those from 1,300."""
    spans = []
    for k in part.length_ranges():
        if k.below is None:
            span = f"from {k.from_tokens or 0:,.0f}"
        elif k.from_tokens:
            span = f"from {k.from_tokens:,.0f} to {k.below:,.0f}"
        else:
            span = f"below {k.below:,.0f}"
        share = k.share_here or 0.0
        spans.append(f"{'all' if share > 0.995 else format(share, '.0%') + ' of those'} {span}")
    return ", ".join(spans) + " input tokens"


def provenance(part: MixPart) -> str:
    return "bought" if part.acquisition == "own" else f"rented from {part.provider}"


def sentence(workload: Workload, plan: Mix) -> str:
    """The mix in a sentence or two."""
    if not plan.cheaper:
        reason = plan.reason
        if reason.startswith("a mix is "):
            return f"Mixes are {reason.removeprefix('a mix is ')}."
        if reason.startswith("no mix of "):
            return f"N{reason[1:]}."
        return f"No mix of machines is cheaper: {reason}."
    saving = "no single kind of machine meets the limits"
    if plan.single_usd_per_month is not None:
        saving = (
            f"{usd_text(plan.saving_usd_per_month or 0)} ({plan.saving_fraction or 0:.0%}) less than the single choice"
        )
    limit_s = workload.slo.ttft_p95_s
    slow = [p for p in plan.parts if limit_s and (p.ttft_ms_p95 or 0.0) > limit_s * 1e3]
    worse = "".join(f"; on {p.accelerator} alone p95 TTFT is {p.ttft_ms_p95:,.0f} ms" for p in slow)
    parts = "; ".join(f"{p.label}, {provenance(p)}, for {prompt_lengths(p)}" for p in plan.parts)
    return (
        f"A mix costs {usd_text(plan.usd_per_month or 0)} a month, {saving}: {parts}. Over all requests, simulated p95 "
        f"TTFT is {plan.ttft_ms_p95 or 0:,.0f} ms and p95 TPOT {plan.tpot_ms_p95 or 0:.1f} ms{worse}."
    )
