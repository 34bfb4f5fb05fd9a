"""Fits the calibration to measured rows: `calibrate --measurements FILE.csv... [--out DIR]`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from advisor.engine import ENGINE_VERSION
from advisor.engine.estimate import Resources, estimate_all
from advisor.engine.search.limits import CORRELATION, METRICS
from advisor.engine.terms import SHARES, TRAINING, Case, Scopes
from advisor.engine.terms.ratio_distribution import quantile_key
from advisor.fidelity import Row, scoring
from catalog.management.errors import BadInput, at_least_one, writing
from tests.laboratory import calibrate, calibration_files, disputed, host_time, reliability
from tests.laboratory.calibration_files import Setup
from tests.laboratory.least_squares import BudgetError, Interval
from tests.laboratory.measurements import MeasurementsError, read

SHARED_IDS = "two files have rows with the same ID; give each file only once"
Table = dict[str, dict[str, float]]
LATENCIES = ("ttft", "tpot")


class Command(BaseCommand):
    help = "Fits the calibration to measured rows, cross-validates it on held-out groups, and writes it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--measurements", action="append", nargs="+", required=True, metavar="FILE.csv")
        parser.add_argument("--out", type=Path, default=calibration_files.CALIBRATION, metavar="DIR")
        parser.add_argument("--rounds", type=int, default=1, help="simulation rounds of the fit (default 1)")
        parser.add_argument(
            "--scope",
            action="append",
            default=[],
            metavar="NAME",
            help="fit only the figures of this scope, and print them",
        )
        parser.add_argument(
            "--spread",
            action="store_true",
            help="fit nothing; print how far off each engine is on each family of chips, with its uncertain_ratio",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor.inputs import catalog_resources

        at_least_one("--rounds", options["rounds"])
        rows = self._rows([path for paths in options["measurements"] for path in paths])
        with writing(options["out"]):  # fail before the fit, which takes minutes
            options["out"].mkdir(parents=True, exist_ok=True)
        resources = catalog_resources()
        for scope in options["scope"]:
            self.log(scope_text(scope, rows, resources))
        if options["spread"]:
            for each in calibrate.spreads(rows, resources, calibration_files.apart()["excluded"]):
                self.log(spread_text(each))
        if options["scope"] or options["spread"]:
            return
        for line in unused_probes():
            self.log(line)
        setup = calibration_files.setup(resources.accelerators)
        disputed_rows = disputed.find(rows, resources) | disputed.read()
        try:
            fit = calibrate.calibrate(rows, resources, setup, disputed_rows, options["rounds"], log=self.log)
        except BudgetError as error:
            raise CommandError(str(error)) from error
        self._finish(fit, resources, setup, rows, disputed_rows, options["out"])

    def log(self, text: str) -> None:
        self.stdout.write(text)

    def _rows(self, paths: Sequence[str]) -> list[Row]:
        try:
            rows = [row for path in paths for row in read(path)]
        except MeasurementsError as error:
            raise BadInput(str(error)) from error
        if len({row.id for row in rows}) != len(rows):
            raise BadInput(SHARED_IDS)
        return rows

    def _finish(
        self,
        fit: calibrate.Fitted,
        resources: Resources,
        setup: Setup,
        rows: Sequence[Row],
        disputed_rows: Mapping[str, str],
        out: Path,
    ) -> None:
        """Cross-validates, prints and writes the results."""
        errors = {kind: calibrate.held_out(fit, resources, setup, kind) for kind in calibrate.HELD_OUT}
        validated = tables(fit, resources, setup, errors)
        validated["held out"][host_time.TITLE] = host_time.held_out(rows, replace(resources, scopes=fit.scopes))
        bases = calibrate.bases_of(fit.evidence.rows, resources, setup)
        others = unfitted(rows, resources, fit, disputed_rows)
        unseen = calibrate.held_out_rows(fit, resources, errors, bases, others)
        spans = calibrate.intervals(unseen)
        for title, table in validated.items():
            self.log("\n" + table_text(title, table))
        self.log("\n" + intervals_text(spans))
        with writing(out):
            write(out, fit, resources, setup, bases, spans, unseen, validated)
        self.log(f"\nWrote {out}; digest {calibration_files.digest(out)}")


def scope_text(scope: str, rows: Sequence[Row], resources: Resources) -> str:
    """The fitted figures of one scope, and its errors by group: median ratio before, after, and its model left out."""
    import math

    import numpy as np

    apart = calibration_files.apart()
    free = apart["chip" if scope.startswith("accelerator:") else "engine"]
    try:
        fit = calibrate.fit_scope(rows, resources, scope, free, apart["excluded"])
    except ValueError as error:
        raise BadInput(str(error)) from error
    lines = [f"{scope}: {', '.join(f'{name} {value:.3g}' for name, value in fit.values.items())}"]
    lines.append(f"uncertain_ratio {fit.uncertain_ratio:.3g}; {len(fit.rows)} rows")
    for group, kind in sorted({(used.group, used.kind) for used in fit.rows}):
        own = np.array([used.group == group and used.kind == kind for used in fit.rows])
        middle = [math.exp(np.nanmedian(errors[own])) for errors in (fit.before, fit.after, fit.left_out)]
        lines.append(f"  {group} {kind}: {own.sum()} rows, {middle[0]:.2f}, {middle[1]:.2f}, {middle[2]:.2f}")
    return "\n".join(lines)


def spread_text(s: calibrate.Spread) -> str:
    return (
        f"{s.framework} on {s.family}: {s.groups} groups, {s.models} models, {s.covered:.0%} inside without "
        f"uncertain_ratio, which would be {s.uncertain_ratio:.3g}"
    )


def unused_probes(directory: Path = calibration_files.PROBES) -> list[str]:
    """Shipped probe results that the fit does not use, and why."""
    import json

    lines = []
    for path in sorted(directory.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if "--" not in path.name:
            device, cores = document["device"]["name"], document["host"]["cores"]
            lines.append(f"{path.name} not used: its name has no accelerator ({device}, {cores} cores)")
        elif document["library"] != "torch":
            lines.append(f"{path.name} not used: measured through {document['library']}")
    return lines


def unfitted(
    rows: Sequence[Row], resources: Resources, fit: calibrate.Fitted, disputed_rows: Mapping[str, str]
) -> list[tuple[calibrate.Used, float]]:
    """(row, log error) of rows without a closed form: disaggregated, speculative, percentiles and tuned rates."""
    import math

    seen = {used.row.id for used in fit.evidence.rows}
    remaining = [row for row in rows if row.id not in seen and row.id not in disputed_rows and row.task != "training"]
    fitted = Resources(
        models=resources.models,
        accelerators=resources.accelerators,
        quantizations=resources.quantizations,
        frameworks=resources.frameworks,
        scopes=fit.scopes,
    )

    def estimator(cases: Sequence[Case]) -> Sequence[Any]:
        return estimate_all(cases, fitted)

    scored = scoring.predict(remaining, resources, estimator)
    return [
        (
            calibrate.Used(
                row=s.row, case=s.case, kind=calibrate.kind_of(s.row, s.case), group=calibrate.group_of(s.row)
            ),
            math.log(s.ratio),
        )
        for s in scored
        if s.case is not None and s.ratio and not (s.case.client.kind == "poisson" and "tokens" in s.row.metric)
    ]


# ------------------------------------------------------------------ tables


def tables(fit: calibrate.Fitted, resources: Resources, setup: Setup, errors: Mapping[str, Any]) -> dict[str, Table]:
    """Errors by held-out unit, and with each group of parameters reset to its starting values."""
    evidence = fit.evidence
    fitted = calibrate.scores(evidence, fit.solution.errors)
    held_out: Table = {"none (in-sample)": fitted}
    held_out |= {f"one {kind}": calibrate.scores(evidence, errors[kind]) for kind in calibrate.HELD_OUT}
    start = calibrate.with_values(
        setup.scopes, setup.parameters, calibrate.least_squares.bounds_of(setup.parameters)[0]
    )
    reset: Table = {"none": fitted, "all": calibrate.scores(evidence, evidence.errors(start, resources))}
    for group in dict.fromkeys(setup.groups):
        reset[group] = calibrate.scores(evidence, calibrate.with_group_reset(fit, resources, setup, group))
    return {"held out": held_out, "parameters reset": reset}


def table_text(title: str, table: Table) -> str:
    kinds = [k for k in calibrate.KINDS if any(k in line for line in table.values())]
    lines = [f"{title:28s}" + "".join(f"{kind:>12s}" for kind in kinds)]
    for name, line in table.items():
        lines.append(
            f"{name:28s}" + "".join(f"{line[k] * 100:10.1f} %" if k in line else " " * 11 + "-" for k in kinds)
        )
    return "\n".join(lines)


def intervals_text(spans: Mapping[str, Mapping[str, Interval]]) -> str:
    lines = [f"{'90 % interval':28s}{'low':>8s}{'high':>8s}{'half':>8s}{'rows':>7s}{'groups':>8s}{'held out':>10s}"]
    for basis, metrics in spans.items():
        for metric, span in metrics.items():
            figures = f"{span.low:8.2f}{span.high:8.2f}{span.half_width * 100:6.0f} %{span.rows:7d}{span.groups:8d}"
            lines.append(f"{basis + ' ' + metric:28s}{figures}{span.coverage * 100:8.1f} %")
    return "\n".join(lines)


# ------------------------------------------------------------------ files


def write(
    out: Path,
    fit: calibrate.Fitted,
    resources: Resources,
    setup: Setup,
    bases: Mapping[str, str],
    spans: Mapping[str, Mapping[str, Interval]],
    unseen: calibrate.HeldOutRows,
    validated: Mapping[str, Table],
) -> None:
    """Writes each scope and interval to a file, and the scores."""
    facts = calibrate.summary(fit.evidence.rows)
    as_of = max(facts["to"] + "-28" if len(facts["to"]) == 7 else facts["to"], kernels_as_of())
    fitted_names = {(p.scope, p.name) for p in setup.parameters}
    families = sorted({chip.family for slug, chip in resources.accelerators.items() if bases[slug] != "datasheet"})
    scopes: Scopes = {f"family:{family}": {} for family in families if family} | dict(fit.scopes)
    stated = calibration_files.launch_times()
    for name, every in sorted((n, v) for n, v in scopes.items() if not n.startswith(TRAINING)):  # no fit sets them
        values = {key: value for key, value in every.items() if stated.get(name, {}).get(key) != value}
        if not values and name in stated:
            continue
        free = [key for key in values if (name, key) in fitted_names]
        calibration_files.write_scope(out, name, basis_of(name), as_of, source_text(name, free, facts, setup), values)
    for basis, metrics in spans.items():
        ratios = {key: value for metric, span in metrics.items() for key, value in quantiles_of(metric, span).items()}
        together = reliability.correlation(reliability.pairs(*(unseen[basis].get(name, ()) for name in LATENCIES)))
        if together is not None:
            ratios[CORRELATION] = together
        text = interval_text(basis, metrics)
        calibration_files.write_scope(
            out, f"interval:{basis}", "measured" if basis == calibrate.TIMED else basis, as_of, text, ratios
        )
    scores = report(fit, setup, facts, spans, validated, calibration_files.digest(out))
    calibration_files.write_report(out, scores | {"reliability": reliability.tables(unseen)})


def quantiles_of(metric: str, span: Interval) -> dict[str, float]:
    """The stored factors of one figure: of those that answers draw, every quantile; of others the 90 % interval."""
    kept = [(share, ratio) for share, ratio in zip(SHARES, span.quantiles, strict=True)]
    return {quantile_key(metric, share): ratio for share, ratio in (kept if metric in METRICS else [kept[0], kept[-1]])}


def kernels_as_of() -> str:
    return calibration_files.probed_on()


def basis_of(scope: str) -> str:
    """The basis of chips that use a scope."""
    kind = scope.split(":")[0]
    return {"accelerator": "measured", "family": "relative"}.get(kind, "datasheet")


def source_text(name: str, free: Sequence[str], facts: Mapping[str, Any], setup: Setup) -> str:
    """The source of a scope's values, as text."""
    parts = [setup.about[name]] if name in setup.about else []
    if free:
        parts.append(
            f"{', '.join(free)}: fitted on {facts['rows']} rows in {facts['groups']} (chip, model, source) groups of "
            f"{len(facts['sources'])} sources, {facts['from']} to {facts['to']}, "
            f"{len(facts['versions'])} framework versions (fit/scores.yaml)"
        )
    if not parts:
        parts.append("no values of its own; chips of this family have rows in the fit")
    return "; ".join(parts)


INTERVAL_ROWS = {
    calibrate.TIMED: "rows on chips with measured kernels under frameworks whose host times were measured there, their "
    "model held out",
    "measured": "rows on chips with measured kernels, their model held out",
    "relative": "rows on chips of families with measured rows, their chip held out",
    "datasheet": "all rows, their chip family held out",
}


def interval_text(basis: str, metrics: Mapping[str, Interval]) -> str:
    counts = ", ".join(f"{metric} {span.rows} rows in {span.groups} groups" for metric, span in metrics.items())
    quantiles = (
        "quantiles of measured / predicted, with equal weight for each group (low 5 %, high 95 %; the correlation is "
        "that of the normal scores of both errors of a run)"
    )
    return f"{quantiles}: {INTERVAL_ROWS[basis]} ({counts})"


def report(
    fit: calibrate.Fitted,
    setup: Setup,
    facts: Mapping[str, Any],
    spans: Mapping[str, Mapping[str, Interval]],
    validated: Mapping[str, Table],
    digest: str,
) -> dict[str, Any]:
    """The data on the fit in docs/reference/fidelity.md."""
    import numpy as np

    return {
        "engine_version": ENGINE_VERSION,
        "digest": digest,
        "fitted_on": dict(facts),
        "parameters": [
            {
                "scope": p.scope,
                "name": p.name,
                "group": group,
                "start": p.value,
                "fitted": calibration_files.rounded(float(np.exp(x))),
                "reason": p.reason,
            }
            for p, group, x in zip(setup.parameters, setup.groups, fit.solution.x, strict=True)
        ],
        "errors": {
            title: {name: {k: round(v, 4) for k, v in line.items()} for name, line in table.items()}
            for title, table in validated.items()
        },
        "intervals": {
            basis: {
                metric: {
                    "low": calibration_files.rounded(span.low),
                    "high": calibration_files.rounded(span.high),
                    "rows": span.rows,
                    "groups": span.groups,
                    "coverage": round(span.coverage, 3),
                }
                for metric, span in metrics.items()
            }
            for basis, metrics in spans.items()
        },
    }
