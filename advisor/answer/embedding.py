"""Embeddings, where vectors are made, not tokens: how they are asked for, and what an answer says of them."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.spec import EMBEDDING

Json = dict[str, Any]


def vectors(r: Mapping[str, Any], tokens_per_s: float | None, watts: float | None) -> Json:
    """The figures of a deployment (R of `advise`, or `estimate`) with those of generated tokens left empty.

    The time to the first and only result is the latency; tokens per second are those read.
    """
    chips, joules = r["accelerator_count"], watts / tokens_per_s if watts and tokens_per_s else None
    return {
        **r,
        **{name: None for name in EMBEDDING.absent_figures if name in r},
        "latency_ms": r["ttft_ms"],
        "tpot_ms": dict.fromkeys(r["tpot_ms"]),
        "sequences_per_s": r["requests_per_s"],
        "input_tokens_per_s": tokens_per_s,
        "input_tokens_per_s_per_accelerator": tokens_per_s / chips if tokens_per_s else None,
        "total_tokens_per_s": tokens_per_s,
        "joules_per_input_token": joules,
    }
