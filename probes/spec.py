"""What a probe may be asked to do: data from a closed list, never code, a command, a path or an address."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SUITES = ("quick", "full", "custom")
KINDS = tuple(
    """
    memory_read memory_write memory_copy memory_strided memory_gather l2_read gemm grouped_gemm attention_prefill
    attention_decode norm rotary activation softmax mlp launch host_copy compile_gain block decode_step all_reduce
    all_gather all_to_all point_to_point known_answer
    """.split()
)
MAX_S = {"quick": 120.0, "full": 900.0, "custom": 900.0}
LONGEST_S = 3600.0
MOST_BYTES = 2**40
Spec = dict[str, Any]


class SpecError(ValueError):
    """The spec cannot be asked of an agent; the text says what would be."""


def parse(given: Mapping[str, Any]) -> Spec:
    """The spec with its defaults filled in: {suite, kinds, max_s, max_bytes}."""
    if unknown := set(given) - {"suite", "kinds", "max_s", "max_bytes"}:
        raise SpecError(f"unknown: {', '.join(sorted(map(str, unknown)))}; a spec has suite, kinds, max_s, max_bytes")
    suite = given.get("suite", "quick")
    if suite not in SUITES:
        raise SpecError(f"suite must be one of {', '.join(SUITES)}")
    return {
        "suite": suite,
        "kinds": kinds(suite, given.get("kinds")),
        "max_s": number("max_s", given.get("max_s"), MAX_S[suite], 1.0, LONGEST_S),
        "max_bytes": number("max_bytes", given.get("max_bytes"), None, 2**20, MOST_BYTES),
    }


def kinds(suite: str, wanted: Any) -> list[str] | None:
    if not wanted:
        if suite == "custom":
            raise SpecError(f"a custom suite needs kinds, some of {', '.join(KINDS)}")
        return None
    if not isinstance(wanted, list) or any(kind not in KINDS for kind in wanted):
        raise SpecError(f"kinds must be a list of some of {', '.join(KINDS)}")
    return sorted(set(wanted), key=KINDS.index)


def number(name: str, value: Any, default: float | None, low: float, high: float) -> float | None:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SpecError(f"{name} must be a number from {low:g} to {high:g}")
    return value


def canonical(value: Any) -> str:
    """One text for one value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(spec: Any) -> str:
    """SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(canonical(spec).encode()).hexdigest()
