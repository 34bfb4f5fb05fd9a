"""Notes on the question: inputs that did not change the answer, and latency limits that it does not set."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import Catalog, Estimated, describe, estimated_ranking, has_limits
from advisor.engine.spec import KINDS, Slo, Workload, usd_text
from advisor.inputs import number, rounded
from advisor.result import Answer, NoLimits, NotUsed, Option, Probes

Json = dict[str, Any]
TCO_USED = ("horizon_months", "discount_rate", "staff_usd_per_accelerator_year")

NO_PROBES = ("probe", "nothing was measured for this answer: see each option's basis")
UNSET = (None, "n", "flat", "no")
# MLCommons, https://mlcommons.org/2025/04/llm-inference-v5: MLPerf Inference limits the TTFT of Llama 2 70B to 2 s in
# the Server scenario, and its TPOT to 40 ms in the Interactive scenario.
USUAL_CHAT = Slo(ttft_p95_s=2.0, tpot_p95_s=0.04)


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


def no_limits(workload: Workload, catalog: Catalog, answer: Answer) -> NoLimits | None:
    """What a serving question without latency limits leaves open; None: it sets one, or it has no arrivals."""
    if has_limits(workload) or not workload.kind.has_arrivals:
        return None
    first = answer.deployments[0] if answer.deployments else None
    sentences = ["You set no latency limits, so no option was ruled out for being slow."]
    if first is not None:
        sentences.append(reached(workload, first))
    if first is None or not workload.kind.generates_tokens:
        return NoLimits(said=" ".join(sentences))
    usual = replace(workload, slo=replace(USUAL_CHAT, spare_hosts=workload.slo.spare_hosts))
    best = next(iter(estimated_ranking(usual, catalog).ranked), None)
    sentences.append(with_usual_limits(best))
    return NoLimits(
        said=" ".join(sentences),
        usual_ttft_ms_p95=number((USUAL_CHAT.ttft_p95_s or 0.0) * 1e3),
        usual_tpot_ms_p95=number((USUAL_CHAT.tpot_p95_s or 0.0) * 1e3),
        label=label(best) if best else None,
        usd_per_month=rounded(best.usd_per_hour * HOURS_PER_MONTH) if best else None,
    )


def reached(workload: Workload, first: Option) -> str:
    """The latencies of the first deployment."""
    if not workload.kind.generates_tokens:
        return f"{first.label} has a p95 {workload.kind.first_result} of {first.ttft_ms.p95 or 0.0:,.0f} ms."
    return (
        f"{first.label} has a p95 TTFT of {first.ttft_ms.p95 or 0.0:,.0f} ms and a p95 TPOT of "
        f"{first.tpot_ms.p95 or 0.0:,.0f} ms."
    )


def with_usual_limits(best: Estimated | None) -> str:
    ttft_s, tpot_s = USUAL_CHAT.ttft_p95_s or 0.0, USUAL_CHAT.tpot_p95_s or 0.0
    limits = f"With limits from MLPerf's chat scenarios (TTFT {ttft_s:g} s, TPOT {tpot_s * 1e3:g} ms)"
    if best is None:
        return f"{limits}, no deployment in the catalog is estimated to qualify."
    usd_per_month = best.usd_per_hour * HOURS_PER_MONTH
    return f"{limits}, the first choice would be {label(best)} for about {usd_text(usd_per_month)} a month."


def label(e: Estimated) -> str:
    return f"{e.chips:,} x {e.lane.choice.accelerator.name}, {describe(e.lane)}"


def dig(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = None if value is None else value[key]
    return value
