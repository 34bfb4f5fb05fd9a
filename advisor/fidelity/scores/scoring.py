"""Scores predictions against measured figures: errors, intervals, and whether chips are ranked correctly."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.terms import Case
from advisor.fidelity.rows import Catalog, Row, Skip, case_of
from advisor.fidelity.scores import statistics
from advisor.fidelity.scores.statistics import Point

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
MISFIT = "predicted not to fit, but it ran"


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


# ------------------------------------------------------------------ figures over many rows


def point_of(s: Scored) -> Point:
    """A scored row as a point for the statistics."""
    return Point(
        ape=s.ape,
        ratio=s.ratio,
        inside=s.in_interval,
        group=(s.row.accelerator_slug, s.row.model_id, s.row.source_key),
        chip=s.row.accelerator_slug,
        pair=pair_case(s),
        measured=s.row.value,
        predicted=s.prediction.value if s.prediction else None,
    )


def summary(scored: Sequence[Scored]) -> dict[str, Any]:
    """n, median and p90 error, bias, coverage of the stated intervals, share of chip pairs ranked correctly."""
    return statistics.summary([point_of(s) for s in scored])


def pair_case(s: Scored) -> tuple[Any, ...] | None:
    """The key that rows of two chips must share to be compared; None if the row is not comparable.

    It has the source, metric, model, framework, format, chip count, users and lengths (two digits, because data sets
    vary between runs). In open loops, the rate is tuned for each chip, so only throughput is comparable.
    """
    if s.case is None or s.prediction is None or s.row.metric == "fits_in_memory":
        return None
    c = s.case
    open_loop = c.client.kind == "poisson"
    if open_loop and "tokens_per_s" not in s.row.metric:
        return None
    lengths = (f"{c.isl:.2g}", f"{c.osl:.2g}")
    limits = (c.ttft_limit_s, c.tpot_limit_s)
    key = (s.row.source_key, s.row.metric, c.model_id, c.framework, c.weights_dtype, c.chips, c.mode, c.phase)
    return (*key, *lengths, *limits, None if open_loop else c.concurrency)


def ordered_pairs(scored: Sequence[Scored]) -> tuple[int, int]:
    """(pairs ranked correctly, pairs) of chips measured on the same case that differ by more than 10 %."""
    return statistics.ordered_pairs([point_of(s) for s in scored])


def grouped(scored: Sequence[Scored], by: Sequence[str]) -> list[dict[str, Any]]:
    """One summary for each combination of the columns `by`, largest group first."""
    groups: defaultdict[tuple[str, ...], list[Scored]] = defaultdict(list)
    for s in scored:
        groups[tuple(label(s, name) for name in by)].append(s)
    figures = [
        dict(zip(by, key, strict=True)) | summary(members) | {"skipped": sum(bool(s.skipped) for s in members)}
        for key, members in groups.items()
    ]
    return sorted(figures, key=lambda group: (-group["n"], *(group[name] for name in by)))


def label(s: Scored, name: str) -> str:
    """A row's value in a column of the file or a derived column."""
    return s.labels[name] if name in s.labels else str(getattr(s.row, name))


COLUMNS = (*Row.__slots__, *DERIVED)


def report(scored: Sequence[Scored], by: Sequence[str], disputed: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of `fidelity`: rows, groups, and overall figures with and without disputed rows."""
    undisputed = [s for s in scored if s.row.id not in disputed]
    skipped = Counter(s.skipped for s in scored if s.skipped)
    misfits = sum(s.prediction is not None and s.prediction.value is None for s in scored)
    known = [s for s in undisputed if s.labels["client_known"] == "true"]
    return {
        "rows": [_row_json(s, disputed.get(s.row.id, "")) for s in scored],
        "groups": grouped(scored, by) if by else [],
        "overall": summary(scored) | {"skipped": sum(skipped.values()), "predicted_not_to_fit": misfits},
        "undisputed": summary(undisputed) | {"disputed": len(scored) - len(undisputed)},
        "known_client": summary(known),
        "skipped_reasons": dict(skipped.most_common()),
    }


def _row_json(s: Scored, disputed: str) -> dict[str, Any]:
    p = s.prediction
    skipped = s.skipped or None
    return {
        "id": s.row.id,
        "metric": s.row.metric,
        "measured": None if math.isnan(s.row.value) else s.row.value,
        "predicted": p.value if p else None,
        "ape": s.ape,
        "low": p.low if p else None,
        "high": p.high if p else None,
        "in_interval": s.in_interval,
        "skipped": skipped,
        "note": MISFIT if p is not None and p.value is None else None,
        "disputed": disputed or None,
    }
