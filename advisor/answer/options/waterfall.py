"""Ablation of a fixed deployment: throughput after each optimization, from naive to fully optimized."""

from typing import Any

from advisor.engine.estimate import prepare
from advisor.engine.network import Model
from advisor.engine.optimisation import ablation_steps, estimate_steps
from advisor.engine.step import Demand, Draft, Lane, acceptances_of, drafts_of, lanes, weights_on
from advisor.engine.terms import Quantization
from advisor.inputs import assumption, number, resources_with
from advisor.result import Ablation, AblationStep
from advisor.workload import WorkloadError, deployment, error
from catalog.models import Assumption

Json = dict[str, Any]


def answer(options: Json) -> Ablation:
    """The steps for the command's options; WorkloadError where it does not fit or names something unknown."""
    asked = {key: options[key] for key in ("accelerator", "weights", "framework", "isl", "osl") if options[key]}
    d = deployment.parse_deployment({**asked, "model": options["model"], "concurrency": options["users"]})
    model_id, known = resources_with(options["model"])
    fixed = deployment.fixed(d.model_copy(update={"model": model_id}), known)
    own = prepare(fixed.case, fixed.resources)
    if isinstance(own, str):
        raise WorkloadError([error("", own)])
    lane = own[-1]
    if not lanes(fixed.model, [lane]).memory.fits.all():
        raise WorkloadError(
            [error("", f"{model_id} in {options['weights']} does not fit one {fixed.accelerator.name}")]
        )
    draft = drafting(fixed.model, lane, options["drafts"])
    steps = ablation_steps(
        lane, options["users"], fp8_of(fixed.model, lane, known.quantizations), options["shared"], draft
    )
    demand = Demand(input_tokens=options["isl"], output_tokens=options["osl"])
    estimates = estimate_steps(fixed.model, steps, demand, options["users"])
    return Ablation(
        model=model_id,
        accelerator=fixed.accelerator.name,
        framework=f"{lane.framework.name} {lane.framework.version}",
        isl=options["isl"],
        osl=options["osl"],
        users=options["users"],
        acceptance=f"{draft.accepted_fraction:g}, {draft.source}" if draft else None,
        steps=[
            AblationStep(
                step=step.name,
                output_tokens_per_s=number(e.output_tokens_per_s),
                ttft_ms=number(e.ttft_mean_s * 1e3),
                tpot_ms=number(e.tpot_mean_s * 1e3),
            )
            for step, e in zip(steps, estimates, strict=True)
        ],
    )


def fp8_of(model: Model, lane: Lane, known: Any) -> Quantization | None:
    """FP8 made while loading, where the framework multiplies in it on this chip."""
    made = next((q for q in known if q.slug == "fp8"), None)
    run = weights_on(lane.framework, lane.choice.accelerator, made, model) if made else ""
    return run if isinstance(run, Quantization) and not run.weight_only else None


def drafting(model: Model, lane: Lane, tokens: int) -> Draft | None:
    """N-grams with the published acceptance that comes first in the catalog; None where the framework has none."""
    if "ngram" not in lane.framework.speculative:
        return None
    known = {a.key: assumption(a) for a in Assumption.objects.order_by("key")}
    rows = [a for a in acceptances_of(known) if a.method == "ngram"]
    return next((d for row in rows for d in drafts_of(model, row) if d.tokens == tokens), None)


def table(ablation: Ablation) -> str:
    """As a Markdown table."""
    a = ablation
    lines = [
        f"{a.model}, one {a.accelerator}, {a.framework}, {a.isl:g}/{a.osl:g} tokens, {a.users:g} users",
        "",
        "| step | output tokens/s | TTFT ms | TPOT ms |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {s.step} | {s.output_tokens_per_s or 0:,.0f} | {s.ttft_ms or 0:,.0f} | {s.tpot_ms or 0:.2f} |"
        for s in a.steps
    ]
    return "\n".join([*lines, *([f"\nacceptance of drafts: {a.acceptance}"] if a.acceptance else [])])
