"""Embeddings, where vectors are made, not tokens: how they are asked for, and what an answer says of them."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.encoder import EMBEDDING, unsuited
from advisor.engine.hf_config import from_hf_config
from advisor.engine.plan import Workload
from advisor.workload_text import error

Json = dict[str, Any]
ONE_VECTOR = {"mean": 1.0}  # the output of an embedding request, which generates no tokens
# figures that only generated tokens have
NONE = (
    "output_tokens_per_s", "output_tokens_per_s_per_accelerator", "output_tokens_per_s_at_capacity",
    "usd_per_mtok_output", "usd_per_mtok_output_at_capacity", "joules_per_output_token",
)  # fmt: skip


def with_one_vector(raw: Json) -> Json:
    """An embedding's output may be left out or written as 0 or 1 tokens: each request makes one vector."""
    traffic = raw.get("traffic")
    if raw.get("kind") != EMBEDDING or not isinstance(traffic, Mapping):
        return raw
    given = traffic.get("output_tokens")
    figures = list(given.values()) if isinstance(given, Mapping) and "mean" in given else [given]
    none = given is None or all(isinstance(n, int | float) and not isinstance(n, bool) and n == 0 for n in figures)
    return {**raw, "traffic": {**traffic, "output_tokens": ONE_VECTOR}} if none else raw


def unsuited_model(spec: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the engine would refuse of every chip: this kind of question to this kind of model."""
    from advisor import assemble

    own = spec["model"]["config"] if isinstance(spec["model"], Mapping) else None
    try:
        if isinstance(own, Mapping):
            from_hf_config(own, "own-model")
    except ValueError as trouble:
        return [error("model.config", f"cannot be read: {trouble}", "the contents of a Hugging Face config.json")]
    try:
        why = unsuited(assemble.workload_of(dict(spec)), assemble.model_of(assemble.model_row(spec["model"])))
    except (ValueError, KeyError, TypeError, OSError):
        return []  # a trace that is still a path is refused where it is read
    return [error("kind" if "kind:" in why else "traffic.input_tokens", why)] if why else []


def makes_vectors(workload: Workload) -> bool:
    return workload.kind == EMBEDDING


def vectors(r: Mapping[str, Any], tokens_per_s: float | None, watts: float | None) -> Json:
    """The figures of a deployment (R of `advise`, or `estimate`) with those of generated tokens left empty.

    The time to the first and only result is the latency; tokens per second are those read.
    """
    chips, joules = r["accelerator_count"], watts / tokens_per_s if watts and tokens_per_s else None
    return {
        **r,
        **{name: None for name in NONE if name in r},
        "latency_ms": r["ttft_ms"],
        "tpot_ms": dict.fromkeys(r["tpot_ms"]),
        "sequences_per_s": r["requests_per_s"],
        "input_tokens_per_s": tokens_per_s,
        "input_tokens_per_s_per_accelerator": tokens_per_s / chips if tokens_per_s else None,
        "total_tokens_per_s": tokens_per_s,
        "joules_per_input_token": joules,
    }
