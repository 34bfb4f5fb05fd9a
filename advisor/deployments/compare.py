"""How a running deployment compares with its plan, and with the prediction for exactly it under the measured load."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor import load_tests
from advisor.answer import single_estimate
from advisor.deployments.manifests import commands_in
from advisor.deployments.records import Found, Json, Range, Record, Seen, Settings, joined, rounded
from advisor.deployments.resolve import drafts, load, measured, resolve
from advisor.result import Estimate
from advisor.result import Option as Planned
from advisor.workload import Deployment, WorkloadError, parse_estimate
from catalog.models import Organisation

SAME_FRACTION = 0.005  # two settings that are numbers
ROOM = (1.25, 1.5, 2.0, 3.0)  # times the measured load, tried one after another
MOST_EFFECTS = 5
SERVED_FRACTION = 0.97  # of the load: with less, requests pile up
QUEUE_FRACTION = 0.1  # waiting requests over running ones
TRUSTED = (0.8, 1.25)  # measured over predicted time of a token
FULL_FRACTION = 0.9  # of the KV cache
STATISTICS = ("mean", "p50", "p95", "p99")
TAILS = {"mean": "", "p95": "_p95"}  # only these have an interval
LATENCIES = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("end to end", "e2e_ms"))
SETTINGS = {  # of an estimate or a start command -> what people call it
    "model": "model", "accelerator": "accelerator", "replicas": "replicas", "framework": "framework",
    "framework_version": "version", "weights": "weights", "kv": "KV cache format", "tp": "tensor parallel",
    "pp": "pipeline stages", "attention_dp": "data-parallel ranks", "ep": "expert parallel", "seats": "max-num-seqs",
    "max_batched_tokens": "max-num-batched-tokens",
    "max_model_len": "max-model-len", "memory_fraction": "memory fraction", "prefix_caching": "prefix caching",
    "enforce_eager": "eager mode", "speculative": "speculative decoding",
}  # fmt: skip
ESTIMATED = set(SETTINGS) - {"model", "max_model_len"}  # whose effect an estimate shows
USUAL = {  # what a server does that is not told otherwise
    "replicas": range(100_000), "kv": ("bf16", "fp16"), "prefix_caching": (True,),
}  # fmt: skip
DEFAULTS = {"pp": 1, "attention_dp": 1, "ep": 1, "tp": 1, "enforce_eager": False, "speculative": None}
LIMITS = {"ttft_ms_p95": ("ttft_ms", "p95"), "tpot_ms_p95": ("tpot_ms", "p95"), "e2e_ms_p95": ("e2e_ms", "p95")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What was planned: an option of an answer, or a workload alone."""

    said: str
    slo: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] | None = None  # the workload
    option: Planned | None = None
    option_name: str = ""  # of a stored option, for manage.py import_loadtest


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the user says beside the files."""

    plan: Plan | None = None
    model: str = ""
    accelerator: str = ""
    servers: int | None = None  # replicas that the measurement covers
    organisation: Organisation | None = None
    within: Callable[[Deployment], Deployment] = lambda d: d  # limits of the web
    ends_at: float = math.inf  # on the monotonic clock: no more than the prediction itself is computed after it


def compared(records: Sequence[Record], asked: Asked) -> Json:
    """One deployment against its plan and the prediction, as JSON; see docs/how-to/check-a-server.md."""
    found = measured(joined(records), asked.servers)
    plan = asked.plan
    resolved = resolve(found.settings, asked.model, asked.accelerator)
    arguments, planned = dict(resolved.arguments), _planned(plan, asked)
    notes = list(resolved.notes)
    speculative, why_not = drafts(found.settings, found.seen)
    notes += [why_not] if why_not else []
    if speculative:
        arguments["speculative"] = speculative
    missing = list(resolved.missing)
    for key in ("model", "accelerator", "weights"):  # a scrape does not say them: those of the plan count
        if not arguments.get(key) and planned.get(key):
            arguments[key] = planned[key]
            missing = [each for each in missing if not each.startswith(f"the {key}")]
            notes.append(f"{SETTINGS[key]}: {planned[key]}, as planned; the files do not say it")
    complete = any(r.kind in ("log", "script", "manifest") for r in found.records)
    if not complete and planned:
        arguments = {**{k: v for k, v in planned.items() if k not in ("replicas", "max_model_len")}, **arguments}
        notes.append("settings that the files do not say are taken as planned; add the start-up log or the manifest")
    traffic, said = load(found.seen, found.seen.servers or 1)
    of_plan = not traffic and plan is not None and plan.spec is not None
    if of_plan and plan is not None:
        traffic, said = {"workload": _own_traffic(plan.spec or {})}, "the load of the plan: the files measured none"
    base, problem = _predict(arguments, traffic, found, asked, missing)
    differences = _differences(planned, arguments, found, complete) if planned else []
    if base is not None:
        _add_effects(differences, planned, arguments, traffic, found, asked, base)
    rows = _rows(base, found.seen, planned_load=of_plan) if base is not None else []
    limits = _limits(plan, found.seen, base, measured_load=not of_plan)
    room = _room(arguments, traffic, found, asked, plan, base) if base is not None and not of_plan else {}
    report: Json = {
        "name": found.settings.served_name or found.settings.model or arguments.get("model") or "deployment",
        "sources": [f"{r.source} ({r.kind})" for r in found.records],
        "settings": found.settings.as_json(),
        "seen": found.seen.as_json(),
        "estimate": arguments,
        "conflicts": list(found.conflicts),
        "unknown_options": sorted({option for r in found.records for option in r.unknown}),
        "notes": [*dict.fromkeys(note for r in found.records for note in r.notes), *notes],
        "plan": plan.said if plan else None,
        "differences": differences,
        "load": said or None,
        "not_predicted": problem or None,
        "rows": rows,
        "limits": limits,
        "room": room or None,
        "correction": _correction(found, rows, plan),
    }
    return report | {
        "answer": _answer(report, found.seen, bool(planned)), "next": _next(report, complete, planned, found)
    }  # fmt: skip


# --- the plan -----------------------------------------------------------------------------------------------------


def plan_of_answer(answer: Any, rank: int = 1) -> Plan:
    """The plan in the JSON of `advise`. ValueError: it is none, or has no such option."""
    options = answer.get("recommendations") if isinstance(answer, dict) else None
    if not isinstance(options, list) or not options:
        raise ValueError("has no recommendations; give the JSON of manage.py advise --format json")
    chosen = next((o for o in options if isinstance(o, dict) and o.get("rank") == rank), None)
    if chosen is None:
        raise ValueError(f"has no option {rank}: it has {len(options)}")
    try:
        option = Planned.read(chosen)
    except ValueError:
        raise ValueError(f"option {rank} is a hosted API or a training run, or its keys are incomplete") from None
    workload = answer.get("workload")
    spec = workload if isinstance(workload, dict) else {}
    slo = spec.get("slo")
    return Plan(said=option.label, slo=slo if isinstance(slo, dict) else {}, spec=spec or None, option=option)


def _planned(plan: Plan | None, asked: Asked) -> Json:
    """The planned settings by the names of `_differences`; empty: no option was planned."""
    if plan is None or plan.option is None:
        return {}
    o = plan.option
    servers = commands_in(o.launch.command, {})
    started = servers[0][0] if servers else Settings()
    speculative, _ = drafts(started, Seen())
    found: Json = {
        "model": plan.spec.get("model") if plan.spec and isinstance(plan.spec.get("model"), str) else None,
        "accelerator": o.accelerator,
        "replicas": o.replicas,
        "framework": o.framework,
        "framework_version": o.framework_version,
        "weights": o.quantization,
        "kv": o.kv_dtype,
        "tp": o.tp,
        "pp": o.pp,
        "attention_dp": o.dp,
        "ep": o.ep,
        "seats": started.max_num_seqs or max(o.concurrency // (o.pp * o.dp), 1),
        "max_batched_tokens": o.max_batched_tokens,
        "max_model_len": started.max_model_len,
        "memory_fraction": started.memory_fraction,
        "prefix_caching": started.prefix_caching,
        "speculative": speculative,
    }
    if o.ep > 1 or o.dp > 1:
        found["moe_tp"] = max(o.tp * o.dp // o.ep, 1)
    return {key: value for key, value in found.items() if value is not None}


def _differences(planned: Json, arguments: Json, found: Found, complete: bool) -> list[Json]:
    """[{setting, planned, deployed, effect}] of what is not as planned."""
    deployed = {**arguments, "replicas": found.settings.replicas, "max_model_len": found.settings.max_model_len}
    different = []
    for key, name in SETTINGS.items():
        wanted = planned.get(key, DEFAULTS.get(key))
        stated = deployed.get(key, DEFAULTS.get(key) if complete else None)
        if wanted is None or _same(key, wanted, stated):
            continue
        if stated is None and (not complete or key == "framework_version" or wanted in USUAL.get(key, ())):
            continue
        different.append({"key": key, "setting": name, "planned": wanted, "deployed": stated, "effect": ""})
    return different


def _same(key: str, one: Any, other: Any) -> bool:
    if key == "speculative":
        return {**(one or {}), "acceptance": 0} == {**(other or {}), "acceptance": 0} if one and other else one == other
    if key == "framework_version":
        return str(one).split("+")[0] == str(other).split("+")[0]
    if isinstance(one, float) or isinstance(other, float):
        return other is not None and abs(float(one) - float(other)) <= SAME_FRACTION
    return bool(one == other)


def _add_effects(
    differences: list[Json], planned: Json, arguments: Json, traffic: Json, found: Found, asked: Asked, base: Estimate
) -> None:
    """What each difference does to the figures: the same deployment with the planned setting, and as it runs."""
    tried = 0
    for each in differences:
        key = each["key"]
        if time.monotonic() > asked.ends_at:
            each["effect"] = "not computed: this call took too long"
            continue
        if key not in ESTIMATED or tried >= MOST_EFFECTS or (key == "replicas" and "workload" not in traffic):
            continue
        tried += 1
        other = {**arguments, key: planned.get(key)}
        if key in ("tp", "attention_dp", "ep"):
            other["moe_tp"] = planned.get("moe_tp")
        if key == "framework":
            other["framework_version"] = planned.get("framework_version")
        try:
            predicted = _estimate({k: v for k, v in other.items() if v is not None}, traffic, found, asked)
        except WorkloadError as error:
            each["effect"] = f"as planned it could not run: {_first(error)}"
            continue
        each["effect"] = "; ".join(_moved(predicted, base)) or "hardly any at this load"


MOVED = (  # figures of an effect
    ("TPOT", "ms", lambda e: e.tpot_ms and e.tpot_ms.mean), ("p95 TTFT", "ms", lambda e: e.ttft_ms and e.ttft_ms.p95),
    ("output tokens/s", "", lambda e: e.output_tokens_per_s), ("KV cache", "tokens", lambda e: e.kv_capacity_tokens),
    ("weights", "GiB", lambda e: e.memory.weights_gib),
)  # fmt: skip


def _moved(planned: Estimate, deployed: Estimate) -> list[str]:
    if planned.fits != deployed.fits:
        return ["it fits in memory only as planned" if planned.fits else "as planned it does not fit in memory"]
    said = []
    for name, unit, figure in MOVED:
        before, after = figure(planned), figure(deployed)
        if before and after and abs(after / before - 1) > 0.02:
            said.append(f"{name} {_figure(after)} instead of {_figure(before)} {unit}".rstrip())
    return said


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


# --- the prediction -----------------------------------------------------------------------------------------------


def _own_traffic(spec: Mapping[str, Any]) -> Json:
    return {key: value for key, value in spec.items() if value is not None}


def _predict(
    arguments: Json, traffic: Json, found: Found, asked: Asked, missing: Sequence[str]
) -> tuple[Estimate | None, str]:
    """(the estimate of exactly this deployment and load, why there is none)."""
    if missing:
        return None, f"the files do not say {', nor '.join(missing)}"
    memory = found.seen.kv_capacity_tokens or found.seen.weights_gib
    if not traffic and not memory:
        return None, "the files do not say the load (token lengths and a rate), and no plan does"
    try:
        return _estimate(arguments, traffic or {"isl": 1024, "osl": 128, "concurrency": 1}, found, asked), ""
    except WorkloadError as error:
        return None, _first(error)


def _first(error: WorkloadError) -> str:
    item = error.errors[0]
    return f"{item['field']}: {item['message']}".removeprefix(": ")[:300] + (
        f" (allowed: {item['allowed']})" if item.get("allowed") else ""
    )


def _estimate(arguments: Json, traffic: Json, found: Found, asked: Asked) -> Estimate:
    servers = found.seen.servers or 1
    planned = arguments.get("replicas")
    arguments = {key: value for key, value in arguments.items() if key != "replicas"}
    raw = {**arguments, **traffic}
    if "workload" in traffic:  # the plan's load arrives at all replicas
        option = asked.plan.option if asked.plan else None
        servers = planned or found.settings.replicas or (option.replicas if option else servers)
        raw = {**traffic, **arguments}
    raw["dp"] = max((arguments.get("dp") or 1) * servers, 1)
    return single_estimate.answer(asked.within(_deployment(raw)), asked.organisation)


def _deployment(raw: Json) -> Deployment:
    asked = parse_estimate(raw)
    assert isinstance(asked, Deployment)
    return asked


def _rows(e: Estimate, seen: Seen, *, planned_load: bool) -> list[Json]:
    """[{metric, unit, measured: [low, high], predicted, low, high, error_fraction, inside}]."""
    memory = [
        _row("KV cache of a server", "tokens", seen.kv_capacity_tokens, e.kv_capacity_tokens),
        _row("weights per accelerator", "GiB", seen.weights_gib, e.memory.weights_gib),
    ]
    if planned_load or e.ttft_ms is None or not e.fits or seen.completed is None:
        return [row for row in memory if row]
    interval = e.interval
    rows = []
    for name, key in LATENCIES:
        latency = getattr(e, key)
        for statistic in STATISTICS:
            value = getattr(latency, statistic) if latency is not None else None
            if key == "e2e_ms" and statistic == "mean" and value is None:
                value = e.e2e_ms_mean
            known = interval.of(f"{key}{TAILS[statistic]}") if interval and statistic in TAILS else None
            rows.append(_row(f"{name} {statistic}", "ms", getattr(seen, key).get(statistic), value, known))
    rows += [
        _row("output tokens/s", "1/s", seen.output_tokens_per_s, e.output_tokens_per_s,
             interval.of("output_tokens_per_s") if interval and seen.concurrency else None),
        _row("running requests", "", seen.running if not seen.concurrency else None, e.running_requests_mean),
    ]  # fmt: skip
    return [row for row in [*rows, *memory] if row]


def _row(
    metric: str, unit: str, seen: Range | float | None, predicted: float | None, interval: Sequence[Any] | None = None
) -> Json | None:
    if seen is None or predicted is None or not math.isfinite(predicted):
        return None
    low, high = seen if isinstance(seen, tuple) else (seen, seen)
    ends = interval if interval and None not in interval else None
    inside = None
    if ends:
        inside = True if ends[0] <= low and high <= ends[1] else False if high < ends[0] or low > ends[1] else None
    exact = low == high and low > 0
    return {
        "metric": metric,
        "unit": unit,
        "measured": [rounded(low), rounded(high)],
        "predicted": rounded(predicted),
        "low": rounded(ends[0]) if ends else None,
        "high": rounded(ends[1]) if ends else None,
        "error_fraction": rounded(predicted / low - 1) if exact else None,
        "inside": inside,
    }


# --- what follows -------------------------------------------------------------------------------------------------


def _limits(plan: Plan | None, seen: Seen, e: Estimate | None, *, measured_load: bool) -> list[Json]:
    """[{limit, at_most, measured, predicted, kept}]; kept: null if the figures do not tell."""
    found = []
    for name, (key, statistic) in LIMITS.items():
        most = plan.slo.get(name) if plan else None
        if not isinstance(most, int | float) or isinstance(most, bool):
            continue
        ends = getattr(seen, key).get(statistic)
        latency = getattr(e, key) if e is not None else None
        predicted = getattr(latency, statistic) if latency is not None else None
        kept = None
        if ends is not None:
            kept = True if ends[1] <= most else False if ends[0] > most else None
        found.append({
            "limit": name, "at_most": most, "measured": [rounded(end) for end in ends] if ends else None,
            "predicted": predicted if measured_load or ends is None else None, "kept": kept,
        })  # fmt: skip
    return found


def _keeps(e: Estimate, plan: Plan | None, rate: float | None) -> bool:
    """Whether an estimate serves its load and keeps every limit of the plan."""
    if not e.fits or (rate and (e.requests_per_s or 0.0) < SERVED_FRACTION * rate):
        return False
    for name, (key, statistic) in LIMITS.items():
        most = plan.slo.get(name) if plan else None
        latency = getattr(e, key)
        value = getattr(latency, statistic) if latency is not None else None
        if isinstance(most, int | float) and value is not None and value > most:
            return False
    return True


def _room(arguments: Json, traffic: Json, found: Found, asked: Asked, plan: Plan | None, base: Estimate) -> Json:
    """{holds: the greatest tried multiple of the load, fails: the next one}: as predicted, for loads at a rate."""
    rate = traffic.get("rate")
    if not rate:
        return {}
    if not _keeps(base, plan, rate):
        return {"holds": None, "fails": 1.0}
    holds = 1.0
    for multiple in ROOM:
        if time.monotonic() > asked.ends_at:
            break
        try:
            more = _estimate(arguments, {**traffic, "rate": rate * multiple}, found, asked)
        except WorkloadError:
            break
        if not _keeps(more, plan, rate * multiple):
            return {"holds": holds, "fails": multiple}
        holds = multiple
    return {"holds": holds, "fails": None}


def _correction(found: Found, rows: Sequence[Json], plan: Plan | None) -> Json:
    """{time_ratio, usable, why_not, how}: what the measurement says about step times, and how to import it."""
    tpot = next((r for r in rows if r["metric"] == "TPOT mean" and r["error_fraction"] is not None), None)
    ratio = rounded(1 / (1 + tpot["error_fraction"])) if tpot else None
    results = [r for r in found.records if r.result is not None]
    why: list[str] = []
    if not results:
        why.append("only the result file of a load generator can correct predictions: a server's own metrics mix loads")
    elif len(results) > 1:
        why.append(f"the files have {len(results)} runs; import one at a time")
    if tpot is None:
        why.append("no mean TPOT was measured for a predicted load")
    if results and plan is not None and plan.option is not None:
        why += load_tests.compare(plan.option, results[0].result.as_json())["differences"]
    how = ""
    if len(results) == 1 and plan is not None and plan.option_name:
        file = results[0].source.split(" ")[0]
        how = f"manage.py import_loadtest {plan.option_name} {file}" + ("" if why else " --calibration")
    elif results:
        how = "store the plan (web or REST), then manage.py import_loadtest ADVICE-ID/RANK FILE --calibration"
    return {"time_ratio": ratio, "usable": not why, "why_not": why, "how": how}


def _next(report: Json, complete: bool, planned: Json, found: Found) -> list[str]:
    """What to do with the comparison, the most useful first."""
    said, correction = [], report["correction"]
    if report["differences"]:
        names = ", ".join(d["setting"] for d in report["differences"])
        said.append(f"Start the server with the planned {names}, or ask again with constraints that fix what runs.")
    if planned and not complete:
        said.append("Add the start-up log or the manifest: they say the settings that these files do not.")
    if correction["usable"]:
        said.append(f"Add the result as a load test, which corrects later predictions: {correction['how']}")
    elif found.seen.completed and not any(r.result is not None for r in found.records):
        said.append("Run the load test of the plan and add its result file: only that can correct predictions.")
    elif found.seen.completed is None:
        said.append("Add a scrape of /metrics under load, or the result file of a load test: nothing was measured yet.")
    return said


def _answer(report: Json, seen: Seen, has_plan: bool) -> list[str]:
    """The answer in sentences: as planned, limits, room, prediction."""
    said = []
    if has_plan:
        names = ", ".join(d["setting"] for d in report["differences"])
        said.append(
            f"It does not run as planned: {names}." if names else "It runs as planned, as far as the files say."
        )
    for each in report["limits"]:
        name = each["limit"].removesuffix("_p95").replace("_ms", "").upper()
        text = {True: "keeps", False: "misses", None: "may miss"}[each["kept"]]
        if each["measured"]:
            low, high = each["measured"]
            figure = f"over {_figure(low)}" if high is None else _figure(low)
            figure += f" to {_figure(high)}" if high not in (None, low) else ""
            said.append(f"It {text} the p95 {name} limit: {figure} of {_figure(each['at_most'])} ms measured.")
        elif each["predicted"] is not None:
            verb = "keep" if each["predicted"] <= each["at_most"] else "miss"
            said.append(f"It should {verb} the p95 {name} limit of {_figure(each['at_most'])} ms: "
                        f"{_figure(each['predicted'])} ms predicted, not measured.")  # fmt: skip
    ratio = report["correction"]["time_ratio"]
    if (full := seen.kv_used_fraction) is not None and full > FULL_FRACTION:
        said.append(f"Its KV cache is {full:.0%} full.")
    if seen.waiting is not None and seen.waiting > max(QUEUE_FRACTION * (seen.running or 0.0), 0.5):
        said.append(f"It has no spare capacity: {seen.waiting:,.3g} requests wait while {seen.running or 0:,.3g} run.")
    elif any(each["kept"] is False for each in report["limits"]):
        said.append("It has no spare capacity: it misses a limit at this load.")
    elif ratio and not TRUSTED[0] <= ratio <= TRUSTED[1]:
        said.append("The prediction is too far from what was measured to tell the spare capacity.")
    elif room := report["room"]:
        if room["holds"] is None:
            said.append("It should have no spare capacity at this load, by the prediction.")
        elif room["fails"]:
            said.append(
                f"By the prediction it holds {room['holds']:g} times this load, and not {room['fails']:g} times."
            )
        else:
            said.append(f"By the prediction it holds at least {room['holds']:g} times this load.")
    judged = [r for r in report["rows"] if r["inside"] is not None]
    if judged:
        inside = sum(r["inside"] for r in judged)
        said.append(f"{inside} of {len(judged)} measured figures with an interval are inside it.")
    if ratio:
        said.append(f"A token takes {ratio:.3g} times the predicted time.")
    if report["not_predicted"]:
        said.append(f"There is no prediction: {report['not_predicted']}.")
    return said or ["The files say how it is deployed, but nothing that could be compared."]
