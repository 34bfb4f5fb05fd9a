"""Why a framework or weight format is in no option: the first check it fails, and the change that would pass it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.network import Model
from advisor.engine.search.candidates import (
    MIN_WEIGHT_BITS,
    Catalog,
    Question,
    enumerate_lanes,
    formats_for,
    published_bits,
)
from advisor.engine.search.objective import Scale, best_of_chip, describe, designs, table_scores
from advisor.engine.search.rejected.why_not import explain, remembered
from advisor.engine.search.simulated import Scored, Simulations
from advisor.engine.search.table import evaluate
from advisor.engine.step import (
    is_published,
    launchable,
    quality_of,
    quantizes,
    runs_on,
    supports_model,
    supports_weights,
    too_old,
    worth_converting,
)
from advisor.engine.terms import (
    QUALITY_ANY,
    Accelerator,
    Change,
    Framework,
    Quantization,
    Rejection,
    Workload,
    allowing,
    cost_text,
    list_change,
    listed,
)

RETRY_FRACTION = 0.2  # of all work, for chips on which nothing fits without lossy formats
CHIPS = 2  # formats outside the requested quality are tried on this many top-ranked chips


def frameworks(
    workload: Workload, simulations: Simulations, scale: Scale, chips: Sequence[Accelerator], shown: Sequence[Scored]
) -> list[Rejection]:
    """A rejection for every framework that no shown option uses; `chips` are those the constraints allow."""
    used = {s.lane.framework.slug for s in shown}
    by_slug: dict[str, list[Framework]] = {}
    for f in simulations.catalog.frameworks:
        if f.slug not in used:
            by_slug.setdefault(f.slug, []).append(f)
    rejections = []
    for slug, versions in sorted(by_slug.items()):
        gate = _framework_gate(Question(workload, simulations.catalog), versions, chips)
        own = _rows([lane.framework.slug == slug for lane in simulations.table.lanes])
        rejections.append(
            gate or _simulated_rejection(workload, simulations, scale, slug, own, shown, "constraints.frameworks.allow")
        )
    return rejections


def _framework_gate(
    question: Question, versions: Sequence[Framework], chips: Sequence[Accelerator]
) -> Rejection | None:
    """The first check a framework fails before any evaluation; None if it passes them all."""
    catalog = question.catalog
    f = versions[-1]
    refuse = partial(_dead_end, f.slug)
    c = question.workload.constraints
    if changes := allowing("constraints.frameworks", f.slug, c.frameworks_allow, c.frameworks_deny):
        return _left_out_by_name(f.slug, changes)
    if all(too_old(v, catalog.model) for v in versions):
        return refuse(detail=too_old(f, catalog.model))
    if not any(supports_model(v, catalog.model) for v in versions):
        return refuse(detail=f"{f.name} has no known support for this kind of model")
    if not any(launchable(v, catalog.model) for v in versions):
        reason = f": {f.not_started_reason}" if f.not_started_reason else ""
        return refuse(detail=f"no launch command is known for {f.name} with this model{reason}")
    mine = [a for a in chips if any(runs_on(v, a) for v in versions)]
    if not mine:
        return refuse(detail=f"{f.name} needs {' or '.join(f.stacks)}, which no remaining accelerator has")
    formats = formats_for(question)
    runs = [(v, a) for v in versions for a in mine if runs_on(v, a)]
    if not any(supports_weights(v, a, q, catalog.model) for v, a in runs for q in formats):
        return refuse(detail=f"{f.name} supports none of the allowed formats on {', '.join(a.slug for a in mine)}")
    return None


def _dead_end(slug: str, detail: str) -> Rejection:
    """The rejection of software that no change of the workload file helps."""
    return Rejection(accelerator=slug, reason="unsupported", detail=detail, dead_end=detail)


def _left_out_by_name(slug: str, changes: Sequence[Change]) -> Rejection:
    return Rejection(
        accelerator=slug,
        reason="excluded",
        detail="excluded by your constraints",
        smallest_change=f"considered with {listed(changes)}",
        changes=tuple(changes),
    )


def formats(
    workload: Workload, simulations: Simulations, scale: Scale, chips: Sequence[Accelerator], shown: Sequence[Scored]
) -> list[Rejection]:
    """A rejection for every weight format that no shown option uses."""
    used = {s.lane.choice.quantization.slug for s in shown}
    offered = formats_for(Question(workload, simulations.catalog))
    lossy = _formats_of_any_quality(workload, simulations, shown)
    rejections = []
    for q in simulations.catalog.quantizations:
        if q.slug in used:
            continue
        own = _rows([lane.choice.quantization.slug == q.slug for lane in simulations.table.lanes])
        if q in offered:
            gate = _format_gate(simulations.catalog, q, chips)
            rejections.append(
                gate
                or _simulated_rejection(workload, simulations, scale, q.slug, own, shown, "constraints.formats.allow")
            )
        elif lossy and q in lossy[0]:
            rejections.append(_with_any_quality(lossy[1], scale, q, shown))
        else:
            rejections.append(_not_offered(Question(workload, simulations.catalog), q, offered))
    return rejections


def _format_gate(catalog: Catalog, q: Quantization, chips: Sequence[Accelerator]) -> Rejection | None:
    runs = [(f, a) for f in catalog.frameworks if launchable(f, catalog.model) for a in chips if runs_on(f, a)]
    if any(supports_weights(f, a, q, catalog.model) for f, a in runs):
        return None
    where = ", ".join(a.slug for a in chips[:5]) or "any remaining accelerator"
    return _dead_end(q.slug, detail=f"no framework has documented support for it on {where}")


def _not_offered(question: Question, q: Quantization, offered: Sequence[Quantization]) -> Rejection:
    """The reason why a format is never evaluated for this model."""
    catalog = question.catalog
    refuse = partial(_dead_end, q.slug)
    if not quantizes(q, catalog.model):
        return refuse(detail="its kernels are for expert layers only; this model is dense")
    key = (q.weights_dtype, q.bits_per_weight, q.activations_dtype)
    for twin in offered:
        if (twin.weights_dtype, twin.bits_per_weight, twin.activations_dtype) == key:
            return refuse(detail=f"same storage and compute format as {twin.name}, which was evaluated")
    most = published_bits(catalog)
    if not is_published(catalog.model, q) and not worth_converting(catalog.model, q, most):
        bits = f"{q.bits_per_weight:g} bits per weight"
        return refuse(detail=f"{bits}; converting the published checkpoint ({most:g} bits) to it saves too little")
    c = question.workload.constraints
    if changes := allowing("constraints.formats", q.slug, c.formats_allow, c.formats_deny):
        return _left_out_by_name(q.slug, changes)
    if q.training:
        return refuse(detail="needs training; it cannot be made from the published checkpoint")
    if q.bits_per_weight < MIN_WEIGHT_BITS:
        return refuse(
            detail=f"{q.bits_per_weight:g} bits per weight; below {MIN_WEIGHT_BITS:g} a smaller model is usually better"
        )
    return _outside_quality_rejection(q, _outside_quality(catalog.model, q))


def _outside_quality(model: Model, q: Quantization) -> str:
    return f"your quality limit does not allow {quality_of(model, q).replace('_', '-')} formats"


def _outside_quality_rejection(q: Quantization, detail: str) -> Rejection:
    return Rejection(
        accelerator=q.slug,
        reason="excluded",
        detail=detail,
        smallest_change=f"considered with {QUALITY_ANY.said}",
        changes=(QUALITY_ANY,),
    )


def _formats_of_any_quality(
    workload: Workload, simulations: Simulations, shown: Sequence[Scored]
) -> tuple[list[Quantization], tuple[Workload, Simulations]] | None:
    """The formats that `quality: any` would add, and their candidates on the top-ranked chips; None if none."""
    wider = replace(workload, constraints=replace(workload.constraints, quality="any"))
    offered = formats_for(Question(workload, simulations.catalog))
    added = [q for q in formats_for(Question(wider, simulations.catalog)) if q not in offered]
    chips = list({s.lane.choice.accelerator.slug: s.lane.choice.accelerator for s in shown}.values())[:CHIPS]
    narrow = replace(simulations.catalog, quantizations=tuple(added))
    lanes = enumerate_lanes(Question(wider, narrow), chips)[0] if added and chips else []
    if not lanes:
        return None
    return added, (
        wider,
        Simulations(Question(wider, simulations.catalog), evaluate(Question(wider, simulations.catalog), lanes)),
    )


def _with_any_quality(
    asked: tuple[Workload, Simulations], scale: Scale, q: Quantization, shown: Sequence[Scored]
) -> Rejection:
    """The rejection of a format outside the requested quality, with its best result on the top-ranked chips."""
    workload, simulations = asked
    own = _rows([lane.choice.quantization.slug == q.slug for lane in simulations.table.lanes])
    why = _outside_quality(simulations.catalog.model, q)
    if not len(own):
        return _outside_quality_rejection(q, f"{why}; the top-ranked chips do not support this one either")
    ask = partial(
        best_of_chip,
        simulations=simulations,
        own=own,
        score=table_scores(workload, simulations.table, scale),
        scale=scale,
        few=True,
    )
    best = ask(workload).best
    if best is None:
        return _outside_quality_rejection(q, f"{why}, and on the top-ranked chips it misses the limits")
    then = f"{describe(best.lane)} on {best.lane.choice.accelerator.name} at {_cost(workload, best)}"
    return Rejection(
        accelerator=q.slug,
        reason="excluded",
        detail=f"{why}; the first choice costs {_cost(workload, shown[0])}",
        smallest_change=f"passes with {QUALITY_ANY.said} ({then})",
        changes=(QUALITY_ANY,),
    )


def retry_with_any_quality(question: Question, scale: Scale, unfit: Sequence[Rejection]) -> list[Rejection]:
    """The rejections of chips on which nothing fits, each with the simulated result if any quality were allowed."""
    slugs = {r.accelerator for r in unfit if r.smallest_change}
    chips = [a for a in question.catalog.accelerators if a.slug in slugs]
    wider = replace(question.workload, constraints=replace(question.workload.constraints, quality="any"))
    lanes = enumerate_lanes(replace(question, workload=wider), chips)[0] if chips else []
    if not lanes:
        return list(unfit)
    simulations = Simulations(replace(question, workload=wider), evaluate(replace(question, workload=wider), lanes))
    score = table_scores(wider, simulations.table, scale)
    begun = question.catalog.effort.spent
    return [_retried(r, wider, simulations, scale, score, begun) if r.accelerator in slugs else r for r in unfit]


def _retried(
    r: Rejection, workload: Workload, simulations: Simulations, scale: Scale, score: np.ndarray, begun: float
) -> Rejection:
    own = _rows([lane.choice.accelerator.slug == r.accelerator for lane in simulations.table.lanes])
    if not len(own) or not simulations.catalog.effort.allows("other weight formats", RETRY_FRACTION, begun):
        return r
    ask = remembered(partial(best_of_chip, simulations=simulations, own=own, score=score, scale=scale))
    best = ask(workload).best
    if best is not None:
        change = f"passes with {QUALITY_ANY.said} ({describe(best.lane)}, {_cost(workload, best)})"
        return replace(r, smallest_change=change, changes=(QUALITY_ANY,))
    candidates = partial(designs, table=simulations.table, own=own, score=score)
    after = explain(workload, simulations, r.accelerator, ask, candidates)[0]
    changes = (QUALITY_ANY, *after.changes) if after.changes else ()
    return replace(
        r,
        detail=f"{r.detail}; {r.smallest_change}, but then: {after.detail}",
        smallest_change=f"passes with {listed(changes)}" if changes else "",
        changes=changes,
        dead_end=after.dead_end,
    )


def _rows(mine: Sequence[bool]) -> np.ndarray:
    return np.flatnonzero(np.array(mine, dtype=bool))


def _simulated_rejection(
    workload: Workload,
    simulations: Simulations,
    scale: Scale,
    slug: str,
    own: np.ndarray,
    shown: Sequence[Scored],
    path: str,
) -> Rejection:
    """The rejection from simulating its best design: it ranks below the shown options or misses a limit."""
    if not len(own):
        detail = "fits in memory on no remaining accelerator"
        return Rejection(accelerator=slug, reason="does_not_fit", detail=detail, dead_end=detail)
    score = table_scores(workload, simulations.table, scale)
    ask = remembered(partial(best_of_chip, simulations=simulations, own=own, score=score, scale=scale, few=True))
    best = ask(workload).best
    if best is None:
        candidates = partial(designs, table=simulations.table, own=own, score=score)
        rejection = explain(workload, simulations, slug, ask, candidates)[0]
        if rejection.accelerator == slug:
            return rejection
        # over a budget, the rejection is that of the chip
        return replace(rejection, accelerator=slug, detail=f"best on {rejection.accelerator}: {rejection.detail}")
    first = f"; the first choice costs {_cost(workload, shown[0])}" if shown else ""
    cost = f"{_cost(workload, best)} ({best.lane.choice.accelerator.name})"
    alone = list_change(path, [slug])
    return Rejection(
        accelerator=slug,
        reason="outranked",
        detail=f"its best design meets all limits in simulation at {cost}{first}",
        limit=shown[0].usd_per_hour * HOURS_PER_MONTH if shown else None,
        reached=best.usd_per_hour * HOURS_PER_MONTH,
        smallest_change=f"ranked with {alone.said} ({describe(best.lane)})",
        changes=(alone,),
    )


def _cost(workload: Workload, s: Scored) -> str:
    return cost_text(workload, s.usd_per_hour)
