"""A mix of machines in the JSON of `advise`: the parts, what they save against one kind, or why there is no mix."""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import Mix, MixPart
from advisor.engine.search import describe
from advisor.engine.spec import Workload
from advisor.inputs import number

Json = dict[str, Any]


def mix_json(workload: Workload, mix: Mix) -> Json:
    """`mix` of the answer: cheaper, reason, money against the single choice, latencies over all requests, parts."""
    saving = mix.single_usd_per_hour - mix.usd_per_hour
    found = {
        "cheaper": bool(mix.parts),
        "reason": mix.reason,
        "usd_per_hour": number(mix.usd_per_hour),
        "usd_per_month": number(mix.usd_per_hour * HOURS_PER_MONTH),
        "single_usd_per_month": number(mix.single_usd_per_hour * HOURS_PER_MONTH),
        "saving_usd_per_month": number(saving * HOURS_PER_MONTH),
        "saving_fraction": number(saving / mix.single_usd_per_hour, 4),
        "proven": mix.proven,
        "ttft_ms_p95": number(mix.ttft_p95_s * 1e3),
        "tpot_ms_p95": number(mix.tpot_p95_s * 1e3),
        "e2e_ms_p95": number(mix.e2e_p95_s * 1e3),
        "parts": [part_json(p) for p in mix.parts],
    }
    return {**found, "said": said(workload, found)}


def part_json(p: MixPart) -> Json:
    c, a = p.lane.choice, p.lane.choice.accelerator
    return {
        "label": f"{p.chips} x {a.name}, {describe(p.lane)}, {p.replicas} replica{'s' if p.replicas != 1 else ''}",
        "accelerator": a.slug,
        "accelerator_count": p.chips,
        "provider": p.offer.provider,
        "instance": p.offer.instance,
        "instances": p.instances,
        "region": p.offer.region,
        "acquisition": p.offer.acquisition,
        "term": p.offer.term,
        "price_as_of": p.offer.as_of,
        "framework": p.lane.framework.slug,
        "framework_version": p.lane.framework.version,
        "weights_dtype": c.quantization.weights_dtype,
        "quantization": c.quantization.slug,
        "kv_dtype": c.kv_dtype,
        "tp": c.tp,
        "pp": c.pp,
        "ep": c.ep,
        "dp": c.dp,
        "replicas": p.replicas,
        "spare_replicas": p.spare_replicas,
        "concurrency": p.concurrency,
        "basis": c.efficiency.basis,
        "input_tokens": [
            {
                "from": number(k.low_tokens, 4),
                "below": number(k.high_tokens, 4),
                "share_of_requests": number(k.share_fraction, 4),
                "share_here": number(share, 4),
            }
            for k, share in p.classes
        ],
        "requests_per_s_peak": number(p.requests_per_s),
        "usd_per_month": number(p.usd_per_hour * HOURS_PER_MONTH),
        "ttft_ms_p95": number(p.ttft_p95_s * 1e3),
        "tpot_ms_p95": number(p.tpot_p95_s * 1e3),
    }


def lengths(part: Mapping[str, Any]) -> str:
    """Which prompts a part is sent: all below 1,300 tokens, 40 % of those from 1,300."""
    words = []
    for k in joined(part["input_tokens"]):
        span = f"below {k['below']:,.0f}" if not k["from"] else f"from {k['from']:,.0f} to {k['below'] or 0:,.0f}"
        span = f"from {k['from']:,.0f}" if k["below"] is None else span
        whole = k["share_here"] > 0.995
        words.append(f"{'all' if whole else format(k['share_here'], '.0%') + ' of those'} {span}")
    return ", ".join(words) + " input tokens"


def whence(p: Mapping[str, Any]) -> str:
    return "bought" if p["acquisition"] == "own" else f"rented from {p['provider']}"


def joined(classes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring lengths of which a part gets the same share, as one span."""
    spans: list[dict[str, Any]] = []
    for k in classes:
        last = spans[-1] if spans else None
        if last and last["below"] == k["from"] and last["share_here"] == k["share_here"]:
            requests = last["share_of_requests"] + k["share_of_requests"]
            last |= {"below": k["below"], "share_of_requests": number(requests, 4)}
        else:
            spans.append(dict(k))
    return spans


def said(workload: Workload, found: Mapping[str, Any]) -> str:
    """The mix in a sentence or two."""
    single = found["single_usd_per_month"]
    if not found["cheaper"]:
        reason = found["reason"]
        return f"A{reason[1:]}." if reason.startswith("a mix is ") else f"No mix of machines is cheaper: {reason}."
    against = "no single kind of machine meets the limits"
    if single is not None:
        against = f"${found['saving_usd_per_month']:,.0f} ({found['saving_fraction']:.0%}) less than the single choice"
    limit = workload.slo.ttft_p95_s
    slow = [p for p in found["parts"] if limit and p["ttft_ms_p95"] > limit * 1e3]
    worse = "".join(f"; on {p['accelerator']} alone p95 TTFT is {p['ttft_ms_p95']:,.0f} ms" for p in slow)
    parts = "; ".join(f"{p['label']}, {whence(p)}, for {lengths(p)}" for p in found["parts"])
    return (
        f"A mix costs ${found['usd_per_month']:,.0f} a month, {against}: {parts}. Over all requests p95 TTFT is "
        f"{found['ttft_ms_p95']:,.0f} ms and p95 TPOT {found['tpot_ms_p95']:.1f} ms in simulation{worse}."
    )
