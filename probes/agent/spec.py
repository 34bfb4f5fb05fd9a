"""What may be asked of this machine: data from a closed list, checked in full before anything runs."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from .axes import KINDS as KINDS

AGENT_VERSION: Final = "1.1.0"
SCHEMA: Final = "assay-probe/1"
PROTOCOL: Final = "2"  # 2: results are signed

SUITE_VERSION: Final = "1"
# Every version of the suites that was released, with its method: rates of one method can be compared.
METHODS: Final = {"1": "1"}

SUITE_SECONDS: Final = {"quick": 60, "full": 600, "custom": 600}
LONGEST_S: Final = 3600
# A suite never holds more of the device than its free memory; this only bounds what a spec may say.
LEAST_BYTES, MOST_BYTES = 1 << 20, 1 << 42
FIELDS: Final = frozenset({"suite", "kinds", "max_s", "max_bytes"})


class SpecError(Exception):
    """A spec this agent does not run. `code` is the protocol's word: invalid_spec or unsupported."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def canonical(value: Any) -> bytes:
    """The one JSON text of a value; NaN and infinities are refused with ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def spec_hash(spec: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(spec)).hexdigest()


def checked(spec: Any, *, allowed: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """The spec as given, absent fields as None: what is measured is told by the hash of exactly this.

    Raises SpecError: `invalid_spec` for a malformed or out-of-range one, `unsupported` for a kind that this agent
    does not have or its operator does not allow.
    """
    if not isinstance(spec, dict) or not set(spec) <= FIELDS:
        raise SpecError("invalid_spec", f"a spec is an object of {', '.join(sorted(FIELDS))} and nothing else")
    suite = spec.get("suite")
    if not isinstance(suite, str) or suite not in SUITE_SECONDS:
        raise SpecError("invalid_spec", f"suite must be one of {', '.join(SUITE_SECONDS)}")
    return {
        "suite": suite,
        "kinds": checked_kinds(suite, spec.get("kinds"), allowed),
        "max_s": in_range("max_s", spec.get("max_s"), 1, LONGEST_S),
        "max_bytes": in_range("max_bytes", spec.get("max_bytes"), LEAST_BYTES, MOST_BYTES),
    }


def longest_s(spec: dict[str, Any]) -> float:
    """Seconds that a checked spec gives its suite."""
    return float(spec["max_s"] or SUITE_SECONDS[spec["suite"]])


def described(spec: dict[str, Any]) -> str:
    kinds = ", ".join(spec["kinds"]) if spec["kinds"] else "every kind"
    return f"the {spec['suite']} suite ({kinds}), at most {longest_s(spec):.0f} s"


def checked_kinds(suite: str, kinds: Any, allowed: tuple[str, ...]) -> list[str] | None:
    """The kinds asked for; None stands for a whole suite, of which the loop runs what is allowed."""
    if kinds is None and suite != "custom":
        return None
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise SpecError("invalid_spec", "kinds must be a list of names, or null for a whole suite")
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise SpecError("unsupported", f"this agent has no kind {', '.join(unknown)[:200]}")
    barred = sorted(set(kinds) - set(allowed))
    if barred:
        raise SpecError("unsupported", f"the operator of this machine does not allow {', '.join(barred)}")
    return kinds


def in_range(name: str, value: Any, least: int, most: int) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise SpecError("invalid_spec", f"{name} must be a number from {least} to {most}")
    return value
