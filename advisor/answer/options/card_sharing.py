"""Sharing a card: hardware instances against the whole card, and LoRA adapters against merged copies."""

from collections.abc import Sequence

from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.fleet import TIME_SLICES, MergedCopies, SharingOption, sharing_options
from advisor.engine.search import Catalog, SearchResult, describe
from advisor.engine.step import adapter_bytes, layouts, served_rank
from advisor.engine.terms import Accelerator, usd_text
from advisor.inputs import number
from advisor.result import Adapters, Option, Partition, Sharing, SharingWay
from advisor.result import MergedCopies as ResultMergedCopies

GIB, MIB = 2.0**30, 2.0**20
# what neighbors on the card can do to an engine
ISOLATION = {
    "whole": "one engine for all requests: a crash or a burst of long prompts affects everybody",
    "hardware": "memory, bandwidth, cores and faults are separate; the card, its host and its power are shared",
    TIME_SLICES: "none: engines take turns on cores and bandwidth, and a fault may end all of them "
    "(NVIDIA k8s-device-plugin, shared access to GPUs)",
}


def partition(a: Accelerator) -> Partition | None:
    """How the chip is partitioned; None: it is whole. Memory and rates of an option are then those of an instance."""
    if a.cut is None:
        return None
    return Partition(
        way=a.cut.way,
        profile=a.cut.profile,
        instances=a.cut.instances,
        gib=a.cut.memory_bytes / GIB,
        compute_fraction=round(a.cut.compute_fraction, 4),
        bandwidth_fraction=round(a.cut.bandwidth_fraction, 4),
    )


def partition_notes(a: Accelerator) -> list[str]:
    """What a reader of a partitioned chip's figures must know."""
    if a.cut is None:
        return []
    return [
        f"each card is partitioned into {a.cut.instances} x {a.cut.profile} ({a.cut.way}): {a.cut.instances} engines "
        f"that share no memory, bandwidth or cores, each with {a.cut.compute_fraction:.1%} of the card's compute and "
        f"{a.cut.bandwidth_fraction:.1%} of its bandwidth; a replica is one whole card",
        "instances of one card fail together: spares are whole cards",
    ]


def warnings(catalog: Catalog) -> list[str]:
    """What the estimate of LoRA adapters rests on."""
    if catalog.model.adapters is None:
        return []
    return [
        "the cost of adapters per step is estimated from bytes and Punica's published 2 ms, not measured here; "
        "published slowdowns range from 4% (vLLM V1 on an A100, vllm-project/vllm#11613) over 24% (TPU v6e, #15655) "
        "to 34% (vLLM 0.6 on an A100, #11267): load-test with your adapters"
    ]


# --- sections of an answer --------------------------------------------------------------------------------------


def sharing(question: Question, outcome: SearchResult) -> Sharing | None:
    """The first choice's card as a whole against its parts; None: not asked for, or nothing is feasible."""
    options = sharing_options(question, outcome)
    if not options:
        return None
    card = options[0].accelerator
    return Sharing(
        accelerator=card.slug,
        accelerator_name=card.name,
        said=comparison(options),
        ways=[sharing_way(w) for w in options],
    )


def sharing_way(w: SharingOption) -> SharingWay:
    cut, s = w.accelerator.cut, w.scored
    kind = "whole" if cut is None else TIME_SLICES if cut.way == TIME_SLICES else "hardware"
    return SharingWay(
        way=label(w),
        kind=kind,
        partition=partition(w.accelerator),
        isolation=ISOLATION[kind],
        meets_slo=s is not None,
        reason=w.reason,
        accelerator_count=s.chips if s else None,
        usd_per_month=number(s.usd_per_hour * HOURS_PER_MONTH) if s else None,
        requests_per_s_per_accelerator=number(w.requests_per_s_per_chip) if s else None,
        ttft_ms_p95=number(s.verified.ttft_p95_s * 1e3) if s else None,
        tpot_ms_p95=number(s.verified.tpot_p95_s * 1e3) if s else None,
        kv_capacity_tokens=number(s.memory.kv_capacity_tokens) if s else None,
    )


def label(w: SharingOption) -> str:
    cut = w.accelerator.cut
    if cut is None:
        return "one engine on the whole card"
    if cut.way == TIME_SLICES:
        return f"{cut.instances} engines that time-share the card, all busy"
    return f"{cut.instances} x {cut.profile} ({cut.way})"


def comparison(options: Sequence[SharingOption]) -> str:
    """What isolation costs on this card, for the best of the hardware's partitions."""
    whole, name = options[0], options[0].accelerator.name
    partitions = [w for w in options if w.scored and w.accelerator.cut and w.accelerator.cut.way != TIME_SLICES]
    if whole.scored is None and not partitions:
        return f"No way of using one {name} meets the limits."
    if not partitions:
        return f"{name}: the model or its limits need the whole card; no hardware instance meets them."
    best = max(partitions, key=lambda w: (-w.scored.usd_per_hour if w.scored else 0.0, w.requests_per_s_per_chip))
    assert best.scored is not None
    if whole.scored is None:
        return f"{name} meets the limits only as {label(best)}."
    less = 1.0 - best.requests_per_s_per_chip / whole.requests_per_s_per_chip
    more = (best.scored.usd_per_hour - whole.scored.usd_per_hour) * HOURS_PER_MONTH
    slower = best.scored.verified.tpot_p95_s / max(whole.scored.verified.tpot_p95_s, 1e-9)
    money = f"for {usd_text(more)} more a month" if more > 0.5 else "at the same price"
    verdict = (
        f"isolation costs {less:.0%} of the card's capacity"
        if less > 0.005
        else f"the instances serve {-less:.0%} more than one engine, because they divide its host work"
    )
    return (
        f"One engine on a whole {name} serves {whole.requests_per_s_per_chip:.3g} requests/s within the limits; "
        f"{label(best)} serve {best.requests_per_s_per_chip:.3g} {money}, and each token takes {slower:.2g} times as "
        f"long at your load: {verdict}. For one model, use one engine. Use instances for tenants or models that must "
        "not affect each other; a spare instance on the same card is not a spare."
    )


def adapters(
    catalog: Catalog, outcome: SearchResult, options: Sequence[Option], copies: MergedCopies | None
) -> Adapters:
    """LoRA adapters: what they take, and the price of a merged copy of each instead."""
    a = catalog.model.adapters
    assert a is not None
    section = Adapters(
        count=a.count,
        rank=a.rank,
        served_rank=served_rank(a.rank),
        active=a.active,
        targets="attention" if a.attention_only else "all",
        merged=merged(copies) if copies else None,
        said="",
    )
    if options:
        each = float(adapter_bytes(catalog.model, layouts(catalog.model, [outcome.ranked[0].lane.choice]))[0])
        decode = [line for line in options[0].step if line.phase == "decode"]
        adapters_s = sum(line.time_s or 0.0 for line in decode if line.operator == "adapters")
        section = section.changed(
            mib_each_per_accelerator=number(each / MIB),
            resident_gib_per_accelerator=number(each * a.active / GIB),
            host_gib_per_accelerator=number(each * a.count / GIB),
            decode_step_fraction=number(adapters_s / sum(line.time_s or 0.0 for line in decode)),
        )
    return section.changed(said=adapters_sentence(section, options))


def merged(copies: MergedCopies) -> ResultMergedCopies:
    s = copies.each
    return ResultMergedCopies(
        each=f"{s.chips} x {s.lane.choice.accelerator.name}, {describe(s.lane)}" if s else None,
        deployments=copies.count,
        usd_per_month=number(copies.usd_per_hour * HOURS_PER_MONTH),
        side_by_side=copies.side_by_side_replicas,
        packed_usd_per_month_at_least=number(copies.packed_usd_per_hour * HOURS_PER_MONTH),
    )


def adapters_sentence(a: Adapters, options: Sequence[Option]) -> str:
    if not options:
        return f"{a.count} adapters: nothing serves them within the limits."
    copies, base_usd = a.merged, options[0].usd_per_month
    cost = (
        f"{a.active} of {a.count} adapters of rank {a.rank} stay on each chip, "
        f"{a.mib_each_per_accelerator or 0:.0f} MiB each ({a.resident_gib_per_accelerator or 0:.2g} GiB; all of them "
        f"take {a.host_gib_per_accelerator or 0:.2g} GiB of host memory). They take "
        f"{a.decode_step_fraction or 0:.0%} of a decode step"
    )
    if copies is None or copies.usd_per_month is None:
        return f"{cost}. No deployment of merged copies meets the limits."
    packed = (
        f" (at least {usd_text(copies.packed_usd_per_month_at_least or 0)} if {copies.side_by_side} share a card, by "
        "memory alone)"
        if copies.side_by_side > 1
        else ""
    )
    return (
        f"{cost}. Serving all adapters with one base model costs {usd_text(base_usd)} a month; {copies.deployments} "
        f"merged copies, each on {copies.each}, cost {usd_text(copies.usd_per_month)}{packed}, "
        f"{copies.usd_per_month / base_usd:.2g} times as much."
    )
