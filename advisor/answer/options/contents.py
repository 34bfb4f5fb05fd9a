"""What requests consist of beside text: conversations, structured output, and the cost of the counted unit."""

from typing import Any

from advisor.answer.money import traffic_ratio
from advisor.answer.question import Question
from advisor.engine.network import Model
from advisor.engine.search import Scored
from advisor.engine.step import Layouts, images_s, layouts, vision_bytes
from advisor.engine.terms import Images, Workload, usd_text
from advisor.inputs import arrival_cv_key, number
from advisor.result import Conversation, ImageInput, Option, UnitCost
from advisor.workload import arrival_cv_of

Json = dict[str, Any]
GIB = 2.0**30


def contents_fields(question: Question, s: Scored, asked_hit_fraction: float, used: float) -> Json:
    """The fields of an Option about what requests consist of; absent where the question has none.

    asked_hit_fraction: prefix cache hits if no conversation is evicted.
    """
    workload, catalog = question.workload, question.catalog
    fields: Json = {}
    if workload.unit is not None:
        fields["unit_cost"] = unit_cost(workload, s, used)
    if workload.turns is not None:
        fields["conversation"] = conversation(workload, s, asked_hit_fraction)
    if workload.images is not None and catalog.model.pictures is not None:
        fields["images"] = image_input(workload.images, catalog.model, layouts(catalog.model, [s.lane.choice]))
    return fields


def unit_cost(workload: Workload, s: Scored, used: float) -> UnitCost:
    """USD for the counted units, at the mean load and at capacity; used: share of the paid hours that serves."""
    unit = workload.unit
    assert unit is not None
    per_s = workload.requests_per_s_mean * unit.per_request
    usd = s.usd_per_hour / 3600 / (per_s * traffic_ratio(workload)) * unit.batch  # the traffic that the bill is for
    return UnitCost(
        unit=unit.name,
        count=unit.batch,
        units_per_s=number(per_s),
        usd=number(usd),
        usd_at_capacity=number(usd * used),
    )


def conversation(workload: Workload, s: Scored, asked_hit_fraction: float) -> Conversation:
    """The turns on this deployment at the peak."""
    turns, c, m = workload.turns, s.lane.choice, s.memory
    assert turns is not None
    waiting = turns.idle_conversations(workload.requests_per_s_peak / (s.replicas - s.spare_replicas))
    cache_bytes = (m.kv_bytes + m.free_bytes) / max(m.kv_capacity_tokens * c.pp, 1.0)  # per token, on each chip
    wait_s = turns.wait_s * (turns.count - 1)
    return Conversation(
        turns=turns.count,
        mean_prompt_tokens=number(turns.mean_prompt_tokens) or 0.0,
        last_prompt_tokens=number(turns.last_prompt_tokens) or 0.0,
        hit_fraction=number(asked_hit_fraction),
        reached_hit_fraction=number(workload.prefix_cache_hit_fraction),
        kept_fraction=number(s.kept_fraction),
        waiting_per_replica=number(waiting),
        waiting_kv_gib=number(waiting / c.dp * turns.idle_tokens * cache_bytes / GIB),
        duration_s=number(turns.count * s.verified.e2e_mean_s + wait_s),
    )


def image_input(images: Images, model: Model, x: Layouts) -> ImageInput:
    """The images of a mean request on the chips of one replica; x: its layout."""
    pictures = model.pictures
    assert pictures is not None
    return ImageInput(
        per_request=images.per_request,
        tokens_per_image=number(pictures.tokens / images.per_request) or 0.0,
        patches_per_image=number(pictures.passes * pictures.patches / images.per_request) or 0.0,
        encoder_ms=number(float(images_s(model, x)[0]) * 1e3),
        encoder_gib=number(float(vision_bytes(model, x)[0]) / GIB),
    )


def sentences(question: Question, option: Option) -> list[str]:
    """The same in words."""
    lines = [arrivals(question)] if arrives_at_a_rate(question.workload) else []
    if option.conversation:
        lines.append(of_conversation(option.conversation))
    if i := option.images:
        lines.append(
            f"an image is {i.tokens_per_image:,.0f} tokens ({i.patches_per_image:,.0f} patches); encoding the "
            f"{i.per_request:g} of a request takes {i.encoder_ms or 0:.3g} ms of the TTFT; fetching and resizing "
            "images on the host is not included"
        )
    if question.workload.structured_output:
        lines.append(
            f"structured output takes about {question.catalog.grammar_mask_s * 1e6:.0f} us of host time per generated "
            "token (grammar-mask-us), while the accelerator runs the step"
        )
    if (cost := option.unit_cost) and cost.usd is not None:
        units = f"{cost.count:,} {cost.unit}s" if cost.count > 1 else f"a{'n' * (cost.unit[0] in 'aeiou')} {cost.unit}"
        at_most = f", {usd_text(cost.usd_at_capacity)} at capacity" if cost.usd_at_capacity is not None else ""
        lines.append(f"{usd_text(cost.usd)} for {units} at the mean load{at_most}")
    return lines


def arrives_at_a_rate(workload: Workload) -> bool:
    """Whether requests arrive at a rate, and not from users who wait for their answers, or all at the start."""
    return workload.kind.has_arrivals and workload.users is None


def arrivals(question: Question) -> str:
    """How bursty the arrivals are that an option was sized for, and where that is from."""
    traffic, workload = question.spec["traffic"], question.workload
    if traffic.get("burstiness") is not None:
        origin = "as stated"
    elif arrival_cv_of(traffic, workload.trace) is not None:
        origin = "as in the busiest windows of the trace"
    else:
        key = arrival_cv_key(question.spec, question.snapshot.assumptions)
        origin = f"an assumption ({key}): state traffic.burstiness if yours is known"
    window = traffic.get("peak_window_s")
    held = f"; the peak is the mean rate of the busiest {window:g} s" if window else ""
    return f"sized for arrivals whose gaps have a coefficient of variation of {workload.arrival_cv:.3g} (Poisson: 1), {origin}{held}"


def of_conversation(c: Conversation) -> str:
    kept = c.kept_fraction or 0.0
    cache = (
        "the KV cache keeps all waiting conversations"
        if kept >= 1
        else f"the KV cache keeps {kept:.0%} of the waiting conversations, the others are computed again"
    )
    return (
        f"{c.turns} turns with prompts of up to {c.last_prompt_tokens:,.0f} tokens take {c.duration_s or 0:.3g} s; "
        f"{c.reached_hit_fraction or 0:.0%} of the prompt tokens are in the prefix cache; {cache} "
        f"({c.waiting_per_replica or 0:.3g} per replica, {c.waiting_kv_gib or 0:.3g} GiB on each accelerator)"
    )
