"""What a result changes: each figure before and after, whether predictions use it, and else why not."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.calibration import Determined, Figure
from advisor.engine.terms import Efficiency
from catalog.models import Calibration
from probes.machines import devices
from probes.models import Result
from probes.received import results

TRAINING = "training_factor"
NEEDS_STEPS = "needs 3 steady train_step rows without recomputation, of the full suite"
UNCHANGED_FRACTION = 0.01  # relative changes below do not recompute answers
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """How the figures of one result fared among those of all machines with its chip."""

    agreed: Mapping[str, Figure]  # that enough machines agree on
    waiting: Collection[str]  # figures of this result that do not count yet
    own: Collection[str]  # figures for which this result speaks for its machine
    calibration: Calibration | None = None  # written now


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The figure of training steps, or why there is none."""

    figures: tuple[Figure, ...] = ()
    reasons: tuple[str, ...] = field(default=())


def nothing(reason: str) -> Json:
    """The report of a result that could not be fitted."""
    return {"reason": reason, "figures": [], "kinds": []}


def unmatched(document: Json) -> Json:
    """The report of a result whose accelerator is unknown."""
    return nothing(devices.unmatched_text(document))


def of(
    result: Result, found: Determined, trained: Trained, before: Efficiency | None, fit: Fit | None, reason: str = ""
) -> Json:
    """The report of a result of a known accelerator.

    `fit`: None if the result is not used, for `reason`. Keys: reason, figures (figure, before, after, measured, low,
    high, from, used, reason) and kinds (kind, reason).
    """
    rows = [_row(result, f, before, fit, reason) for f in (*found.figures, *trained.figures)]
    missing = dict(found.missing)
    if not trained.figures:
        missing[TRAINING] = "; ".join(trained.reasons) or NEEDS_STEPS
    rows += [_missing(name, why, before) for name, why in missing.items()]
    kinds = [{"kind": kind, "reason": why} for kind, why in found.unused_kinds.items()]
    return {"reason": reason, "figures": rows, "kinds": kinds}


def _missing(name: str, why: str, before: Efficiency | None) -> Json:
    value = getattr(before, name, None)
    rest: Json = dict.fromkeys(("measured", "low", "high"))
    return {"figure": name, "before": value, "after": value, **rest, "from": "", "used": False, "reason": why}


def _row(result: Result, f: Figure, before: Efficiency | None, fit: Fit | None, reason: str) -> Json:
    old = getattr(before, f.name, None)
    row = {"figure": f.name, "before": old, "after": old, "measured": f.value, "low": f.low, "high": f.high}
    row |= {"from": f.source, "used": False}
    if fit is None:
        return row | {"reason": reason}
    if f.name in fit.waiting:
        return row | {"reason": results.AWAITING}
    if f.name not in fit.own:
        return row | {"reason": "a fuller or newer result of the same machine determines it"}
    new = fit.agreed[f.name].value
    return row | {"after": new, "used": True, "reason": _small_change(f, old, new, fit.calibration)}


def _small_change(f: Figure, old: Any, new: float, calibration: Calibration | None) -> str:
    """Why a figure in use changes little or nothing; empty if it does change."""
    if calibration is None:
        return "the calibration in use has this value already"
    if not isinstance(old, int | float):
        return ""
    if abs(new - old) <= UNCHANGED_FRACTION * abs(old):
        return "within 1 % of the value before, so recent answers are not computed again"
    return "its range includes the value before" if f.low <= old <= f.high else ""
