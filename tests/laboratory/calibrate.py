"""Fits the calibration to measured rows and cross-validates it on held-out groups."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from advisor.engine.estimate import Estimate, Resources, closed_form, estimate_all
from advisor.engine.terms import Case, Scopes, efficiency, overhead
from advisor.engine.terms.machines.hardware import overhead_scopes
from advisor.fidelity.rows import Row, case_of
from advisor.fidelity.scores import scoring
from tests.laboratory import least_squares
from tests.laboratory.calibration_files import Setup
from tests.laboratory.least_squares import Array, Interval, Mask, Parameter, Places, Solution
from tests.laboratory.reliability import HeldOut

Estimator = Callable[[Sequence[Case], Resources], Sequence[Estimate]]
FITTED_FIELDS = tuple(closed_form.Means.__slots__)
CORRECTION_MAX = 0.5  # natural log; larger differences come from saturated runs, which say little about kernels
KINDS = ("tpot", "ttft", "throughput", "static", "prefill", "kernel")
MIN_GROUPS = 3  # for an interval; with fewer groups, the more general interval is used, if there is one
HELD_OUT = ("accelerator", "model", "family", "framework version")


class Used(NamedTuple):
    """A measured row that the fit uses."""

    row: Row
    case: Case
    kind: str  # one of KINDS
    group: str  # chip, model and source: rows of one group are correlated


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The rows of a fit with their closed-form estimates and the corrections from simulation."""

    rows: tuple[Used, ...]
    prepared: closed_form.Prepared
    place: Places  # index of each row's case in `prepared`
    field: Places  # index of each row's metric in FITTED_FIELDS
    scale: Array  # prediction / measured = figure in SI x scale
    weights: Array
    correction: Array  # log(simulated / closed form), constant during a fit

    def errors(self, scopes: Scopes, resources: Resources) -> Array:
        """log(predicted / measured) of each row; NaN if there is no prediction."""
        figures = _figures(self.prepared, resources, scopes)
        with np.errstate(invalid="ignore", divide="ignore"):
            log_errors: Array = np.log(figures[self.place, self.field] * self.scale) + self.correction
        return log_errors

    def only(self, rows: Mask) -> "Evidence":
        """The evidence of the rows selected by a mask."""
        places = np.unique(self.place[rows])
        cases = tuple(self.prepared.cases[i] for i in places)
        lanes = tuple(self.prepared.lanes[i] for i in places)
        return Evidence(
            rows=tuple(r for r, selected in zip(self.rows, rows, strict=True) if selected),
            prepared=closed_form.Prepared(cases=cases, lanes=lanes),
            place=np.searchsorted(places, self.place[rows]),
            field=self.field[rows],
            scale=self.scale[rows],
            weights=self.weights[rows],
            correction=self.correction[rows],
        )


def _figures(prepared: closed_form.Prepared, resources: Resources, scopes: Scopes) -> Array:
    means = closed_form.means(prepared, resources, scopes)
    return np.array([[getattr(m, name) for name in FITTED_FIELDS] for m in means])


# ------------------------------------------------------------------ selecting rows


def kind_of(row: Row, case: Case) -> str:
    """The kind of a row's metric, one of KINDS."""
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
    """Whether the fit uses a row: only means, no speculative decoding, no offered rate tuned to latency limits."""
    field, _ = scoring.METRICS.get(row.metric, ("", 0.0))
    tuned = row.source_key.startswith("mlperf") and row.task != "offline_throughput"
    return field_of(field) in FITTED_FIELDS and row.value > 0 and not case.speculative and not tuned


def field_of(name: str) -> str:
    return "tpot_mean_s" if name == "itl_mean_s" else name


def weight_of(used: Used, weights: Mapping[str, Any]) -> float:
    """The weight of a row before the groups are given equal weight."""
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
    """The usable rows with prepared closed-form estimates; the correction is zero."""
    excluded = set(disputed)
    cases = [(row, case_of(row, resources)) for row in rows if row.id not in excluded]
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


def corrected(evidence: Evidence, resources: Resources, scopes: Scopes, estimator: Estimator) -> tuple[Evidence, Array]:
    """(evidence corrected by a simulation with these scopes, log errors of the simulation)."""
    estimates = estimator(evidence.prepared.cases, replace(resources, scopes=scopes))
    figures = np.array([[getattr(e, name) for name in FITTED_FIELDS] for e in estimates])
    with np.errstate(invalid="ignore", divide="ignore"):
        simulated: Array = np.log(figures[evidence.place, evidence.field] * evidence.scale)
    plain = replace(evidence, correction=np.zeros(len(evidence.rows))).errors(scopes, resources)
    difference = np.clip(simulated - plain, -CORRECTION_MAX, CORRECTION_MAX)
    return replace(evidence, correction=np.where(np.isfinite(simulated), difference, np.nan)), simulated


# ------------------------------------------------------------------ the fit


def with_values(scopes: Scopes, parameters: Sequence[Parameter], x: Array) -> Scopes:
    """The scopes with the parameters set to exp(x)."""
    changed = {name: dict(values) for name, values in scopes.items()}
    for p, value in zip(parameters, np.exp(x), strict=True):
        changed.setdefault(p.scope, {})[p.name] = float(value)
    return changed


def without_kernels_of(scopes: Scopes, setup: Setup, accelerator: str = "", family: str = "") -> Scopes:
    """The scopes without the kernel measurements of this chip or family."""
    removed = {
        name
        for chip, own in setup.measured_scopes.items()
        for name in own
        if chip == accelerator or (family and f"family:{family}" in own)
    }
    return {name: values for name, values in scopes.items() if name not in removed}


class Fitted(NamedTuple):
    """A calibration and the evidence it was fitted to."""

    scopes: Scopes
    solution: Solution
    evidence: Evidence
    simulated: Array  # log errors of the simulation at the optimum
    groups: int


def calibrate(
    rows: Sequence[Row],
    resources: Resources,
    setup: Setup,
    disputed: Iterable[str],
    rounds: int = 1,
    estimator: Estimator = estimate_all,
    log: Callable[[str], None] = lambda text: None,
) -> Fitted:
    """Fits the free parameters. Each further round repeats the simulation at the optimum. `log` receives progress."""
    start, _, _ = least_squares.bounds_of(setup.parameters)
    scopes = with_values(setup.scopes, setup.parameters, start)
    resources = replace(resources, scopes=scopes)
    corrected_rows = evidence(rows, resources, disputed, setup.weights)
    groups = len({u.group for u in corrected_rows.rows})
    least_squares.check_budget(len(setup.parameters), groups)
    log(
        f"{len(setup.parameters)} free parameters, {groups} groups ({groups / len(setup.parameters):.1f} per parameter)"
    )
    solution = None
    for i in range(rounds):
        log(f"round {i + 1}: simulating {len(corrected_rows.prepared.cases)} cases")
        corrected_rows, _ = corrected(corrected_rows, resources, scopes, estimator)

        def errors(x: Array, evidence: Evidence = corrected_rows) -> Array:
            return evidence.errors(with_values(setup.scopes, setup.parameters, x), resources)

        solution = least_squares.solve(errors, setup.parameters, corrected_rows.weights)
        scopes = with_values(setup.scopes, setup.parameters, solution.x)
        log(f"round {i + 1}: fitted")
    assert solution is not None
    final, simulated = corrected(corrected_rows, resources, scopes, estimator)
    optimum = solution._replace(errors=final.errors(scopes, resources))
    return Fitted(scopes=scopes, solution=optimum, evidence=final, simulated=simulated, groups=groups)


# ------------------------------------------------------------------ held-out groups


def unit_of(used: Used, kind: str, families: Mapping[str, str]) -> str:
    """The held-out unit that a row belongs to: its accelerator, model, family or framework version."""
    if kind == "accelerator":
        return used.row.accelerator_slug
    if kind == "model":
        return used.row.model_id
    if kind == "family":
        return families.get(used.row.accelerator_slug, "")
    return f"{used.case.framework} {used.case.framework_version}"


def held_out(fit: Fitted, resources: Resources, setup: Setup, kind: str) -> Array:
    """log(predicted / measured) of each row, predicted by a fit without any row of its unit."""
    families = {slug: chip.family for slug, chip in resources.accelerators.items()}
    units = np.array([unit_of(u, kind, families) for u in fit.evidence.rows])
    errors = np.full(len(units), np.nan)
    for unit in np.unique(units):
        own = units == unit
        base = setup.scopes
        if kind in ("accelerator", "family"):
            base = without_kernels_of(base, setup, **{kind: str(unit)})
        errors[own] = _fold(fit, resources, setup, own, base)
    return errors


def _fold(fit: Fitted, resources: Resources, setup: Setup, own: Mask, base: Scopes) -> Array:
    """The log errors of the rows `own` after a fit to all others: one Gauss-Newton step from the full optimum."""
    optimum = fit.solution
    if base is not setup.scopes:
        scopes = with_values(base, setup.parameters, optimum.x)
        optimum = optimum._replace(errors=fit.evidence.errors(scopes, resources))
    x = least_squares.refit(optimum, setup.parameters, fit.evidence.weights, ~own)
    return fit.evidence.only(own).errors(with_values(base, setup.parameters, x), resources)


def with_group_reset(fit: Fitted, resources: Resources, setup: Setup, group: str) -> Array:
    """The log errors with one group of parameters at its starting values and the others fitted again."""
    pinned = [i for i, p in enumerate(setup.parameters) if setup.groups[i] == group]
    everything = np.ones(len(fit.evidence.rows), dtype=bool)
    x = least_squares.refit(fit.solution, setup.parameters, fit.evidence.weights, everything, pinned)
    return fit.evidence.errors(with_values(setup.scopes, setup.parameters, x), resources)


def scores(evidence: Evidence, errors: Array) -> dict[str, float]:
    """By kind: the median over groups of the median |predicted / measured - 1|. TTFT and TPOT: known clients only."""
    medians: dict[str, float] = {}
    for kind in KINDS:
        by_group: dict[str, list[float]] = {}
        for row, error in zip(evidence.rows, errors, strict=True):
            if row.kind == kind and np.isfinite(error) and _reported(row):
                by_group.setdefault(row.group, []).append(abs(np.expm1(error)))
        if by_group:
            medians[kind] = float(np.median([np.median(values) for values in by_group.values()]))
    return medians


def _reported(used: Used) -> bool:
    return used.case.client.known or used.kind not in ("ttft", "tpot")


# ------------------------------------------------------------------ intervals


class Class(NamedTuple):
    """A basis of estimates, and the kind of unit held out to measure its errors."""

    basis: str
    kind: str


TIMED = "timed"  # measured chips under frameworks whose host times were measured there
CLASSES = (
    Class(TIMED, "model"),
    Class("measured", "model"),
    Class("relative", "accelerator"),
    Class("datasheet", "family"),
)


HeldOutRows = Mapping[str, Mapping[str, Sequence[HeldOut]]]  # basis -> metric kind -> rows


def held_out_rows(
    fit: Fitted,
    resources: Resources,
    errors: Mapping[str, Array],
    bases: Mapping[str, str],
    others: Sequence[tuple[Used, float]] = (),
) -> HeldOutRows:
    """The held-out `errors` by basis and metric kind, and those of rows that the fit did not use.

    measured: rows on measured chips, their model held out; timed: those of them whose host was timed too. relative:
    rows on other chips, their chip held out. datasheet: all rows, their family held out. `others`: (row, log error of
    the calibrated prediction).
    """
    families = {slug: chip.family for slug, chip in resources.accelerators.items()}
    result: dict[str, dict[str, list[HeldOut]]] = {}
    for basis, kind in CLASSES:
        shift = fit.simulated - fit.solution.errors  # the part of the simulation's error that the correction clips
        found: dict[str, list[HeldOut]] = {}
        for used, error in [*zip(fit.evidence.rows, errors[kind] + shift, strict=True), *others]:
            metric = scoring.interval_kind(used.row.metric, used.case)
            own = basis == "datasheet" or _class_of(used, resources, bases, basis) == basis
            if np.isfinite(error) and own and metric:
                run = used.case, used.row.date
                unit = unit_of(used, kind, families)
                found.setdefault(metric, []).append(HeldOut(run, used.group, unit, -float(error)))
        result[basis] = dict(sorted(found.items()))
    return result


def _class_of(used: Used, resources: Resources, bases: Mapping[str, str], asked: str) -> str:
    basis = bases.get(used.row.accelerator_slug, "")
    if asked != TIMED or basis != "measured":
        return basis
    chip, case = resources.accelerators[used.row.accelerator_slug], used.case
    known = overhead(resources.scopes, case.framework, case.framework_version, chip.family, chip.kind, chip.slug)
    return TIMED if known.timed else basis


def intervals(rows: HeldOutRows) -> dict[str, dict[str, Interval]]:
    """basis -> metric kind -> interval, for kinds with enough groups."""
    return {
        basis: {
            metric: least_squares.interval(
                np.array([-row.log_ratio for row in members]),
                [row.group for row in members],
                [row.unit for row in members],
            )
            for metric, members in figures.items()
            if len({row.group for row in members}) >= MIN_GROUPS
        }
        for basis, figures in rows.items()
    }


def bases_of(rows: Iterable[Used], resources: Resources, setup: Setup) -> dict[str, str]:
    """Chip -> basis of its efficiency: measured (kernels), relative (rows of its family in the fit) or datasheet."""
    families = {resources.accelerators[u.row.accelerator_slug].family for u in rows}
    return {
        slug: "measured" if slug in setup.measured_scopes else "relative" if chip.family in families else "datasheet"
        for slug, chip in resources.accelerators.items()
    }


def summary(rows: Iterable[Used]) -> dict[str, Any]:
    """The rows of a fit in figures: rows, groups, sources, dates and framework versions."""
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


# ------------------------------------------------------------------ one engine on one family of chips

UNSURE = "uncertain_ratio"
STEP = 0.15  # natural log: of the differences that give the slopes
TYPICAL_ERROR, FAR = 0.2, 0.35  # natural log: of a group of rows, and from where on an error counts less
CASES_PER_GROUP, FULL_CASES = 12, 6
KIND_WEIGHTS = {"tpot": 4.0, "throughput": 1.5, "ttft": 0.7, "prefill": 1.5}
BESIDE_TPOT = 0.3  # of the weight of throughput, which follows from TPOT
LEAST_RATIO, SAFE_MODELS = 1.3, 4  # uncertain_ratio of a scope with rows of fewer models
ONE_MODEL_RATIO = 1.6  # of one model alone, whose errors say nothing of others: about the largest of the other engines


class ScopeFit(NamedTuple):
    """The figures of one scope, and log(predicted / measured) of its rows before, after, and with their model out."""

    values: dict[str, float]
    uncertain_ratio: float
    rows: tuple[Used, ...]
    weights: Array
    before: Array
    after: Array
    left_out: Array


def narrowest(case: Case, resources: Resources, scope: str) -> bool:
    """Whether this scope is the narrowest one that the figures of a case come from."""
    chip = resources.accelerators[case.accelerator_slug]
    if scope.startswith("accelerator:"):
        return scope == f"accelerator:{chip.slug}"
    version = case.framework_version or next(
        (f.version for f in reversed(resources.frameworks) if f.slug == case.framework), ""
    )
    names = overhead_scopes(resources.scopes, case.framework, version, chip.family, chip.kind, chip.slug)
    return [name for name in names if name == scope or name in resources.scopes][-1] == scope


def scope_rows(
    rows: Iterable[Row], resources: Resources, scope: str, excluded: Iterable[Sequence[str]]
) -> tuple[tuple[Used, ...], Array]:
    """The rows of a scope and their weights: up to twelve settings of each chip, model, source and format.

    A group with fewer settings than six counts less. excluded: (chip, model, source) that no fit may see.
    """
    return grouped_rows(rows, resources, excluded, lambda case: narrowest(case, resources, scope))


def grouped_rows(
    rows: Iterable[Row], resources: Resources, excluded: Iterable[Sequence[str]], wanted: Callable[[Case], bool]
) -> tuple[tuple[Used, ...], Array]:
    """The rows of closed loops and lone prompts among them, and their weights."""
    apart, groups = {"|".join(each) for each in excluded}, dict[str, dict[Case, list[Used]]]()
    for row in rows:
        case, group = case_of(row, resources), group_of(row)
        if not isinstance(case, Case) or group in apart or row.metric.endswith("_p99") or row.value <= 0:
            continue
        used = Used(row=row, case=case, kind=kind_of(row, case), group=f"{group}|{case.weights_dtype}")
        known = used.kind in KIND_WEIGHTS and row.metric in scoring.METRICS and case.mode != "disagg"
        known = known and (case.client.known or used.kind != "ttft") and not case.has_arrivals and not case.speculative
        if known and wanted(case):
            groups.setdefault(used.group, {}).setdefault(case, []).append(used)
    chosen, weights = list[Used](), list[float]()
    for settings in groups.values():
        cases = sorted(settings, key=lambda case: (case.concurrency or 0.0, case.isl, case.chips))
        places = np.unique(np.linspace(0, len(cases) - 1, min(len(cases), CASES_PER_GROUP)).round().astype(int))
        own = [used for i in places for used in settings[cases[i]]]
        counts = Counter(used.kind for used in own)
        for used in own:
            weight = KIND_WEIGHTS[used.kind] / counts[used.kind] * min(len(places) / FULL_CASES, 1.0)
            weights.append(weight * (BESIDE_TPOT if used.kind == "throughput" and counts["tpot"] else 1.0))
        chosen += own
    return tuple(chosen), np.array(weights)


def fit_scope(
    rows: Iterable[Row],
    resources: Resources,
    scope: str,
    free: Mapping[str, Sequence[float]],
    excluded: Iterable[Sequence[str]],
    rounds: int = 3,
) -> ScopeFit:
    """Least squares of the simulated figures, shrunk to the values that the scope would have without its own.

    free: figure -> (log standard deviation of that prior, lowest, highest value).
    """
    others = {name: v for name, v in resources.scopes.get(scope, {}).items() if name not in (*free, UNSURE)}
    bare = replace(resources, scopes={**resources.scopes, scope: others})
    used, weights = scope_rows(rows, bare, scope, excluded)
    if not used:
        raise ValueError(f"no row has its figures from {scope}")
    names = list(free)
    start = _values(used[0].case, bare, names)
    prior = np.log([start[name] for name in names])
    sd, low, high = np.array([free[name] for name in names]).T

    def errors(x: Array) -> Array:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        return _simulated_errors(used, replace(bare, scopes={**bare.scopes, scope: others | values}))[0]

    def solved(x: Array, e: Array, slopes: Array, mask: Mask) -> Array:
        seen = mask & np.isfinite(e) & np.isfinite(slopes).all(axis=1)
        weight = (weights * np.minimum(1.0, FAR / np.maximum(np.abs(e), 1e-9)) / TYPICAL_ERROR**2)[seen]
        table = slopes[seen].T @ (weight[:, None] * slopes[seen]) + np.diag(sd**-2)
        return np.asarray(np.linalg.solve(table, -slopes[seen].T @ (weight * e[seen]) - (x - prior) / sd**2))

    x, every = prior.copy(), np.ones(len(used), bool)
    before = e = errors(x)
    slopes = np.zeros((len(used), len(names)))
    for _ in range(rounds):
        slopes = np.stack([(errors(x + STEP * row) - e) / STEP for row in np.eye(len(names))], axis=1)
        x = np.clip(x + np.clip(solved(x, e, slopes, every), -0.7, 0.7), np.log(low), np.log(high))
        e = errors(x)
    models = np.array([u.row.model_id for u in used])
    left_out = e.copy()
    for model in np.unique(models):
        own = models == model
        left_out[own] = e[own] + slopes[own] @ np.clip(solved(x, e, slopes, ~own), -0.8, 0.8)
    values = dict(zip(names, np.exp(x).tolist(), strict=True))
    _, ends = _simulated_errors(used, replace(bare, scopes={**bare.scopes, scope: others | values}))
    ratio = _wider(left_out, ends, weights, used)
    return ScopeFit(values, ratio, used, weights, before, e, left_out)


class Spread(NamedTuple):
    """How far off an engine's figures are on one family of chips."""

    framework: str
    family: str
    groups: int  # of chip, model, source and format
    models: int
    covered: float  # share of the groups' figures inside the 90 % interval without an uncertain_ratio
    uncertain_ratio: float  # with which it holds 90 % of them


def spreads(rows: Iterable[Row], resources: Resources, excluded: Iterable[Sequence[str]]) -> list[Spread]:
    """The spread of each engine on each family of chips over models, which count alike: the next one may be any.

    Rows that a fit has seen make it look smaller than it is.
    """
    plain = {name: {k: v for k, v in values.items() if k != UNSURE} for name, values in resources.scopes.items()}
    bare = replace(resources, scopes=plain)
    used, weights = grouped_rows(rows, bare, excluded, lambda case: True)
    errors, ends = _simulated_errors(used, bare)
    places = [(u.case.framework, bare.accelerators[u.case.accelerator_slug].family) for u in used]
    found = []
    for framework, family in sorted(set(places)):
        own = np.array([place == (framework, family) for place in places])
        rows_here = tuple(u for u, mine in zip(used, own, strict=True) if mine)
        lacks = _lacking(errors[own], ends[own], rows_here)
        known = np.isfinite(lacks)
        seen = np.where(known, weights[own], 0.0)
        models = np.array([u.row.model_id for u in rows_here])
        seen = seen / np.array([max(seen[models == model].sum(), 1e-9) for model in models])
        if known.any():
            found.append(
                Spread(
                    framework=framework,
                    family=family,
                    groups=len({u.group for u in rows_here}),
                    models=len(set(models)),
                    covered=float(seen[known & (lacks <= 0)].sum() / seen[known].sum()),
                    uncertain_ratio=_wider(errors[own], ends[own], seen, rows_here),
                )
            )
    return found


def _simulated_errors(used: Sequence[Used], resources: Resources) -> tuple[Array, Array]:
    """log(predicted / measured) of rows, and the logarithms of both ends of their intervals over the prediction."""
    distinct = list(dict.fromkeys(u.case for u in used))
    estimates = dict(zip(distinct, estimate_all(distinct, resources), strict=True))
    figures = [scoring.prediction_of(u.row, u.case, estimates[u.case]) for u in used]
    errors = np.array([_log_ratio(f, u.row.value) for f, u in zip(figures, used, strict=True)])
    ends = [scoring.ratios_of(u.row, u.case, estimates[u.case], resources.scopes) for u in used]
    return errors, np.log([each or (np.nan, np.nan) for each in ends])


def _values(case: Case, resources: Resources, names: Sequence[str]) -> dict[str, float]:
    chip = resources.accelerators[case.accelerator_slug]
    own = overhead(resources.scopes, case.framework, case.framework_version, chip.family, chip.kind, chip.slug)
    figures = efficiency(resources.scopes, chip.slug, chip.family, chip.kind)
    return {name: getattr(own if hasattr(own, name) else figures, name) for name in names}


def _log_ratio(prediction: Any, measured: float) -> float:
    value = getattr(prediction, "value", None)
    return float(np.log(value / measured)) if value else float("nan")


def _lacking(errors: Array, ends: Array, used: Sequence[Used]) -> Array:
    """By how much (natural log) each row's interval would have to be wider on its side; NaN: a figure that is not used.

    Below 0: the row is inside.
    """
    kinds = np.isin([u.kind for u in used], ("tpot", "throughput"))
    return np.where(kinds, np.maximum(ends[:, 0] + errors, -errors - ends[:, 1]), np.nan)


def _wider(errors: Array, ends: Array, weights: Array, used: Sequence[Used]) -> float:
    """uncertain_ratio: what the 90 % intervals lack to hold 90 % of these errors."""
    lacks, models = _lacking(errors, ends, used), len({u.row.model_id for u in used})
    seen = np.isfinite(lacks)
    if models == 1 or not seen.any():
        return ONE_MODEL_RATIO
    order = np.argsort(lacks[seen])
    reached = np.cumsum(weights[seen][order]) / weights[seen].sum()
    ratio = float(np.exp(max(lacks[seen][order][np.searchsorted(reached, 0.9)], 0.0)))
    return ratio if models >= SAFE_MODELS else max(ratio, LEAST_RATIO)
