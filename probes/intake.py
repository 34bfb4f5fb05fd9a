"""Reading a result document (`assay-probe/1`) strictly: what is not as the format says is refused, with its place."""

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from advisor.api import unique
from advisor.workload import dotted, error
from probes.agent.axes import KINDS

CLOCK_SKEW = timedelta(minutes=5)
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)  # the format began in 2026: no honest document is older
MOST_DEPTH = 8
MOST_ENTRIES = 5000
MOST_WHOLE = 10**24
UNKEPT = re.compile("[\0\ud800-\udfff]")
Json = dict[str, Any]


class IntakeError(ValueError):
    """The document cannot be used; `errors` says where and why."""

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
Whole = Annotated[int, Field(ge=0, le=MOST_WHOLE)]


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
            raise ValueError("p10 <= median <= p90 does not hold")
        return self


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


class Skipped(Strict):
    kind: Short
    key: dict[Short, Any]
    reason: Note


class Device(BaseModel):
    """Facts of the device; more of them may come with a newer agent."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    count: Annotated[int, Field(ge=1, le=1024)]
    memory_bytes: Annotated[int, Field(gt=0, le=2**50)] | None


class Signature(Strict):
    """Of a file: which machine wrote it (signing.of_file)."""

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
    results: Annotated[list[Entry], Field(min_length=1, max_length=MOST_ENTRIES)]
    skipped: Annotated[list[Skipped], Field(max_length=MOST_ENTRIES)]
    signature: Signature | None = None

    @model_validator(mode="after")
    def nothing_twice(self) -> "Document":
        seen = set()
        for entry in self.results:
            place = (entry.kind, entry.path, json.dumps(entry.key, sort_keys=True))
            if place in seen:
                raise ValueError(f"{entry.kind} {entry.key} is there twice")
            seen.add(place)
        return self


def read(body: bytes, most_bytes: int, earliest: datetime = FIRST_DAY) -> Json:
    """The document of these bytes, as it was sent; IntakeError when it is not one, or began before `earliest`."""
    if len(body) > most_bytes:
        raise refused("", f"the document has {len(body)} bytes", f"at most {most_bytes}")
    try:
        document = json.loads(body, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as trouble:
        raise refused("", f"not JSON: {trouble}", "one JSON object in UTF-8") from None
    if not isinstance(document, dict):
        raise refused("", "not an object", "one JSON object")
    look_through(document)
    try:
        found = Document.model_validate(document)
    except ValidationError as trouble:
        raise IntakeError([error(dotted(e["loc"]), str(e["msg"])) for e in trouble.errors()[:20]]) from None
    in_time(found.started_at, earliest)
    return document


def in_time(text: str, earliest: datetime) -> None:
    """A measurement that is still to come, or older than it can be, says at least that the clock is wrong."""
    begun, now = started(text), timezone.now()
    allowed = f"from {earliest:%Y-%m-%d %H:%M} to {now:%Y-%m-%d %H:%M} UTC"
    if begun > now + CLOCK_SKEW:
        raise refused("started_at", f"{text} is in the future: set the machine's clock and measure again", allowed)
    if begun < earliest:
        raise refused("started_at", f"{text} is too long ago: set the machine's clock and measure again", allowed)


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def look_through(value: Any, depth: int = 1) -> None:
    """Refuses what nests too deep, what is not finite (1e999 is read as infinity) and text that no database keeps."""
    if depth > MOST_DEPTH:
        raise refused("", "nested too deeply", f"at most {MOST_DEPTH} levels")
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        raise refused("", "a number has too many digits", f"whole numbers up to {MOST_WHOLE:.0e}")
    if isinstance(value, float) and not math.isfinite(value):
        raise refused("", "a number is not finite", "finite numbers")
    if isinstance(value, str) and UNKEPT.search(value):
        raise refused("", "a text holds NUL or half of a surrogate pair", "Unicode text")
    if isinstance(value, dict | list):
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            look_through(inner, depth + 1)


def started(text: str) -> datetime:
    """The agent's start, in its own clock; IntakeError without a time zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise refused(
            "started_at", f"{text!r} is not a time", "ISO 8601 with a time zone, such as 2026-11-21T09:30:00Z"
        )
    return found
