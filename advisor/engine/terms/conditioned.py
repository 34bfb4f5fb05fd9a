"""Where a measurement was made, and what measurements say about a deployment: values that corrections use."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from advisor.engine.terms.workloads.requests import Z95

MODEL, STACK, LAYOUT, LENGTHS, SITE = "model", "stack", "layout", "lengths", "site"
PREFIX = "conditioned:"
ANY = "*"  # any chip, version or format
LOAD_TEST = "load test"  # start of the keys of an organization's own rows


@lru_cache(maxsize=1024)
def release(version: str) -> str:
    """Major and minor version: kernels and schedulers change between these."""
    return ".".join(version.split(".")[:2])


def length_class(tokens: float) -> int:
    """Token lengths within about 20 % of each other, as a number (two to an octave)."""
    return round(2.0 * math.log2(max(tokens, 1.0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A deployment and its token lengths, as far as measurements are pooled by them."""

    framework: str
    version: str
    model: str  # models of the same shape share a name
    chip: str
    format: str
    layout: tuple[int, int, int, int]  # tp, pp, ep, dp
    lengths: tuple[int, int]  # length_class of input and output
    site: str = ""  # who measured, or asks: machines, drivers and settings differ between them

    def key(self, level: str) -> tuple[Any, ...]:
        """What deployments must share to share the effect of this level."""
        if level == MODEL:
            return (self.framework, self.model)
        stack = (self.framework, release(self.version), self.model, self.chip, self.format)
        if level == STACK:
            return stack
        own = {LAYOUT: (), LENGTHS: self.lengths, SITE: (self.site,)}
        return (*stack, self.layout, *own[level])


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """What the measurements say about one deployment."""

    log_mean: float  # of measured / predicted time
    log_sd: float  # of a new measurement around it
    rows: int  # that share `level`
    level: str  # narrowest level that a row shares; empty: none does
    keys: tuple[str, ...]  # of the rows with the most weight


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """The factor of one deployment on its step times."""

    time_factor: float = 1.0
    log_sd: float = 0.0  # of TPOT and throughput around the corrected prediction; 0: unknown
    rows: int = 0
    level: str = ""
    keys: tuple[str, ...] = ()
    imported: bool = False  # by imported figures alone, of any release of the framework

    @property
    def ratios(self) -> tuple[float, float] | None:
        """90 % interval as factors on a corrected time; None without near rows."""
        if not self.rows or not self.log_sd:
            return None
        return math.exp(-Z95 * self.log_sd), math.exp(Z95 * self.log_sd)

    @property
    def of_stack(self) -> bool:
        """Whether rows of this very stack are among the scorecard's or the organization's own."""
        return self.level not in ("", MODEL) and not self.imported

    @property
    def by_owner(self) -> bool:
        """Whether load tests of this very stack, of the organization that asks, are among the rows."""
        return self.of_stack and any(key.startswith(LOAD_TEST) for key in self.keys)


NONE = Correction()


def scope_of(chip: str, framework: str, version: str, weights: str, layout: tuple[int, int, int, int] | None) -> str:
    """Name of the calibration scope with the correction of a stack, or of one of its measured layouts."""
    name = f"{PREFIX}{chip}:{framework}:{release(version)}:{weights}"
    return name if layout is None else f"{name}:tp{layout[0]}pp{layout[1]}ep{layout[2]}dp{layout[3]}"


def correction(
    scopes: Mapping[str, Mapping[str, Any]],
    chip: str,
    framework: str,
    version: str,
    formats: tuple[str, ...],
    layout: tuple[int, int, int, int],
) -> Correction:
    """The correction of a deployment: that of its layout, else of its stack, else of imported figures, which are of any
    release, else of its model anywhere, else none.

    formats: names of its weight format, any of which a scope may have.
    """
    names = [
        scope_of(chip, framework, of, weights, wanted)
        for of in (version, ANY)
        for wanted in (layout, None)
        for weights in formats
    ]
    values = next((scopes[name] for name in (*names, scope_of(ANY, framework, ANY, ANY, None)) if name in scopes), None)
    if values is None:
        return NONE
    return Correction(
        time_factor=float(values["time_factor"]),
        log_sd=float(values["log_sd"]),
        rows=int(values["rows"]),
        level=str(values["level"]),
        keys=tuple(values["keys"]),
        imported=bool(values.get("imported")),
    )
