"""The spec of a job: data from a closed list, fully checked before anything runs."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from .axes import KINDS as KINDS

AGENT_VERSION: Final = "1.2.0"
SCHEMA: Final = "assay-probe/1"
PROTOCOL: Final = "2"  # 2: results are signed

SUITE_VERSION: Final = "1"
# Every released suite version with its measurement method. Rates of the same method are comparable.
METHODS: Final = {"1": "1"}

SUITE_SECONDS: Final = {"quick": 60, "full": 600, "custom": 600}
MAX_SUITE_S: Final = 3600
# Bounds of max_bytes in a spec. A suite never uses more than the free memory of the device.
MIN_BYTES, MAX_BYTES = 1 << 20, 1 << 42
FIELDS: Final = frozenset({"suite", "kinds", "max_s", "max_bytes"})


class SpecError(Exception):
    """The agent cannot run this spec. `code` is invalid_spec or unsupported, as in the protocol."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def canonical(value: Any) -> bytes:
    """The canonical JSON of a value. ValueError: it contains NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def spec_hash(spec: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(spec)).hexdigest()


def checked(spec: Any, *, allowed: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """The spec with absent fields set to None; its hash identifies what is measured.

    SpecError with `invalid_spec` if it is malformed or out of range, with `unsupported` if it has a kind that this
    agent does not know or its operator does not allow.
    """
    if not isinstance(spec, dict) or not set(spec) <= FIELDS:
        raise SpecError("invalid_spec", f"a spec must be an object with only these fields: {', '.join(sorted(FIELDS))}")
    suite = spec.get("suite")
    if not isinstance(suite, str) or suite not in SUITE_SECONDS:
        raise SpecError("invalid_spec", f"suite must be one of {', '.join(SUITE_SECONDS)}")
    return {
        "suite": suite,
        "kinds": checked_kinds(suite, spec.get("kinds"), allowed),
        "max_s": in_range("max_s", spec.get("max_s"), 1, MAX_SUITE_S),
        "max_bytes": in_range("max_bytes", spec.get("max_bytes"), MIN_BYTES, MAX_BYTES),
    }


def max_seconds(spec: dict[str, Any]) -> float:
    """The time limit of a checked spec, in seconds."""
    return float(spec["max_s"] or SUITE_SECONDS[spec["suite"]])


def summary(spec: dict[str, Any]) -> str:
    """A checked spec in words."""
    kinds = ", ".join(spec["kinds"]) if spec["kinds"] else "all kinds"
    return f"the {spec['suite']} suite ({kinds}), at most {max_seconds(spec):.0f} s"


def checked_kinds(suite: str, kinds: Any, allowed: tuple[str, ...]) -> list[str] | None:
    """The requested kinds. None is a whole suite, of which the loop runs the allowed kinds."""
    if kinds is None and suite != "custom":
        return None
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise SpecError("invalid_spec", "kinds must be a list of names, or null for a whole suite")
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise SpecError("unsupported", f"this agent has no kind {', '.join(unknown)[:200]}")
    forbidden = sorted(set(kinds) - set(allowed))
    if forbidden:
        raise SpecError("unsupported", f"the operator of this machine does not allow {', '.join(forbidden)}")
    return kinds


def in_range(name: str, value: Any, low: int, high: int) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise SpecError("invalid_spec", f"{name} must be a number from {low} to {high}")
    return value
