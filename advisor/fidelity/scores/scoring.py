"""Scores predictions against measured figures: errors, intervals, and whether chips are ranked correctly."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.terms import Case
from advisor.fidelity.rows import Catalog, Row, Skip, case_of

GIB = 2.0**30

# metric -> (field of an Estimate, factor from SI to the metric's unit)
METRICS: Mapping[str, tuple[str, float]] = {
    "output_tokens_per_s": ("output_tokens_per_s", 1.0),
    "output_tokens_per_s_per_gpu": ("output_tokens_per_s", 1.0),
    "total_tokens_per_s": ("total_tokens_per_s", 1.0),
    "prefill_tokens_per_s": ("prefill_tokens_per_s", 1.0),
    "ttft_ms": ("ttft_mean_s", 1e3),
    "ttft_ms_mean": ("ttft_mean_s", 1e3),
    "ttft_ms_p50": ("ttft_p50_s", 1e3),
    "ttft_ms_p99": ("ttft_p99_s", 1e3),
    "tpot_ms_mean": ("tpot_mean_s", 1e3),
    "tpot_ms_p50": ("tpot_p50_s", 1e3),
    "tpot_ms_p99": ("tpot_p99_s", 1e3),
    "itl_ms_mean": ("itl_mean_s", 1e3),
    "e2e_latency_s": ("e2e_s", 1.0),
    "kv_capacity_tokens": ("kv_capacity_tokens", 1.0),
    "weights_gib_per_accelerator": ("weights_bytes_per_chip", 1.0 / GIB),
    "peak_memory_gb": ("peak_memory_bytes", 1e-9),
    "peak_memory_bytes": ("peak_memory_bytes", 1.0),
    "tflops_per_gpu": ("flops_per_s", 1e-12),
}
PER_CHIP = ("output_tokens_per_s_per_gpu",)
MEMORY_METRICS = ("fits_in_memory", "kv_capacity_tokens", "weights_gib_per_accelerator", "peak_memory_gb")
DERIVED = (  # columns that rows can be grouped by, in addition to those of the file
    "family",
    "framework_name",
    "framework_version",
    "phase",
    "client",
    "client_known",
    "layout",
    "speculative",
    "format",
    "basis",
    "load",
    "year",
)
PERCENTILES = ("_p50", "_p99")
Ratios = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The prediction for one row, in the row's unit; `value` is None if the run is predicted not to fit."""

    value: float | None
    low: float | None = None
    high: float | None = None
    basis: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One row with its prediction, or the reason for having none, and its derived columns."""

    row: Row
    case: Case | None
    prediction: Prediction | None
    skipped: str
    labels: Mapping[str, str]

    @property
    def ape(self) -> float | None:
        """|predicted - measured| / measured; 1 for a run that was predicted not to fit; None without prediction."""
        if self.prediction is None:
            return None
        if self.row.metric == "fits_in_memory":
            return abs((self.prediction.value or 0.0) - self.row.value)
        if self.prediction.value is None:
            return 1.0
        return abs(self.prediction.value - self.row.value) / self.row.value if self.row.value else None

    @property
    def ratio(self) -> float | None:
        """predicted / measured; None where a ratio has no meaning."""
        if self.prediction is None or not self.prediction.value or not self.row.value:
            return None
        return None if self.row.metric == "fits_in_memory" else self.prediction.value / self.row.value

    @property
    def in_interval(self) -> bool | None:
        """Whether the measured figure is inside the prediction's interval; None without interval."""
        p = self.prediction
        return None if p is None or p.low is None or p.high is None else p.low <= self.row.value <= p.high


Estimator = Callable[[Sequence[Case]], Sequence[Any]]  # one Estimate per case, in order


def predict(
    rows: Sequence[Row], catalog: Catalog, estimator: Estimator, families: Mapping[str, str] | None = None
) -> list[Scored]:
    """All rows with their predictions; rows of one case share an estimate."""
    cases = [case_of(row, catalog) for row in rows]
    distinct = list(dict.fromkeys(case for case in cases if isinstance(case, Case)))
    estimates = dict(zip(distinct, estimator(distinct), strict=True))
    scopes = getattr(catalog, "scopes", {})
    return [_scored(row, case, estimates, families or {}, scopes) for row, case in zip(rows, cases, strict=True)]


def interval_kind(metric: str, case: Case) -> str:
    """The key of the calibration's interval for a metric; empty if there is none.

    Queueing depends on the situation, so disaggregation, speculative decoding, open loops, unknown clients, single
    prompts and static batches have their own latency intervals; so have percentiles, because the others are of means.
    """
    if case.phase == "kernel":
        return "kernel"
    if case.phase == "fit":
        return ""
    if metric.startswith("ttft"):
        return f"ttft{situation(metric, case)}"
    if metric.startswith(("tpot", "itl")):
        return f"tpot{situation(metric, case)}"
    if metric.startswith("prefill"):
        return "prefill"
    return "latency" if metric.startswith("e2e") else "throughput"


def situation(metric: str, case: Case) -> str:
    """The suffix for figures other than means of an aggregated deployment under a closed loop; empty for those."""
    if case.mode == "disagg":
        return "_pools"
    if case.speculative:
        return "_speculative"
    if case.client.kind == "poisson":
        return "_open_loop"
    if not case.client.known:
        return "_unknown_client"
    if case.phase != "serving":
        return f"_{case.phase}"
    return "_percentile" if metric.endswith(PERCENTILES) else ""


def ratios_of(row: Row, case: Case, estimate: Any, scopes: Mapping[str, Mapping[str, Any]]) -> Ratios | None:
    """(low, high) factors of the 90 % interval for the estimate's basis; None if there is none.

    Wider where the times of the framework on this chip are uncertain, as in answers (search/limits.py).
    """
    factors = scopes.get(f"interval:{getattr(estimate, 'basis', '')}", {})
    kind = interval_kind(row.metric, case)
    if f"{kind}_high_ratio" not in factors:
        kind = kind.split("_")[0]
    if f"{kind}_high_ratio" not in factors:
        return None
    lane = getattr(estimate, "lane", None)
    wider = lane.choice.uncertain_ratio if lane is not None and kind != "kernel" else 1.0
    return float(factors[f"{kind}_low_ratio"]) / wider, float(factors[f"{kind}_high_ratio"]) * wider


def _scored(
    row: Row,
    case: Case | Skip,
    estimates: Mapping[Case, Any],
    families: Mapping[str, str],
    scopes: Mapping[str, Mapping[str, Any]],
) -> Scored:
    if isinstance(case, Skip):
        labels = labels_of(row, None, None, families)
        return Scored(row=row, case=None, prediction=None, skipped=case.reason, labels=labels)
    estimate = estimates[case]
    prediction = prediction_of(row, case, estimate, ratios_of(row, case, estimate, scopes))
    labels = labels_of(row, case, estimate, families)
    if isinstance(prediction, Skip):
        return Scored(row=row, case=case, prediction=None, skipped=prediction.reason, labels=labels)
    return Scored(row=row, case=case, prediction=prediction, skipped="", labels=labels)


def prediction_of(row: Row, case: Case, estimate: Any, ratios: Ratios | None = None) -> Prediction | Skip:
    """The estimate of a row's metric in its unit, with interval, or why there is none."""
    if estimate.problem and estimate.fits != 0:
        return Skip(reason=estimate.problem)
    if row.metric == "fits_in_memory":
        return Prediction(value=float(bool(estimate.fits)))
    if row.metric not in METRICS:
        return Skip(reason=f"ambiguous metric: {row.metric}")
    if estimate.fits == 0 and row.metric not in MEMORY_METRICS:
        return Prediction(value=None)
    name, factor = METRICS[row.metric]
    factor = factor / case.chips if row.metric in PER_CHIP else factor
    value = getattr(estimate, name, math.nan)
    if value is None or not math.isfinite(value):
        return Skip(reason=f"metric not modeled: {row.metric}")
    low, high = (value * ratios[0], value * ratios[1]) if ratios else (None, None)
    return Prediction(
        value=value * factor,
        low=None if low is None else low * factor,
        high=None if high is None else high * factor,
        basis=getattr(estimate, "basis", ""),
    )


def labels_of(row: Row, case: Case | None, estimate: Any, families: Mapping[str, str]) -> dict[str, str]:
    """The derived columns of one row; blank if it has no case."""
    known = {"family": families.get(row.accelerator_slug, ""), "year": row.date[:4]}
    if case is None:
        return dict.fromkeys(DERIVED, "") | known
    return known | {
        "framework_name": case.framework,
        "framework_version": case.framework_version,
        "phase": case.phase,
        "client": case.client.kind,
        "client_known": str(case.client.known).lower(),
        "layout": "chosen" if case.layout_free else "stated",
        "speculative": case.speculative or "none",
        "format": case.weights_dtype,
        "basis": getattr(estimate, "basis", ""),
        "load": "saturating" if getattr(estimate, "saturating", False) else "",
    }
