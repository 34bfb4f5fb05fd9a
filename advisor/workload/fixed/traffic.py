"""What a fixed deployment serves: lengths, arrivals and shared prefixes, as stated or as a workload file has them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from advisor.engine.network import Model
from advisor.engine.step import has_decoder_beside
from advisor.engine.terms import Case, PrefixClass, Protocol, Trace, kind_named
from advisor.workload.contents import lengths_of, prompts_of
from advisor.workload.fields import Fraction, Name, Section
from advisor.workload.schema import Task, parse
from advisor.workload.text import WorkloadError, error
from advisor.workload.traces.columns import COLUMNS, TRACE_COLUMNS, Mapped
from advisor.workload.traces.requests import Recorded, recorded
from advisor.workload.traffic import (
    MAX_BURSTINESS,
    MAX_P95_OF_MEAN,
    SharedPrefix,
    TraceText,
    Users,
    mean_and_p95,
    users_of,
)

Tokens = Annotated[int, Field(ge=1, le=1_000_000)]
CLIENT = r"^(steady|static|burst:[1-9][0-9]{0,2}|poisson:[0-9]+(\.[0-9]+)?([eE][-+]?[0-9])?)$"
SPREAD = r"^(0(\.[0-9]+)?|1(\.0*)?):(1(\.0*)?|0\.[0-9]+)$"
LEAST_RATE_PER_S = 1e-6  # below it, the clock of a simulation is too coarse for the latencies
MAX_CONCURRENCY = 100_000  # simulating more takes minutes and does not change the means
LENGTHS = ("isl", "isl_p95", "osl", "osl_p95", "length_spread")
LOADS = ("client", "rate", "trace", "users")  # at most one says when requests are sent


class DeploymentTraffic(Section):
    """The keys of a Deployment that say what it serves."""

    workload: Annotated[
        dict[str, Any] | None,
        Field(description="A workload that gives model, lengths, arrivals, prefixes and adapters; other keys win"),
    ] = None
    isl: Annotated[
        Tokens,
        Field(
            description="Mean input tokens per request; for speech models: positions of one window, 50 per second. "
            "Follows from `workload` or `trace`"
        ),
    ]
    isl_p95: Annotated[
        Tokens | None, Field(description="p95 of log-normal input lengths, cut at the model's context; default: equal")
    ] = None
    osl: Annotated[
        int, Field(ge=0, le=1_000_000, description="Mean output tokens per request; 0, 1 or omitted for embeddings")
    ] = 0
    osl_p95: Annotated[Tokens | None, Field(description="p95 of log-normal output lengths; default: equal")] = None
    length_spread: Annotated[
        str, Field(pattern=SPREAD, description="Lengths are uniform between these fractions of isl and osl: 0.8:1.0")
    ] = "1.0:1.0"
    concurrency: Annotated[
        Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | Literal["max"],
        Field(description="Concurrent requests of the whole deployment; max: as many as fit"),
    ] = "max"
    client: Annotated[str, Field(pattern=CLIENT, description="steady, burst:10, poisson:RATE or static")] = "steady"
    rate: Annotated[
        float | None,
        Field(gt=0, le=1e6, description="Requests/s that arrive at all replicas together, instead of client"),
    ] = None
    burstiness: Annotated[
        float | None,
        Field(
            ge=0,
            le=MAX_BURSTINESS,
            description="Coefficient of variation of the gaps between arrivals at `rate`; 1: Poisson; default: assumed",
        ),
    ] = None
    task: Annotated[Task, Field(description="For the assumed burstiness and acceptance of drafts")] = "any"
    trace: Annotated[
        TraceText | None, Field(description="Recorded requests, replayed at their times with their lengths")
    ] = None
    trace_columns: Annotated[dict[Mapped, Name], Field(description="Columns of `trace` that have unusual names")] = {}
    users: Annotated[Users | None, Field(description="People who each wait for an answer, instead of a rate")] = None
    prefixes: Annotated[
        list[SharedPrefix], Field(max_length=50, description="Classes of requests that begin with shared texts")
    ] = []
    prefix_cache_hit_rate: Annotated[
        Fraction, Field(description="Fraction of each prompt that the prefix cache holds; instead of `prefixes`")
    ] = 0.0
    http: Annotated[
        bool, Field(description="Requests pass an HTTP server and a tokenizer; false: straight to the engine")
    ] = True

    @model_validator(mode="after")
    def consistent(self) -> Self:
        low, high = map(float, self.length_spread.split(":"))
        if not 0 < low <= high:
            raise PydanticCustomError("spread", "length_spread: give LOW:HIGH with 0 < LOW <= HIGH <= 1")
        return self


# --- from a workload file or a trace ----------------------------------------------------------------------------


def with_traffic(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the keys that follow from a workload and from a trace. Raises WorkloadError."""
    given = {key: value for key, value in raw.items() if key != "workload"}
    stated = {key for key, value in given.items() if value is not None}
    if (workload := raw.get("workload")) is not None:
        found = keys_of(parsed(workload))
        if stated & {*LOADS, "concurrency"}:  # the file's load is replaced as a whole
            found = {key: value for key, value in found.items() if key not in (*LOADS, "burstiness", "concurrency")}
        if "trace" in stated or "trace" in found:
            found = {key: value for key, value in found.items() if key not in LENGTHS}
        given = {**found, **{key: given[key] for key in stated}}
    if isinstance(given.get("trace"), Mapping) and isinstance(given["trace"].get("csv"), str):
        if extra := [key for key in (*LENGTHS, "burstiness") if given.get(key) is not None]:
            raise WorkloadError([error(key, "contradicts trace, which has it", "remove it") for key in extra])
        columns = given.get("trace_columns") or {}
        if isinstance(columns, Mapping) and all(k in TRACE_COLUMNS and isinstance(v, str) for k, v in columns.items()):
            requests = _read(given["trace"]["csv"], columns)
            _, inputs, outputs = zip(*requests.requests, strict=True)
            given |= {"trace": {"csv": requests.text}, "isl": whole_mean(inputs), "osl": whole_mean(outputs)}
            given.pop("trace_columns", None)
    elif given.get("trace_columns"):
        raise WorkloadError([error("trace_columns", "there is no trace", "remove it, or give a trace")])
    return given


def whole_mean(values: tuple[int, ...]) -> int:
    return max(round(mean_and_p95(list(values))["mean"]), 1)


def _read(text: str, columns: Mapping[str, str]) -> Recorded:
    """The requests of a trace. Raises WorkloadError."""
    try:
        return recorded(text, columns)
    except WorkloadError as e:
        raise WorkloadError([{**item, "field": "trace"} for item in e.errors]) from None


def _trace(text: str) -> Trace:
    columns = zip(*_read(text, {}).requests, strict=True)
    return Trace(**dict(zip(COLUMNS, columns, strict=True)))


def parsed(workload: Any) -> dict[str, Any]:
    """The validated workload of the key `workload`, which `estimate` can time. Raises WorkloadError."""
    if not isinstance(workload, Mapping):
        raise WorkloadError([error("workload", "must be the contents of a workload file", "a section of keys")])
    try:
        spec = parse(workload)
    except WorkloadError as e:
        raise WorkloadError([{**item, "field": f"workload.{item['field']}".rstrip(".")} for item in e.errors]) from None
    if errors := untimed(spec):
        raise WorkloadError(errors)
    return spec


def untimed(spec: Mapping[str, Any]) -> list[dict[str, str]]:
    """What an estimate of a fixed deployment leaves out, so that its figures would not be those of the workload."""
    kinds = ("serving", "batch", "embedding")
    if spec["kind"] not in kinds:
        return [error("workload.kind", f"estimate cannot time workloads of kind {spec['kind']}", ", ".join(kinds))]
    traffic, errors = spec["traffic"], []
    if any("mean" not in (traffic[key] or {}) for key in ("input_tokens", "output_tokens")) or isinstance(
        traffic["trace"], str
    ):
        errors.append(error("workload.traffic", "file paths are not accepted here", "numbers, or trace: {csv: text}"))
    if traffic["images"]:
        errors.append(error("workload.traffic.images", "estimate does not time images", "remove it, or use advise"))
    if spec["structured_output"] == "yes":
        errors.append(error("workload.structured_output", "estimate does not time grammars", "no, or use advise"))
    return errors


def keys_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A validated workload as the keys of a Deployment; its peak is the rate."""
    traffic, kind = spec["traffic"], kind_named(spec["kind"])
    prompts, hit_fraction, _ = prompts_of(traffic)
    outputs = lengths_of(traffic["output_tokens"])
    keys: dict[str, Any] = {"model": spec["model"], "task": spec.get("task", "any")}
    for name, each in (("isl", prompts), ("osl", outputs)):
        keys[name] = max(round(each.mean_tokens), 1)
        if each.p95_tokens > each.mean_tokens:
            keys[f"{name}_p95"] = max(round(each.p95_tokens), keys[name])
    if traffic.get("prefixes"):
        keys["prefixes"] = traffic["prefixes"]
    elif hit_fraction:
        keys["prefix_cache_hit_rate"] = hit_fraction
    if (spec.get("adapters") or {}).get("count"):
        keys["adapters"] = spec["adapters"]
    if users_of(traffic) is not None:
        keys["users"] = traffic["users"]
    elif traffic["trace"] and kind.has_arrivals:
        keys["trace"] = traffic["trace"]
    elif kind.has_arrivals:
        keys["rate"] = traffic["requests_per_s"]["peak"]
        if traffic.get("burstiness") is not None:
            keys["burstiness"] = traffic["burstiness"]
    return keys


# --- as engine values -------------------------------------------------------------------------------------------


def protocol_of(d: DeploymentTraffic) -> Protocol:
    """How the requests are sent. Raises WorkloadError for contradictions."""
    if len(said := [key for key in LOADS if key in d.model_fields_set and getattr(d, key) is not None]) > 1:
        raise WorkloadError([error(said[1], f"contradicts {said[0]}", "only one of the two")])
    low, high = map(float, d.length_spread.split(":"))
    kind, _, figure = d.client.partition(":")
    rate_per_s = float(figure) if kind == "poisson" else d.rate
    kind = "trace" if d.trace else "users" if d.users else "poisson" if d.rate else kind
    if d.burstiness is not None and kind != "poisson":
        raise WorkloadError([error("burstiness", "applies only to arrivals at a rate", "remove it, or set rate")])
    return Protocol(
        kind=kind,
        requests_per_user=float(figure) if kind == "burst" else 10,
        rate_per_s=rate_per_s,
        arrival_cv=1.0 if d.burstiness is None else d.burstiness,
        trace=_trace(d.trace.csv) if d.trace else None,
        users=users_of(d.model_dump()),
        length_low_fraction=low,
        length_high_fraction=high,
        http=d.http,
    )


def prefix_classes(d: DeploymentTraffic) -> tuple[PrefixClass, ...]:
    """The classes of shared prefixes. Raises WorkloadError for contradictions."""
    if d.prefixes and d.prefix_cache_hit_rate:
        raise WorkloadError([error("prefix_cache_hit_rate", "contradicts prefixes", "only one of the two")])
    if sum(each.share for each in d.prefixes) > 1 + 1e-9:
        message = "add up to more than all requests"
        raise WorkloadError([error("prefixes", message, "shares that add up to at most 1")])
    return tuple(PrefixClass(fraction=p.share, shared_tokens=p.tokens, prefixes=p.count) for p in d.prefixes)


def check_lengths(d: DeploymentTraffic, model: Model) -> None:
    """Raises WorkloadError if there are no requests of these lengths, or the model cannot have them."""
    errors = []
    if model.diffusion is not None:
        message = "estimate times only tokens; for images use advise with kind: image_generation"
        errors.append(error("model", message, "a text model"))
    elif model.encoder_only and d.osl > 1:
        errors.append(error("osl", "this model returns one vector per request and generates no tokens", "0 or 1"))
    elif not model.encoder_only and d.osl < 1:
        errors.append(error("osl", "must be at least 1", ">= 1"))
    elif model.source_s and d.isl > model.source_tokens:
        window = f"each request is one {model.source_s:g} s window; count longer audio as several requests"
        errors.append(error("isl", window, f"at most {model.source_tokens:,} (50 a second)"))
    elif has_decoder_beside(model) and (d.isl_p95 or d.osl_p95) or model.encoder_only and d.osl_p95:
        field = "osl_p95" if d.osl_p95 else "isl_p95"
        errors.append(error(field, "estimate times only equal lengths for models with an encoder", "remove it"))
    for name in ("isl", "osl"):
        mean, p95 = getattr(d, name), getattr(d, f"{name}_p95")
        if p95 is not None and not mean <= p95 <= MAX_P95_OF_MEAN * mean:
            message = f"{p95:,} cannot be the 95th percentile of log-normal lengths with mean {mean:,}"
            errors.append(error(f"{name}_p95", message, f"{mean:,} .. {MAX_P95_OF_MEAN * mean:,.0f}, or a trace"))
        if p95 is not None and "length_spread" in d.model_fields_set:
            errors.append(error("length_spread", f"contradicts {name}_p95", "only one of the two"))
    if errors:
        raise WorkloadError(errors)


NOT_POOLED = {"static": "static batches", "trace": "recorded arrivals yet", "users": "users who think yet"}


def check_client(case: Case) -> None:
    """Raises WorkloadError for clients that cannot be simulated."""
    kind, users = case.client.kind, case.concurrency or 0
    if case.mode == "disagg" and kind not in ("steady", "burst", "poisson"):
        allowed = "steady, burst:10 or poisson:RATE"
        raise WorkloadError([error("client", f"disaggregated serving has no {NOT_POOLED[kind]}", allowed)])
    rate_per_s = case.client.rate_per_s
    if kind == "poisson" and not rate_per_s:
        raise WorkloadError([error("client", "the rate must be above 0", "poisson:4")])
    if rate_per_s is not None and not LEAST_RATE_PER_S <= rate_per_s <= 1e6:
        allowed = f"{LEAST_RATE_PER_S:g} .. 1e+06 requests/s"
        raise WorkloadError([error("rate", f"{rate_per_s:g} requests/s cannot be simulated", allowed)])
    if users * case.client.requests_per_user > 10 * MAX_CONCURRENCY:
        allowed = f"at most {10 * MAX_CONCURRENCY:,} in all"
        raise WorkloadError([error("client", "has too many requests to simulate", allowed)])
