"""The traffic section of a workload file."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from advisor.engine.terms import Z95, Kind, PrefixClass, Trace, mean_fraction, week_of
from advisor.engine.terms import Users as Population
from advisor.workload.contents import (
    PROMPT_TOKENS,
    Audio,
    ImageOutput,
    Images,
    Turns,
    audio_traffic,
    states_rate,
    turn_rate,
)
from advisor.workload.fields import Count, Fraction, Name, NotNegative, Section, Tokens, number_as_mean
from advisor.workload.text import WorkloadError, error
from advisor.workload.traces.columns import COLUMNS, Mapped
from advisor.workload.traces.requests import notes_of, recorded, requests_of

# p95 / mean of a log-normal is exp(Z95 sigma - sigma^2 / 2), which is largest for sigma = Z95
MAX_P95_OF_MEAN = math.exp(Z95**2 / 2)


class Lengths(Section):
    """Token lengths: a constant (mean only), a log-normal distribution (mean and p95), or a trace file."""

    mean: Tokens | None = None
    p95: Tokens | None = None
    trace: Annotated[str, Field(min_length=1, max_length=500)] | None = None

    @model_validator(mode="after")
    def consistent(self) -> Self:
        if (self.mean is None) == (self.trace is None):
            raise PydanticCustomError(
                "one_of", "set either a mean (with an optional p95) or a trace", {"expected": "mean or trace"}
            )
        if self.mean is not None and self.p95 is not None and self.p95 < self.mean:
            raise PydanticCustomError(
                "below_mean", "p95 {p95} is below the mean {mean}", {"p95": self.p95, "mean": self.mean, "at": "p95"}
            )
        if self.mean is not None and self.p95 is not None and self.p95 > MAX_P95_OF_MEAN * self.mean:
            raise PydanticCustomError(
                "beyond_log_normal",
                "p95 {p95} is more than {most} times the mean {mean}, too high for a log-normal; use a trace",
                {"p95": self.p95, "mean": self.mean, "most": f"{MAX_P95_OF_MEAN:.2f}", "at": "p95"},
            )
        return self


class NoTokens(Section):
    """The output of an embedding request. Only in the JSON schema: embedding.with_one_vector replaces it."""

    mean: Literal[0]
    p95: Literal[0] = 0


PerSecond = Annotated[float, Field(gt=0, le=1e6)]
MAX_BURSTINESS = 20.0  # above it, almost all gaps that a simulation draws are 0


class Rate(Section):
    """Arrival rate in requests/s; the SLO must hold at the peak."""

    mean: PerSecond
    peak: PerSecond | None = None

    @model_validator(mode="after")
    def consistent(self) -> Self:
        if self.peak is not None and self.peak < self.mean:
            raise PydanticCustomError(
                "below_mean", "peak {p95} is below the mean {mean}", {"p95": self.peak, "mean": self.mean, "at": "peak"}
            )
        return self


class SharedPrefix(Section):
    """Requests whose prompts begin with one of `count` shared texts, such as system prompts or documents."""

    share: Annotated[float, Field(gt=0, le=1)]  # of all requests
    tokens: Tokens  # of one text
    count: Count = 1


class Users(Section):
    active: Annotated[float, Field(gt=0, le=1e8)]
    think_s: Annotated[float, Field(gt=0, le=1e6)]


WeekCurve = Annotated[list[NotNegative], Field(min_length=168, max_length=168)]
LoadCurve = Annotated[
    Annotated[Literal["flat", "office_hours"], Tag("~plain")] | Annotated[WeekCurve, Tag("~section")],
    Discriminator(lambda value: "~section" if isinstance(value, list) else "~plain"),
]


class TraceText(Section):
    """Recorded requests, as published or with the header line arrival_s,input_tokens,output_tokens."""

    csv: Annotated[str, Field(min_length=1, max_length=900_000)]


TraceRef = Annotated[
    Annotated[Annotated[str, Field(min_length=1, max_length=500)], Tag("~plain")]
    | Annotated[TraceText, Tag("~section")],
    Discriminator(lambda value: "~section" if isinstance(value, dict | BaseModel) else "~plain"),
]


class Traffic(Section):
    input_tokens: Annotated[Lengths, number_as_mean(Tokens | Lengths)] | None = None
    output_tokens: Annotated[Lengths, number_as_mean(Tokens | Literal[0] | Lengths | NoTokens)] | None = None
    trace: TraceRef | None = None  # a path (command line only), or the text
    trace_columns: dict[Mapped, Name] = {}  # columns of a trace whose names say nothing
    requests_per_s: Annotated[Rate, number_as_mean(PerSecond | Rate)] | None = None
    users: Users | None = None
    # coefficient of variation of the gaps between arrivals at the peak; 1: Poisson; unset: the trace's, else assumed
    burstiness: Annotated[float, Field(ge=0, le=MAX_BURSTINESS)] | None = None
    # the peak is the mean rate of the busiest window of this length; shorter swings are burstiness
    peak_window_s: Annotated[float, Field(ge=10, le=604_800)] | None = None
    load_curve: LoadCurve = "flat"
    prefix_cache_hit_rate: Fraction = 0.0
    prefixes: Annotated[list[SharedPrefix], Field(max_length=50)] = []  # instead of a mean hit rate
    host_cache_hit_rate: Fraction | None = None  # prompt tokens found in host memory after eviction from the GPU
    growth_fraction_per_year: Annotated[float, Field(ge=-1, le=100)] = 0.0
    ramp_months: Annotated[int, Field(ge=0, le=120)] = 0  # traffic grows evenly to its full size in these months
    # factors on the traffic, one for each month from now, repeated; usually 12
    seasonality: Annotated[list[Annotated[float, Field(gt=0, le=100)]], Field(max_length=120)] = []
    ends_after_months: Annotated[int, Field(ge=1, le=240)] | None = None  # the service is retired then
    image_output: ImageOutput | None = None  # kind image_generation
    audio: Audio | None = None  # speech models: instead of tokens and a rate
    documents_per_request: Count | None = None  # rerankers; input_tokens are then one query with one document
    images: Images | None = None  # input_tokens then count the text only
    turns: Turns | None = None  # conversations; input_tokens are then the first prompt's, and rates count turns

    @model_validator(mode="after")
    def hit_rates_add_up(self) -> Self:
        if self.prefix_cache_hit_rate + (self.host_cache_hit_rate or 0.0) > 1.0:
            raise PydanticCustomError(
                "hit_rates",
                "prefix_cache_hit_rate {chip} and host_cache_hit_rate {host} must add up to at most 1",
                {"chip": self.prefix_cache_hit_rate, "host": self.host_cache_hit_rate},
            )
        return self


# --- derived figures --------------------------------------------------------------------------------------------


def filled(traffic: dict[str, Any], batch_rate: dict[str, float] | None = None) -> dict[str, Any]:
    """The traffic with p95, peak and the rates that follow from users, a trace or a batch's deadline.

    The default peak is the mean rate of the busiest hour; of users, it is users / think time.
    """
    values = {**traffic, **derived(traffic)}
    for key in ("input_tokens", "output_tokens"):
        if values[key]:
            values[key] = {name: value for name, value in values[key].items() if value is not None}
            if "mean" in values[key]:
                values[key]["p95"] = values[key].get("p95") or values[key]["mean"]
    busiest = 1.0 / mean_fraction(week_of(values["load_curve"]))
    rate = values["requests_per_s"] or turn_rate(values)
    if batch_rate:
        values["requests_per_s"] = batch_rate
    elif rate is None and values["users"]:
        peak = values["users"]["active"] / values["users"]["think_s"]
        values["requests_per_s"] = {"mean": peak / busiest, "peak": peak}
    elif rate:
        values["requests_per_s"] = {"mean": rate["mean"], "peak": rate["peak"] or rate["mean"] * busiest}
    return values


def derived(traffic: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths and rate from a recorded trace or from audio, for those that the file does not state."""
    if traffic.get("audio"):
        found = audio_traffic(traffic["audio"])
        return {key: value for key, value in found.items() if traffic[key] is None}
    if traffic.get("image_output") and traffic["input_tokens"] is None:
        return {"input_tokens": PROMPT_TOKENS}
    if not isinstance(traffic["trace"], Mapping):
        return {}
    statistics = trace_statistics(traffic["trace"]["csv"], traffic.get("peak_window_s") or WINDOW_S)
    return {key: value for key, value in statistics.items() if traffic[key] is None}


SIDES = ("input_tokens", "output_tokens")


def derived_paths(traffic: Mapping[str, Any], kind: Kind) -> list[str]:
    """Keys of a traffic section that `filled` returned which it would fill in again if they were left out."""
    recorded = isinstance(traffic.get("trace"), Mapping)
    audio = audio_traffic(traffic["audio"]) if traffic.get("audio") else {}
    given = {**audio, **({"input_tokens": PROMPT_TOKENS} if traffic.get("image_output") else {})}
    found = ["output_tokens"] if not kind.generates_tokens else []
    for side in SIDES:
        lengths = traffic.get(side) or {}
        constant = lengths.get("mean") is not None and lengths.get("p95") == lengths["mean"]
        if recorded or constant and side in given and lengths["mean"] == given[side]["mean"]:
            found.append(side)
        elif constant:
            found.append(f"{side}.p95")
    rate = traffic.get("requests_per_s")
    if not kind.has_arrivals or recorded or traffic.get("users") or states_rate(traffic):
        found.append("requests_per_s")
    elif rate and rate["peak"] == rate["mean"] * (1.0 / mean_fraction(week_of(traffic["load_curve"]))):
        found.append("requests_per_s.peak")
    return found


def contradictions(traffic: Mapping[str, Any], kind: Kind) -> list[dict[str, str]]:
    """Errors for contradictions within a traffic section that `filled` returned."""
    errors = []
    rate, users = traffic["requests_per_s"], traffic["users"]
    busiest = 1.0 / mean_fraction(week_of(traffic["load_curve"]))
    if isinstance(traffic["trace"], Mapping):
        recorded = filled({**traffic, **dict.fromkeys((*COLUMNS[1:], "requests_per_s"))})
        for key in (*COLUMNS[1:], *(("requests_per_s",) if kind.has_arrivals else ())):
            if traffic[key] != recorded[key] and (kind.generates_tokens or key != "output_tokens"):
                errors.append(error(f"traffic.{key}", "contradicts traffic.trace", "remove it"))
    if rate and users and traffic["trace"]:
        errors.append(error("traffic.users", "contradicts traffic.trace", "only one of the two"))
    elif rate and users and not math.isclose(rate["peak"], users["active"] / users["think_s"], rel_tol=1e-9):
        errors.append(error("traffic.users", "contradicts traffic.requests_per_s", "only one of the two"))
    elif rate and kind.has_arrivals and rate["peak"] < rate["mean"] * busiest * (1 - 1e-9):
        message = f"is below {rate['mean'] * busiest:.6g}, the mean of the load curve's busiest hour"
        errors.append(error("traffic.requests_per_s.peak", message, f">= {rate['mean'] * busiest:.6g}, or remove it"))
    if users and traffic.get("burstiness") is not None:
        said = "cannot be used with traffic.users, who send one request at a time"
        errors.append(error("traffic.burstiness", said, "only one of the two"))
    return errors + (prefix_errors(traffic, kind) if traffic.get("prefixes") else [])


def prefix_errors(traffic: Mapping[str, Any], kind: Kind) -> list[dict[str, str]]:
    """Contradictions of classes of shared prefixes."""
    field, prefixes = "traffic.prefixes", traffic["prefixes"]
    if not kind.generates_tokens:
        return [error(field, f"cannot be used with kind {kind.name}", "kind: serving or batch")]
    for other in ("prefix_cache_hit_rate", "turns", "audio"):
        if traffic[other]:
            return [error(field, f"contradicts traffic.{other}", "only one of the two")]
    errors = []
    if sum(each["share"] for each in prefixes) > 1 + 1e-9:
        errors.append(error(field, "add up to more than all requests", "shares that add up to at most 1"))
    mean = (traffic["input_tokens"] or {}).get("mean")
    for i, each in enumerate(prefixes):
        if mean is not None and each["tokens"] > mean:
            message = f"{each['tokens']:g} tokens are more than the mean prompt"
            errors.append(error(f"{field}[{i}].tokens", message, f"<= {mean:g}"))
    return errors


# --- traces -----------------------------------------------------------------------------------------------------

WINDOW_S = 60.0  # of a trace, the peak is the rate of the busiest such window if the workload states no other
LEAST_GAPS = 100  # fewer say too little about burstiness


def with_requests(traffic: dict[str, Any], stated: Collection[str]) -> dict[str, Any]:
    """The traffic with its trace as CSV with the usual columns, and its prefix hit rate unless that is `stated`.

    A trace that is used as it is keeps its text.
    """
    columns, trace = traffic["trace_columns"], traffic["trace"]
    if isinstance(trace, str):  # read by traces.files, which parses again
        return {key: value for key, value in traffic.items() if key in stated or key != "prefix_cache_hit_rate"}
    if columns and trace is None:
        raise WorkloadError([error("traffic.trace_columns", "there is no traffic.trace", "remove it, or give a trace")])
    if trace is None:
        return traffic
    found = recorded(trace["csv"], columns)
    values = {**traffic, "trace": {"csv": found.text}, "trace_columns": {}}
    if found.hit_fraction is not None and not {"prefix_cache_hit_rate", "prefixes"} & set(stated):
        values["prefix_cache_hit_rate"] = round(found.hit_fraction, 3)
    return values


def trace_statistics(text: str, window_s: float = WINDOW_S) -> dict[str, Any]:
    """Mean and p95 lengths and mean and peak rates. The peak is that of the busiest window, if there are ten."""
    rows = requests_of(text)
    arrivals = [row[0] for row in rows]
    mean = (len(rows) - 1) / arrivals[-1]
    peak, first = mean, 0
    for last, at in enumerate(arrivals if arrivals[-1] >= 10 * window_s else ()):
        while at - arrivals[first] >= window_s:
            first += 1
        peak = max(peak, (last - first + 1) / window_s)
    return {
        "input_tokens": mean_and_p95([row[1] for row in rows]),
        "output_tokens": mean_and_p95([row[2] for row in rows]),
        "requests_per_s": {"mean": mean, "peak": peak},
    }


def gaps_cv(arrivals: Sequence[float], window_s: float) -> float | None:
    """Coefficient of variation of the gaps in the busiest windows, which hold a tenth of the requests; None: too few.

    Each gap counts over the mean of its own window, so that a rate that changes between windows is no burst. A window
    is long enough for LEAST_GAPS on average, because the mean of a few gaps follows them.
    """
    if len(arrivals) <= LEAST_GAPS or arrivals[-1] <= arrivals[0]:
        return None
    at = np.asarray(arrivals, float) - arrivals[0]
    window_s = max(window_s, LEAST_GAPS * at[-1] / (len(at) - 1))
    place = np.minimum(at // window_s, max(at[-1] // window_s - 1, 0)).astype(int)  # the rest joins the last window
    gaps = [np.diff(at[place == k]) for k in np.argsort(-np.bincount(place), kind="stable")]
    gaps = [each for each in gaps if len(each) >= LEAST_GAPS / 2 and each.mean() > 0]
    seen = np.cumsum([len(each) for each in gaps])
    busiest = gaps[: int(np.searchsorted(seen, max(len(at) / 10, LEAST_GAPS))) + 1]
    return float(np.concatenate([each / each.mean() for each in busiest]).std()) if busiest else None


def mean_and_p95(values: list[int]) -> dict[str, float]:
    mean = sum(values) / len(values)
    return {"mean": mean, "p95": max(float(sorted(values)[math.ceil(0.95 * len(values)) - 1]), mean)}


# --- engine values ----------------------------------------------------------------------------------------------


def users_of(traffic: Mapping[str, Any]) -> Population | None:
    users = traffic.get("users")
    return Population(active_requests=users["active"], think_s=users["think_s"]) if users else None


def prefix_classes_of(traffic: Mapping[str, Any]) -> tuple[PrefixClass, ...]:
    return tuple(
        PrefixClass(fraction=each["share"], shared_tokens=each["tokens"], prefixes=each["count"])
        for each in traffic.get("prefixes") or ()
    )


def arrival_cv_of(traffic: Mapping[str, Any], trace: Trace | None) -> float | None:
    """Coefficient of variation of the gaps as stated, else of the recorded arrivals; None: neither."""
    if (stated := traffic.get("burstiness")) is not None:
        return float(stated)
    seen = gaps_cv(trace.arrival_s, traffic.get("peak_window_s") or WINDOW_S) if trace else None
    return None if seen is None else min(seen, MAX_BURSTINESS)


def trace_notes(traffic: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What was left out of a recorded trace, or follows from it."""
    trace = (traffic or {}).get("trace")
    return notes_of(trace["csv"]) if isinstance(trace, Mapping) else ()


def trace_of(traffic: Mapping[str, Any]) -> Trace | None:
    if not isinstance(traffic.get("trace"), Mapping):
        return None
    columns = zip(*requests_of(traffic["trace"]["csv"]), strict=True)
    return Trace(**dict(zip(COLUMNS, columns, strict=True)))
