"""Notes on the question: inputs that did not change the answer, and latency limits that it does not set."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import Scored, describe, estimated_ranking, has_limits, search
from advisor.engine.terms import CHOICE_FRACTION, KINDS, Effort, Slo, Workload, usd_text
from advisor.inputs import number, rounded
from advisor.result import Answer, NoLimits, NotUsed, Option, Probes

Json = dict[str, Any]
TCO_USED = ("horizon_months", "discount_rate", "staff_usd_per_accelerator_year")

NO_PROBES = ("probe", "nothing was measured for this answer: see each option's basis")
UNSET = (None, "n", "flat", "no")
# MLCommons, https://mlcommons.org/2025/04/llm-inference-v5: MLPerf Inference limits the TTFT of Llama 2 70B to 2 s in
# the Server scenario, and its TPOT to 40 ms in the Interactive scenario.
USUAL_CHAT = Slo(ttft_p95_s=2.0, tpot_p95_s=0.04)
CHIPS_TRIED = 3  # with these limits: the first by estimate, beside those of the options


def not_used(spec: Json, tco_used: set[str]) -> list[NotUsed]:
    """Inputs that did not change the answer; `tco_used`: names under `tco` that the costs read."""
    unused = [
        NotUsed(
            field=field, value=dig(spec, field), instead=f"accepted, but not used by this engine version: {instead}"
        )
        for field, instead in (*KINDS[spec["kind"]].unused_inputs, NO_PROBES)
        if dig(spec, field) not in UNSET
    ]
    known = {*TCO_USED, *tco_used}
    return unused + [
        NotUsed(field=f"tco.{key}", value=value, instead="no figure of this answer depends on it")
        for key, value in spec["tco"].items()
        if key not in known
    ]


def with_probes(answer: Answer, probed: Json) -> Answer:
    """The answer with what machines measured for it, when it waited for them."""
    kept = [item for item in answer.not_used if item.field != "probe"]
    unmet = [item.changed(instead=probed["said"]) for item in answer.not_used if item.field == "probe"]
    return answer.changed(probes=Probes.read(probed), not_used=kept if probed["measured"] else [*kept, *unmet])


def no_limits(question: Question, answer: Answer) -> NoLimits | None:
    """What a serving question without latency limits leaves open; None: it sets one, or it has no arrivals."""
    workload = question.workload
    if has_limits(workload) or not workload.kind.has_arrivals:
        return None
    first = answer.deployments[0] if answer.deployments else None
    sentences = ["You set no latency limits, so no option was ruled out for being slow."]
    if first is not None:
        sentences.append(reached(workload, first))
    if first is None or not workload.kind.generates_tokens:
        return NoLimits(said=" ".join(sentences))
    said, found, usd_per_month = with_usual_limits(question, answer)
    return NoLimits(
        said=" ".join([*sentences, *said]),
        usual_ttft_ms_p95=number((USUAL_CHAT.ttft_p95_s or 0.0) * 1e3),
        usual_tpot_ms_p95=number((USUAL_CHAT.tpot_p95_s or 0.0) * 1e3),
        label=found,
        usd_per_month=usd_per_month,
    )


def reached(workload: Workload, first: Option) -> str:
    """The latencies of the first deployment."""
    if not workload.kind.generates_tokens:
        return f"{first.label} has a p95 {workload.kind.first_result} of {first.ttft_ms.p95 or 0.0:,.0f} ms."
    return (
        f"{first.label} has a p95 TTFT of {first.ttft_ms.p95 or 0.0:,.0f} ms and a p95 TPOT of "
        f"{first.tpot_ms.p95 or 0.0:,.0f} ms."
    )


def with_usual_limits(question: Question, answer: Answer) -> tuple[list[str], str | None, float | None]:
    """(sentence, label, USD per month) of the first choice under usual limits; nothing without work for a search.

    It is simulated and planned as the options are: an estimate may look cheaper than a simulated option that it equals.
    """
    ttft_s, tpot_s = USUAL_CHAT.ttft_p95_s or 0.0, USUAL_CHAT.tpot_p95_s or 0.0
    limits = f"the limits of the MLPerf chat scenarios (TTFT {ttft_s:g} s, TPOT {tpot_s * 1e3:g} ms)"
    first = answer.deployments[0]
    if (first.ttft_ms.p95 or 0.0) <= ttft_s * 1e3 and (first.tpot_ms.p95 or 0.0) <= tpot_s * 1e3:
        return [f"It meets {limits}, so it would be first with them too."], first.label, first.usd_per_month
    if not question.catalog.effort.allows("what usual latency limits would change", 1.0 - CHOICE_FRACTION):
        return [], None, None
    best = first_within(replace(question.workload.slo, ttft_p95_s=ttft_s, tpot_p95_s=tpot_s), question, answer)
    if best is None:
        return [f"With {limits}, no deployment that was tried would qualify."], None, None
    usd = best.usd_per_hour * HOURS_PER_MONTH
    return (
        [f"With {limits}, the first choice would be {label(best)} for {usd_text(usd)} a month."],
        label(best),
        rounded(usd),
    )


def first_within(slo: Slo, question: Question, answer: Answer) -> Scored | None:
    """The first choice within other limits, of the chips of the options and of the first ones by estimate."""
    asked = replace(question.workload, slo=slo)
    estimated = [
        e.lane.choice.accelerator.slug
        for e in estimated_ranking(replace(question, workload=asked)).ranked[:CHIPS_TRIED]
    ]
    slugs = dict.fromkeys([*(o.accelerator for o in answer.deployments), *estimated])
    asked = replace(asked, constraints=replace(asked.constraints, accelerators_allow=tuple(slugs)))
    effort = Effort()  # a search counts its share from its own start
    found = search(
        replace(question, workload=asked, catalog=replace(question.catalog, effort=effort)), choice_alone=True
    )
    question.catalog.effort.add(effort.spent, 0)
    return found.ranked[0] if found.ranked else None


def label(s: Scored) -> str:
    return f"{s.chips:,} x {s.lane.choice.accelerator.name}, {describe(s.lane)}"


def dig(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = None if value is None else value.get(key)
    return value
