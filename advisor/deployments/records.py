"""What the files of a running deployment say: how it was started, and what was measured on it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

Json = dict[str, Any]
Range = tuple[float, float]  # both ends are the same where the figure is exact; the upper may be infinite
Spread = dict[str, Range]  # mean, p50, p90, p95, p99


class DeploymentError(ValueError):
    """A file cannot be read, or the files do not say enough; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How one replica is started; None: the file does not say."""

    framework: str | None = None
    version: str | None = None
    model: str | None = None  # as written: an ID, a path or a URL
    served_name: str | None = None
    accelerator: str | None = None  # as written
    accelerators: int | None = None  # of one replica, with all its hosts
    replicas: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None  # data-parallel ranks of one server
    dp_attention: bool | None = None  # SGLang: data parallelism of attention alone, inside the tp ranks
    ep: int | None = None
    expert_parallel: bool | None = None
    quantization: str | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None  # of one scheduler
    max_batched_tokens: int | None = None
    memory_fraction: float | None = None
    prefix_caching: bool | None = None
    enforce_eager: bool | None = None
    speculative: Mapping[str, Any] | None = None  # {method, k, draft}
    max_loras: int | None = None
    prefill_or_decode: str | None = None  # the role of a disaggregated worker

    def as_json(self) -> Json:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def over(self, other: "Settings") -> "Settings":
        """These settings, completed by those of another record."""
        return replace(other, **self.as_json())


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What was measured on a deployment. Rates are of all its replicas that the file covers."""

    window_s: float | None = None
    completed: int | None = None
    failed: int = 0
    concurrency: float | None = None  # of a closed loop
    rate_per_s: float | None = None  # that a client sent at
    arrival_cv: float | None = None
    requests_per_s: float | None = None
    input_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    input_tokens: Spread = field(default_factory=dict)
    output_tokens: Spread = field(default_factory=dict)
    ttft_ms: Spread = field(default_factory=dict)
    tpot_ms: Spread = field(default_factory=dict)  # per request
    itl_ms: Spread = field(default_factory=dict)  # between tokens of all requests
    e2e_ms: Spread = field(default_factory=dict)
    queue_ms: Spread = field(default_factory=dict)
    running: float | None = None
    waiting: float | None = None
    kv_used_fraction: float | None = None
    prefix_hit_fraction: float | None = None
    preemptions: int | None = None
    tokens_per_draft: float | None = None  # accepted drafts of one verification, without the token that is always made
    acceptance: float | None = None  # accepted drafts over proposed ones
    kv_capacity_tokens: float | None = None  # of one server: the sum of its data-parallel ranks
    servers: int | None = None  # replicas that the file covers
    weights_gib: float | None = None  # of one accelerator
    kv_gib: float | None = None  # of one accelerator
    graphs_gib: float | None = None  # of one accelerator
    load_s: float | None = None  # to load the weights
    start_s: float | None = None  # to profile, allocate and warm up

    def as_json(self) -> Json:
        """Without what is not known; an infinite end is null."""
        found: Json = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, dict):
                value = {k: [rounded(end) for end in ends] for k, ends in value.items()} or None
            elif isinstance(value, float):
                value = rounded(value)
            if value is not None and (f.name != "failed" or self.completed is not None):
                found[f.name] = value
        return found

    def over(self, other: "Seen") -> "Seen":
        """These figures, completed by those of another record."""
        mine = {f.name: v for f in fields(self) if (v := getattr(self, f.name)) not in (None, {})}
        if self.completed is None:
            del mine["failed"]
        return replace(other, **mine)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One deployment in one file."""

    kind: str  # metrics | log | result | manifest | script
    source: str  # file, and the place in it
    settings: Settings = Settings()
    seen: Seen | None = None
    names: tuple[str, ...] = ()  # by which other records may mean the same deployment
    unknown: tuple[str, ...] = ()  # options that no list of the release has
    notes: tuple[str, ...] = ()
    result: Any = None  # LoadResult, where the file is the result of a load generator

    def as_json(self) -> Json:
        found: Json = {"kind": self.kind, "source": self.source, "settings": self.settings.as_json()}
        found |= {"seen": self.seen.as_json()} if self.seen else {}
        return found | {name: list(v) for name in ("unknown", "notes") if (v := getattr(self, name))}


def rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if abs(value) < float("inf") else None


def exact(values: Mapping[str, float]) -> Spread:
    return {name: (value, value) for name, value in values.items()}


ORDER = ("log", "metrics", "result", "script", "manifest")  # who knows the settings best


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """All that the files say about one deployment."""

    settings: Settings
    seen: Seen
    records: tuple[Record, ...]
    conflicts: tuple[str, ...]


def joined(records: Sequence[Record]) -> Found:
    """Merges the records of one deployment. Sources earlier in ORDER win; `conflicts` lists what others say."""
    settings, seen, conflicts = Settings(), Seen(), []
    said: dict[str, tuple[Any, str]] = {}
    for record in sorted(records, key=lambda r: ORDER.index(r.kind)):
        for name, value in record.settings.as_json().items():
            first, source = said.setdefault(name, (value, record.source))
            if name not in ("model", "served_name", "accelerator", "version") and first != value:
                conflicts.append(f"{name}: {source} says {_word(first)}, {record.source} says {_word(value)}")
        settings = settings.over(record.settings)
    measured = any(record.kind in ("result", "metrics") for record in records)
    for record in sorted(records, key=lambda r: SEEN_BY.index(r.kind)):
        if record.seen:  # a log covers all the time since the start, not the time of a measurement
            own = replace(record.seen, **OF_LOADS) if measured and record.kind == "log" else record.seen
            seen = seen.over(own)
    return Found(settings=settings, seen=seen, records=tuple(records), conflicts=tuple(dict.fromkeys(conflicts)))


OF_LOADS: dict[str, Any] = dict.fromkeys(
    ("running", "waiting", "kv_used_fraction", "prefix_hit_fraction", "input_tokens_per_s", "output_tokens_per_s")
)
SEEN_BY = ("result", "metrics", "log", "script", "manifest")


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def grouped(records: Iterable[Record]) -> list[list[Record]]:
    """Records of one deployment together: by a name that they share; those without a name belong to all."""
    groups: list[tuple[set[str], list[Record]]] = []
    nameless = []
    for record in records:
        names = {tail(name) for name in record.names if name}
        if not names:
            nameless.append(record)
            continue
        same = [group for group in groups if group[0] & names]
        merged = (names.union(*(g[0] for g in same)), [*(r for g in same for r in g[1]), record])
        at = groups.index(same[0]) if same else len(groups)
        groups = [*groups[:at], merged, *(g for g in groups[at:] if g not in same)]
    if not groups:
        return [nameless] if nameless else []
    return [[*members, *nameless] for _, members in groups]


def tail(name: str) -> str:
    """What two spellings of a model share: the end of a path or ID, in lower case."""
    return name.strip().rstrip("/").rsplit("/", 1)[-1].rsplit("--", 1)[-1].lower()
