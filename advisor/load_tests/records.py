"""Predicted against measured: results of load tests kept beside their option, compared, and given on as evidence."""

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
SAME_FRACTION = 0.10  # a load further from the predicted one is another load
FAILED_FRACTION = 0.01  # more failures than this and the served requests are not those that were sent
DRIFT_FRACTION = 0.10  # a change beyond this between two runs is told
SOURCE_KEY = "load_test"
FIGURES = (  # metric, where the option has it, its key, key of its interval
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
    """(the row, whether it is new): a file given twice for an option is one result. LoadResultError: unreadable."""
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


def set_calibrates(test: LoadTest, wanted: bool) -> None:
    """The planner's switch; LoadResultError where the run was of another load than the prediction."""
    if wanted:
        refuse_other_loads(test.option, test.measured)
    LoadTest.objects.filter(pk=test.pk).update(calibrates=wanted)


def refuse_other_loads(option: Option, measured: Mapping[str, Any]) -> None:
    """LoadResultError where a measured row could not say what was run: a row knows nothing of shared prefixes."""
    why = compare(option.detail, measured)["differences"]
    if option.advice.workload.spec["traffic"].get("prefix_cache_hit_rate"):
        why = [*why, "its prompts share prefixes, which a measured row cannot say; ask and test with a hit rate of 0"]
    if why:
        raise LoadResultError(f"This cannot be used as calibration: {'; '.join(why)}.")


# --- comparing --------------------------------------------------------------------------------------------------


def compare(option: Mapping[str, Any], measured: Mapping[str, Any]) -> Json:
    """{rows: [{metric, unit, predicted, low, high, measured, error_fraction, inside}], differences: [why another]}.

    `inside` is None where the prediction has no interval of that figure, and of another load; all is of one replica.
    """
    planned = (option.get("launch") or {}).get("load_test")
    if not planned:
        return {"rows": [], "differences": ["this option has no load test: nothing says which load was predicted"]}
    vectors = "latency_ms" in option
    rows = []
    if planned["concurrency"] is None:  # of a batch the latencies are not what is promised
        for name, part, key, interval in VECTORS if vectors else FIGURES:
            predicted = (option.get(part) or {}).get(key)
            seen = (measured["e2e_ms"] if vectors else measured[part]).get(key)
            rows.append(row(name, "ms", predicted, (option.get("interval") or {}).get(interval), seen))
    rows += _throughput(option, planned, measured)
    found, why = [r for r in rows if r], differences(planned, measured)
    return {"rows": [{**r, "inside": None} for r in found] if why else found, "differences": why}


def row(
    metric: str, unit: str, predicted: float | None, interval: Sequence[float | None] | None, measured: float | None
) -> Json | None:
    """One line of the table; nothing where either side has no figure."""
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
    """Requests and output tokens a second of one replica: what was offered, or of a batch what its seats give."""
    carrying = max(option["replicas"] - (option.get("spare_replicas") or 0), 1)
    if planned["requests_per_s"] is not None:
        rate = planned["requests_per_s"]
        tokens = rate * planned["output_tokens_mean"] or None
        return [
            row("requests/s", "1/s", rate, None, measured["requests_per_s"]),
            row("output tokens/s", "1/s", tokens, None, measured["output_tokens_per_s"]),
        ]
    most = option.get("output_tokens_per_s_at_capacity")
    between = [v / carrying for v in (option.get("interval") or {}).get("output_tokens_per_s_at_capacity") or []]
    tokens = most / carrying if most else None
    return [row("output tokens/s", "1/s", tokens, between or None, measured["output_tokens_per_s"])]


def differences(planned: Mapping[str, Any], measured: Mapping[str, Any]) -> list[str]:
    """Why the run was of another load than the predicted one; empty: it was that load."""
    said = []
    seats, wanted = measured["concurrency"], planned["concurrency"]
    if (seats is None) != (wanted is None):
        kinds = ("requests that arrive by themselves", "a closed loop")
        said.append(f"the run was {kinds[seats is not None]}, the prediction is of {kinds[wanted is not None]}")
    pairs = [("input tokens a request", "input_tokens_mean"), ("output tokens a request", "output_tokens_mean")]
    if wanted is None and seats is None:
        pairs.insert(0, ("requests/s", "requests_per_s"))
    elif wanted is not None and seats is not None:
        pairs.insert(0, ("seats", "concurrency"))
    for name, key in pairs:
        planned_value, seen = planned[key], measured[key]
        if planned_value and seen is not None and abs(seen / planned_value - 1) > SAME_FRACTION:
            said.append(f"{name}: {seen:.4g} measured, {planned_value:.4g} predicted for")
    sent = measured["completed"] + measured["failed"]
    if measured["failed"] > FAILED_FRACTION * sent:
        said.append(f"{measured['failed']:,} of {sent:,} requests failed")
    return said


def drift(option: Mapping[str, Any], tests: Sequence[LoadTest]) -> list[Json]:
    """Per figure its first and last value over the runs of the predicted load, where it moved by more than a tenth."""
    same = [c["rows"] for t in tests if not (c := compare(option, t.measured))["differences"]]
    if len(same) < 2:
        return []
    first, last = ({r["metric"]: r for r in rows} for rows in (same[0], same[-1]))
    moved = []
    for metric in first.keys() & last.keys():
        before, after = first[metric]["measured"], last[metric]["measured"]
        change = after / before - 1 if before else math.inf
        if abs(change) > DRIFT_FRACTION:
            moved.append({"metric": metric, "first": before, "last": after, "change_fraction": change})
    order = list(first)
    return sorted(moved, key=lambda m: order.index(m["metric"]))


def shown(option: Option) -> Json:
    """What the page and the API say of an option's load tests."""
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


# --- giving on --------------------------------------------------------------------------------------------------

METRICS = {  # of the measured rows
    **{f"ttft_ms_{key}": ("ttft_ms", key) for key in ("mean", "p50", "p99")},
    **{f"tpot_ms_{key}": ("tpot_ms", key) for key in ("mean", "p50", "p99")},
}
# a row tells lengths by their means; where they vary, the spread makes these figures and a row cannot say it
OF_THE_SPREAD = ("ttft_ms_mean", "ttft_ms_p99", "tpot_ms_p99")


def measured_rows(tests: Iterable[LoadTest]) -> list[dict[str, str]]:
    """Rows as `fidelity` and `calibrate` read them, of one replica; lengths are told by their means."""
    return [line for t in tests for line in _rows_of(t)]


def _rows_of(test: LoadTest) -> list[dict[str, str]]:
    r, m = test.option.detail, test.measured
    spec = test.option.advice.workload.spec
    kept = [metric for metric in METRICS if is_constant(spec) or metric not in OF_THE_SPREAD]
    values = {metric: m[METRICS[metric][0]].get(METRICS[metric][1]) for metric in kept}
    values["output_tokens_per_s"] = m["output_tokens_per_s"]
    chips = r["tp"] * r["pp"] * r["dp"]
    seats = f"{m['concurrency']:g}" if m["concurrency"] else f"qps={m['requests_per_s']:.6g}"
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
        "concurrency_or_batch": seats,
        "params_note": f"tool={m['tool']} {m['tool_version']}".strip(),
        "date": test.created_at.date().isoformat(),
        "source_key": SOURCE_KEY,
        "confidence": "B",
        "notes": "own load test" if is_constant(spec) else "own load test; lengths vary about these means",
    }
    return [
        {**dict.fromkeys(COLUMNS, ""), **common, "id": f"{SOURCE_KEY}_{test.pk}:{metric}", "metric": metric}
        | {"value": f"{value:.6g}"}
        for metric, value in values.items()
        if value is not None
    ]


def is_constant(spec: Mapping[str, Any]) -> bool:
    """Whether every request has the same lengths."""
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
