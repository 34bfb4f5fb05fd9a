"""Corrections of predictions by measured rows: which levels help, judged on rows that were held out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import yaml

from advisor.engine.calibration import Observed, Pooling
from advisor.engine.calibration.conditioning import LEVELS
from advisor.engine.terms import LAYOUT, LENGTHS, MODEL, SITE, STACK, Z95
from advisor.inputs import measured
from catalog.models import EvidenceRow, ScoredRow
from tests.laboratory import pooling_fit

CLASSES = (measured.TPOT, measured.TTFT, measured.OFFLINE, measured.STATIC, measured.PREFILL)
GAIN = 0.98  # a level is used if the mean error of held-out rows falls at least to this fraction
# What is held out to judge a level: with one layout of a stack held out, only the stack's other layouts inform it.
JUDGED_BY = {MODEL: "group", STACK: LAYOUT, LAYOUT: LENGTHS, SITE: LENGTHS, LENGTHS: "row"}
UNITS = ("group", LAYOUT, LENGTHS, "row")


# --- what is used, decided from held-out rows ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Errors of one class with one kind of unit held out, of physics alone and corrected."""

    unit: str
    rows: int
    groups: int
    physics_groups: float  # median over groups of the median |predicted / measured - 1|
    corrected_groups: float
    physics_p90: float  # over rows
    corrected_p90: float
    physics_mean: float  # mean over groups of the mean |log error|
    corrected_mean: float
    covered: float  # share of rows inside the corrected 90 % interval
    covered_groups: float  # mean over groups of that share
    half_width: float  # median, of the corrected 90 % interval, natural log


def units_of(observed: Sequence[Observed], unit: str) -> list[object]:
    if unit == "group":
        return [o.group for o in observed]
    return list(range(len(observed))) if unit == "row" else [o.place.key(unit) for o in observed]


def judged(observed: Sequence[Observed], pooling: Pooling, unit: str, informed_only: bool = True) -> Judged | None:
    """How well other units' rows predict the rows of each unit; None if fewer than ten rows are informed."""
    result = pooling_fit.held_out(observed, pooling, units_of(observed, unit))
    kept = result.informed if informed_only else np.ones(len(observed), bool)
    if kept.sum() < 10:
        return None
    errors = np.array([o.log_error for o in observed])
    groups = np.array([o.group for o in observed])[kept]
    before, after = errors[kept], (errors - result.log_mean)[kept]
    inside = np.abs(after) <= Z95 * result.log_sd[kept]
    each = [groups == g for g in np.unique(groups)]

    def medians(log_errors: np.ndarray) -> float:
        return float(np.median([np.median(np.abs(np.expm1(-log_errors[g]))) for g in each]))

    def mean(log_errors: np.ndarray) -> float:
        return float(np.mean([np.mean(np.abs(log_errors[g])) for g in each]))

    return Judged(
        unit=unit,
        rows=int(kept.sum()),
        groups=len(each),
        physics_groups=medians(before),
        corrected_groups=medians(after),
        physics_p90=float(np.quantile(np.abs(np.expm1(-before)), 0.9)),
        corrected_p90=float(np.quantile(np.abs(np.expm1(-after)), 0.9)),
        physics_mean=mean(before),
        corrected_mean=mean(after),
        covered=float(inside.mean()),
        covered_groups=float(np.mean([inside[g].mean() for g in each])),
        half_width=float(np.median(Z95 * result.log_sd[kept])),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The pooling of one class, with the held-out errors that decided on its levels."""

    figure: str
    pooling: Pooling
    tried: Mapping[str, Judged]  # level -> with that level, by what judges it
    final: tuple[Judged, ...]  # with the used levels, by unit held out; not only informed rows for "group"


def decide(observed: Sequence[Observed], figure: str) -> Decision:
    """Fits the variances and keeps the levels that reduce the error of held-out rows.

    Imported figures say nothing about other chips: a model's errors on them are no smaller in the median.
    """
    levels = [level for level in LEVELS if figure != measured.IMPORTED or level != MODEL]
    full = pooling_fit.fit(observed, levels)
    tried: dict[str, Judged] = {}
    kept = []
    for level in levels:
        found = judged(observed, full, JUDGED_BY[level])
        if found is None:
            continue
        tried[level] = found
        if found.corrected_mean <= GAIN * found.physics_mean:
            kept.append(level)
    pooling = pooling_fit.fit(observed, kept) if kept else Pooling(variances={}, noise=full.noise, levels=())
    final = tuple(f for unit in UNITS if kept and (f := judged(observed, pooling, unit, unit != "group")) is not None)
    return Decision(figure=figure, pooling=pooling, tried=tried, final=final)


def decisions(rows: Sequence[ScoredRow], imported: Iterable[EvidenceRow] = ()) -> list[Decision]:
    """One decision for each class that has rows of at least three groups."""
    known = measured.shapes()
    classes = {figure: measured.observed_of(rows, figure, known) for figure in CLASSES}
    classes[measured.IMPORTED] = measured.imported_of(imported, known)
    return [decide(found, figure) for figure, found in classes.items() if len({o.group for o in found}) >= 3]


def document(made: Iterable[Decision]) -> str:
    """The YAML file that answers read."""
    figures = {
        d.figure: {
            "levels": list(d.pooling.levels),
            "variances": {level: round(v, 6) for level, v in d.pooling.variances.items()},
            "noise": round(d.pooling.noise, 6),
        }
        for d in made
    }
    return (
        "# Written by `fidelity --write-docs`; do not edit. Variances of log errors; docs/explanation/conditioning.md\n"
        + (yaml.safe_dump(figures, sort_keys=False))
    )
