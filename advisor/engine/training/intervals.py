"""90 % intervals of a step's time and peak memory, from the errors on measured runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Ratios = tuple[float, float]
SCOPE = "interval:training:"
BASES = ("measured", "relative", "datasheet")  # what the rates of a chip's kernels rest on, the best first


class Intervals(NamedTuple):
    """Factors (low, high) on predictions that contain 90 % of the measured figures; None: not known."""

    step: Ratios | None
    memory: Ratios | None


def interval_kind(experts: bool, found: bool) -> str:
    """The class of a run: dense or a mixture of experts; its layout stated, or found by the search."""
    return f"{'experts' if experts else 'dense'}_{'found' if found else 'stated'}"


def interval(scopes: Mapping[str, Any], basis: str, *, experts: bool, found: bool = False) -> Intervals:
    """Intervals of a run on chips of this basis (Efficiency.basis), from the scopes of the calibration.

    Where a basis has too few runs of a kind, the next broader one stands in. `found`: nobody stated the layout, so the
    interval also holds the difference between the run's layout and the fastest one.
    """
    broader = BASES[BASES.index(basis) :] if basis in BASES else BASES[-1:]
    rows = [scopes.get(f"{SCOPE}{name}") or {} for name in broader]
    return Intervals(step=_ratios(rows, f"{interval_kind(experts, found)}_step"), memory=_ratios(rows, "memory"))


def _ratios(rows: list[Mapping[str, Any]], name: str) -> Ratios | None:
    for row in rows:
        if f"{name}_low_ratio" in row:
            return float(row[f"{name}_low_ratio"]), float(row[f"{name}_high_ratio"])
    return None
