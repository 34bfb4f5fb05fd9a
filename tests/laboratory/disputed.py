"""Finds measured rows that contradict physics, their own layout or other rows, and keeps the list of them."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from advisor.engine.estimate import Resources
from advisor.engine.terms import Case
from advisor.evidence.checks import weights_bytes
from advisor.fidelity.rows import Row, case_of, count, number
from catalog.shipped import FIXTURES

PATH = FIXTURES / "measurements" / "disputed.csv"
REPEAT_FRACTION = 0.25  # larger differences between values of one configuration are not noise
SERVING = "serving_"  # sources whose rows state the complete configuration, unlike MLPerf
LAYOUT = ("accelerator_slug", "n_accelerators", "mode", "tp", "pp", "ep", "attention_dp", "moe_tp", "prefill_pool")
RUN = ("source_key", "metric", "model_id", *LAYOUT, "weights_dtype", "kv_dtype", "framework", "isl", "osl")

# found by inspection: (source, framework, model, chip[, users]) -> reason
SERVER_LIMIT = "only about 95 of 512 users run (TPOT 4-27 ms, TTFT 20-460 s): the server's limit is not stated"
MISSING_POOLS = (
    "one tensor-parallel group of 32 or 64 chips with the user counts of disaggregated runs: pools are missing"
)
FOUND_BY_INSPECTION: dict[tuple[str, ...], str] = {
    ("serving_dated", "vllm 0.11.2", "openai/gpt-oss-120b", "h100-sxm", "512"): SERVER_LIMIT,
    ("serving_dated", "vllm", "openai/gpt-oss-120b", "h100-sxm", "512"): SERVER_LIMIT,
    ("serving_dated", "trtllm", "deepseek-ai/DeepSeek-R1", "gb200"): MISSING_POOLS,
    ("serving_dated", "trtllm 1.1.0rc2.post2", "deepseek-ai/DeepSeek-R1", "b200"): (
        "mixes runs with and without multi-token prediction in one configuration (1024/1024, FP4: 6.0 ms at 8 users "
        "on 8 chips, far below 1.2.0rc6.post2 and SGLang; 17.2 ms at 32 users on 4 chips, in line with them)"
    ),
    ("serving_sweep", "trtllm 1.3.0rc1", "deepseek-ai/DeepSeek-R1", "b200"): (
        "TPOT stays at 85-92 ms from 40 to 224 users; the same layout of the same source serves 448 users at 21 ms"
    ),
}


def read(path: Path = PATH) -> dict[str, str]:
    """Row ID -> reason why it is disputed."""
    with path.open(newline="", encoding="utf-8") as lines:
        return {record["id"]: record["reason"] for record in csv.DictReader(lines)}


def find(rows: Sequence[Row], resources: Resources | None = None) -> dict[str, str]:
    """Row ID -> reason, for each row that fails a check. Checks against physics need `resources`."""
    reasons: dict[str, str] = {}
    for check in (miscounted, inconsistent, falling_tpot, found_by_inspection):
        for row_id, reason in check(rows):
            reasons.setdefault(row_id, reason)
    for row_id, reason in impossible(rows, resources) if resources is not None else ():
        reasons.setdefault(row_id, reason)
    return reasons


def impossible(rows: Iterable[Row], resources: Resources) -> Iterable[tuple[str, str]]:
    """Rows with weights larger than the chips' memory, or steps faster than reading the active weights once."""
    for row in rows:
        case = case_of(row, resources)
        if not isinstance(case, Case) or case.phase in ("kernel", "fit"):
            continue
        all_bytes, active_bytes = weights_bytes(case, resources)
        chip = resources.accelerators[case.accelerator_slug]
        if all_bytes > case.chips * chip.memory_bytes:
            memory = f"{case.chips} x {chip.memory_bytes / 1e9:.0f} GB of memory"
            yield row.id, f"{all_bytes / 1e9:.0f} GB of weights, but only {memory}"
        pool = case.pool or case.decode_pool
        reading = case.chips if pool is None else pool.chips_per_replica
        fastest_s = active_bytes / (reading * chip.memory_bytes_per_s) / (1 + (case.speculative_tokens or 0))
        if row.metric in ("tpot_ms_mean", "tpot_ms_p50", "itl_ms_mean") and row.value / 1e3 < fastest_s:
            yield row.id, f"{row.value:.3g} ms per token, but reading the active weights takes {fastest_s * 1e3:.3g} ms"


def miscounted(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Rows with experts spread over more ranks than the stated chips."""
    for row in rows:
        ranks, chips = (count(row.moe_tp) or 1) * (count(row.ep) or 1), count(row.n_accelerators) or 1
        if row.mode == "agg" and row.source_key.startswith(SERVING) and ranks > chips:
            reason = f"experts on {ranks} ranks but only {chips} chips stated"
            yield row.id, f"{reason}: the count omits attention data parallelism"


def inconsistent(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Rows of one source whose values for the same configuration differ by more than 25 %."""
    runs: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.source_key.startswith(SERVING):
            key = (*(getattr(row, name) for name in RUN), row.decode_pool, row.concurrency_or_batch)
            runs[key].append(row)
    for same in runs.values():
        low, high = min(row.value for row in same), max(row.value for row in same)
        if high > low * (1 + REPEAT_FRACTION):
            yield from (
                (row.id, f"the source reports {low:.4g} and {high:.4g} for the same configuration") for row in same
            )


def falling_tpot(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Rows whose TPOT falls by more than 25 % when users are added; if that happens twice, the whole deployment."""
    deployments: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.source_key.startswith(SERVING) and row.metric == "tpot_ms_mean" and count(row.concurrency_or_batch):
            pool = re.sub(r"batch=\d+", "", row.decode_pool)
            deployments[(*(getattr(row, name) for name in RUN if name not in ("isl", "osl")), pool)].append(row)
    for members in deployments.values():
        odd = list(_falls(members))
        chosen = members if len(odd) > 1 else odd
        for row in chosen:
            yield row.id, "TPOT of this deployment falls by more than 25 % when users are added"
            if len(odd) > 1:
                yield row.id.replace(":tpot", ":ttft"), "TPOT of this deployment falls when users are added"


def _falls(members: Sequence[Row]) -> Iterable[Row]:
    lengths: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in members:
        lengths[row.isl, row.osl].append(row)
    for same in lengths.values():
        ordered = sorted(same, key=lambda row: number(row.concurrency_or_batch, 0))
        for row, larger in zip(ordered, ordered[1:], strict=False):
            more = number(larger.concurrency_or_batch, 0) > number(row.concurrency_or_batch, 0)
            if more and row.value > larger.value * (1 + REPEAT_FRACTION):
                yield row


def found_by_inspection(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Rows listed in FOUND_BY_INSPECTION."""
    for row in rows:
        key = (row.source_key, row.framework, row.model_id, row.accelerator_slug)
        if reason := FOUND_BY_INSPECTION.get(key) or FOUND_BY_INSPECTION.get((*key, row.concurrency_or_batch)):
            yield row.id, reason


def write(rows: Sequence[Row], path: Path = PATH) -> int:
    """Writes the disputed ones among `rows` to `path`. Returns their number."""
    reasons = find(rows)
    with path.open("w", newline="", encoding="utf-8") as lines:
        out = csv.writer(lines, lineterminator="\n")
        out.writerow(("id", "reason"))
        out.writerows(sorted(reasons.items()))
    return len(reasons)
