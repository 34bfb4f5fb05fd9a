"""An accepted result to efficiencies of its chip, to a calibration of the catalog, to advice that is asked again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
import structlog
from django.db import OperationalError, transaction
from django.db.models import Q
from django.utils import timezone

from advisor import advise
from advisor.engine import ENGINE_VERSION
from advisor.engine.calibration import Figure, efficiency_of
from advisor.models import Advice, Option
from catalog.loading.load import PROBED
from catalog.models import Accelerator, Calibration
from probes import results
from probes.models import Result

log = structlog.get_logger("assay.probes")
POOL_DAYS = 90
MACHINES = 2  # that nobody vouches for have to agree before they change a figure that all share
AGREES = 0.1  # of the middle: two machines agree when both are that near to it
WORTH_ASKING_AGAIN = 0.01  # a figure that moved by less changes no answer that anybody would notice
RESCORE_DAYS, MOST_RESCORED = 30, 50
SUITE_RANK = {"quick": 0, "custom": 1, "full": 2}
RESEND_S = 15
Json = dict[str, Any]


def run(pk: int) -> Calibration | None:
    """Calibrate from one result, once; None when there is nothing new to say."""
    rows = results.counted().filter(pk=pk, fitted_at=None)
    result = rows.select_related("accelerator", "agent").first()
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
    if result.accelerator is None:
        return None, False
    Accelerator.objects.select_for_update().get(pk=result.accelerator.pk)
    machines = pool(result.accelerator, result.method)
    agreement = agreed(machines)
    mark_waiting(machines, agreement)
    calibration, changed = append(result, agreement)
    own = [v.figure for m in machines for v in m if v.result_id == result.pk and v.figure.name in agreement.waiting]
    fit = {f.name: {"value": f.value, "low": f.low, "high": f.high, "from": f.source} for f in agreement.figures}
    fit |= {
        f.name: {"value": f.value, "low": f.low, "high": f.high, "from": f"{f.source}; {results.WAITS}"} for f in own
    }
    Result.objects.filter(pk=result.pk).update(fit=fit, calibration=calibration)
    if calibration:
        Result.objects.filter(pk__in=agreement.results, calibration=None).update(calibration=calibration)
    return calibration, changed


@dataclass(frozen=True, slots=True)
class Vote:
    """What one machine says of one figure."""

    figure: Figure
    result_id: int
    vouched: bool  # counts without a second machine


@dataclass(frozen=True, slots=True)
class Agreement:
    """The figures that enough machines agree on, and what waits."""

    figures: tuple[Figure, ...]
    results: tuple[int, ...]  # that they rest on
    waiting: Mapping[str, tuple[int, ...]]  # figure -> results whose word for it does not count yet


def pool(chip: Accelerator, method: str) -> list[list[Vote]]:
    """The figures of each machine with this chip, by the same method: its newest full suite, else a smaller one."""
    from advisor.inputs import catalog_chip  # here: beat and the sweep never pay for the engine

    engine_chip, newest = catalog_chip(chip), _newest(f"accelerator:{chip.slug}")
    known = {k: float(v) for k, v in (newest.values if newest else {}).items() if isinstance(v, int | float)}
    since = timezone.now() - timedelta(days=POOL_DAYS)
    rows = results.counted().filter(accelerator=chip, method=method, received_at__gt=since)
    machines: list[list[Vote]] = []
    for group in by_machine(rows.exclude(document=None).select_related("agent")):
        votes: dict[str, Vote] = {}
        for row in sorted(group, key=lambda r: (SUITE_RANK.get(r.suite, 0), r.received_at)):
            found = efficiency_of((row.document or {})["results"], engine_chip, known)
            vouched = results.is_vouched(row)
            votes.update({f.name: Vote(f, row.pk, vouched) for f in found.figures})
        machines.append(list(votes.values()))
    return machines


def by_machine(rows: Iterable[Result]) -> list[list[Result]]:
    """Results of one agent, or of one device, are of one machine: enrolling a card twice gives no second opinion."""
    groups: list[tuple[set[str], list[Result]]] = []
    for row in rows:
        names = {f"device {row.device_hash}"} if row.device_hash else set()
        names |= {f"agent {row.agent_id}"} if row.agent_id else set()
        names = names or {f"name {row.device_name}"}
        same = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        groups.append((names.union(*(g[0] for g in same)), [r for g in same for r in g[1]] + [row]))
    return [rows for _, rows in groups]


def agreed(machines: Iterable[list[Vote]]) -> Agreement:
    """For each figure the middle of the machines that agree: those near the vouched ones, or without any, those near
    the middle of all when they are at least two and most of them. The interval holds those of all that agree."""
    by_figure: dict[str, list[Vote]] = {}
    for votes in machines:
        for vote in votes:
            by_figure.setdefault(vote.figure.name, []).append(vote)
    figures: list[Figure] = []
    used: set[int] = set()
    waiting: dict[str, tuple[int, ...]] = {}
    for name, votes in by_figure.items():
        vouched = [v for v in votes if v.vouched]
        middle = float(np.median([v.figure.value for v in vouched or votes]))
        near = [v for v in votes if v.vouched or abs(v.figure.value - middle) <= AGREES * abs(middle)]
        counts = bool(vouched) or (len(near) >= MACHINES and 2 * len(near) > len(votes))
        if counts:
            figures.append(_middle([v.figure for v in near]))
            used |= {v.result_id for v in near}
        if left := [v.result_id for v in votes if not counts or v not in near]:
            waiting[name] = tuple(left)
    return Agreement(tuple(figures), tuple(sorted(used)), waiting)


def mark_waiting(machines: Iterable[list[Vote]], agreement: Agreement) -> None:
    """Notes with each result which of its figures do not count yet."""
    for pk in {vote.result_id for votes in machines for vote in votes}:
        names = sorted(name for name, left in agreement.waiting.items() if pk in left)
        Result.objects.filter(pk=pk).exclude(waiting=names).update(waiting=names)


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


def append(result: Result, agreement: Agreement) -> tuple[Calibration | None, bool]:
    """A new row that keeps what this fit does not determine; none when it says what the newest row says."""
    if not agreement.figures or not result.accelerator:
        return None, False
    name = f"accelerator:{result.accelerator.slug}"
    newest, values = _newest(name), {f.name: rounded(f.value) for f in agreement.figures}
    before = dict(newest.values) if newest else {}
    moved = [k for k, v in values.items() if k not in before or _differs(v, before[k])]
    if newest and all(before.get(k) == v for k, v in values.items()) and set(values) <= set(newest.measured):
        return None, False
    kept = sorted(set(before) - set(values))
    row = Calibration.objects.create(
        name=name,
        values=before | values,
        basis="measured",
        fitted_on=described(result, agreement.figures, kept),
        engine_version=ENGINE_VERSION,
        as_of=timezone.localdate(),
        measured=sorted({*values, *(newest.measured if newest else ())}),
        changes=[{"figure": k, "before": before.get(k), "after": v} for k, v in sorted(values.items())],
        results=list(agreement.results),
    )
    return row, bool(moved)


def rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _differs(value: float, before: float) -> bool:
    return abs(value - before) > WORTH_ASKING_AGAIN * abs(before)


def described(result: Result, fitted: Iterable[Figure], kept: list[str]) -> str:
    document = result.document or {}
    versions = ", ".join(f"{k} {v}" for k, v in sorted(document.get("versions", {}).items()) if v)
    driver = document.get("device", {}).get("driver")
    figures = ", ".join(f"{f.name} {f.value:.4g} ({f.low:.4g} to {f.high:.4g})" for f in fitted)
    came = f"{result.device_name}, {result.chips} chip{'s' * (result.chips > 1)}, driver {driver}, {versions}"
    rest = f"; not measured and kept: {', '.join(kept)}" if kept else ""
    return (
        f"{PROBED} {result.pk} of {result.received_at:%Y-%m-%d} ({came}, suite {result.suite_version}): {figures}{rest}"
    )


def ask_again(slug: str, also: Iterable[UUID] = ()) -> list[Advice]:
    """Successors of the recent answers that rank this chip; a finished answer itself is never edited."""
    since = timezone.now() - timedelta(days=RESCORE_DAYS)
    ranked = Option.objects.filter(accelerator_slug=slug).values("advice_id")
    concerned = Q(pk__in=ranked) | Q(pk__in=list(also))
    rows = Advice.objects.filter(concerned, state=Advice.State.DONE, successors=None, created_at__gt=since)
    return [
        advise.rescore(advice) for advice in rows.defer("snapshot", "result").order_by("-created_at")[:MOST_RESCORED]
    ]


def send_waiting() -> int:
    """Wakes somebody for every result that waits for its fit: its message may be lost."""
    late = timezone.now() - timedelta(seconds=RESEND_S)
    rows = results.counted().filter(fitted_at=None, received_at__lt=late)
    return sum(results.wake(pk) for pk in rows.order_by("pk").values_list("pk", flat=True)[:20])
