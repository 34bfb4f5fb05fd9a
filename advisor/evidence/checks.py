"""Checks of measured rows before they count: what looks like a mistake is held until a person releases it.

Physics comes from the engine's own bytes and rates. An estimate of the same run tells a wrong unit, and the figures of
one run are compared with each other. None of this asks whether the engine predicts the figure well.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median

from advisor.engine.estimate import Resources, quantization_for
from advisor.engine.kernels import rate_of
from advisor.engine.network import active_parameters, embedding_parameters, parameters
from advisor.engine.terms import Case, Pool
from advisor.fidelity import Row, layout_count

FAR = math.sqrt(1000)  # times the estimate: if a figure is within, the same figure 1,000 times off is not
LITTLE = (0.4, 1.6)  # output tokens/s over those that C requests in flight give; ramp and drain take some
COLD = (
    5.0  # mean TTFT over its median where few requests are in flight: the first ones waited for the server to warm up
)
FEW = 8  # requests in flight: with more, the first burst of a closed loop has the same effect
OUTLIER = 6.0  # times what alike rows differ from their estimates
ALIKE = 4  # of them at least, so that one outlier does not judge another
EARLIEST = date(2020, 1, 1)
MOST_CHIPS = 10_000
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms")
RATES = ("output_tokens_per_s", "total_tokens_per_s")
DECODING = (*(f"tpot_ms_{name}" for name in ("mean", "p50", "p99")), "itl_ms_mean")


Group = tuple[str, ...]  # chip, model, engine, weight format, mode, metric
Known = Mapping[Group, Sequence[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A row with its case and what the engine estimates for it, in the row's unit; None: nothing can be estimated."""

    row: Row
    case: Case
    reference: float | None
    problem: str = ""  # why nothing can be estimated


def suspicions(
    rows: Sequence[Checked], resources: Resources, alike: Mapping[str, str], known: Known, today: date
) -> dict[str, str]:
    """Row ID -> why it looks like a mistake.

    alike: rows whose figure is already there -> the key of that one. known: log(measured / predicted) of the catalog's
    rows of each group.
    """
    impossible = {checked.row.id: reason for checked in rows if (reason := physics(checked, resources))}
    runs = {run_of(checked.row): checked.row.metric for checked in rows if checked.row.id in impossible}
    found: dict[str, str] = {}
    for checked in rows:
        row = checked.row
        reason = (
            day(row, today)
            or layout(checked)
            or impossible.get(row.id)
            or (f"belongs to a run whose {runs[run_of(row)]} is impossible" if run_of(row) in runs else "")
            or estimate(checked)
            or (f"is identical to {alike[row.id]}" if row.id in alike else "")
        )
        if reason:
            found[row.id] = reason
    for row_id, reason in (*within_runs(rows), *outliers([each for each in rows if each.row.id not in found], known)):
        found.setdefault(row_id, reason)
    return found


# --- one row ------------------------------------------------------------------------------------------------------


def day(row: Row, today: date) -> str:
    """Why its date cannot be right. Sources state a year, a month or a day."""
    parts = row.date.split("-")
    try:
        first = date(int(parts[0]), *(int(part) for part in (*parts[1:], "1", "1")[:2]))
    except (ValueError, TypeError):
        return f"has the date {row.date!r}, which is not a valid year, month or day"
    if first > today:
        return f"was measured on {row.date}, which is in the future"
    if first < EARLIEST:
        return f"was measured on {row.date}, before any serving engine of the catalog"
    return ""


def layout(checked: Checked) -> str:
    """Why its layout and its number of accelerators contradict each other."""
    row, case = checked.row, checked.case
    stated = layout_count(row.n_accelerators)
    if stated is None:
        return "does not say how many accelerators it ran on"
    if stated > MOST_CHIPS:
        return f"ran on {stated} accelerators"
    if case.mode == "disagg" and case.prefill_pool and case.decode_pool:
        return _pools(stated, case.prefill_pool, case.decode_pool)
    pool = case.pool
    if pool is None or row.tp == "":
        return ""
    ranks = pool.chips_per_replica
    if ranks != stated:
        ways = " x ".join(f"{name} {getattr(pool, name)}" for name in ("tp", "pp", "dp"))
        return f"ran on {stated} accelerators, but {ways} is {ranks}"
    experts = (layout_count(row.ep) or 1) * (layout_count(row.moe_tp) or 1)
    if row.ep and row.moe_tp and pool.ep * pool.moe_tp != pool.tp * pool.dp:
        return f"has experts on {experts} ranks and attention on {pool.tp * pool.dp}"
    return ""


def _pools(stated: int, prefill: Pool, decode: Pool) -> str:
    ranks = prefill.chips + decode.chips
    if ranks != stated:
        return f"ran on {stated} accelerators, but its pools have {prefill.chips} and {decode.chips}"
    return ""


def weights_bytes(case: Case, resources: Resources) -> tuple[float, float]:
    """Bytes of (all weights, active weights without embeddings), a lower bound: all matrices at the format's width."""
    model = resources.models[case.model_id]
    chip = resources.accelerators[case.accelerator_slug]
    method = quantization_for(
        case.weights_dtype, chip, resources.quantizations, model=resources.models.get(case.model_id)
    )
    width = 0.0 if isinstance(method, str) else method.bits_per_weight / 8
    return parameters(model) * width, max(active_parameters(model) - embedding_parameters(model), 0) * width


def physics(checked: Checked, resources: Resources) -> str:
    """Why no deployment can be that fast: memory, its bandwidth, or dense compute do not allow it."""
    case, row = checked.case, checked.row
    all_bytes, active_bytes = weights_bytes(case, resources)
    chip = resources.accelerators[case.accelerator_slug]
    if all_bytes > case.chips * chip.memory_bytes:
        return f"has {all_bytes / 1e9:.0f} GB of weights on {case.chips} x {chip.memory_bytes / 1e9:.0f} GB of memory"
    pool = case.pool or case.decode_pool
    reading = case.chips if pool is None else pool.chips_per_replica
    drafts = 1 + (case.speculative_tokens or 0)
    step_s = active_bytes / (reading * chip.memory_bytes_per_s) / drafts  # one token of every request in a batch
    if row.metric in DECODING and row.value / 1e3 < step_s:
        return f"has {row.value:.3g} ms a token, but reading the active weights takes {step_s * 1e3:.3g} ms"
    if row.metric == "output_tokens_per_s" and case.concurrency and case.phase != "static" and step_s:
        replicas = max(1.0, case.chips / reading)
        most = max(case.concurrency, replicas) / step_s
        if row.value > most:
            return f"has {row.value:,.0f} tokens/s, but {case.concurrency:.0f} requests cannot exceed {most:,.0f}"
    return _compute(checked, resources)


def _compute(checked: Checked, resources: Resources) -> str:
    """Why it exceeds the dense rate: prompts and answers need two operations for each active weight and token."""
    case, row = checked.case, checked.row
    model, chip = resources.models[case.model_id], resources.accelerators[case.accelerator_slug]
    method = quantization_for(case.weights_dtype, chip, resources.quantizations, model=model)
    flops = max(
        rate_of(chip, "bf16") or 0.0, 0.0 if isinstance(method, str) else rate_of(chip, method.activations_dtype) or 0
    )
    each = 2.0 * max(active_parameters(model) - embedding_parameters(model), 0)
    if not flops or not each:
        return ""
    most = case.chips * flops / each  # tokens/s
    rate = 0.0
    if row.metric in ("prefill_tokens_per_s", "total_tokens_per_s", "output_tokens_per_s"):
        rate = row.value
    elif row.metric.startswith("ttft_ms") and not row.metric.endswith("p99") and case.isl and row.value > 0:
        rate = case.isl / (row.value / 1e3)
    if rate > most:
        return (
            f"means {rate:,.0f} tokens/s, but {case.chips} x {chip.slug} compute at most {most:,.0f} "
            "(dense rate); prompts served from a prefix cache do not measure prefill"
        )
    return ""


def estimate(checked: Checked) -> str:
    """Why it is so far from any estimate that the unit or the number of zeros is in doubt."""
    if checked.reference is None:
        return f"cannot be compared with an estimate: {checked.problem}"
    ratio = checked.row.value / checked.reference
    if 1 / FAR < ratio < FAR:
        return ""
    times = f"{ratio:,.0f} times" if ratio > 1 else f"1/{1 / ratio:,.0f} of"
    return f"is {times} an estimate of the same run ({checked.reference:.3g}); check the unit (s or ms)"


# --- rows of one run ----------------------------------------------------------------------------------------------


def within_runs(rows: Iterable[Checked]) -> Iterable[tuple[str, str]]:
    """Figures of one run that contradict each other."""
    members: defaultdict[tuple[str, ...], dict[str, Checked]] = defaultdict(dict)
    for checked in rows:
        members[run_of(checked.row)][checked.row.metric] = checked
    for run in members.values():
        yield from percentiles(run)
        yield from cold_start(run)
        yield from little(run)


def run_of(row: Row) -> tuple[str, ...]:
    """What the figures of one run share: everything that the source says but the figure itself."""
    run = row.id.rpartition(":")[0] if ":" in row.id else row.id
    return run, row.source_key, row.n_accelerators, row.isl, row.osl, row.concurrency_or_batch, row.date


def percentiles(run: Mapping[str, Checked]) -> Iterable[tuple[str, str]]:
    for kind in LATENCIES:
        middle, tail = run.get(f"{kind}_p50"), run.get(f"{kind}_p99")
        if middle and tail and middle.row.value > tail.row.value * 1.001:
            for each in (middle, tail):
                yield (
                    each.row.id,
                    f"has a median of {middle.row.value:.4g} above its 99th percentile {tail.row.value:.4g}",
                )


def cold_start(run: Mapping[str, Checked]) -> Iterable[tuple[str, str]]:
    """Few requests in flight and a mean TTFT far above the median: the server was still warming up."""
    mean, middle = run.get("ttft_ms_mean"), run.get("ttft_ms_p50")
    if not mean or not middle or (mean.case.concurrency or math.inf) > FEW:
        return
    if mean.row.value > COLD * middle.row.value:
        reason = (
            f"has a mean TTFT of {mean.row.value:,.0f} ms and a median of {middle.row.value:,.0f} ms: "
            "the server was still warming up"
        )
        for metric in ("ttft_ms_mean", "ttft_ms_p99", *RATES):
            if metric in run:
                yield run[metric].row.id, reason


def little(run: Mapping[str, Checked]) -> Iterable[tuple[str, str]]:
    """Little's law: C requests in flight, each as long as its latencies say, give the output of a closed loop."""
    rate, ttft, tpot = (run.get(name) for name in ("output_tokens_per_s", "ttft_ms_mean", "tpot_ms_mean"))
    if not rate or not ttft or not tpot or rate.case.client.kind not in ("steady", "burst") or rate.case.mode != "agg":
        return
    case = rate.case
    if not case.concurrency or case.osl <= 1:
        return
    request_s = (ttft.row.value + tpot.row.value * (case.osl - 1)) / 1e3
    share = rate.row.value * request_s / (case.concurrency * case.osl)
    if not LITTLE[0] <= share <= LITTLE[1]:
        reason = (
            f"has {rate.row.value:,.0f} output tokens/s, but {case.concurrency:.0f} requests of {request_s:.3g} s give "
            f"{case.concurrency * case.osl / request_s:,.0f} (Little's law)"
        )
        for each in (rate, ttft, tpot):
            yield each.row.id, reason


# --- rows of other runs -------------------------------------------------------------------------------------------


def outliers(rows: Iterable[Checked], known: Known) -> Iterable[tuple[str, str]]:
    """Rows that differ from their estimate in another way than the alike rows of the file and of the catalog."""
    members: defaultdict[Group, list[Checked]] = defaultdict(list)
    for checked in rows:
        if checked.reference and checked.row.value > 0:
            members[group_of(checked)].append(checked)
    for group, own in members.items():
        logs = sorted([*(log_ratio(each) for each in own), *known.get(group, ())])
        if len(logs) <= ALIKE:
            continue
        middle = median(logs)
        spread = logs[int(0.9 * (len(logs) - 1))] - logs[int(0.1 * (len(logs) - 1))]
        for each in own:
            far = log_ratio(each) - middle
            if abs(far) > math.log(OUTLIER) + spread:
                times = f"{math.exp(far):.1f} times" if far > 0 else f"1/{math.exp(-far):.1f} of"
                yield each.row.id, f"is {times} what {len(logs) - 1} runs of this model, chip and engine suggest"


def group_of(checked: Checked) -> Group:
    case = checked.case
    return (
        case.accelerator_slug,
        case.model_id,
        case.framework,
        case.weights_dtype,
        case.mode,
        checked.row.metric,
    )


def log_ratio(checked: Checked) -> float:
    return math.log(checked.row.value / (checked.reference or 1.0))
