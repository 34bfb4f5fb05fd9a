"""An accepted result to efficiencies of its chip, to a calibration of the catalog, to advice that is asked again."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import structlog
from django.db import OperationalError, transaction
from django.utils import timezone

from advisor import advise
from advisor.engine import ENGINE_VERSION
from advisor.engine.kernel_samples import Figure
from advisor.engine.kernels import Fitted, efficiency_of
from advisor.models import Advice, Option
from catalog.loading import PROBED
from catalog.models import Accelerator, Calibration
from probes import results
from probes.models import Result

log = structlog.get_logger("assay.probes")
POOL_DAYS = 90
WORTH_ASKING_AGAIN = 0.01  # a figure that moved by less changes no answer that anybody would notice
RESCORE_DAYS, MOST_RESCORED = 30, 50
SUITE_RANK = {"quick": 0, "custom": 1, "full": 2}
RESEND_S = 15
Json = dict[str, Any]


def run(pk: int) -> Calibration | None:
    """Calibrate from one result, once; None when there is nothing new to say."""
    result = Result.objects.filter(pk=pk, state__in=results.USED, fitted_at=None).select_related("accelerator").first()
    if result is None:
        return None
    try:
        with transaction.atomic():
            calibration, changed = _calibrate(result)
            if calibration and changed and result.accelerator:
                ask_again(result.accelerator.slug)
    except OperationalError:  # the database is away, not the fit wrong: the sweep sends it again
        log.exception("database away", result=pk)
        return None
    except Exception as error:  # the task boundary: a result that breaks the fit must not do so every five seconds
        log.exception("fit failed", result=pk)
        text = f"the fit stopped on an internal error ({type(error).__name__}); the log has the details"
        rows = Result.objects.filter(pk=pk, fitted_at=None)
        rows.update(fitted_at=timezone.now(), remarks=[*result.remarks, text])
        return None
    return calibration


def _calibrate(result: Result) -> tuple[Calibration | None, bool]:
    """(the new row, whether it changes answers); the row count of the first update is the lock.

    One result of a chip at a time: a new row keeps what the newest one says, so it has to see it.
    """
    if not Result.objects.filter(pk=result.pk, fitted_at=None).update(fitted_at=timezone.now()):
        return None, False
    if result.accelerator:
        Accelerator.objects.select_for_update().get(pk=result.accelerator.pk)
    fitted = combined(pool(result)) if result.accelerator else Fitted(())
    fit = {f.name: {"value": f.value, "low": f.low, "high": f.high, "from": f.source} for f in fitted.figures}
    calibration, changed = append(result, fitted)
    Result.objects.filter(pk=result.pk).update(fit=fit, calibration=calibration)
    return calibration, changed


def pool(result: Result) -> list[Fitted]:
    """The figures of each machine with this chip, by the same method: its newest full suite, else a smaller one."""
    from advisor import assemble  # here: beat and the sweep never pay for the engine

    assert result.accelerator
    chip = assemble.chip(result.accelerator)
    newest = _newest(f"accelerator:{chip.slug}")
    known = {k: float(v) for k, v in (newest.values if newest else {}).items() if isinstance(v, int | float)}
    rows = Result.objects.filter(
        accelerator=result.accelerator,
        state__in=results.USED,
        suite_version=result.suite_version,
        received_at__gt=timezone.now() - timedelta(days=POOL_DAYS),
    ).exclude(document=None)
    machines: dict[Any, dict[str, Figure]] = {}
    for row in sorted(rows, key=lambda r: (SUITE_RANK.get(r.suite, 0), r.received_at)):
        found = efficiency_of((row.document or {})["results"], chip, known)
        machine = row.agent_id or row.device_name
        machines.setdefault(machine, {}).update({f.name: f for f in found.figures})
    return [Fitted(tuple(figures.values())) for figures in machines.values()]


def combined(machines: Iterable[Fitted]) -> Fitted:
    """The middle machine of each figure; the interval holds those of all."""
    found: dict[str, list[Figure]] = {}
    for fitted in machines:
        for figure in fitted.figures:
            found.setdefault(figure.name, []).append(figure)
    return Fitted(tuple(_middle(figures) for figures in found.values()))


def _middle(figures: list[Figure]) -> Figure:
    if len(figures) == 1:
        return figures[0]
    return Figure(
        name=figures[0].name,
        value=float(np.median([f.value for f in figures])),
        low=min(f.low for f in figures),
        high=max(f.high for f in figures),
        count=sum(f.count for f in figures),
        source=f"the middle of {len(figures)} machines",
    )


def _newest(name: str) -> Calibration | None:
    return Calibration.objects.filter(name=name).order_by("-created_at", "-pk").first()


def append(result: Result, fitted: Fitted) -> tuple[Calibration | None, bool]:
    """A new row that keeps what this fit does not determine; none when it says what the newest row says."""
    if not fitted.figures or not result.accelerator:
        return None, False
    name = f"accelerator:{result.accelerator.slug}"
    newest, values = _newest(name), {f.name: float(f"{f.value:.5g}") for f in fitted.figures}
    before = dict(newest.values) if newest else {}
    moved = [k for k, v in values.items() if k not in before or _differs(v, before[k])]
    if newest and all(before.get(k) == v for k, v in values.items()) and set(values) <= set(newest.measured):
        return None, False
    kept = sorted(set(before) - set(values))
    row = Calibration.objects.create(
        name=name,
        values=before | values,
        basis="measured",
        fitted_on=described(result, fitted, kept),
        engine_version=ENGINE_VERSION,
        as_of=timezone.localdate(),
        measured=sorted({*values, *(newest.measured if newest else ())}),
    )
    return row, bool(moved)


def _differs(value: float, before: float) -> bool:
    return abs(value - before) > WORTH_ASKING_AGAIN * abs(before)


def described(result: Result, fitted: Fitted, kept: list[str]) -> str:
    document = result.document or {}
    versions = ", ".join(f"{k} {v}" for k, v in sorted(document.get("versions", {}).items()) if v)
    driver = document.get("device", {}).get("driver")
    figures = ", ".join(f"{f.name} {f.value:.4g} ({f.low:.4g} to {f.high:.4g})" for f in fitted.figures)
    came = f"{result.device_name}, {result.chips} chip{'s' * (result.chips > 1)}, driver {driver}, {versions}"
    rest = f"; not measured and kept: {', '.join(kept)}" if kept else ""
    return (
        f"{PROBED} {result.pk} of {result.received_at:%Y-%m-%d} ({came}, suite {result.suite_version}): {figures}{rest}"
    )


def ask_again(slug: str) -> list[Advice]:
    """Successors of the recent answers that rank this chip; a finished answer itself is never edited."""
    since = timezone.now() - timedelta(days=RESCORE_DAYS)
    ranked = Option.objects.filter(accelerator_slug=slug).values("advice_id")
    rows = Advice.objects.filter(state=Advice.State.DONE, successors=None, created_at__gt=since, pk__in=ranked)
    return [
        advise.rescore(advice) for advice in rows.defer("snapshot", "result").order_by("-created_at")[:MOST_RESCORED]
    ]


def send_waiting() -> int:
    """Wakes somebody for every result that waits for its fit: its message may be lost."""
    late = timezone.now() - timedelta(seconds=RESEND_S)
    rows = Result.objects.filter(state__in=results.USED, fitted_at=None, received_at__lt=late)
    return sum(results.wake(pk) for pk in rows.order_by("pk").values_list("pk", flat=True)[:20])
