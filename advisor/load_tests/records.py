"""Stores load test results of options, compares them with the predictions, and exports them as measured rows."""

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import transaction

from advisor.advise import hold
from advisor.fidelity import COLUMNS
from advisor.load_tests.result_files import LoadResultError, parse
from advisor.models import Advice, LoadTest, Option
from catalog.export import cell

Json = dict[str, Any]
SAME_FRACTION = 0.10  # a load that differs more than this is not the predicted one
FAILED_FRACTION = 0.01  # with more failures, the served requests are not representative
DRIFT_FRACTION = 0.10  # larger changes between runs are reported
SOURCE_KEY = "load_test"
FIGURES = (  # metric, key of the option, key within it, key of its interval
    ("TTFT mean", "ttft_ms", "mean", "ttft_ms"),
    ("TTFT p50", "ttft_ms", "p50", ""),
    ("TTFT p95", "ttft_ms", "p95", "ttft_ms_p95"),
    ("TTFT p99", "ttft_ms", "p99", ""),
    ("TPOT mean", "tpot_ms", "mean", "tpot_ms"),
    ("TPOT p50", "tpot_ms", "p50", ""),
    ("TPOT p95", "tpot_ms", "p95", "tpot_ms_p95"),
    ("TPOT p99", "tpot_ms", "p99", ""),
)
VECTORS = (
    ("latency mean", "latency_ms", "mean", "latency_ms"),
    ("latency p50", "latency_ms", "p50", ""),
    ("latency p95", "latency_ms", "p95", "latency_ms_p95"),
    ("latency p99", "latency_ms", "p99", ""),
)


# --- recording --------------------------------------------------------------------------------------------------


def record(option: Option, content: bytes, file_name: str, calibrates: bool = False) -> tuple[LoadTest, bool]:
    """Stores a result file. Returns (row, whether it is new). Raises LoadResultError if it is not readable."""
    measured = parse(content).as_json()
    if calibrates:
        refuse_other_loads(option, measured)
    digest = hashlib.sha256(content).hexdigest()
    name = "".join(c for c in file_name if c.isprintable())[:200]
    with transaction.atomic():
        try:
            hold(option.advice_id)
        except Advice.DoesNotExist:
            raise LoadResultError("This advice was deleted.") from None
        test, is_new = LoadTest.objects.get_or_create(
            option=option,
            file_sha256=digest,
            defaults={"file_name": name, "measured": measured, "calibrates": calibrates},
        )
        if calibrates and not test.calibrates:
            LoadTest.objects.filter(pk=test.pk).update(calibrates=True)
    return test, is_new


def set_calibrates(test: LoadTest, calibrates: bool) -> None:
    """Marks a load test as calibration or not. Raises LoadResultError if its load was not the predicted one."""
    if calibrates:
        refuse_other_loads(test.option, test.measured)
    LoadTest.objects.filter(pk=test.pk).update(calibrates=calibrates)


def refuse_other_loads(option: Option, measured: Mapping[str, Any]) -> None:
    """Raises LoadResultError if a measured row cannot describe the run, for example its shared prefixes."""
    reasons = compare(option.detail, measured)["differences"]
    if option.advice.workload.spec["traffic"].get("prefix_cache_hit_rate"):
        reasons = [*reasons, "its prompts share prefixes; use a workload and a test with a prefix cache hit rate of 0"]
    if reasons:
        raise LoadResultError(f"This cannot be used as calibration: {'; '.join(reasons)}.")


# --- comparing --------------------------------------------------------------------------------------------------


def compare(option: Mapping[str, Any], measured: Mapping[str, Any]) -> Json:
    """{rows: [{metric, unit, predicted, low, high, measured, error_fraction, inside}], differences: [reason]}.

    Figures are per replica. `differences` says why the load was not the predicted one; empty if it was. `inside` is
    None if the prediction has no interval, or for a different load.
    """
    planned = (option.get("launch") or {}).get("load_test")
    if not planned:
        return {"rows": [], "differences": ["this option has no load test plan, so the predicted load is unknown"]}
    vectors = "latency_ms" in option
    rows = []
    if planned["concurrency"] is None:  # for batches, no latencies are promised
        for name, part, key, interval in VECTORS if vectors else FIGURES:
            predicted = (option.get(part) or {}).get(key)
            actual = (measured["e2e_ms"] if vectors else measured[part]).get(key)
            rows.append(row(name, "ms", predicted, (option.get("interval") or {}).get(interval), actual))
    rows += _throughput(option, planned, measured)
    known, reasons = [r for r in rows if r], differences(planned, measured)
    return {"rows": [{**r, "inside": None} for r in known] if reasons else known, "differences": reasons}


def row(
    metric: str, unit: str, predicted: float | None, interval: Sequence[float | None] | None, measured: float | None
) -> Json | None:
    """One line of the table; None if the predicted or measured figure is missing."""
    if predicted is None or measured is None:
        return None
    low, high = interval or (None, None)
    known = low is not None and high is not None
    return {
        "metric": metric,
        "unit": unit,
        "predicted": predicted,
        "low": low,
        "high": high,
        "measured": measured,
        "error_fraction": predicted / measured - 1 if measured else None,
        "inside": low <= measured <= high if low is not None and high is not None and known else None,
    }


def _throughput(
    option: Mapping[str, Any], planned: Mapping[str, Any], measured: Mapping[str, Any]
) -> list[Json | None]:
    """Requests/s and output tokens/s of one replica: the offered rate, or the capacity of a closed loop."""
    serving_replicas = max(option["replicas"] - (option.get("spare_replicas") or 0), 1)
    if planned["requests_per_s"] is not None:
        rate = planned["requests_per_s"]
        tokens = rate * planned["output_tokens_mean"] or None
        return [
            row("requests/s", "1/s", rate, None, measured["requests_per_s"]),
            row("output tokens/s", "1/s", tokens, None, measured["output_tokens_per_s"]),
        ]
    capacity = option.get("output_tokens_per_s_at_capacity")
    interval = [
        v / serving_replicas for v in (option.get("interval") or {}).get("output_tokens_per_s_at_capacity") or []
    ]
    tokens = capacity / serving_replicas if capacity else None
    return [row("output tokens/s", "1/s", tokens, interval or None, measured["output_tokens_per_s"])]


def differences(planned: Mapping[str, Any], measured: Mapping[str, Any]) -> list[str]:
    """Why the load of the run was not the predicted one; empty if it was."""
    reasons = []
    actual_users, planned_users = measured["concurrency"], planned["concurrency"]
    if (actual_users is None) != (planned_users is None):
        kinds = ("an open loop", "a closed loop")
        run, prediction = kinds[actual_users is not None], kinds[planned_users is not None]
        reasons.append(f"the run used {run}, but the prediction is for {prediction}")
    pairs = [("input tokens per request", "input_tokens_mean"), ("output tokens per request", "output_tokens_mean")]
    if planned_users is None and actual_users is None:
        pairs.insert(0, ("requests/s", "requests_per_s"))
    elif planned_users is not None and actual_users is not None:
        pairs.insert(0, ("concurrent requests", "concurrency"))
    for name, key in pairs:
        predicted_for, actual = planned[key], measured[key]
        if predicted_for and actual is not None and abs(actual / predicted_for - 1) > SAME_FRACTION:
            reasons.append(f"{name}: {actual:.4g} in the run, {predicted_for:.4g} in the prediction")
    sent = measured["completed"] + measured["failed"]
    if measured["failed"] > FAILED_FRACTION * sent:
        reasons.append(f"{measured['failed']:,} of {sent:,} requests failed")
    return reasons


def drift(option: Mapping[str, Any], tests: Sequence[LoadTest]) -> list[Json]:
    """Metrics that changed by more than DRIFT_FRACTION from the first to the last run with the predicted load."""
    comparable = [c["rows"] for t in tests if not (c := compare(option, t.measured))["differences"]]
    if len(comparable) < 2:
        return []
    first, last = ({r["metric"]: r for r in rows} for rows in (comparable[0], comparable[-1]))
    changes = []
    for metric in first.keys() & last.keys():
        before, after = first[metric]["measured"], last[metric]["measured"]
        change = after / before - 1 if before else math.inf
        if abs(change) > DRIFT_FRACTION:
            changes.append({"metric": metric, "first": before, "last": after, "change_fraction": change})
    order = list(first)
    return sorted(changes, key=lambda m: order.index(m["metric"]))


def shown(option: Option) -> Json:
    """An option's load tests for the page and the API."""
    tests, predicted = list(option.load_tests.all()), option.detail
    return {
        "tests": [
            {
                "id": t.pk,
                "created_at": t.created_at,
                "file_name": t.file_name,
                "calibrates": t.calibrates,
                "measured": t.measured,
                **compare(predicted, t.measured),
            }
            for t in tests
        ],
        "drift": drift(predicted, tests),
    }


# --- export -----------------------------------------------------------------------------------------------------

METRICS = {  # of the measured rows
    **{f"ttft_ms_{key}": ("ttft_ms", key) for key in ("mean", "p50", "p99")},
    **{f"tpot_ms_{key}": ("tpot_ms", key) for key in ("mean", "p50", "p99")},
}
# depend on the distribution of lengths, of which a row states only the means
LENGTH_DEPENDENT = ("ttft_ms_mean", "ttft_ms_p99", "tpot_ms_p99")


def measured_rows(tests: Iterable[LoadTest]) -> list[dict[str, str]]:
    """Measured rows of one replica, as `fidelity` and `calibrate` read them, with mean lengths."""
    return [line for t in tests for line in _rows_of(t)]


def _rows_of(test: LoadTest) -> list[dict[str, str]]:
    r, m = test.option.detail, test.measured
    spec = test.option.advice.workload.spec
    exported = [metric for metric in METRICS if is_constant(spec) or metric not in LENGTH_DEPENDENT]
    values = {metric: m[METRICS[metric][0]].get(METRICS[metric][1]) for metric in exported}
    values["output_tokens_per_s"] = m["output_tokens_per_s"]
    chips = r["tp"] * r["pp"] * r["dp"]
    concurrency = f"{m['concurrency']:g}" if m["concurrency"] else f"qps={m['requests_per_s']:.6g}"
    model = str(spec["model"])
    common = {
        "task": "server_throughput",
        "model": model,
        "model_id": model,
        "accelerator": r["accelerator"],
        "accelerator_slug": r["accelerator"],
        "n_accelerators": str(chips),
        "mode": "agg",
        **{key: str(r[key]) for key in ("tp", "pp", "ep")},
        "attention_dp": str(r["dp"]),
        "weights_dtype": r["weights_dtype"],
        "kv_dtype": r["kv_dtype"],
        "framework": f"{r['framework']} {r['framework_version']}",
        "isl": _text(m["input_tokens_mean"]),
        "osl": _text(m["output_tokens_mean"]),
        "concurrency_or_batch": concurrency,
        "params_note": f"tool={m['tool']} {m['tool_version']}".strip(),
        "date": test.created_at.date().isoformat(),
        "source_key": SOURCE_KEY,
        "confidence": "B",
        "notes": "own load test" if is_constant(spec) else "own load test; lengths vary around these means",
    }
    return [
        {**dict.fromkeys(COLUMNS, ""), **common, "id": f"{SOURCE_KEY}_{test.pk}:{metric}", "metric": metric}
        | {"value": f"{value:.6g}"}
        for metric, value in values.items()
        if value is not None
    ]


def is_constant(spec: Mapping[str, Any]) -> bool:
    """Whether all requests have the same lengths."""
    parts = (spec["traffic"]["input_tokens"], spec["traffic"]["output_tokens"])
    return all(not isinstance(p, Mapping) or (not p.get("trace") and p.get("p95") in (None, p["mean"])) for p in parts)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()
