"""The workload file: what a planner may ask, read safely, with errors that name the field and what is allowed."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from advisor.engine.spec import KINDS, SERVING, kind_named
from advisor.workload.embedding import with_one_vector
from advisor.workload.errors import explained
from advisor.workload.parts import parts_into
from advisor.workload.text import WorkloadError, check_size, either, error, load, past_day, unstorable
from advisor.workload.traffic import (
    Count,
    Fraction,
    GridCurve,
    Name,
    NotNegative,
    Positive,
    Section,
    Traffic,
    contradictions,
    filled,
    whole,
)

PORTFOLIO = "portfolio"
RUNNABLE_KINDS = (*KINDS, PORTFOLIO)

Stack = Literal["cuda", "rocm", "xla", "neuron", "oneapi", "synapse", "metal", "ttnn", "qaic", "cpu"]
Term = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block"]
Task = Literal["any", "chat", "code", "maths", "reasoning", "summarisation", "translation", "retrieval"]
CacheFormat = Literal["bf16", "fp16", "fp8"]
CACHE_FORMATS: tuple[str, ...] = get_args(CacheFormat)
CURVES = ("flat", "office_hours")
Weight = Literal["cost", "latency", "energy", "ecosystem", "team", "risk", "lead_time", "lock_in"]


class Config(Section):
    """A model outside the catalog: the path of a Hugging Face config.json, or its contents."""

    config: Annotated[str, Field(min_length=1, max_length=500)] | dict[str, Any]


def text_or_section(value: object) -> str:
    return "~section" if isinstance(value, dict | BaseModel) else "~plain"


ModelRef = Annotated[
    Annotated[Name, Tag("~plain")] | Annotated[Config, Tag("~section")],
    Discriminator(text_or_section),
]
# a workload of a portfolio: its file, or its contents
MemberRef = Annotated[
    Annotated[Name, Tag("~plain")] | Annotated[dict[str, Any], Tag("~section")],
    Discriminator(text_or_section),
]


class Slo(Section):
    ttft_ms_p95: Positive | None = None
    tpot_ms_p95: Positive | None = None
    e2e_ms_p95: Positive | None = None
    tokens_per_s_per_user: Positive | None = None
    availability: Literal["n", "n+1", "n+2", "2n"] = "n"


class Choice(Section):
    """An empty allow list allows everything."""

    allow: Annotated[list[Name], Field(max_length=200)] = []
    deny: Annotated[list[Name], Field(max_length=200)] = []


class CacheChoice(Section):
    """Of the formats that a cache is searched in; an empty allow list allows all."""

    allow: Annotated[list[CacheFormat], Field(max_length=20)] = []
    deny: Annotated[list[CacheFormat], Field(max_length=20)] = []


class Site(Section):
    max_kw: Positive | None = None
    kw_per_rack: Positive | None = None
    cooling: Literal["air", "liquid", "any"] = "any"
    region: Name | None = None  # of the catalog: electricity, carbon, PUE and colocation of owned hosts


def yes_word(value: object) -> object:
    """YAML 1.1 reads `yes` and `no` as truth values."""
    return {False: "no", True: "yes"}.get(value, value) if isinstance(value, bool) else value


class Constraints(Section):
    accelerators: Choice = Choice()
    vendors: Choice = Choice()
    providers: Choice = Choice()
    regions: Choice = Choice()
    frameworks: Choice = Choice()
    formats: Choice = Choice()  # of weights, by the slug of their quantization method
    kv_formats: CacheChoice = CacheChoice()
    acquisition: Annotated[list[Literal["rent", "own", "api"]], Field(min_length=1, max_length=3)] = [
        "rent",
        "own",
        "api",
    ]
    terms: Annotated[list[Term], Field(min_length=1, max_length=5)] = ["on_demand"]  # of rents that are ranked
    quality: Literal["lossless", "near_lossless", "any"] = "near_lossless"
    # hardware instances of a chip (MIG): told beside a small answer, ranked like the rest, or nothing else
    partitions: Annotated[
        Literal["no", "auto", "yes", "required"],
        BeforeValidator(yes_word, json_schema_input_type=Literal["no", "auto", "yes", "required"] | bool),
    ] = "auto"
    max_accelerators: Count | None = None
    max_usd_per_month: Positive | None = None
    site: Site = Site()


CHOICES = ("accelerators", "vendors", "providers", "regions", "frameworks", "formats", "kv_formats")


class Tco(Section):
    """Horizon and discount rate; any further key overrides the catalog's assumption of that name."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)
    __pydantic_extra__: dict[str, NotNegative]
    horizon_months: Annotated[int, Field(ge=1, le=240)] = 36
    discount_rate: Fraction = 0.08
    power_cap_fraction: Annotated[float, Field(ge=0.3, le=1)] = 1.0  # of TDP: the limit that the chips are set to
    grid_kgco2e_per_kwh: GridCurve = []  # of each hour of a day or of a week from Monday 0:00; empty: the region's mean


class Batch(Section):
    """So many requests, done within the deadline; again every so many hours (without it: as soon as they are done)."""

    requests: Positive
    deadline_hours: Annotated[float, Field(gt=0, le=1e6)]
    every_hours: Annotated[float, Field(gt=0, le=1e6)] | None = None


class Training(Section):
    tokens: Positive
    sequence_length: Count
    global_batch_tokens: Positive
    deadline_days: Positive | None = None
    recompute: Literal["auto", "none", "selective", "full"] = "auto"


class Finetuning(Section):
    method: Literal["full", "lora", "qlora"]
    rank: Annotated[int, Field(ge=1, le=4096)] = 16
    tokens: Positive
    sequence_length: Count
    global_batch_tokens: Positive


class Adapters(Section):
    """LoRA adapters served beside the model; `active`: distinct ones in use at one moment (without it: all)."""

    count: Annotated[int, Field(ge=0, le=100_000)]
    rank: Annotated[int, Field(ge=1, le=512)] = 16
    active: Annotated[int, Field(ge=1, le=10_000)] | None = None
    targets: Literal["all", "attention"] = "all"


Kind = Literal["serving", "batch", "embedding", "training", "finetuning", "portfolio"]
RANGES = {  # of assumptions under tco, beside 0 .. 1 for fractions and not negative for the rest
    "pue": (1.0, 5.0),
    "depreciation-years": (0.25, 30.0),
    "accelerators-per-operator": (1.0, 1e9),
    "spot-lost-fraction": (0.0, 0.95),
    "rent-price-swing-ratio": (1.0, 100.0),
    "purchase-price-swing-ratio": (1.0, 100.0),
    "load-swing-ratio": (1.0, 100.0),
    "power-low-ratio": (0.01, 1.0),
    "power-high-ratio": (1.0, 100.0),
}
NEEDS: dict[str, tuple[str, ...]] = {
    "training": ("model", "training"),
    "finetuning": ("model", "finetuning"),
    PORTFOLIO: ("workloads",),
} | {kind.name: kind.sections for kind in KINDS.values()}


def probe_word(value: object) -> object:
    """YAML 1.1 writers turn `no` into false."""
    return "no" if value is False else value


SWITCH = ("yes", "no")
Switch = Annotated[Literal["yes", "no"], BeforeValidator(yes_word, json_schema_input_type=Literal["yes", "no"] | bool)]


def named_day(value: str) -> str:
    try:
        return past_day(value)
    except ValueError as trouble:
        message, allowed = trouble.args
        raise PydanticCustomError("day", message, {"expected": allowed}) from None


Day = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date"}), AfterValidator(named_day)]


NO_OTHER_NAMES: Any = {"additionalProperties": False}  # pydantic describes names by a pattern, and any others as free


CountOrNone = Annotated[int, Field(ge=0, le=10_000_000), BeforeValidator(whole)]


class Spec(Section):
    name: Name = "untitled"
    kind: Kind = "serving"
    variants: Literal["show", "adopt", "no"] = "show"  # drafts, pools apart: beside the first options, or as them
    speculative: Switch = "yes"  # whether drafts are among the variants that are tried
    disaggregated: Switch = "yes"  # whether pools of their own for prefill and decode are
    task: Task = "any"  # what the tokens are for: how well drafts hold, what a format may cost
    model: ModelRef | None = None
    traffic: Traffic | None = None
    adapters: Adapters | None = None
    batch: Batch | None = None
    training: Training | None = None
    finetuning: Finetuning | None = None
    workloads: Annotated[list[MemberRef], Field(min_length=1, max_length=20)] | None = None
    slo: Slo = Slo()
    constraints: Constraints = Constraints()
    owned: Annotated[dict[Name, Count], Field(max_length=200, json_schema_extra=NO_OTHER_NAMES)] = {}
    inventory: Annotated[
        dict[Name, Annotated[int, Field(ge=0, le=10_000_000), BeforeValidator(whole)]],
        Field(max_length=200, json_schema_extra=NO_OTHER_NAMES),
    ] = {}
    objective: Literal["cost", "latency", "throughput", "energy", "carbon", "balanced"] = "cost"
    weights: dict[Weight, NotNegative] = {}
    tco: Tco = Field(default_factory=lambda: Tco.model_validate({}))
    team: dict[Stack, Annotated[int, Field(ge=0, le=5), BeforeValidator(whole)]] = {}
    probe: Annotated[
        Literal["no", "preferred", "required"],
        BeforeValidator(probe_word, json_schema_input_type=Literal["no", "preferred", "required"] | Literal[False]),
    ] = "no"
    prices_as_of: Day | None = None  # prices, discounts and licences as they were known on that day


# --- validating -------------------------------------------------------------------------------------------------


def parse(data: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """The validated workload with every default filled in, JSON-able. Raises WorkloadError."""
    raw = with_one_vector(load(data) if isinstance(data, str | bytes) else dict(data))
    check_size(raw)
    found = list(unstorable(raw))
    if any(item["message"] == "nested too deeply" for item in found):
        raise WorkloadError(found)
    try:
        spec = Spec.model_validate(raw)
    except ValidationError as trouble:
        known = {item["field"] for item in found}
        found += [item for item in explained(trouble, Spec) if not within(item["field"], known)]
        raise WorkloadError(found + missing(raw)) from None
    if found:
        raise WorkloadError(found + missing(raw))
    if needed := missing(raw):
        raise WorkloadError(needed + cross_checks(spec))
    full = fill(spec)
    extra = [
        error(key, f"cannot be used with kind {spec.kind}", f"kind: {key}")
        for key in ("batch", "training", "finetuning")
        if key != spec.kind and full[key] is not None
    ]
    found = (
        extra + cross_checks(spec) + (contradictions(full["traffic"], kind_named(spec.kind)) if spec.traffic else [])
    )
    if found := found + parts_into(full, parse):
        raise WorkloadError(found)
    return full


def within(field: str, sections: set[str]) -> bool:
    """Whether the field or a section that holds it is one of these."""
    ends = [at for at, character in enumerate(field) if character in ".["]
    return any(field[:end] in sections for end in (*ends, len(field)))


def missing(raw: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the kind needs and the file does not have, however wrong the rest of it is."""
    kind = raw.get("kind", SERVING.name)
    needs = NEEDS.get(kind, ()) if isinstance(kind, str) else ()
    found = [error(key, f"is required for kind {kind}") for key in needs if raw.get(key) is None]
    if found and kind not in RUNNABLE_KINDS:
        found.insert(0, unavailable(kind))
    traffic = raw.get("traffic")
    if isinstance(traffic, Mapping) and traffic.get("trace") is None:
        lengths = [key for key in ("input_tokens", "output_tokens") if traffic.get(key) is None]
        found += [error(f"traffic.{key}", "is required", "a number, {mean, p95}, or traffic.trace") for key in lengths]
    rate = ("requests_per_s", "users", "trace")
    if (
        isinstance(traffic, Mapping)
        and kind in [known.name for known in KINDS.values() if known.has_arrivals]
        and all(traffic.get(key) is None for key in rate)
    ):
        allowed = "a number, {mean, peak}, or traffic.users or traffic.trace instead"
        found.append(error("traffic.requests_per_s", "is required", allowed))
    return found


def unavailable(kind: str) -> dict[str, str]:
    """The file's format has kinds that this version cannot answer."""
    said = f"{kind} is not available yet; use kind {either(KINDS)}"
    return error("kind", said, ", ".join(RUNNABLE_KINDS))


def fill(spec: Spec) -> dict[str, Any]:
    """The file's keys with what follows from them: see traffic.filled."""
    found = spec.model_dump(mode="json")
    if found["traffic"]:
        rate = batch_rate(spec.batch) if "batch" in NEEDS[spec.kind] and spec.batch else None
        found["traffic"] = filled(found["traffic"], rate)
    return found


def batch_rate(batch: Batch) -> dict[str, float]:
    """Requests/s over all hours, and those that end it in time."""
    every_hours = batch.every_hours or batch.deadline_hours
    return {"mean": batch.requests / every_hours / 3600, "peak": batch.requests / batch.deadline_hours / 3600}


def unlike_batch(batch: Batch, traffic: Traffic | None) -> list[dict[str, str]]:
    """What else the file says of how much is asked when."""
    found = []
    if batch.every_hours is not None and batch.every_hours < batch.deadline_hours:
        allowed = f">= {batch.deadline_hours:g}, the deadline"
        found.append(error("batch.every_hours", "the next batch would start before this one's deadline", allowed))
    if traffic and traffic.users:
        found.append(
            error("traffic.users", "cannot be used with kind batch", "batch.requests and batch.deadline_hours")
        )
    if traffic and traffic.requests_per_s and traffic.requests_per_s.model_dump() != batch_rate(batch):
        found.append(error("traffic.requests_per_s", "contradicts batch.requests", "remove it"))
    return found


def unlike_adapters(spec: Spec) -> list[dict[str, str]]:
    a = spec.adapters
    if a is None:
        return []
    able = [kind.name for kind in KINDS.values() if kind.serves_adapters]
    if spec.kind not in able:
        return [error("adapters", f"are not supported for kind {spec.kind}", f"kind: {either(able)}")]
    if a.active and a.count and a.active > a.count:
        return [error("adapters.active", f"exceeds adapters.count ({a.count})", f"1 .. {a.count}")]
    return []


def cross_checks(spec: Spec) -> list[dict[str, str]]:
    """What no single field can know."""
    found = []
    traffic = spec.traffic
    if "batch" in NEEDS[spec.kind] and spec.batch:
        found += unlike_batch(spec.batch, traffic)
    if traffic and isinstance(traffic.load_curve, list) and not sum(traffic.load_curve):
        found.append(error("traffic.load_curve", "is zero in every hour", "at least one hour above 0"))
    output = traffic.output_tokens if traffic else None
    if output and not kind_named(spec.kind).generates_tokens and not one_vector(output):
        found.append(error("traffic.output_tokens", "embeddings generate no output tokens", "remove it"))
    for key, value in (spec.tco.model_extra or {}).items():
        low, high = RANGES.get(key, (0.0, 1.0 if key.endswith("-fraction") else 1e15))
        if not low <= value <= high:
            found.append(error(f"tco.{key}", f"{value:g} is out of range", f"{low:g} .. {high:g}"))
    for key in CHOICES:
        choice: Choice | CacheChoice = getattr(spec.constraints, key)
        if both := sorted(set(choice.allow) & set(choice.deny)):
            found.append(error(f"constraints.{key}", f"{both[0]} is both allowed and denied", "only one of the two"))
    found += unlike_adapters(spec)
    if spec.weights and not sum(spec.weights.values()):
        found.append(error("weights", "are all zero", "at least one above 0"))
    return found


def one_vector(output: Any) -> bool:
    return (output.p95 or output.mean) == 1
