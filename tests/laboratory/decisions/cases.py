"""Decisions that measured deployments can check: the same question on several chips, and limits of latency."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.engine.terms import length_class
from advisor.fidelity.nearest_rows import bits
from catalog.models import ScoredRow

SOURCES = ("serving_dated", "serving_nightly")
LEAST_SETTINGS = 3  # of a chip that takes part in a decision
LEAST_CHIPS = 2
LIMITS = 6
TPOT, TTFT = "tpot_ms_mean", "ttft_ms_mean"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One measured deployment at one concurrency, with what it cost and what was predicted."""

    key: str  # of its TPOT row, without the metric
    chip: str
    chips: int
    framework: str
    version: str
    weights: str
    layout: str
    concurrency: float
    basis: str
    tpot_ms: float
    ttft_ms: float
    predicted_tpot_ms: float  # by the calibration that was fitted to all rows
    predicted_ttft_ms: float

    @property
    def deployment(self) -> tuple[str, ...]:
        return (self.chip, self.framework, self.version, self.weights, self.layout, str(self.chips))


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The settings that answer one question: a model in one precision, with one pair of token lengths."""

    model: str
    shape: str  # the name that models of the same architecture share
    bits: int
    isl: float
    osl: float
    settings: tuple[Setting, ...]

    @property
    def name(self) -> str:
        return f"{self.model}, {self.bits} bits, {self.isl:g}/{self.osl:g}"

    @property
    def question(self) -> tuple[object, ...]:
        """What rows must share to answer the same question; it holds out other models of the same architecture too."""
        return (self.shape, self.bits, length_class(self.isl), length_class(self.osl))

    @property
    def chips(self) -> tuple[str, ...]:
        return tuple(sorted({s.chip for s in self.settings}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of one decision, ms."""

    tpot_ms: float
    ttft_ms: float | None = None

    def met(self, tpot_ms: np.ndarray, ttft_ms: np.ndarray) -> np.ndarray:
        within = tpot_ms <= self.tpot_ms
        return within if self.ttft_ms is None else within & (ttft_ms <= self.ttft_ms)


def usd_per_mtok(
    s: Setting, osl: float, usd_per_chip_hour: float, tpot_ms: np.ndarray, ttft_ms: np.ndarray
) -> np.ndarray:
    """Cost of a million output tokens while this many requests are in flight (Little's law)."""
    seconds = (ttft_ms + tpot_ms * (osl - 1.0)) / 1e3
    return np.asarray(s.chips * usd_per_chip_hour / 3600.0 * seconds / (s.concurrency * osl) * 1e6)


def groups_of(
    rows: Iterable[ScoredRow], shapes: Mapping[str, str], priced: Iterable[str], sources: Sequence[str] = SOURCES
) -> list[Group]:
    """The questions with enough settings on at least two chips that have a price.

    Only means of aggregated closed loops with a known client and stated layout; a run that the same source repeated
    counts by its newest date.
    """
    priced = set(priced)
    runs: defaultdict[str, dict[str, ScoredRow]] = defaultdict(dict)
    for row in rows:
        if row.source_key in sources and row.metric in (TPOT, TTFT) and decides(row) and row.accelerator in priced:
            runs[row.key.rpartition(":")[0]][row.metric] = row
    members: defaultdict[tuple[object, ...], dict[object, Setting]] = defaultdict(dict)
    for key, run in sorted(runs.items(), key=lambda item: max(r.measured_on for r in item[1].values())):
        if len(run) == 2:
            row = run[TPOT]
            place = (row.accelerator, row.chips, row.framework, row.weights_dtype, row.layout, row.concurrency)
            question = (row.model, bits(row.weights_dtype), row.isl, row.osl)
            members[question][place] = setting_of(key, row, run[TTFT])
    groups = []
    for (model, width, isl, osl), found in sorted(members.items(), key=lambda item: tuple(map(str, item[0]))):
        settings = enough(list(found.values()))
        if len({s.chip for s in settings}) >= LEAST_CHIPS:
            shape = shapes.get(str(model), str(model))
            groups.append(
                Group(model=model, shape=shape, bits=width, isl=isl, osl=osl, settings=tuple(settings))  # type: ignore[arg-type]
            )
    return groups


def decides(row: ScoredRow) -> bool:
    loop = row.phase == "serving" and row.client_known and row.client in ("steady", "burst")
    known = row.measured is not None and row.predicted is not None and row.basis
    stated = row.mode == "agg" and row.layout and "|" not in row.layout and row.concurrency
    return bool(loop and known and stated and row.circumstance != "disputed")


def setting_of(key: str, tpot: ScoredRow, ttft: ScoredRow) -> Setting:
    assert tpot.measured and ttft.measured and tpot.predicted and ttft.predicted and tpot.concurrency
    return Setting(
        key=key,
        chip=tpot.accelerator,
        chips=tpot.chips,
        framework=tpot.framework,
        version=tpot.framework_version,
        weights=tpot.weights_dtype,
        layout=tpot.layout,
        concurrency=tpot.concurrency,
        basis=tpot.basis,
        tpot_ms=tpot.measured,
        ttft_ms=ttft.measured,
        predicted_tpot_ms=tpot.predicted,
        predicted_ttft_ms=ttft.predicted,
    )


def enough(settings: Sequence[Setting]) -> list[Setting]:
    """The settings of chips that have at least LEAST_SETTINGS of them."""
    counts: defaultdict[str, int] = defaultdict(int)
    for s in settings:
        counts[s.chip] += 1
    kept = [s for s in settings if counts[s.chip] >= LEAST_SETTINGS]
    return sorted(kept, key=lambda s: (*s.deployment, s.concurrency))


def limits_of(settings: Sequence[Setting]) -> list[Limits]:
    """TPOT limits spread evenly, as logarithms, over the measured range; each without and with a limit of TTFT.

    The limit of TTFT is the median of the group, so half of its settings meet it. Limits that the same settings meet
    as others are the same decision, and count once; so limits that none meets make none.
    """
    tpot, ttft = (np.array([getattr(s, name) for s in settings]) for name in ("tpot_ms", "ttft_ms"))
    ends = np.log(tpot.min()), np.log(tpot.max())
    found: dict[bytes, Limits] = {bytes(len(tpot)): Limits(tpot_ms=0.0)}
    for limit in (None, float(np.median(ttft))):
        for k in range(LIMITS):
            limits = Limits(tpot_ms=float(np.exp(ends[0] + (k + 0.5) / LIMITS * (ends[1] - ends[0]))), ttft_ms=limit)
            found.setdefault(limits.met(tpot, ttft).tobytes(), limits)
    return list(found.values())[1:]
