"""Calibration: which measured rows say what of which parameter, the fit, and its errors on whole groups left out."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from advisor.engine.calibration import Array, Interval, Mask, Parameter, Places, Solution, least_squares
from advisor.engine.estimate import Estimate, Resources, closed_form, estimate_all
from advisor.engine.spec import Case, Scopes
from advisor.fidelity import scoring
from advisor.fidelity.calibration_files import Setup
from advisor.fidelity.rows import Row, case_of

Estimator = Callable[[Sequence[Case], Resources], Sequence[Estimate]]
FITTED_FIELDS = tuple(closed_form.Means.__slots__)
CORRECTION_MAX = 0.5  # in log; a saturated run whose simulation differs more says little about kernels
KINDS = ("tpot", "ttft", "throughput", "static", "prefill", "kernel")
SMALLEST_CLASS = 3  # groups; fewer say nothing of a spread, the figure then has the interval of its kind or none
LEFT_OUT = ("accelerator", "model", "family", "framework version")


class Used(NamedTuple):
    """One measured row of the fit."""

    row: Row
    case: Case
    kind: str  # one of KINDS
    group: str  # (chip, model, source): rows of one group are correlated


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The rows of a fit with their closed forms and what the simulation adds to them."""

    rows: tuple[Used, ...]
    prepared: closed_form.Prepared
    place: Places  # of each row's case among the prepared ones
    field: Places  # of each row's metric among FITTED_FIELDS
    scale: Array  # measured = figure in SI x scale
    weights: Array
    correction: Array  # log(simulated / closed form), fixed during a fit

    def errors(self, scopes: Scopes, resources: Resources) -> Array:
        """log(predicted / measured) of every row; NaN: not predicted."""
        figures = _figures(self.prepared, resources, scopes)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Array = np.log(figures[self.place, self.field] * self.scale) + self.correction
        return found

    def only(self, rows: Mask) -> "Evidence":
        """The same for some rows."""
        places = np.unique(self.place[rows])
        cases = tuple(self.prepared.cases[i] for i in places)
        lanes = tuple(self.prepared.lanes[i] for i in places)
        return Evidence(
            rows=tuple(r for r, wanted in zip(self.rows, rows, strict=True) if wanted),
            prepared=closed_form.Prepared(cases=cases, lanes=lanes),
            place=np.searchsorted(places, self.place[rows]),
            field=self.field[rows],
            scale=self.scale[rows],
            weights=self.weights[rows],
            correction=self.correction[rows],
        )


def _figures(prepared: closed_form.Prepared, resources: Resources, scopes: Scopes) -> Array:
    found = closed_form.means(prepared, resources, scopes)
    return np.array([[getattr(m, name) for name in FITTED_FIELDS] for m in found])


# ------------------------------------------------------------------ which rows


def kind_of(row: Row, case: Case) -> str:
    """What a row's figure is about: one of KINDS."""
    if case.phase == "kernel":
        return "kernel"
    if row.metric.startswith("ttft"):
        return "ttft"
    if row.metric.startswith(("tpot", "itl")):
        return "tpot"
    if row.metric.startswith("prefill"):
        return "prefill"
    return "static" if case.phase == "static" else "throughput"


def group_of(row: Row) -> str:
    return f"{row.accelerator_slug}|{row.model_id}|{row.source_key}"


def usable(row: Row, case: Case) -> bool:
    """Whether the fit looks at a row: means of closed loops and batches, no speculation, no tuned offered rate."""
    field, _ = scoring.METRICS.get(row.metric, ("", 0.0))
    tuned = row.source_key.startswith("mlperf") and row.task != "offline_throughput"
    return field_of(field) in FITTED_FIELDS and row.value > 0 and not case.speculative and not tuned


def field_of(name: str) -> str:
    return "tpot_mean_s" if name == "itl_mean_s" else name


def weight_of(used: Used, weights: Mapping[str, Any]) -> float:
    """How much a row says, before its group is brought to the weight of every other."""
    weight = float(weights["kind"][used.kind])
    known, serving = used.case.client.known, used.case.phase == "serving"
    if used.kind == "ttft" and not known:
        weight = float(weights["ttft_unknown_client"])
    elif used.row.source_key.startswith("mlperf"):
        weight *= float(weights["mlperf"])
    elif serving:
        weight *= float(weights["serving_known_client" if known else "unknown_client"])
    return weight


def evidence(
    rows: Sequence[Row], resources: Resources, disputed: Iterable[str], weights: Mapping[str, Any]
) -> Evidence:
    """The usable rows with their closed forms prepared; the correction is zero."""
    doubted = set(disputed)
    cases = [(row, case_of(row, resources)) for row in rows if row.id not in doubted]
    used = [
        Used(row=row, case=case, kind=kind_of(row, case), group=group_of(row))
        for row, case in cases
        if isinstance(case, Case) and usable(row, case)
    ]
    prepared = closed_form.prepared(list(dict.fromkeys(u.case for u in used)), resources)
    places = {case: i for i, case in enumerate(prepared.cases)}
    used = [u for u in used if u.case in places]
    share = least_squares.group_weights([f"{u.group}|{u.kind}" for u in used])
    return Evidence(
        rows=tuple(used),
        prepared=prepared,
        place=np.array([places[u.case] for u in used], dtype=int),
        field=np.array([FITTED_FIELDS.index(field_of(scoring.METRICS[u.row.metric][0])) for u in used], dtype=int),
        scale=np.array([_scale(u) for u in used]) / np.array([u.row.value for u in used]),
        weights=share * np.array([weight_of(u, weights) for u in used]),
        correction=np.zeros(len(used)),
    )


def _scale(used: Used) -> float:
    _, factor = scoring.METRICS[used.row.metric]
    return factor / used.case.chips if used.row.metric in scoring.PER_CHIP else factor


def corrected(these: Evidence, resources: Resources, scopes: Scopes, estimator: Estimator) -> tuple[Evidence, Array]:
    """(evidence whose closed forms carry what the simulation adds at these scopes, the simulation's errors)."""
    estimates = estimator(these.prepared.cases, replace(resources, scopes=scopes))
    figures = np.array([[getattr(e, name) for name in FITTED_FIELDS] for e in estimates])
    with np.errstate(invalid="ignore", divide="ignore"):
        simulated: Array = np.log(figures[these.place, these.field] * these.scale)
    plain = replace(these, correction=np.zeros(len(these.rows))).errors(scopes, resources)
    difference = np.clip(simulated - plain, -CORRECTION_MAX, CORRECTION_MAX)
    return replace(these, correction=np.where(np.isfinite(simulated), difference, np.nan)), simulated


# ------------------------------------------------------------------ the fit


def with_values(scopes: Scopes, parameters: Sequence[Parameter], x: Array) -> Scopes:
    """The scopes with the parameters (in log) put in."""
    changed = {name: dict(values) for name, values in scopes.items()}
    for p, value in zip(parameters, np.exp(x), strict=True):
        changed.setdefault(p.scope, {})[p.name] = float(value)
    return changed


def without_kernels_of(scopes: Scopes, setup: Setup, accelerator: str = "", family: str = "") -> Scopes:
    """The scopes as they would be had this chip (or a chip of this family) never been measured."""
    gone = {
        name
        for chip, own in setup.measured_scopes.items()
        for name in own
        if chip == accelerator or (family and f"family:{family}" in own)
    }
    return {name: values for name, values in scopes.items() if name not in gone}


class Fitted(NamedTuple):
    """A calibration and the evidence it rests on."""

    scopes: Scopes
    solution: Solution
    evidence: Evidence
    simulated: Array  # errors of the simulation at the optimum
    groups: int


def calibrate(
    rows: Sequence[Row],
    resources: Resources,
    setup: Setup,
    disputed: Iterable[str],
    rounds: int = 1,
    estimator: Estimator = estimate_all,
    say: Callable[[str], None] = lambda text: None,
) -> Fitted:
    """Fits the free parameters; a further round corrects the closed forms again at the optimum."""
    start, _, _ = least_squares.bounds_of(setup.parameters)
    scopes = with_values(setup.scopes, setup.parameters, start)
    resources = replace(resources, scopes=scopes)
    these = evidence(rows, resources, disputed, setup.weights)
    groups = len({u.group for u in these.rows})
    least_squares.check_budget(len(setup.parameters), groups)
    say(f"{len(setup.parameters)} free parameters, {groups} groups: one per {groups / len(setup.parameters):.1f}")
    solution = None
    for number in range(rounds):
        say(f"round {number + 1}: simulating {len(these.prepared.cases)} cases")
        these, _ = corrected(these, resources, scopes, estimator)

        def errors(x: Array, these: Evidence = these) -> Array:
            return these.errors(with_values(setup.scopes, setup.parameters, x), resources)

        solution = least_squares.solve(errors, setup.parameters, these.weights)
        scopes = with_values(setup.scopes, setup.parameters, solution.x)
        say(f"round {number + 1}: fitted")
    assert solution is not None
    final, simulated = corrected(these, resources, scopes, estimator)
    at = solution._replace(errors=final.errors(scopes, resources))
    return Fitted(scopes=scopes, solution=at, evidence=final, simulated=simulated, groups=groups)


# ------------------------------------------------------------------ left out


def unit_of(used: Used, kind: str, families: Mapping[str, str]) -> str:
    """Which whole group of rows one row leaves with."""
    if kind == "accelerator":
        return used.row.accelerator_slug
    if kind == "model":
        return used.row.model_id
    if kind == "family":
        return families.get(used.row.accelerator_slug, "")
    return f"{used.case.framework} {used.case.framework_version}"


def left_out(found: Fitted, resources: Resources, setup: Setup, kind: str) -> Array:
    """log(predicted / measured) of every row by a fit that saw no row of its unit."""
    families = {slug: chip.family for slug, chip in resources.accelerators.items()}
    units = np.array([unit_of(u, kind, families) for u in found.evidence.rows])
    errors = np.full(len(units), np.nan)
    for unit in np.unique(units):
        own = units == unit
        base = setup.scopes
        if kind in ("accelerator", "family"):
            base = without_kernels_of(base, setup, **{kind: str(unit)})
        errors[own] = _fold(found, resources, setup, own, base)
    return errors


def _fold(found: Fitted, resources: Resources, setup: Setup, own: Mask, base: Scopes) -> Array:
    """The errors of the rows `own` by a fit to all others, one Gauss-Newton step from the full optimum."""
    at = found.solution
    if base is not setup.scopes:
        here = with_values(base, setup.parameters, at.x)
        at = at._replace(errors=found.evidence.errors(here, resources))
    x = least_squares.refit(at, setup.parameters, found.evidence.weights, ~own)
    return found.evidence.only(own).errors(with_values(base, setup.parameters, x), resources)


def without_group(found: Fitted, resources: Resources, setup: Setup, group: str) -> Array:
    """The errors with one group of parameters back at its starting values and the others fitted again."""
    pinned = [i for i, p in enumerate(setup.parameters) if setup.groups[i] == group]
    everything = np.ones(len(found.evidence.rows), dtype=bool)
    x = least_squares.refit(found.solution, setup.parameters, found.evidence.weights, everything, pinned)
    return found.evidence.errors(with_values(setup.scopes, setup.parameters, x), resources)


def scores(these: Evidence, errors: Array) -> dict[str, float]:
    """By kind: the median over (chip, model, source) of their median |predicted / measured - 1|; known clients only."""
    found: dict[str, float] = {}
    for kind in KINDS:
        by_group: dict[str, list[float]] = {}
        for used, error in zip(these.rows, errors, strict=True):
            if used.kind == kind and np.isfinite(error) and _reported(used):
                by_group.setdefault(used.group, []).append(abs(np.expm1(error)))
        if by_group:
            found[kind] = float(np.median([np.median(values) for values in by_group.values()]))
    return found


def _reported(used: Used) -> bool:
    return used.case.client.known or used.kind not in ("ttft", "tpot")


# ------------------------------------------------------------------ intervals


class Class(NamedTuple):
    """One class of what an estimate rests on, and the kind of leaving out that stands for it."""

    basis: str
    kind: str


CLASSES = (Class("measured", "model"), Class("relative", "accelerator"), Class("datasheet", "family"))


def intervals(
    found: Fitted,
    resources: Resources,
    errors: Mapping[str, Array],
    bases: Mapping[str, str],
    others: Sequence[tuple[Used, float]] = (),
) -> dict[str, dict[str, Interval]]:
    """basis -> metric kind -> interval, from errors by kind of leaving out and rows that the fit never looked at.

    measured: rows on measured chips by fits without their model. relative: the others by fits without their chip.
    datasheet: every row by fits without its family. `others` are (row, error of the calibrated prediction).
    """
    families = {slug: chip.family for slug, chip in resources.accelerators.items()}
    result: dict[str, dict[str, Interval]] = {}
    for basis, kind in CLASSES:
        shift = found.simulated - found.solution.errors  # the simulation's own error beyond the clipped correction
        rows = [*zip(found.evidence.rows, errors[kind] + shift, strict=True), *others]
        chosen = [
            (used, error)
            for used, error in rows
            if np.isfinite(error) and (basis == "datasheet" or bases.get(used.row.accelerator_slug) == basis)
        ]
        by_metric: dict[str, list[tuple[Used, float]]] = {}
        for used, error in chosen:
            by_metric.setdefault(scoring.interval_kind(used.row.metric, used.case), []).append((used, error))
        result[basis] = {
            metric: least_squares.interval(
                np.array([error for _, error in members]),
                [used.group for used, _ in members],
                [unit_of(used, kind, families) for used, _ in members],
            )
            for metric, members in sorted(by_metric.items())
            if metric and len({used.group for used, _ in members}) >= SMALLEST_CLASS
        }
    return result


def bases_of(rows: Iterable[Used], resources: Resources, setup: Setup) -> dict[str, str]:
    """Chip -> what its efficiency rests on: its own kernels, a family with rows in the fit, or its datasheet."""
    families = {resources.accelerators[u.row.accelerator_slug].family for u in rows}
    return {
        slug: "measured" if slug in setup.measured_scopes else "relative" if chip.family in families else "datasheet"
        for slug, chip in resources.accelerators.items()
    }


def summary(rows: Iterable[Used]) -> dict[str, Any]:
    """What the fit looked at: rows, groups, sources, dates and framework versions."""
    used = list(rows)
    dates = sorted(u.row.date for u in used if u.row.date)
    versions = Counter(f"{u.case.framework} {u.case.framework_version}".strip() for u in used)
    return {
        "rows": len(used),
        "groups": len({u.group for u in used}),
        "chips": len({u.row.accelerator_slug for u in used}),
        "models": len({u.row.model_id for u in used if u.row.model_id}),
        "sources": sorted({u.row.source_key for u in used}),
        "from": dates[0] if dates else "",
        "to": dates[-1] if dates else "",
        "versions": sorted(versions),
    }
