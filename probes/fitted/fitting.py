"""Fits an accepted result: efficiencies of its chip, a new calibration in the catalog, and recomputed advice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import structlog
from django.db import OperationalError, transaction
from django.db.models import Q
from django.utils import timezone

from advisor import advise, webhooks
from advisor.engine import ENGINE_VERSION
from advisor.engine.calibration import Figure, determined
from advisor.engine.terms import Efficiency
from advisor.engine.terms import efficiency as efficiency_in
from advisor.models import Advice, Option
from catalog import clock
from catalog.loading.load import PROBED
from catalog.models import Accelerator, Calibration, Organisation
from probes.fitted import fit_report
from probes.models import Result
from probes.received import results

log = structlog.get_logger("assay.probes")
POOL_DAYS = 90
MIN_MACHINES = 2  # untrusted machines that must agree before a shared figure changes
AGREEMENT_TOLERANCE = 0.1  # relative to the median
RECOMPUTE_THRESHOLD = 0.01  # smaller relative changes do not recompute answers
RECOMPUTE_DAYS, MAX_RECOMPUTED = 30, 50
SUITE_RANK = {"quick": 0, "custom": 1, "full": 2}
RESEND_S = 15
KERNELS = "memory_fraction"  # without it, answers for a chip do not rest on its measured kernels
Json = dict[str, Any]


def run(pk: int) -> Calibration | None:
    """Fits one result, once. None: it was already fitted, does not count, or changes no figure."""
    rows = results.usable().filter(pk=pk, fitted_at=None)
    result = rows.select_related("accelerator", "agent", "organisation").first()
    if result is None:
        return None
    try:
        with transaction.atomic():
            calibration, changed = _calibrate(result)
            if calibration and changed and result.accelerator:
                recompute_advice(result.accelerator.slug, owner=calibration.organisation)
    except OperationalError:  # the database is unavailable; the sweep retries
        log.exception("database away", result=pk)
        return None
    except Exception as error:  # a result that breaks the fit must not be retried every five seconds
        log.exception("fit failed", result=pk)
        text = f"the fit failed with an internal error ({type(error).__name__}); see the log for details"
        rows = Result.objects.filter(pk=pk, fitted_at=None)
        rows.update(fitted_at=timezone.now(), remarks=[*result.remarks, text], report=fit_report.nothing(text))
        return None
    return calibration


def _calibrate(result: Result) -> tuple[Calibration | None, bool]:
    """The new calibration, and whether it changes answers. The row count of the first update decides who fits it.

    Fits of one chip run one at a time, because each new row starts from the newest one.
    """
    if not Result.objects.filter(pk=result.pk, fitted_at=None).update(fitted_at=timezone.now()):
        return None, False
    if result.accelerator is None:
        Result.objects.filter(pk=result.pk).update(report=fit_report.unmatched(result.document or {}))
        return None, False
    from advisor.inputs import catalog_chip  # imported here so that beat and the sweep do not load the engine

    Accelerator.objects.select_for_update().get(pk=result.accelerator.pk)
    before = base_efficiency(catalog_chip(result.accelerator), results.calibrated_for(result.organisation))
    machines = pool(result.accelerator, result.method, result.organisation)
    agreement = agreement_of(machines)
    mark_waiting(machines, agreement)
    calibration, changed = append(result, agreement)
    own = [v.figure for m in machines for v in m if v.result_id == result.pk and v.figure.name in agreement.waiting]
    fit = {f.name: {"value": f.value, "low": f.low, "high": f.high, "from": f.source} for f in agreement.figures}
    fit |= {
        f.name: {"value": f.value, "low": f.low, "high": f.high, "from": f"{f.source}; {results.AWAITING}"} for f in own
    }
    new = [text for text in why_unchanged(result, agreement, calibration) if text not in result.remarks]
    fared = fit_report.Fit(
        agreed={f.name: f for f in agreement.figures},
        waiting=[name for name, pks in agreement.waiting.items() if result.pk in pks],
        own=[v.figure.name for m in machines for v in m if v.result_id == result.pk],
        calibration=calibration,
    )
    found = {"fit": fit, "calibration": calibration, "remarks": [*result.remarks, *new]}
    found["report"] = report_of(result, before, fared)
    Result.objects.filter(pk=result.pk).update(**found)
    if calibration:
        Result.objects.filter(pk__in=agreement.results, calibration=None).update(calibration=calibration)
    return calibration, changed


def preview(result: Result) -> Json:
    """The report of a result that is not used: what it would determine, and why it does not count."""
    if result.accelerator is None:
        return fit_report.unmatched(result.document or {})
    from advisor.inputs import catalog_chip

    why = results.standing(result) or f"the result is {result.state}"
    before = base_efficiency(catalog_chip(result.accelerator), results.calibrated_for(result.organisation))
    return report_of(result, before, None, why)


def report_of(result: Result, before: Efficiency | None, fit: fit_report.Fit | None, reason: str = "") -> Json:
    from advisor.fidelity import training_probes
    from advisor.inputs import catalog_chip

    assert result.accelerator is not None
    chip, document = catalog_chip(result.accelerator), result.document or {}
    newest = in_use(f"accelerator:{result.accelerator.slug}", results.calibrated_for(result.organisation))
    found = determined(document, chip, known_values(before, newest))
    trained = fit_report.Trained()
    if before and any(e["kind"] in training_probes.KINDS for e in document["results"]):
        steps = training_probes.figures_of(document["results"], chip, with_figures(before, found.figures))
        trained = fit_report.Trained(figures=steps.figures, reasons=steps.reasons)
    return fit_report.of(result, found, trained, before, fit, reason)


@dataclass(frozen=True, slots=True)
class Vote:
    """One machine's value of one figure."""

    figure: Figure
    result_id: int
    trusted: bool  # counts without a second machine


@dataclass(frozen=True, slots=True)
class Agreement:
    """The figures that enough machines agree on, and the results that wait."""

    figures: tuple[Figure, ...]
    results: tuple[int, ...]  # IDs of the results they come from
    waiting: Mapping[str, tuple[int, ...]]  # figure -> IDs of results whose value does not count yet


def pool(chip: Accelerator, method: str, organisation: Organisation) -> list[list[Vote]]:
    """The figures of each machine of an organization with this chip and method.

    They are from its newest full suite, else from a smaller one.
    """
    # Imported here so that beat and the sweep do not load the engine.
    from advisor.fidelity import training_probes
    from advisor.inputs import catalog_chip

    owner = results.calibrated_for(organisation)
    engine_chip, newest = catalog_chip(chip), in_use(f"accelerator:{chip.slug}", owner)
    base = base_efficiency(engine_chip, owner)
    known = known_values(base, newest)
    since = clock.read() - timedelta(days=POOL_DAYS)
    rows = results.usable().filter(organisation=organisation, accelerator=chip, method=method, received_at__gt=since)
    machines: list[list[Vote]] = []
    for group in by_machine(rows.exclude(document=None).select_related("agent")):
        votes: dict[str, Vote] = {}
        ordered = sorted(group, key=lambda r: (SUITE_RANK.get(r.suite, 0), r.received_at))
        for row in ordered:
            trusted = results.is_trusted(row)
            votes.update(
                {f.name: Vote(f, row.pk, trusted) for f in determined(row.document or {}, engine_chip, known).figures}
            )
        # Whole steps are compared with the kernel rates of the same machine, so they come second.
        own = with_figures(base, [vote.figure for vote in votes.values()]) if base else None
        for row in ordered:
            if own is None:
                break
            fit = training_probes.figures_of((row.document or {})["results"], engine_chip, own)
            votes.update({f.name: Vote(f, row.pk, results.is_trusted(row)) for f in fit.figures})
        machines.append(list(votes.values()))
    return machines


def known_values(base: Efficiency | None, newest: Calibration | None) -> dict[str, float]:
    """Values of figures that a result may not determine but its fit needs."""
    values = {k: float(v) for k, v in (newest.values if newest else {}).items() if isinstance(v, int | float)}
    return ({"matrix_factor": base.matrix_factor} if base else {}) | values


def base_efficiency(chip: Any, owner: Organisation | None = None) -> Efficiency | None:
    """The efficiency of a chip in answers of an organization (None: of all) now.

    None while the catalog has no default calibration.
    """
    from advisor.inputs import calibrations

    try:
        return efficiency_in(calibrations(owner), chip.slug, chip.family, chip.kind)
    except ValueError:
        return None


def with_figures(base: Efficiency, figures: Iterable[Figure]) -> Efficiency:
    values: Json = {f.name: f.value for f in figures}
    return replace(base, **values)


def why_unchanged(result: Result, agreement: Agreement, calibration: Calibration | None) -> list[str]:
    """Why this result changed no figure, or not those of training."""
    from advisor.fidelity import training_probes
    from advisor.inputs import catalog_chip

    entries, texts = (result.document or {})["results"], []
    if result.accelerator and any(e["kind"] in training_probes.KINDS for e in entries):
        chip = catalog_chip(result.accelerator)
        base = base_efficiency(chip, results.calibrated_for(result.organisation))
        if base is None:
            texts.append("its training steps were not compared: the catalog has no default calibration")
        else:
            texts += training_probes.figures_of(entries, chip, base).reasons
    if calibration is None:
        waiting = any(result.pk in pks for pks in agreement.waiting.values())
        if waiting:
            texts.append(f"changes no figure: {results.AWAITING}")
        elif result.pk in agreement.results:
            texts.append("changes no figure: the calibration in use has these values already")
        else:
            texts.append("changes no figure: it determines none, or a fuller suite of this machine does")
    return texts


def by_machine(rows: Iterable[Result]) -> list[list[Result]]:
    """Groups results by machine. One agent or one device is one machine: enrolling a GPU twice gives no second vote."""
    groups: list[tuple[set[str], list[Result]]] = []
    for row in rows:
        ids = {f"device {row.device_hash}"} if row.device_hash else set()
        ids |= {f"agent {row.agent_id}"} if row.agent_id else set()
        ids = ids or {f"name {row.device_name}"}
        same = [group for group in groups if group[0] & ids]
        groups = [group for group in groups if not group[0] & ids]
        groups.append((ids.union(*(g[0] for g in same)), [r for g in same for r in g[1]] + [row]))
    return [rows for _, rows in groups]


def agreement_of(machines: Iterable[list[Vote]]) -> Agreement:
    """The median of each figure over the machines that agree.

    With trusted machines: those and the ones near their median. Without: the ones near the median of all, if they are
    at least two and a majority. The interval spans those of all machines that agree.
    """
    by_figure: dict[str, list[Vote]] = {}
    for votes in machines:
        for vote in votes:
            by_figure.setdefault(vote.figure.name, []).append(vote)
    figures: list[Figure] = []
    used: set[int] = set()
    waiting: dict[str, tuple[int, ...]] = {}
    for name, votes in by_figure.items():
        trusted = [v for v in votes if v.trusted]
        median = float(np.median([v.figure.value for v in trusted or votes]))
        near = [v for v in votes if v.trusted or abs(v.figure.value - median) <= AGREEMENT_TOLERANCE * abs(median)]
        counts = bool(trusted) or (len(near) >= MIN_MACHINES and 2 * len(near) > len(votes))
        if counts:
            figures.append(_median_figure([v.figure for v in near]))
            used |= {v.result_id for v in near}
        if pks := [v.result_id for v in votes if not counts or v not in near]:
            waiting[name] = tuple(pks)
    return Agreement(tuple(figures), tuple(sorted(used)), waiting)


def mark_waiting(machines: Iterable[list[Vote]], agreement: Agreement) -> None:
    """Stores with each result which of its figures do not count yet."""
    for pk in {vote.result_id for votes in machines for vote in votes}:
        names = sorted(name for name, pks in agreement.waiting.items() if pk in pks)
        Result.objects.filter(pk=pk).exclude(waiting=names).update(waiting=names)


def _median_figure(figures: list[Figure]) -> Figure:
    if len(figures) == 1:
        return figures[0]
    return Figure(
        name=figures[0].name,
        value=float(np.median([f.value for f in figures])),
        low=min(f.low for f in figures),
        high=max(f.high for f in figures),
        count=sum(f.count for f in figures),
        source=f"median of {len(figures)} machines",
    )


def _newest(name: str, owner: Organisation | None) -> Calibration | None:
    rows = Calibration.objects.of_everyone().filter(name=name, organisation=owner)
    return rows.order_by("-created_at", "-pk").first()


def in_use(name: str, owner: Organisation | None) -> Calibration | None:
    """The calibration in answers of an organization (None: of all), with the shared values that it did not measure."""
    from advisor.inputs import laid_over

    shared = _newest(name, None)
    own = _newest(name, owner) if owner else None
    return laid_over(own, shared) if own else shared


def append(result: Result, agreement: Agreement) -> tuple[Calibration | None, bool]:
    """Adds a calibration and says whether it changes answers. Values that were not fitted are kept.

    (None, False) if the newest row already has these values.
    """
    if not agreement.figures or not result.accelerator:
        return None, False
    name = f"accelerator:{result.accelerator.slug}"
    owner = results.calibrated_for(result.organisation)
    newest, values = _newest(name, owner), {f.name: rounded(f.value) for f in agreement.figures}
    stored, used = dict(newest.values) if newest else {}, in_use(name, owner)
    before = dict(used.values) if used else {}
    changed = [k for k, v in values.items() if k not in before or _differs(v, before[k])]
    if newest and all(before.get(k) == v for k, v in values.items()) and set(values) <= set(newest.measured):
        return None, False
    kept = sorted(set(stored) - set(values))
    measured = {*values, *(newest.measured if newest else ())}
    row = Calibration.objects.create(
        organisation=owner,
        name=name,
        values=stored | values,
        basis=basis_of(measured, used.basis if used else "datasheet"),
        fitted_on=provenance(result, agreement.figures, kept),
        engine_version=ENGINE_VERSION,
        as_of=clock.today(),
        measured=sorted(measured),
        changes=[{"figure": k, "before": before.get(k), "after": v} for k, v in sorted(values.items())],
        results=list(agreement.results),
    )
    return row, bool(changed)


def basis_of(measured: Iterable[str], otherwise: str) -> str:
    """Training steps, launches or a few multiplies alone do not make a chip a measured one."""
    return "measured" if KERNELS in set(measured) else otherwise


def rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _differs(value: float, before: float) -> bool:
    return abs(value - before) > RECOMPUTE_THRESHOLD * abs(before)


def provenance(result: Result, fitted: Iterable[Figure], kept: list[str]) -> str:
    """What a calibration was fitted to, with the figures. It must start with PROBED."""
    document = result.document or {}
    versions = ", ".join(f"{k} {v}" for k, v in sorted(document.get("versions", {}).items()) if v)
    driver = document.get("device", {}).get("driver")
    figures = ", ".join(f"{f.name} {f.value:.4g} ({f.low:.4g} to {f.high:.4g})" for f in fitted)
    origin = f"{result.device_name}, {result.chips} chip{'s' * (result.chips > 1)}, driver {driver}, {versions}"
    rest = f"; not measured and kept: {', '.join(kept)}" if kept else ""
    origin += f", suite {result.suite_version}"
    return f"{PROBED} {result.pk} of {result.received_at:%Y-%m-%d} ({origin}): {figures}{rest}"


def recompute_advice(slug: str, also: Iterable[UUID] = (), owner: Organisation | None = None) -> list[Advice]:
    """Queues successors of recent answers that rank this chip or are in `also`. Finished answers never change.

    `owner`: only those of this organization.
    """
    webhooks.accelerator_calibrated(slug, owner)
    since = clock.read() - timedelta(days=RECOMPUTE_DAYS)
    ranked = Option.objects.filter(accelerator_slug=slug).values("advice_id")
    affected = Q(pk__in=ranked) | Q(pk__in=list(also))
    rows = Advice.objects.filter(affected, state=Advice.State.DONE, successors=None, created_at__gt=since)
    rows = rows.filter(organisation=owner) if owner else rows
    return [
        advise.rescore(advice) for advice in rows.defer("snapshot", "result").order_by("-created_at")[:MAX_RECOMPUTED]
    ]


def resend_unfitted() -> int:
    """Sends the task again for results that still wait for their fit, in case a message was lost."""
    rows = results.usable().filter(fitted_at=None, received_at__lt=clock.ago(RESEND_S))
    return sum(results.wake(pk) for pk in rows.order_by("pk").values_list("pk", flat=True)[:20])
