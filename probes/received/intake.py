"""Parses result documents (`assay-probe/1`) strictly. Each error names the field."""

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from advisor.workload import dotted, error
from catalog.loading.bounded import WEB, BoundedError, read_json
from probes.agent.axes import KINDS

CLOCK_SKEW = timedelta(minutes=5)
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)  # the format was introduced in 2026
MAX_DEPTH = 8
MAX_ENTRIES = 5000
MAX_INTEGER = 10**24
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
Json = dict[str, Any]


class IntakeError(ValueError):
    """The document is invalid; `errors` lists fields and messages."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        super().__init__("; ".join(f"{e['field'] or 'document'}: {e['message']}" for e in errors[:5]))
        self.errors = errors


def refused(field: str, message: str, allowed: str = "") -> IntakeError:
    return IntakeError([error(field, message, allowed)])


# --- the format -------------------------------------------------------------------------------------------------

Short = Annotated[str, StringConstraints(max_length=200)]
Note = Annotated[str, StringConstraints(max_length=2000)]
Scalar = bool | int | float | Short | None
Facts = dict[Short, Any]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Whole = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Time(Strict):
    median: Positive
    p10: Positive
    p90: Positive
    n: Annotated[int, Field(ge=1, le=10**9)]

    @model_validator(mode="after")
    def in_order(self) -> "Time":
        if not self.p10 <= self.median <= self.p90:
            raise ValueError("p10, median and p90 must be in ascending order")
        return self


class Parts(Strict):
    """Parts of a row of train_overlap, in seconds."""

    compute: Positive
    communication: Positive
    compute_beside: Positive


class Check(Strict):
    error: Annotated[float, Field(ge=0)] | None
    limit: Annotated[float, Field(ge=0)] | None
    against: Short
    ok: bool


class Entry(Strict):
    kind: Literal[KINDS]  # type: ignore[valid-type]
    key: Annotated[dict[Short, Scalar | list[Scalar]], Field(max_length=30)]
    path: Literal["native", "reference"]
    kernel: Annotated[str, StringConstraints(max_length=500)] | None
    time_s: Time
    flops: Whole | None
    bytes: Whole | None
    check: Check | None
    power_w: Annotated[float, Field(ge=0, le=1e5)] | None = None
    clock_hz: Annotated[float, Field(ge=0, le=1e11)] | None = None
    temperature_c: Annotated[float, Field(ge=-100, le=300)] | None = None
    throttled: bool | None = None
    note: Note | None = None
    peak_bytes: Annotated[int, Field(gt=0, le=2**50)] | None = None
    parts_s: Parts | None = None

    @model_validator(mode="after")
    def has_its_parts(self) -> "Entry":
        if (self.kind == "train_overlap") != (self.parts_s is not None):
            raise ValueError("parts_s belongs to rows of train_overlap, and to each of them")
        if self.parts_s and self.parts_s.compute_beside > self.time_s.p90:
            raise ValueError("parts_s.compute_beside must not exceed time_s.p90")
        return self


class Skipped(Strict):
    kind: Short
    key: dict[Short, Any]
    reason: Note


class Device(BaseModel):
    """Facts about the device. Newer agents may send more of them."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    count: Annotated[int, Field(ge=1, le=1024)]
    memory_bytes: Annotated[int, Field(gt=0, le=2**50)] | None


class Signature(Strict):
    """The signature of a result file by the machine that wrote it (signing.of_file)."""

    install_id: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_-]{8,80}$")]
    value: Annotated[str, StringConstraints(pattern="^v1=[0-9a-f]{64}$")]


class Document(Strict):
    format: Literal["assay-probe/1"] = Field(alias="schema")
    agent_version: Short
    suite: Literal["quick", "full", "custom"]
    suite_version: Annotated[str, StringConstraints(min_length=1, max_length=20)]
    spec_hash: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    spec: Facts
    backend: Literal["cuda", "rocm", "mps", "xla", "cpu"]
    library: Literal["torch", "jax"]
    started_at: Short
    duration_s: Positive
    device: Device
    host: Facts
    versions: Facts
    results: Annotated[list[Entry], Field(min_length=1, max_length=MAX_ENTRIES)]
    skipped: Annotated[list[Skipped], Field(max_length=MAX_ENTRIES)]
    signature: Signature | None = None

    @model_validator(mode="after")
    def no_duplicates(self) -> "Document":
        seen = set()
        for entry in self.results:
            key = (entry.kind, entry.path, json.dumps(entry.key, sort_keys=True))
            if key in seen:
                raise ValueError(f"duplicate entry: {entry.kind} {entry.key}")
            seen.add(key)
        return self


def read(body: bytes, max_bytes: int, earliest: datetime = FIRST_DAY) -> Json:
    """The document as sent. IntakeError: it is invalid, or it started before `earliest` or in the future."""
    if len(body) > max_bytes:
        raise refused("", f"the document has {len(body)} bytes", f"at most {max_bytes}")
    try:
        document = read_json(body, replace(WEB, max_bytes=max_bytes), finite=True)
    except BoundedError as reason:
        raise refused("", f"the document {reason}", "one JSON object in UTF-8") from None
    if not isinstance(document, dict):
        raise refused("", "not an object", "one JSON object")
    check_values(document)
    try:
        parsed = Document.model_validate(document)
    except ValidationError as invalid:
        raise IntakeError([error(dotted(e["loc"]), str(e["msg"])) for e in invalid.errors()[:20]]) from None
    check_start(parsed.started_at, earliest)
    return document


def check_start(text: str, earliest: datetime) -> None:
    """IntakeError: the start time is in the future or before `earliest`, so the clock of the machine is wrong."""
    start, now = started(text), timezone.now()
    allowed = f"from {earliest:%Y-%m-%d %H:%M} to {now:%Y-%m-%d %H:%M} UTC"
    if start > now + CLOCK_SKEW:
        raise refused("started_at", f"{text} is in the future: set the machine's clock and measure again", allowed)
    if start < earliest:
        raise refused("started_at", f"{text} is too long ago: set the machine's clock and measure again", allowed)


def check_values(value: Any, depth: int = 1) -> None:
    """IntakeError: nested too deeply, a number not finite (JSON 1e999 is infinity) or too large, or unstorable text."""
    if depth > MAX_DEPTH:
        raise refused("", "nested too deeply", f"at most {MAX_DEPTH} levels")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise refused("", "a number has too many digits", f"whole numbers up to {MAX_INTEGER:.0e}")
    if isinstance(value, float) and not math.isfinite(value):
        raise refused("", "a number is not finite", "finite numbers")
    if isinstance(value, str) and UNSTORABLE.search(value):
        raise refused("", "a text contains NUL or an unpaired surrogate", "Unicode text")
    if isinstance(value, dict | list):
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            check_values(inner, depth + 1)


def started(text: str) -> datetime:
    """The start time by the agent's clock. IntakeError: not ISO 8601 with a time zone."""
    try:
        start = datetime.fromisoformat(text)
    except ValueError:
        start = None
    if start is None or start.tzinfo is None:
        raise refused(
            "started_at", f"{text!r} is not a time", "ISO 8601 with a time zone, such as 2026-11-21T09:30:00Z"
        )
    return start
