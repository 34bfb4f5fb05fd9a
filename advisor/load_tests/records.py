"""Stores load test results of options, compares them with the predictions, and exports them as measured rows."""

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from pydantic import ValidationError

from advisor import inputs, webhooks
from advisor.advise import Unanswerable, hold, with_measurements
from advisor.engine.terms import correction, kind_named
from advisor.fidelity import COLUMNS
from advisor.load_results import LoadResultError, usable_runs
from advisor.load_tests.matching import FAILED_FRACTION, Unmatched, matched, predicted_figures
from advisor.models import Advice, LoadTest, Option
from advisor.result import LoadTest as Planned
from advisor.result import Option as Deployment
from catalog.lists import export
from catalog.loading.bounded import WEB, Bounds

Json = dict[str, Any]
SAME_FRACTION = 0.10  # a load that differs more than this is not the predicted one
DRIFT_FRACTION = 0.10  # larger changes between runs are reported
SOURCE_KEY = "load_test"
LATENCIES = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"))  # name, field of the option and of the measurement
PERCENTILES = ("mean", "p50", "p95", "p99")


# --- recording --------------------------------------------------------------------------------------------------


def record(
    option: Option,
    content: bytes,
    file_name: str,
    calibrates: bool = False,
    made_by: str = "",
    bounds: Bounds = WEB,
) -> tuple[LoadTest, bool]:
    """Stores a result file. Returns (row, whether it is new). Raises LoadResultError if it is not readable."""
    measured = chosen(option, content, bounds)
    comparable = not other_loads(option, measured)
    if calibrates:
        refuse_other_loads(option, measured)
    digest = hashlib.sha256(content).hexdigest()
    name = "".join(c for c in file_name if c.isprintable())[:200]
    with transaction.atomic():
        try:
            hold(option.advice_id)
        except Advice.DoesNotExist:
            raise LoadResultError("This recommendation was deleted.") from None
        test, is_new = LoadTest.objects.get_or_create(
            option=option,
            file_sha256=digest,
            defaults={
                "file_name": name,
                "measured": measured,
                "comparable": comparable,
                "made_by": made_by,
            },
        )
        if comparable and not test.comparable:  # recorded by a version that did not compare
            LoadTest.objects.filter(pk=test.pk).update(comparable=True)
        if calibrates and not test.calibrates:
            set_calibrates(test, True)
        elif comparable and is_new:
            webhooks.calibration_changed(test)
    return test, is_new


def chosen(option: Option, content: bytes, bounds: Bounds = WEB) -> Json:
    """The run of a file that is compared: the last with the predicted load; `place` says which of several it is.

    LoadResultError: the file is not readable, or none of its runs has that load.
    """
    runs = usable_runs(content, bounds)
    if len(runs) == 1:
        return runs[0].as_json()
    deployment = predicted(option)
    same = [run for run in runs if not compare(deployment, run.as_json())["differences"]]
    if not same:
        each = "; ".join(run.load for run in runs[:MOST_NAMED]) + ("; ..." if len(runs) > MOST_NAMED else "")
        raise LoadResultError(f"The file has {len(runs)} runs, none with the predicted load: {each}. Give one of them.")
    return replace(same[-1], place=f"{same[-1].load} of {len(runs)} runs").as_json()


MOST_NAMED = 9


def set_calibrates(test: LoadTest, wanted: bool) -> None:
    """Marks a load test as calibration or not. Raises LoadResultError if its load was not the predicted one."""
    if wanted:
        refuse_other_loads(test.option, test.measured)
    with transaction.atomic():
        changed = LoadTest.objects.filter(pk=test.pk, calibrates=not wanted).update(calibrates=wanted)
        test.calibrates = wanted
        if changed:
            webhooks.calibration_changed(test)


def other_loads(option: Option, measured: Mapping[str, Any]) -> list[str]:
    """Why a measured row cannot describe the run, for example its shared prefixes; empty if it can."""
    why: list[str] = compare(predicted(option), measured)["differences"]
    traffic = option.advice.workload.spec["traffic"]
    if traffic.get("prefix_cache_hit_rate") or traffic.get("prefixes"):
        return [
            *why,
            "its prompts share prefixes, which a measured row cannot describe; ask and test with a hit rate of 0",
        ]
    return why


def refuse_other_loads(option: Option, measured: Mapping[str, Any]) -> None:
    """Raises LoadResultError if a measured row cannot describe the run, for example its shared prefixes."""
    if why := other_loads(option, measured):
        raise LoadResultError(f"This cannot be used as calibration: {'; '.join(why)}.")


# --- comparing --------------------------------------------------------------------------------------------------


def predicted(option: Option) -> Deployment:
    """The recommended deployment of a stored option. Raises LoadResultError for a training run or a hosted API."""
    try:
        return Deployment.read(option.detail)
    except ValidationError as error:
        raise LoadResultError(
            "This option is a training run or a hosted API. Give an option that serves the model on its own machines."
        ) from error


def compare(option: Deployment, measured: Mapping[str, Any]) -> Json:
    """{rows: [{metric, unit, predicted, low, high, measured, error_fraction, inside}], differences: [reason]}.

    Figures are per replica. `differences` says why the load was not the predicted one; empty if it was. `inside` is
    None if the prediction has no interval, or for a different load.
    """
    planned = option.launch.load_test
    if planned is None:
        return {
            "rows": [],
            "differences": ["this option has no load test, so it is not known which load was predicted"],
        }
    lines = _latencies(option, measured) if planned.concurrency is None else []  # a batch promises no latency
    lines += _throughput(option, planned, measured)
    rows, why = [line for line in lines if line], differences(planned, measured)
    return {"rows": [{**line, "inside": None} for line in rows] if why else rows, "differences": why}


def _latencies(option: Deployment, measured: Mapping[str, Any]) -> list[Json | None]:
    if option.latency_ms is not None:
        each = [("latency", "latency_ms", option.latency_ms, measured["e2e_ms"])]
    else:
        each = [(name, field, getattr(option, field), measured[field]) for name, field in LATENCIES]
    tails = {"mean": "", "p95": "_p95"}  # only these have an interval
    return [
        row(
            f"{name} {key}",
            "ms",
            getattr(latency, key),
            option.interval.of(field + tails[key]) if key in tails else None,
            seen.get(key),
        )
        for name, field, latency, seen in each
        for key in PERCENTILES
    ]


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


def _throughput(option: Deployment, planned: Planned, measured: Mapping[str, Any]) -> list[Json | None]:
    """Requests/s and output tokens/s of one replica: the offered rate, or the capacity of a closed loop."""
    carrying = max(option.replicas - option.spare_replicas, 1)
    if planned.requests_per_s is not None:
        rate = planned.requests_per_s
        tokens = rate * planned.output_tokens_mean or None
        return [
            row("requests/s", "1/s", rate, None, measured["requests_per_s"]),
            row("output tokens/s", "1/s", tokens, None, measured["output_tokens_per_s"]),
        ]
    most, interval = option.output_tokens_per_s_at_capacity, option.interval.output_tokens_per_s_at_capacity
    each = [None if v is None else v / carrying for v in interval or []]
    tokens = most / carrying if most else None
    return [row("output tokens/s", "1/s", tokens, each or None, measured["output_tokens_per_s"])]


def differences(planned: Planned, measured: Mapping[str, Any]) -> list[str]:
    """Why the load of the run was not the predicted one; empty if it was."""
    sentences = []
    seen, wanted = measured["concurrency"], planned.concurrency
    if measured.get("arrivals") == "":
        sentences.append("the file does not say how requests were sent; give the tool's own JSON, with its settings")
    elif (seen is None) != (wanted is None):
        kinds = ("an open loop (requests arrive at a rate)", "a closed loop")
        sentences.append(f"the run was {kinds[seen is not None]}, the prediction is for {kinds[wanted is not None]}")
    pairs: list[tuple[str, str, float | None]] = [
        ("input tokens per request", "input_tokens_mean", planned.input_tokens_mean),
        ("output tokens per request", "output_tokens_mean", planned.output_tokens_mean),
    ]
    if wanted is None and seen is None:
        pairs.insert(0, ("requests/s", "requests_per_s", planned.requests_per_s))
    elif wanted is not None and seen is not None:
        pairs.insert(0, ("requests in flight", "concurrency", wanted))
    for name, key, value in pairs:
        if value and measured[key] is not None and abs(measured[key] / value - 1) > SAME_FRACTION:
            sentences.append(f"{name}: {measured[key]:.4g} measured, {value:.4g} predicted for")
    sent = measured["completed"] + measured["failed"]
    if measured["failed"] > FAILED_FRACTION * sent:
        sentences.append(f"{measured['failed']:,} of {sent:,} requests failed")
    return sentences


def drift(option: Deployment, tests: Sequence[LoadTest]) -> list[Json]:
    """Metrics that changed by more than DRIFT_FRACTION from the first to the last run with the predicted load."""
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
    """An option's load tests for the page and the API."""
    tests = list(option.load_tests.all())
    if not tests:  # so that the answer is not read for nothing
        return {"tests": [], "drift": []}
    deployment = predicted(option)
    return {
        "tests": [
            {
                "id": t.pk,
                "created_at": t.created_at,
                "made_by": t.made_by,
                "file_name": t.file_name,
                "calibrates": t.calibrates,
                "measured": {k: v for k, v in t.measured.items() if k not in ("requests", "matched", "effect")},
                "matched": t.measured.get("matched"),
                "effect": t.measured.get("effect"),
                "changes": changes(t.measured.get("effect") or {}),
                **compare(deployment, t.measured),
            }
            for t in tests
        ],
        "drift": drift(deployment, tests),
    }


# --- what it changes ---------------------------------------------------------------------------------------------

SAME_RATIO = 0.005  # a smaller change of a step time is not worth a mention


def effect(test: LoadTest) -> Json:
    """What the load test changes: {why_nothing, factor_before, factor_after, said, rows: [{name, before, after}]}.

    The workload is answered again from its own catalog and prices, with today's measured rows. Takes seconds.
    """
    option = test.option
    nothing: Json = {"why_nothing": "", "rows": [], "said": ""}
    spec, before = option.advice.workload.spec, predicted(option)
    match = test.measured.get("matched") or {}
    is_matched = "time_factor" in match
    if (why := other_loads(option, test.measured)) and not is_matched:
        more = f"; it cannot be simulated: {match['why_not']}" if match else ""
        return nothing | {"why_nothing": f"it measured another load than the predicted one: {'; '.join(why)}{more}"}
    kind = kind_named(spec["kind"])
    if kind.trains or not kind.generates_tokens or not kind.has_arrivals:
        return nothing | {
            "why_nothing": f"only load tests of serving workloads correct predictions, not of {spec['kind']}"
        }
    if spec.get("use_measurements") == "no":
        return nothing | {"why_nothing": "the workload declines corrections (use_measurements: no)"}
    if before.speculative is not None:
        return nothing | {"why_nothing": "its TPOT also depends on how many draft tokens are accepted"}
    if not test.measured["tpot_ms"].get("mean") and not is_matched:
        return nothing | {"why_nothing": "its result has no mean TPOT, which is the figure that corrects step times"}
    try:
        answer = with_measurements(option.advice)
    except (Unanswerable, ObjectDoesNotExist) as error:
        return nothing | {"why_nothing": f"its question cannot be answered again with today's catalog ({error})"}
    deployments = [o for o in answer.recommendations if isinstance(o, Deployment)]
    after = next((o for o in deployments if same_deployment(o, before)), None)
    first = answer.recommendations[0] if answer.recommendations else None
    was_first = option.advice.options.order_by("rank")[0]  # may be a hosted API
    was_usd = None if was_first.usd_per_month is None else float(was_first.usd_per_month)
    factors = [before.correction.time_factor if before.correction else 1.0, _factor_now(test, after or before)]
    rows: list[Json] = [
        {"name": "first choice", "before": was_first.label, "after": first.label if first else "none"},
        _changed("first choice, USD per month", was_usd, first.usd_per_month if first else None),
    ]
    if after is not None:
        rows.append(_changed(f"TPOT of {before.label}, ms", before.tpot_ms.mean, after.tpot_ms.mean))
        rows.append(_changed("replicas of this deployment", before.replicas, after.replicas))
        rows.append(_changed(f"cost of {before.label}, USD per month", before.usd_per_month, after.usd_per_month))
    else:
        rows.append({"name": before.label, "before": "recommended", "after": "not among the recommendations"})
    why_nothing = ""
    if abs(factors[1] / factors[0] - 1) < SAME_RATIO:
        why_nothing = "what it measured agrees with the prediction within 0.5 %, so step times stay as they are"
    return {
        "why_nothing": why_nothing,
        "factor_before": factors[0],
        "factor_after": factors[1],
        "said": after.correction.said if after is not None and after.correction else "",
        "rows": rows,
    }


def changes(effect: Json) -> list[str]:
    """The lines of an effect that changed, in words."""
    return [
        f"{row['name']}: {_shown(row['before'])} before, {_shown(row['after'])} now"
        for row in effect.get("rows", ())
        if row["before"] != row["after"]
    ]


def _shown(value: float | str | None) -> str:
    return value if isinstance(value, str) else "none" if value is None else f"{value:,.4g}"


def correct(test: LoadTest) -> Json:
    """Matches a load test to the simulation of its own load, stores what that changes, and returns it (`effect`)."""
    found = match(test)
    changed = effect(test)
    if "time_factor" in test.measured["matched"]:
        changed["figures"] = _figures(test, found)
    test.measured = {**test.measured, "effect": changed}
    test.save(update_fields=["measured"])
    return changed


def match(test: LoadTest) -> Json:
    """Stores the step factor of a load test, or why there is none; returns what was measured, with its arrivals.

    The arrivals are not kept: the same file can be imported again.
    """
    found = dict(test.measured)
    try:
        result: Json = matched(test.option, predicted(test.option), found).as_json()
    except Unmatched as error:
        result = {"why_not": str(error)}
    test.measured = {key: value for key, value in found.items() if key != "requests"} | {"matched": result}
    test.save(update_fields=["measured"])
    return found


def _figures(test: LoadTest, found: Mapping[str, Any]) -> list[Json]:
    """Each figure as it was predicted for the test's own load, as measured, and as predicted now."""
    d = predicted(test.option)
    factors = {"predicted": d.correction.time_factor if d.correction else 1.0, "after": _factor_now(test, d)}
    each = {when: predicted_figures(test.option, d, found, factor) for when, factor in factors.items()}
    return [
        {"name": f"{name} {key}", "unit": "ms", "measured": found[field][key]}
        | {when: figures[name.lower()][key] for when, figures in each.items()}
        for name, field in LATENCIES
        for key in PERCENTILES
        if found[field].get(key)
    ]


def _factor_now(test: LoadTest, d: Deployment) -> float:
    """The correction of this deployment with all load tests of the organization."""
    advice = test.option.advice
    spec = advice.workload.spec
    scopes = inputs.measured.scopes_of_spec(spec, inputs.measured.hf_id(spec["model"]), advice.organisation)
    formats, layout = (d.weights_dtype, d.quantization), (d.tp, d.pp, d.ep, d.dp)
    return correction(scopes, d.accelerator, d.framework, d.framework_version, formats, layout).time_factor


def correct_next() -> bool:
    """Corrects with the oldest load test that nobody has matched yet; False: there is none."""
    waiting = LoadTest.objects.exclude(measured__has_key="matched")
    test = waiting.select_related("option__advice__workload").order_by("pk").first()
    if test is None:
        return False
    interrupted = {"why_not": "the calculation was interrupted; import the file again"}
    claimed = waiting.filter(pk=test.pk).update(measured={**test.measured, "matched": interrupted})
    if claimed:
        correct(test)
    return bool(claimed)


def same_deployment(one: Deployment, other: Deployment) -> bool:
    names = ("accelerator", "framework", "framework_version", "quantization", "kv_dtype", "tp", "pp", "ep", "dp")
    return all(getattr(one, name) == getattr(other, name) for name in names) and one.speculative is None


def _changed(name: str, before: float | None, after: float | None) -> Json:
    return {"name": name, "before": before, "after": after}


# --- exporting -------------------------------------------------------------------------------------------------

METRICS = {  # of the measured rows
    **{f"ttft_ms_{key}": ("ttft_ms", key) for key in ("mean", "p50", "p99")},
    **{f"tpot_ms_{key}": ("tpot_ms", key) for key in ("mean", "p50", "p99")},
}
# A row has mean lengths only. These figures depend on the spread of lengths, which a row cannot describe.
OF_THE_SPREAD = ("ttft_ms_mean", "ttft_ms_p99", "tpot_ms_p99")


def measured_rows(tests: Iterable[LoadTest]) -> list[dict[str, str]]:
    """Measured rows of one replica, as `fidelity` and `calibrate` read them, with mean lengths."""
    return [line for t in tests for line in _rows_of(t)]


def _rows_of(test: LoadTest) -> list[dict[str, str]]:
    r, m = predicted(test.option), test.measured
    spec = test.option.advice.workload.spec
    kept = [metric for metric in METRICS if is_constant(spec) or metric not in OF_THE_SPREAD]
    values = {metric: m[METRICS[metric][0]].get(METRICS[metric][1]) for metric in kept}
    values["output_tokens_per_s"] = m["output_tokens_per_s"]
    chips = r.tp * r.pp * r.dp
    load = f"{m['concurrency']:g}" if m["concurrency"] else f"qps={m['requests_per_s']:.6g}"
    model = str(spec["model"])
    common = {
        "task": "server_throughput",
        "model": model,
        "model_id": model,
        "accelerator": r.accelerator,
        "accelerator_slug": r.accelerator,
        "n_accelerators": str(chips),
        "mode": "agg",
        "tp": str(r.tp),
        "pp": str(r.pp),
        "ep": str(r.ep),
        "attention_dp": str(r.dp),
        "weights_dtype": r.weights_dtype,
        "kv_dtype": r.kv_dtype,
        "framework": f"{r.framework} {r.framework_version}",
        "isl": _text(m["input_tokens_mean"]),
        "osl": _text(m["output_tokens_mean"]),
        "concurrency_or_batch": load,
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
    writer.writerows({name: export.cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()
