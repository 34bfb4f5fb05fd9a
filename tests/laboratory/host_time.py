"""Host time per step of one framework version, fitted to steps that its engine logged, and cross-validated by model.

A prefill step takes at least as long as the host needs to prepare it and to launch its layers. So the shortest step of
each model is an upper bound of the host time, and small models reach it: host time is the lowest line through the
shortest steps of all models.
"""

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from advisor.engine.estimate import Resources, estimate_all
from advisor.engine.network import Model, decoder_blocks
from advisor.fidelity.rows import Row
from advisor.fidelity.scores import scoring
from catalog.shipped import FIXTURES
from tests.laboratory import calibration_files

STEPS = FIXTURES / "measurements" / "h200-steps.csv"
SCOPE = "framework:vllm:0.24.0"
SOURCES = ("h200_vllm", "h200_vllm_prefill")
TITLE = "one model (host time)"
CHIP = "h200-sxm"
# Hosts issue eager layers at two speeds, and the one of STEPS is fast. Against it: 1.5 and 1.7 (Llama-3.1-8B, BF16 and
# FP8), 1.6 (16 layers of Qwen3-30B-A3B in BF16) and 1.9 (48 in FP8) on hosts of H100s (fixtures/measurements/h100x2-*);
# 1.7 on another host of H200s, for both models (docs/explanation/accuracy.md).
OTHER_HOSTS_RATIO = 1.6
GRAPH_TOKENS = 512.0  # vLLM's default: larger steps run outside graphs


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A prefill step with one prompt and nothing else."""

    model_id: str
    prompt_tokens: float
    time_s: float
    first_token_s: float | None  # TTFT at the client, for a prompt of this length on an idle engine


def read(path: Path = STEPS) -> list[Step]:
    with path.open(newline="", encoding="utf-8") as lines:
        return [
            Step(
                model_id=row["model_id"],
                prompt_tokens=float(row["prompt_tokens"]),
                time_s=float(row["step_ms_p50"]) / 1e3,
                first_token_s=float(row["first_token_ms"]) / 1e3 if row["first_token_ms"] else None,
            )
            for row in csv.DictReader(lines)
        ]


def host_time(
    steps: Iterable[Step], models: Mapping[str, Model], expert_ratio: float, hosts_ratio: float = OTHER_HOSTS_RATIO
) -> dict[str, float]:
    """The host-time fields of Overhead. `expert_ratio`: time to issue an MoE layer / time to issue a dense layer.

    hosts_ratio: time to issue a layer on most hosts / on the one that logged the steps.
    """
    by_model: dict[str, list[Step]] = {}
    for step in steps:
        by_model.setdefault(step.model_id, []).append(step)
    lags_s = {m: [s.first_token_s - s.time_s for s in own if s.first_token_s] for m, own in by_model.items()}
    in_pieces = {m: [s.time_s for s in own if s.prompt_tokens <= GRAPH_TOKENS] for m, own in by_model.items()}
    eager = {m: [s.time_s for s in own if s.prompt_tokens > GRAPH_TOKENS] for m, own in by_model.items()}
    layers = {m: sum(b.count for b in decoder_blocks(models[m])) for m in by_model}
    fixed_s, per_layer_s = lowest_line([(layers[m], min(times)) for m, times in in_pieces.items() if times])
    weighted = {m: layers[m] * (expert_ratio if _has_experts(models[m]) else 1.0) for m in by_model}
    eager_s = hosts_ratio * min((min(times) - fixed_s) / weighted[m] for m, times in eager.items() if times)
    return {
        "request_s": statistics.median(statistics.median(lags) for lags in lags_s.values() if lags),
        "prepare_s": fixed_s,
        "pieces_s_per_layer": per_layer_s,
        "eager_s_per_layer": eager_s,
        "eager_s_per_expert_layer": eager_s * expert_ratio,
    }


def issue_ratio(results: Iterable[Mapping[str, Any]]) -> float:
    """Time to issue an MoE decoder block eagerly / time to issue a dense one."""
    times = {r["key"]["model"]: r["time_s"]["median"] for r in results if r["key"].get("mode") == "issue"}
    return float(times["qwen3-30b-a3b"] / times["llama-3.1-8b"])


def _has_experts(model: Model) -> bool:
    return any(b.ffn is not None and b.ffn.experts > 1 for b in model.blocks)


def lowest_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(offset, slope) of the line through the leftmost point that has no point below it."""
    (x, y), *rest = sorted(points)
    slope = min((v - y) / (u - x) for u, v in rest if u > x)
    return y - slope * x, slope


def held_out(rows: Sequence[Row], resources: Resources) -> dict[str, float]:
    """Median |predicted / measured - 1| by kind, with the host time of each model fitted to the other models only."""
    steps, errors, expert_ratio = read(), dict[str, list[float]](), issue_ratio(calibration_files.probed()[CHIP])
    for model_id in {step.model_id for step in steps}:
        others = host_time((s for s in steps if s.model_id != model_id), resources.models, expert_ratio)
        scopes = {**resources.scopes, SCOPE: {**resources.scopes.get(SCOPE, {}), **others}}
        own = [row for row in rows if row.model_id == model_id and row.source_key in SOURCES]
        refitted = replace(resources, scopes=scopes)
        for scored in scoring.predict(own, refitted, partial(estimate_all, resources=refitted)):
            if scored.ape is not None and (kind := _kind(scored.row)):
                errors.setdefault(kind, []).append(scored.ape)
    return {kind: statistics.median(apes) for kind, apes in sorted(errors.items())}


def _kind(row: Row) -> str:
    if row.source_key == "h200_vllm_prefill":
        return "vllm_prefill"
    return {"tpot_ms_mean": "vllm_tpot", "ttft_ms_mean": "vllm_ttft"}.get(row.metric, "")
