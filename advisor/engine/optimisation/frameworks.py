"""Comparison of all frameworks for this model, format and chip: estimated performance, effort and reasons."""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.optimisation.formats import SAME, as_listed, with_framework
from advisor.engine.optimisation.plan import Setup, SetupEstimate
from advisor.engine.search import (
    Catalog,
    Figures,
    Question,
    Scale,
    Scored,
    objective,
)
from advisor.engine.step import (
    is_published,
    launchable,
    published_conversion,
    runs_on,
    spans_hosts,
    supports_model,
    too_old,
    weights_on,
)
from advisor.engine.terms import Framework, Quantization


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkComparison:
    """One framework version. If `estimate` is None it cannot run the plan, and `because` gives the reason."""

    framework: Framework
    estimate: SetupEstimate | None
    kv_capacity_tokens: float
    effort: str
    best: bool  # under the workload's objective, at the plan's price per chip
    plan: bool
    because: str


def framework_setups(catalog: Catalog, s: Scored, plan: Setup) -> dict[tuple[str, str], Setup]:
    """By (slug, version): the plan with every framework version that supports it."""
    setups = {}
    for f in catalog.frameworks:
        run = _as_run(catalog, s, f)
        if isinstance(run, str):
            continue
        own = (f.slug, f.version) == (s.lane.framework.slug, s.lane.framework.version)
        setup = plan if own else with_framework(catalog, plan, f)
        choice = replace(setup.lane.choice, quantization=run)
        setups[(f.slug, f.version)] = plan if own else replace(setup, lane=replace(setup.lane, choice=choice))
    return setups


def _as_run(catalog: Catalog, s: Scored, f: Framework) -> Quantization | str:
    """The plan's weight format as this framework runs it on the plan's chip, or why it cannot run the plan."""
    a = s.lane.choice.accelerator
    if not runs_on(f, a):
        return "does not support this chip"
    if why := too_old(f, catalog.model):
        return why
    if not supports_model(f, catalog.model):
        return "no known support for this kind of model"
    if s.lane.choice.pp > 1 and not spans_hosts(f):
        return "does not document multi-host replicas"
    return weights_on(f, a, as_listed(catalog, s.lane.choice.quantization), catalog.model)


def compare_frameworks(
    question: Question,
    s: Scored,
    figures: dict[tuple[str, str], SetupEstimate],
    room: dict[tuple[str, str], float],
) -> list[FrameworkComparison]:
    """Frameworks for this chip: the best under the objective first, those that cannot run the plan last."""
    catalog = question.catalog
    best = _best(question, s, figures)
    top = figures.get(best) if best else None
    rows = []
    for f in catalog.frameworks:
        key = (f.slug, f.version)
        if not runs_on(f, s.lane.choice.accelerator):
            continue
        figure, run = figures.get(key), _as_run(catalog, s, f)
        why = run if isinstance(run, str) else ""
        if figure is not None and not figure.fits:
            why = f"does not fit on {s.lane.choice.tp} chips per replica with its own memory overhead"
        elif figure is not None and top is not None and key != best and _as_good(figure, top):
            why = "as good within 3%; decide by effort, maturity and your own test"
        rows.append(
            FrameworkComparison(
                framework=f,
                estimate=figure if figure and figure.fits else None,
                kv_capacity_tokens=room.get(key, math.nan),
                effort=effort_of(catalog, s, f),
                best=key == best,
                plan=key == (s.lane.framework.slug, s.lane.framework.version),
                because=why,
            )
        )
    return sorted(
        rows,
        key=lambda r: (not r.best, r.estimate is None, -(r.estimate.output_tokens_per_s_per_chip if r.estimate else 0)),
    )


def _as_good(m: SetupEstimate, top: SetupEstimate) -> bool:
    """Whether an estimate ties with the best one, within SAME."""
    rate = m.output_tokens_per_s_per_chip * SAME >= top.output_tokens_per_s_per_chip
    return rate and m.light_tpot_s <= top.light_tpot_s * SAME


def _best(question: Question, s: Scored, figures: dict[tuple[str, str], SetupEstimate]) -> tuple[str, str] | None:
    """(slug, version) of the best launchable framework under the objective, at the plan's price and power per chip."""
    startable = {(f.slug, f.version) for f in question.catalog.frameworks if launchable(f, question.catalog.model)}
    usable = {key: m for key, m in figures.items() if m.fits and key in startable}
    if not usable:
        return None
    usd, watts = s.usd_per_hour / s.chips, s.watts / s.chips

    def score(m: SetupEstimate) -> float:
        each = 1.0 / m.output_tokens_per_s_per_chip
        figures = Figures(
            usd_per_hour=np.array(usd * each),
            tpot_p95_s=np.array(m.light_tpot_s),
            watts=np.array(watts * each),
            kgco2e_per_kwh=np.array(s.offer.kgco2e_per_kwh or math.nan),
            capacity_requests_per_s=np.array(1.0 / each),
            chips=np.array(1.0),
        )
        return float(objective(question.workload, scale, figures))

    rates = [m.output_tokens_per_s_per_chip for m in usable.values()]
    scale = Scale(
        usd_per_hour=usd / max(rates),
        tpot_s=min(m.light_tpot_s for m in usable.values()),
        watts=watts / max(rates) if math.isfinite(watts) else 1.0,
    )
    own = (s.lane.framework.slug, s.lane.framework.version)
    return min(usable, key=lambda key: (score(usable[key]), key != own))


def effort_of(catalog: Catalog, s: Scored, f: Framework) -> str:
    """Setup effort, derived from how the framework is launched."""
    q = s.lane.choice.quantization
    own = is_published(catalog.model, q) or published_conversion(catalog.model, q) is not None
    started = f.launch
    on_load = started is not None and q.slug in started.formats_on_load
    made = "" if own else "; converts the weights while loading" if on_load else "; needs a checkpoint in this format"
    if started is not None and started.checkpoint_file:
        return f"convert the checkpoint to a {started.checkpoint_file}"
    if set(f.compiled_stacks) & set(f.stacks) & set(s.lane.choice.accelerator.stacks):
        return f"compiles for fixed shapes before serving{made}"
    if started is None or not launchable(f, catalog.model):
        return "no launch command known; start it by hand"
    return ("one package and one command" if started.package else "its own package and one command") + made
