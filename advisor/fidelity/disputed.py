"""Measured rows that contradict physics, their own layout or another row: the list, and the checks that found it."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from advisor.engine.estimate import Resources, quantization_for
from advisor.engine.network import active_parameters, embedding_parameters, parameters
from advisor.engine.spec import Case
from advisor.fidelity.rows import Row, case_of, count, number

PATH = Path(__file__).resolve().parents[2] / "fixtures" / "measurements" / "disputed.csv"
REPEAT_FRACTION = 0.25  # two values of one configuration further apart than this are not noise
SERVING = "serving_"  # sources whose rows state their whole configuration; MLPerf submitters differ in what is unsaid
LAYOUT = ("accelerator_slug", "n_accelerators", "mode", "tp", "pp", "ep", "attention_dp", "moe_tp", "prefill_pool")
RUN = ("source_key", "metric", "model_id", *LAYOUT, "weights_dtype", "kv_dtype", "framework", "isl", "osl")

# (source, framework, model, chip[, users]) whose rows cannot be told apart or cannot be right, with what shows it
WAITING = "512 users of whom about 95 run (TPOT of 4-27 ms beside a TTFT of 20-460 s): the server's cap is not stated"
FLATTENED = "one tensor-parallel group of 32 or 64 chips at user counts of the disaggregated runs: pools are missing"
HAND: dict[tuple[str, ...], str] = {
    ("serving_dated", "vllm 0.11.2", "openai/gpt-oss-120b", "h100-sxm", "512"): WAITING,
    ("serving_dated", "vllm", "openai/gpt-oss-120b", "h100-sxm", "512"): WAITING,
    ("serving_dated", "trtllm", "deepseek-ai/DeepSeek-R1", "gb200"): FLATTENED,
    ("serving_dated", "trtllm 1.1.0rc2.post2", "deepseek-ai/DeepSeek-R1", "b200"): (
        "holds runs with and without multi-token prediction under one configuration (1024/1024, FP4: 6.0 ms at 8 users "
        "on 8 chips, far below 1.2.0rc6.post2 and SGLang; 17.2 ms at 32 users on 4 chips, in line with them)"
    ),
    ("serving_sweep", "trtllm 1.3.0rc1", "deepseek-ai/DeepSeek-R1", "b200"): (
        "TPOT stays at 85-92 ms from 40 to 224 users; the same layout of the same source serves 448 users at 21 ms"
    ),
}


def read(path: Path = PATH) -> dict[str, str]:
    """Row id -> why it is disputed."""
    with path.open(newline="", encoding="utf-8") as lines:
        return {record["id"]: record["reason"] for record in csv.DictReader(lines)}


def find(rows: Sequence[Row], resources: Resources | None = None) -> dict[str, str]:
    """Every row that one of the checks objects to, with the first reason; physics is checked against `resources`."""
    found: dict[str, str] = {}
    for check in (miscounted, unlike_itself, falling, by_hand):
        for identity, reason in check(rows):
            found.setdefault(identity, reason)
    for identity, reason in impossible(rows, resources) if resources is not None else ():
        found.setdefault(identity, reason)
    return found


def impossible(rows: Iterable[Row], resources: Resources) -> Iterable[tuple[str, str]]:
    """Weights larger than the chips' memory, or steps faster than one read of the active weights."""
    for row in rows:
        case = case_of(row, resources)
        if not isinstance(case, Case) or case.phase in ("kernel", "fit"):
            continue
        all_bytes, active_bytes = _weights_bytes(case, resources)
        chip = resources.accelerators[case.accelerator_slug]
        if all_bytes > case.chips * chip.memory_bytes:
            yield row.id, f"{all_bytes / 1e9:.0f} GB of weights on {case.chips} x {chip.memory_bytes / 1e9:.0f} GB"
        pool = case.pool or case.decode_pool
        reading = case.chips if pool is None else pool.chips_per_replica
        fastest_s = active_bytes / (reading * chip.memory_bytes_per_s) / (1 + (case.speculative_tokens or 0))
        if row.metric in ("tpot_ms_mean", "tpot_ms_p50", "itl_ms_mean") and row.value / 1e3 < fastest_s:
            yield row.id, f"{row.value:.3g} ms a token, but reading the active weights takes {fastest_s * 1e3:.3g} ms"


def _weights_bytes(case: Case, resources: Resources) -> tuple[float, float]:
    """(all, active without embeddings) bytes of the weights, every matrix at the format's width: a lower bound."""
    model = resources.models[case.model_id]
    chip = resources.accelerators[case.accelerator_slug]
    method = quantization_for(case.weights_dtype, chip, resources.quantizations)
    width = 0.0 if isinstance(method, str) else method.bits_per_weight / 8
    return parameters(model) * width, max(active_parameters(model) - embedding_parameters(model), 0) * width


def miscounted(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Experts spread over more ranks than the stated chips."""
    for row in rows:
        ranks, chips = (count(row.moe_tp) or 1) * (count(row.ep) or 1), count(row.n_accelerators) or 1
        if row.mode == "agg" and row.source_key.startswith(SERVING) and ranks > chips:
            yield row.id, f"experts over {ranks} ranks but {chips} chips stated: attention data parallelism left out"


def unlike_itself(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Two values of one configuration of one source, more than 25 % apart."""
    runs: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.source_key.startswith(SERVING):
            key = (*(getattr(row, name) for name in RUN), row.decode_pool, row.concurrency_or_batch)
            runs[key].append(row)
    for same in runs.values():
        low, high = min(row.value for row in same), max(row.value for row in same)
        if high > low * (1 + REPEAT_FRACTION):
            yield from ((row.id, f"{low:.4g} and {high:.4g} for one configuration of one source") for row in same)


def falling(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """TPOT that falls by more than 25 % as users are added; a deployment that does it twice is disputed whole."""
    deployments: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.source_key.startswith(SERVING) and row.metric == "tpot_ms_mean" and count(row.concurrency_or_batch):
            pool = re.sub(r"batch=\d+", "", row.decode_pool)
            deployments[(*(getattr(row, name) for name in RUN if name not in ("isl", "osl")), pool)].append(row)
    for members in deployments.values():
        odd = list(_falls(members))
        chosen = members if len(odd) > 1 else odd
        for row in chosen:
            yield row.id, "TPOT of this deployment falls by more than a quarter when users are added"
            if len(odd) > 1:
                yield row.id.replace(":tpot", ":ttft"), "its deployment's TPOT falls when users are added"


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


def by_hand(rows: Iterable[Row]) -> Iterable[tuple[str, str]]:
    """Sets of rows that were looked at one by one."""
    for row in rows:
        key = (row.source_key, row.framework, row.model_id, row.accelerator_slug)
        if reason := HAND.get(key) or HAND.get((*key, row.concurrency_or_batch)):
            yield row.id, reason


def write(rows: Sequence[Row], path: Path = PATH) -> int:
    """Writes the list that the checks find among these rows; the number of rows on it."""
    found = find(rows)
    with path.open("w", newline="", encoding="utf-8") as lines:
        out = csv.writer(lines, lineterminator="\n")
        out.writerow(("id", "reason"))
        out.writerows(sorted(found.items()))
    return len(found)
