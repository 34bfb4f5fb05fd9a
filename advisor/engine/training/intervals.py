"""90 % intervals of a step's time and peak memory, from the errors on measured runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from advisor.engine.terms import Accelerator, RatioDistribution, Ratios, stored_distribution

SCOPE = "interval:training:"
BASES = ("measured", "relative", "datasheet")  # what the rates of a chip's kernels rest on, the best first


class Intervals(NamedTuple):
    """Factors (low, high) on predictions that contain 90 % of the measured figures; None: not known."""

    step: Ratios | None
    memory: Ratios | None


def run_basis(a: Accelerator, kernels: str, chips: int) -> str:
    """What a run's estimate rests on, if the rates of its chip's kernels rest on `kernels`.

    Runs whose kernels were measured were measured inside one scale-up domain. Beyond it, the errors are those of runs
    on related chips.
    """
    near = a.links[0].chips if a.links else 1
    return "relative" if kernels == "measured" and chips > near else kernels


def interval_kind(experts: bool, found: bool) -> str:
    """The class of a run: dense or a mixture of experts; its layout stated, or found by the search."""
    return f"{'experts' if experts else 'dense'}_{'found' if found else 'stated'}"


def interval(scopes: Mapping[str, Any], basis: str, *, experts: bool, found: bool = False) -> Intervals:
    """Intervals of a run on chips of this basis (Efficiency.basis), from the scopes of the calibration.

    Where a basis has too few runs of a kind, the next broader one stands in. `found`: nobody stated the layout, so the
    interval also holds the difference between the run's layout and the fastest one.
    """
    step = step_distribution(scopes, basis, experts=experts, found=found)
    memory = _stored(scopes, basis, "memory")
    return Intervals(step=containing(step.ends) if step else None, memory=containing(memory.ends) if memory else None)


def containing(ratios: Ratios) -> Ratios:
    """The interval, extended to the estimate itself."""
    return min(ratios[0], 1.0), max(ratios[1], 1.0)


def step_distribution(
    scopes: Mapping[str, Any], basis: str, *, experts: bool, found: bool = False
) -> RatioDistribution | None:
    """Distribution of a step's time over its estimate, the ends of which are the interval; None: not known."""
    return _stored(scopes, basis, f"{interval_kind(experts, found)}_step")


def _stored(scopes: Mapping[str, Any], basis: str, name: str) -> RatioDistribution | None:
    broader = BASES[BASES.index(basis) :] if basis in BASES else BASES[-1:]
    rows = [scopes.get(f"{SCOPE}{each}") or {} for each in broader]
    return next((known for row in rows if (known := stored_distribution(row, name)) is not None), None)
