"""Estimates of imported rows: the prediction that is shown beside each, and what the checks compare it with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.engine.estimate import Resources, estimate_all
from advisor.engine.step import KV_BYTES
from advisor.engine.terms import KV, Case
from advisor.evidence.checks import Checked
from advisor.fidelity import Row, fault, score_rows, scoring
from catalog.loading.scored import replica_chips

UNKNOWN_ENGINE = "no such framework"
UNMODELED = "metric not modeled"
PERCENTILES = ("_p50", "_p99")
UNKNOWN_FORMAT = "no quantization method for "
NO_CACHE = "cache format not in the catalog"
NO_FORMAT = "weight format not in the catalog"
STAND_INS = ("vllm", "sglang", "llama.cpp")  # for an order of magnitude, where the catalog lacks the engine
LENGTHS = {"framework": 60, "framework_version": 80, "weights_dtype": 40, "layout": 120}  # of the columns
MISFIT = "the engine predicts that it does not fit in memory"


def scored(
    rows: Sequence[Row], resources: Resources, families: Mapping[str, str]
) -> tuple[list[tuple[scoring.Scored, Checked]], dict[str, str]]:
    """(rows with their predictions and what to check them with, row ID -> why others cannot be used)."""
    unreadable = {row.id: f"cannot be read: {reason}" for row in rows if (reason := fault(row))}
    unreadable |= {row.id: f"{NO_CACHE}: {row.kv_dtype}" for row in rows if row.kv_dtype and not known_cache(row)}
    each = scoring.predict(
        [row for row in rows if row.id not in unreadable], resources, _estimator(resources), families
    )
    references, unformatted = _references([s for s in each if s.skipped.startswith(UNKNOWN_ENGINE)], resources)
    references |= _means([s for s in each if s.skipped.startswith(UNMODELED)], resources)
    kept, skipped = [], dict(unreadable)
    for s in each:
        if reason := _unusable(s) or unformatted.get(s.row.id, ""):
            skipped[s.row.id] = reason
            continue
        assert s.case is not None
        reference = references.get(s.row.id) or (s.prediction.value if s.prediction else None) or None
        problem = s.skipped or MISFIT
        kept.append((s, Checked(row=s.row, case=s.case, reference=reference, problem=problem)))
    return kept, skipped


def known_cache(row: Row) -> bool:
    """Whether the engine knows the format of the KV cache."""
    return KV.get(row.kv_dtype, row.kv_dtype) in KV_BYTES


def _estimator(resources: Resources) -> scoring.Estimator:
    def estimator(cases: Sequence[Case]) -> Sequence[Any]:
        return estimate_all(cases, resources)

    return estimator


def _unusable(s: scoring.Scored) -> str:
    """Why a row is skipped: it lacks something that no person can decide about."""
    if s.case is None:
        return s.skipped
    if s.row.metric not in scoring.METRICS:
        return f"unknown metric: {s.row.metric}"
    if s.skipped.startswith(UNKNOWN_FORMAT):
        return f"{NO_FORMAT}: {s.skipped.removeprefix(UNKNOWN_FORMAT)}"
    return "the value is not above zero" if s.row.value <= 0 else ""


def _references(unknown: Sequence[scoring.Scored], resources: Resources) -> tuple[dict[str, float], dict[str, str]]:
    """What another engine would do, by row ID, for the checks alone; and why formats are unknown."""
    known = {framework.slug for framework in resources.frameworks}
    stand_in = next((slug for slug in STAND_INS if slug in known), "")
    cases = {s.row.id: replace(s.case, framework=stand_in, framework_version="") for s in unknown if s.case}
    distinct = list(dict.fromkeys(cases.values()))
    estimates = dict(zip(distinct, estimate_all(distinct, resources), strict=True))
    found, unformatted = {}, {}
    for s in unknown:
        case = cases[s.row.id]
        prediction = scoring.prediction_of(s.row, case, estimates[case])
        if isinstance(prediction, scoring.Prediction):
            if prediction.value:
                found[s.row.id] = prediction.value
        elif prediction.reason.startswith(UNKNOWN_FORMAT):
            unformatted[s.row.id] = f"{NO_FORMAT}: {prediction.reason.removeprefix(UNKNOWN_FORMAT)}"
    return found, unformatted


def _means(unmodeled: Sequence[scoring.Scored], resources: Resources) -> dict[str, float]:
    """The estimated means of figures that are estimated as means only, by row ID of the percentile."""
    wanted = [s.row for s in unmodeled if s.row.metric.endswith(PERCENTILES)]
    rows = [replace(row, metric=f"{row.metric.rpartition('_')[0]}_mean") for row in wanted]
    each = scoring.predict(rows, resources, _estimator(resources))
    return {s.row.id: s.prediction.value for s in each if s.prediction and s.prediction.value}


def columns_of(s: scoring.Scored) -> dict[str, Any]:
    """The columns of an EvidenceRow but for its import and what the source states."""
    assert s.case is not None
    known = s if s.prediction is not None else replace(s, prediction=scoring.Prediction(value=None))
    row = score_rows.row_of(known, s.case, None) | {"circumstance": "", "source_key": s.row.source_key}
    row |= {name: row[name][:most] for name, most in LENGTHS.items()}
    row["replica_chips"] = replica_chips(row["layout"])
    without = s.prediction is None or s.prediction.value is None
    return row | {"note": f"no prediction: {s.skipped or MISFIT}" if without else ""}
