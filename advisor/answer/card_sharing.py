"""Parts of a chip in an answer: hardware instances of a catalog row as engine values, and what they cost and save."""

from collections.abc import Sequence
from typing import Any

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import TIME_SLICES, MergedCopies, SharingOption, merged_copies, sharing_options
from advisor.engine.search import Answer, Catalog, describe
from advisor.engine.spec import Accelerator, Workload
from advisor.engine.step import adapter_bytes, layouts, served_rank
from advisor.inputs import number

Json = dict[str, Any]
GIB, MIB = 2.0**30, 2.0**20
# what one engine's neighbours on the card can do to it
ISOLATION = {
    "whole": "one engine for all requests: a crash or a flood of long prompts is everybody's",
    "hardware": "memory, bandwidth, cores and faults are apart; the card, its host and its power are one",
    TIME_SLICES: "none: neighbours take turns on the cores and bandwidth, and a fault may end them all "
    "(NVIDIA k8s-device-plugin, shared access to GPUs)",
}


def partition_json(a: Accelerator) -> Json | None:
    """How the chip is cut; None: it is whole. Memory and rates of an option are then those of one instance."""
    if a.cut is None:
        return None
    return {
        "way": a.cut.way,
        "profile": a.cut.profile,
        "instances": a.cut.instances,
        "gib": a.cut.memory_bytes / GIB,
        "compute_fraction": round(a.cut.compute_fraction, 4),
        "bandwidth_fraction": round(a.cut.bandwidth_fraction, 4),
    }


def said_of_cut(a: Accelerator) -> list[str]:
    """What a reader of a cut chip's figures must know."""
    if a.cut is None:
        return []
    return [
        f"each card is cut into {a.cut.instances} x {a.cut.profile} ({a.cut.way}): {a.cut.instances} engines that "
        f"share no memory, bandwidth or cores, each {a.cut.compute_fraction:.1%} of the card's compute and "
        f"{a.cut.bandwidth_fraction:.1%} of its bandwidth; a replica is such a card",
        "instances of one card are lost together: spares are whole cards",
    ]


def warnings(catalog: Catalog) -> list[str]:
    """What the estimate of adapters rests on."""
    if catalog.model.adapters is None:
        return []
    return [
        "what adapters cost in a step rests on Punica's published 2 ms and on bytes, not on a measurement here; "
        "published slowdowns run from 4 % (vLLM V1 on an A100, vllm-project/vllm#11613) over 24 % (TPU v6e, #15655) to "
        "34 % (vLLM 0.6 on an A100, #11267): load-test with your adapters"
    ]


# --- beside an answer -------------------------------------------------------------------------------------------


def beside(workload: Workload, catalog: Catalog, found: Answer, options: Sequence[Json]) -> Json:
    """`sharing` and `adapters` of an answer, each where it is a question."""
    told: Json = {}
    if options and (tried := sharing_options(workload, catalog, found)):
        told["sharing"] = sharing_json(tried)
    if catalog.model.adapters:
        told["adapters"] = adapters_json(catalog, found, options, merged_copies(workload, catalog, found))
    return told


def sharing_json(tried: Sequence[SharingOption]) -> Json:
    """The card whole against its parts: what each serves, costs and keeps apart."""
    rows = [way_json(w) for w in tried]
    card = tried[0].accelerator
    return {"accelerator": card.slug, "accelerator_name": card.name, "said": said_of_ways(tried), "ways": rows}


def way_json(w: SharingOption) -> Json:
    cut, s = w.accelerator.cut, w.scored
    kind = "whole" if cut is None else TIME_SLICES if cut.way == TIME_SLICES else "hardware"
    found = {
        "way": label(w),
        "kind": kind,
        "partition": partition_json(w.accelerator),
        "isolation": ISOLATION[kind],
        "meets_slo": s is not None,
        "reason": w.reason,
    }
    figures = dict.fromkeys(FIGURES)
    if s is not None:
        figures = {
            "accelerator_count": s.chips,
            "usd_per_month": number(s.usd_per_hour * HOURS_PER_MONTH),
            "requests_per_s_per_accelerator": number(w.requests_per_s_per_chip),
            "ttft_ms_p95": number(s.verified.ttft_p95_s * 1e3),
            "tpot_ms_p95": number(s.verified.tpot_p95_s * 1e3),
            "kv_capacity_tokens": number(s.memory.kv_capacity_tokens),
        }
    return {**found, **figures}


FIGURES = (
    *("accelerator_count", "usd_per_month", "requests_per_s_per_accelerator", "ttft_ms_p95", "tpot_ms_p95"),
    "kv_capacity_tokens",
)


def label(w: SharingOption) -> str:
    cut = w.accelerator.cut
    if cut is None:
        return "one engine on the whole card"
    if cut.way == TIME_SLICES:
        return f"{cut.instances} engines that share the card's time, all busy"
    return f"{cut.instances} x {cut.profile} ({cut.way})"


def said_of_ways(tried: Sequence[SharingOption]) -> str:
    """What isolation costs on this card, in figures; the best of the hardware's ways."""
    whole, name = tried[0], tried[0].accelerator.name
    cut = [w for w in tried if w.scored and w.accelerator.cut and w.accelerator.cut.way != TIME_SLICES]
    if whole.scored is None and not cut:
        return f"No way of using one {name} holds the limits."
    if not cut:
        return f"{name}: the model or its limits need the whole card; no hardware instance holds them."
    best = max(cut, key=lambda w: (-w.scored.usd_per_hour if w.scored else 0.0, w.requests_per_s_per_chip))
    assert best.scored is not None
    if whole.scored is None:
        return f"{name} holds the limits only as {label(best)}."
    less = 1.0 - best.requests_per_s_per_chip / whole.requests_per_s_per_chip
    more = (best.scored.usd_per_hour - whole.scored.usd_per_hour) * HOURS_PER_MONTH
    slower = best.scored.verified.tpot_p95_s / max(whole.scored.verified.tpot_p95_s, 1e-9)
    money = f"${more:,.0f} more a month" if more > 0.5 else "the same money a month"
    verdict = (
        f"isolation costs {less:.0%} of the card's capacity"
        if less > 0.005
        else f"the instances serve {-less:.0%} more than one engine, whose host work they divide"
    )
    return (
        f"One engine on a whole {name} serves {whole.requests_per_s_per_chip:.3g} requests/s within the limits; "
        f"{label(best)} serve {best.requests_per_s_per_chip:.3g} for {money}, a token at the asked load taking "
        f"{slower:.2g} times as long: "
        f"{verdict}. One engine is better for one model; instances are for tenants or models that must not touch one "
        f"another; a spare instance on the same card is no spare."
    )


def adapters_json(catalog: Catalog, found: Answer, options: Sequence[Json], copies: MergedCopies | None) -> Json:
    """The adapters of the question, what they take, and the price of a merged copy of each instead."""
    a = catalog.model.adapters
    assert a is not None
    told: Json = {
        "count": a.count,
        "rank": a.rank,
        "served_rank": served_rank(a.rank),
        "active": a.active,
        "targets": "attention" if a.attention_only else "all",
        "merged": merged_json(copies) if copies else None,
    }
    if options:
        each = float(adapter_bytes(catalog.model, layouts(catalog.model, [found.ranked[0].lane.choice]))[0])
        decode = [line for line in options[0]["step"] if line["phase"] == "decode"]
        spent = sum(line["time_s"] for line in decode if line["operator"] == "adapters")
        told |= {
            "mib_each_per_accelerator": number(each / MIB),
            "resident_gib_per_accelerator": number(each * a.active / GIB),
            "host_gib_per_accelerator": number(each * a.count / GIB),
            "decode_step_fraction": number(spent / sum(line["time_s"] for line in decode)),
        }
    return {**told, "said": said_of_adapters(told, options)}


def merged_json(copies: MergedCopies) -> Json:
    s = copies.each
    return {
        "each": f"{s.chips} x {s.lane.choice.accelerator.name}, {describe(s.lane)}" if s else None,
        "deployments": copies.count,
        "usd_per_month": number(copies.usd_per_hour * HOURS_PER_MONTH),
        "side_by_side": copies.side_by_side_replicas,
        "packed_usd_per_month_at_least": number(copies.packed_usd_per_hour * HOURS_PER_MONTH),
    }


def said_of_adapters(told: Json, options: Sequence[Json]) -> str:
    if not options:
        return f"{told['count']} adapters: nothing serves them within the limits."
    m, mine = told["merged"], options[0]["usd_per_month"]
    took = (
        f"{told['active']} of {told['count']} adapters of rank {told['rank']} stay on each chip, "
        f"{told['mib_each_per_accelerator']:.0f} MiB each ({told['resident_gib_per_accelerator']:.2g} GiB; all of them "
        f"{told['host_gib_per_accelerator']:.2g} GiB of the host's memory), and take "
        f"{told['decode_step_fraction']:.0%} of a decode step"
    )
    if not m or m["usd_per_month"] is None:
        return f"{took}; a merged copy of each has no answer."
    packed = (
        f" (${m['packed_usd_per_month_at_least']:,.0f} if {m['side_by_side']} share a card, by memory alone)"
        if m["side_by_side"] > 1
        else ""
    )
    return (
        f"{took}. Served beside one base they cost ${mine:,.0f} a month; {m['deployments']} merged copies, each on "
        f"{m['each']}, cost ${m['usd_per_month']:,.0f}{packed}: {m['usd_per_month'] / mine:.2g} times as much."
    )
