"""The schema of the workload file, with error messages that name the field and what is allowed."""

import math
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

from advisor.engine.terms import HOURS_PER_MONTH, KINDS, SERVING, kind_named
from advisor.workload.contents import Audio, ImageOutput, Images, contents_errors, states_rate, with_one_vector
from advisor.workload.errors import explained
from advisor.workload.fields import Count, Fraction, GridCurve, Name, NotNegative, Positive, Section, whole
from advisor.workload.notation.sections import with_numbers
from advisor.workload.parts import parse_parts
from advisor.workload.text import WorkloadError, check_size, either, error, load, past_day, unstorable
from advisor.workload.title import is_derived, named
from advisor.workload.traffic import Traffic, contradictions, filled, with_requests
from advisor.workload.traffic import derived_paths as traffic_derived

PORTFOLIO = "portfolio"
RUNNABLE_KINDS = (*KINDS, PORTFOLIO)

Stack = Literal["cuda", "rocm", "xla", "neuron", "oneapi", "synapse", "metal", "ttnn", "qaic", "cpu"]
Mark = Literal[
    "consumer", "marketplace", "second_hand", "quote", "preview", "bookable", "estimate", "unconfirmed", "weak_price"
]
Term = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block"]
Task = Literal["any", "chat", "code", "maths", "reasoning", "summarisation", "translation", "retrieval"]
CacheFormat = Literal["bf16", "fp16", "fp8"]
CACHE_FORMATS: tuple[str, ...] = get_args(CacheFormat)
CURVES = ("flat", "office_hours")
Weight = Literal["cost", "latency", "energy", "ecosystem", "team", "risk", "lead_time", "lock_in"]


class Config(Section):
    """A model that is not in the catalog: the path or the contents of its Hugging Face config.json."""

    config: Annotated[str, Field(min_length=1, max_length=500)] | dict[str, Any]
    confirm_size: bool = False  # the size is right although the name or the checkpoint states another


def text_or_section(value: object) -> str:
    return "~section" if isinstance(value, dict | BaseModel) else "~plain"


ModelRef = Annotated[
    Annotated[Name, Tag("~plain")] | Annotated[Config, Tag("~section")],
    Discriminator(text_or_section),
]
TagName = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[^\s,;\"\\\x00-\x1f\x7f]+$")]
# a workload of a portfolio: the path of its file, or its contents
MemberRef = Annotated[
    Annotated[Name, Tag("~plain")] | Annotated[dict[str, Any], Tag("~section")],
    Discriminator(text_or_section),
]


class Slo(Section):
    ttft_ms_p95: Positive | None = None
    tpot_ms_p95: Positive | None = None
    e2e_ms_p95: Positive | None = None
    tokens_per_s_per_user: Positive | None = None
    # hosts that may be lost; unset: one spare host for data-center machines that serve at least 1 request/s
    availability: Literal["n", "n+1", "n+2", "2n"] | None = None
    # share of a replica's capacity that the peak leaves free; unset: none, because bursts are simulated
    headroom_fraction: Annotated[float, Field(ge=0, lt=1)] | None = None
    # least probability of meeting every limit; none: as estimated; unset: 0.5, and 0.8 for what cannot be undone
    confidence: Annotated[float, Field(gt=0, lt=1)] | Literal["none"] | None = None


class Choice(Section):
    """An empty allow list allows everything."""

    allow: Annotated[list[Name], Field(max_length=200)] = []
    deny: Annotated[list[Name], Field(max_length=200)] = []


class CacheChoice(Section):
    """KV cache formats; an empty allow list allows all."""

    allow: Annotated[list[CacheFormat], Field(max_length=20)] = []
    deny: Annotated[list[CacheFormat], Field(max_length=20)] = []


class Site(Section):
    max_kw: Positive | None = None
    kw_per_rack: Positive | None = None
    cooling: Literal["air", "liquid", "any"] = "any"
    region: Name | None = (
        None  # slug of the region whose electricity, carbon, PUE and colocation figures apply to owned hosts
    )


def yes_or_no(value: object) -> object:
    """YAML 1.1 writers turn `yes` and `no` into booleans."""
    return {False: "no", True: "yes"}.get(value, value) if isinstance(value, bool) else value


Switch = Annotated[Literal["yes", "no"], BeforeValidator(yes_or_no, json_schema_input_type=Literal["yes", "no"] | bool)]


def nothing_for_none(value: object) -> object:
    return [] if value in ("none", ["none"]) else value


class Layout(Section):
    """Sizes of a replica; what is unset is chosen."""

    tp: Annotated[int, Field(ge=1, le=1024)] | None = None
    pp: Annotated[int, Field(ge=1, le=1024)] | None = None
    ep: Annotated[int, Field(ge=1, le=1024)] | None = None
    dp: Annotated[int, Field(ge=1, le=1024)] | None = None  # attention data parallelism inside a replica


class Constraints(Section):
    accelerators: Choice = Choice()
    vendors: Choice = Choice()
    providers: Choice = Choice()
    regions: Choice = Choice()
    frameworks: Choice = Choice()
    formats: Choice = Choice()  # of weights: slugs of quantization methods
    kv_formats: CacheChoice = CacheChoice()
    acquisition: Annotated[list[Literal["rent", "own", "api"]], Field(min_length=1, max_length=3)] = [
        "rent",
        "own",
        "api",
    ]
    # rental terms that are evaluated; unset: on demand, one and three years
    terms: Annotated[list[Term], Field(min_length=1, max_length=5)] | None = None
    # what an enterprise would not deploy on without asking: [] or none allows everything
    exclude: Annotated[list[Mark], Field(max_length=9), BeforeValidator(nothing_for_none)] = [
        "consumer",
        "marketplace",
        "second_hand",
        "quote",
        "preview",
        "estimate",
        "unconfirmed",
    ]
    quality: Literal["lossless", "near_lossless", "any"] = "near_lossless"
    # GPU partitions (MIG): auto mentions them for small workloads, yes ranks them, required ranks nothing else
    partitions: Annotated[
        Literal["no", "auto", "yes", "required"],
        BeforeValidator(yes_or_no, json_schema_input_type=Literal["no", "auto", "yes", "required"] | bool),
    ] = "auto"
    # servers that run, or must be started, in one way: the search tries nothing else
    layout: Layout | None = None
    max_batched_tokens: Annotated[int, Field(ge=16, le=1_000_000)] | None = None  # of a scheduler step
    max_running_requests: Annotated[int, Field(ge=1, le=100_000)] | None = None  # of a scheduler
    max_accelerators: Count | None = None
    max_usd_per_month: Positive | None = None
    max_capex_usd: NotNegative | None = None  # all purchases over the horizon
    site: Site = Site()


CHOICES = ("accelerators", "vendors", "providers", "regions", "frameworks", "formats", "kv_formats")


class PathPoint(Section):
    """A price at the end of a month, over today's: expected, and the range that it stays within in 90% of cases."""

    month: Annotated[int, Field(ge=1, le=240)]
    ratio: Annotated[float, Field(gt=0, le=100)]
    low: Annotated[float, Field(gt=0, le=100)] | None = None
    high: Annotated[float, Field(gt=0, le=100)] | None = None


Path = Annotated[list[PathPoint], Field(max_length=60)]


class PricePaths(Section):
    """Expected prices over time. Between the points a price moves at a constant rate; after the last it stays.

    A path that is left out follows the assumption of its name, such as rent-change-per-year.
    """

    rent: Path = []
    electricity: Path = []
    hardware: Path = []
    resale: Path = []  # over the resale curve of the assumptions


Ratio = Annotated[float, Field(ge=0.01, le=100)]
PricedTerm = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block", "purchase", "api"]


class TcoScenario(Section):
    """A case of the planner's own: ratios to the expected values."""

    name: Annotated[str, Field(min_length=1, max_length=40)]
    load: Ratio = 1.0
    performance: Ratio = 1.0
    rent: Ratio = 1.0
    hardware: Ratio = 1.0
    resale: Annotated[float, Field(ge=0, le=100)] = 1.0
    electricity: Ratio = 1.0
    staff: Annotated[float, Field(ge=0, le=100)] = 1.0
    api: Ratio = 1.0


class Tco(Section):
    """Horizon and discount rate. Any other key overrides the catalog's assumption of that name."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)
    __pydantic_extra__: dict[str, Annotated[float, Field(ge=-1, le=1e15)]]
    horizon_months: Annotated[int, Field(ge=1, le=240)] = 36
    discount_rate: Fraction = 0.08
    power_cap_fraction: Annotated[float, Field(ge=0.3, le=1)] = 1.0  # power limit as a fraction of TDP
    grid_kgco2e_per_kwh: GridCurve = []  # 24 hours, or 168 from Monday 0:00; empty: the region's mean
    price_paths: PricePaths | None = None
    scenarios: Annotated[list[TcoScenario], Field(max_length=8)] = []  # shown beside low, base and high
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = (
        "USD"  # of documents; converted at the catalog's dated rate
    )


class Batch(Section):
    """`requests` to finish within the deadline, repeated `every_hours` (default: every `deadline_hours`), or once.

    A single run is paid for over the months until its deadline, which are then the horizon.
    """

    requests: Positive
    deadline_hours: Annotated[float, Field(gt=0, le=1e6)]
    every_hours: Annotated[float, Field(gt=0, le=1e6)] | None = None
    once: Switch = "no"

    @property
    def months(self) -> int:
        """Horizon of a single run."""
        return math.ceil(self.deadline_hours / HOURS_PER_MONTH)


TrainingPrecision = Literal["auto", "bf16", "bf16_master", "bf16_pure", "fp8", "mxfp8", "nvfp4", "amp", "fp32"]
Optimizer = Literal["adamw", "adamw_8bit", "adafactor", "muon", "sgd"]
Recomputing = Literal["auto", "none", "selective", "full"]
PRECISION_NAMES: tuple[str, ...] = get_args(TrainingPrecision)
RECOMPUTE_NAMES: tuple[str, ...] = get_args(Recomputing)
Days = Annotated[float, Field(gt=0, le=3650)]
SequenceTokens = Annotated[int, Field(ge=16, le=10_000_000), BeforeValidator(whole)]


class Training(Section):
    """One pre-training run. `tokens`, or a budget in USD for which the compute-optimal number is advised."""

    tokens: Annotated[float, Field(gt=0, le=1e16)] | None = None
    budget_usd: Annotated[float, Field(gt=0, le=1e12)] | None = None
    sequence_length: SequenceTokens = 8192
    global_batch_tokens: Annotated[float, Field(ge=16, le=1e10)] = 4e6
    deadline_days: Days | None = None
    every_days: Days | None = None  # the run is repeated so often; default: it is done once
    recompute: Recomputing = "auto"
    precision: TrainingPrecision = "auto"  # auto: the fastest that constraints.quality allows
    optimizer: Optimizer = "adamw"
    continued: Annotated[
        Literal["yes", "no"],
        BeforeValidator(yes_or_no, json_schema_input_type=Literal["yes", "no"] | bool),
    ] = "no"  # start from the published weights


TuningName = Literal["sft", "dpo", "grpo"]
METHOD_NAMES = ("full", "lora", "qlora")
OBJECTIVE_NAMES: tuple[str, ...] = get_args(TuningName)
Reference = Annotated[
    Literal["yes", "no", "precomputed"],
    BeforeValidator(yes_or_no, json_schema_input_type=Literal["yes", "no", "precomputed"] | bool),
]
RolloutTokens = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(whole)]
Pairs = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(whole)]
LONGEST_RATIO = 2  # of the longest response over the mean: assumed


class Finetuning(Section):
    """One fine-tuning run: supervised (sft), on preference pairs (dpo), or reinforcement learning (grpo)."""

    objective: TuningName = "sft"
    method: Literal["full", "lora", "qlora"] = "full"
    rank: Annotated[int, Field(ge=1, le=4096)] = 16  # of adapters
    tokens: Annotated[float, Field(gt=0, le=1e16)] | None = None  # sft: all epochs together
    pairs: Pairs | None = None  # dpo: all epochs together; a pair is two sequences
    iterations: Annotated[int, Field(ge=1, le=10_000_000), BeforeValidator(whole)] | None = None  # grpo
    prompts_per_iteration: Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(whole)] = 32  # assumed
    # num_generations of TRL's GRPOConfig (trl/trainer/grpo_config.py, read 2026-11-25)
    samples_per_prompt: Annotated[int, Field(ge=2, le=4096), BeforeValidator(whole)] = 8
    prompt_tokens: RolloutTokens = 512  # grpo: on average; assumed
    response_tokens: RolloutTokens | None = None  # grpo: on average; it decides the cost, so it has no default
    longest_response_tokens: RolloutTokens | None = None  # grpo; default: LONGEST_RATIO times the mean
    reference: Reference = "yes"  # dpo and grpo: a frozen copy beside the model; no: grpo with a KL coefficient of 0
    reward_model: Name | None = None  # grpo: catalog model that scores responses; default: rules, which take no time
    sequence_length: SequenceTokens = 4096
    global_batch_tokens: Annotated[float, Field(ge=16, le=1e10)] = 2.6e5
    deadline_days: Days | None = None
    every_days: Days | None = None
    recompute: Recomputing = "auto"
    precision: TrainingPrecision = "auto"
    optimizer: Optimizer = "adamw"


# fields that only one objective has
OF_OBJECTIVE: dict[str, tuple[str, ...]] = {
    "sft": ("tokens",),
    "dpo": ("pairs",),
    "grpo": (
        "iterations", "prompts_per_iteration", "samples_per_prompt", "prompt_tokens", "response_tokens",
        "longest_response_tokens", "reward_model",
    ),
}  # fmt: skip
LENGTH_OF_OBJECTIVE = {"sft": "tokens", "dpo": "pairs", "grpo": "iterations"}  # how long a run is


def section_defaults() -> dict[str, dict[str, Any]]:
    """The default values of the sections that a workload may leave out; one key of each is not listed and stays."""
    traffic: dict[str, Any] = {
        "load_curve": "flat",
        "prefix_cache_hit_rate": 0.0,
        "growth_fraction_per_year": 0.0,
        "ramp_months": 0,
    }
    for name, section, stays in (
        ("images", Images, "per_request"),
        ("image_output", ImageOutput, "width_px"),
        ("audio", Audio, "hours_per_hour"),
    ):
        traffic[name] = defaults_of(section, stays)
    return {"traffic": traffic, "adapters": defaults_of(Adapters, "count")}


def defaults_of(section: type[Section], stays: str = "") -> dict[str, Any]:
    return {k: field.default for k, field in section.model_fields.items() if not field.is_required() and k != stays}


def derived_paths(spec: Mapping[str, Any]) -> list[str]:
    """Paths of a validated workload whose values follow from others, and would again if they were left out."""
    traffic, kind = spec.get("traffic"), kind_named(spec.get("kind"))
    name = ["name"] if is_derived(spec) else []
    return name + ([f"traffic.{key}" for key in traffic_derived(traffic, kind)] if isinstance(traffic, Mapping) else [])


def run_defaults() -> dict[str, dict[str, Any]]:
    """The default values of the sections of runs."""
    sections: dict[str, type[Section]] = {"training": Training, "finetuning": Finetuning}
    return {name: defaults_of(section) for name, section in sections.items()}


class Adapters(Section):
    """LoRA adapters served with the model; `active`: different ones in use at the same time (default: all)."""

    count: Annotated[int, Field(ge=0, le=100_000)]
    rank: Annotated[int, Field(ge=1, le=512)] = 16
    active: Annotated[int, Field(ge=1, le=10_000)] | None = None
    targets: Literal["all", "attention"] = "all"


Kind = Literal["serving", "batch", "embedding", "rerank", "image_generation", "training", "finetuning", "portfolio"]
RANGES = {  # of assumptions under tco; others: 0 to 1 for fractions, else not negative
    "rent-change-per-year": (-0.9, 10.0),
    "electricity-change-per-year": (-0.9, 10.0),
    "hardware-price-change-per-year": (-0.9, 10.0),
    "residual-superseded-ratio": (0.0, 1.0),
    "migration-overlap-months": (0.0, 24.0),
    "purchase-lead-months": (0.0, 60.0),
    "purchase-lead-months-workstation": (0.0, 60.0),
    "purchase-lead-months-computer": (0.0, 60.0),
    "pue": (1.0, 5.0),
    "depreciation-years": (0.25, 30.0),
    "accelerators-per-operator": (1.0, 1e9),
    "spot-lost-fraction": (0.0, 0.95),
    "rent-price-swing-ratio": (1.0, 100.0),
    "purchase-price-swing-ratio": (1.0, 100.0),
    "price-age-swing-ratio": (1.0, 100.0),
    "load-swing-ratio": (1.0, 100.0),
    "host-speed-ratio": (0.1, 10.0),
    "power-low-ratio": (0.01, 1.0),
    "power-high-ratio": (1.0, 100.0),
}
REQUIRED_SECTIONS: dict[str, tuple[str, ...]] = {
    PORTFOLIO: ("workloads",),
} | {kind.name: kind.sections for kind in KINDS.values()}


def no_for_false(value: object) -> object:
    """YAML 1.1 writers turn `no` into false."""
    return "no" if value is False else value


SWITCH = ("yes", "no")


def day_in_the_past(value: str) -> str:
    try:
        return past_day(value)
    except ValueError as e:
        message, allowed = e.args
        raise PydanticCustomError("day", message, {"expected": allowed}) from None


Day = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date"}), AfterValidator(day_in_the_past)]


# pydantic's JSON schema constrains keys by a pattern, but allows all others
NO_OTHER_NAMES: Any = {"additionalProperties": False}


class Spec(Section):
    name: Name | None = None  # filled in from the model and the load
    kind: Kind = "serving"
    variants: Literal["adopt", "show", "no"] = (
        "adopt"  # speculative decoding and disaggregation: ranked with all options, or shown beside them
    )
    speculative: Switch = "yes"  # whether variants include speculative decoding
    disaggregated: Switch = "yes"  # whether variants include disaggregated prefill and decode pools
    structured_output: Switch = "no"  # every answer follows a grammar such as a JSON schema
    task: Task = "any"  # affects draft acceptance rates and the quality loss of formats
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
    usd_per_accelerator_hour: Annotated[
        dict[Name, Positive], Field(max_length=200, json_schema_extra=NO_OTHER_NAMES)
    ] = {}  # prices that the planner assumes or was quoted; they are ranked with the catalog's
    price_ratios: dict[PricedTerm, Ratio] = {}  # every price of the term times this; for what-if questions
    objective: Literal["cost", "latency", "throughput", "energy", "carbon", "balanced"] = "cost"
    weights: dict[Weight, NotNegative] = {}
    tco: Tco = Field(default_factory=lambda: Tco.model_validate({}))
    team: dict[Stack, Annotated[int, Field(ge=0, le=5), BeforeValidator(whole)]] = {}
    probe: Annotated[
        Literal["no", "preferred", "required"],
        BeforeValidator(no_for_false, json_schema_input_type=Literal["no", "preferred", "required"] | Literal[False]),
    ] = "no"
    use_measurements: Switch = "yes"  # whether to correct predictions by measured rows of similar deployments
    prices_as_of: Day | None = None  # use the prices, discounts and licenses known on that day
    tags: Annotated[list[TagName], Field(max_length=20)] = []  # to find the question by; they change no answer


# --- validating -------------------------------------------------------------------------------------------------


def parse(data: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """The validated workload as JSON values, with all defaults filled in. Raises WorkloadError."""
    raw = with_one_vector(load(data) if isinstance(data, str | bytes) else dict(data))
    check_size(raw)
    if errors := not_modeled(raw):
        raise WorkloadError(errors)
    raw, unclear = with_numbers(raw, Spec)
    errors = [*unstorable(raw), *unclear]
    if any(item["message"] == "nested too deeply" for item in errors):
        raise WorkloadError(errors)
    try:
        spec = Spec.model_validate(raw)
    except ValidationError as e:
        reported = {item["field"] for item in errors}
        errors += [item for item in explained(e, Spec) if not within(item["field"], reported)]
        raise WorkloadError(errors + missing(raw)) from None
    if errors:
        raise WorkloadError(errors + missing(raw))
    if absent := missing(raw):
        raise WorkloadError(absent + cross_checks(spec))
    full = fill(spec)
    extra = [
        error(key, f"cannot be used with kind {spec.kind}", f"kind: {key}")
        for key in ("batch", "training", "finetuning")
        if key != spec.kind and full[key] is not None
    ]
    errors = extra + cross_checks(spec) + training_errors(spec)
    if spec.traffic and not kind_named(spec.kind).trains:
        errors += contradictions(full["traffic"], kind_named(spec.kind))
        errors += contents_errors(full["traffic"], kind_named(spec.kind))
    errors += grammar_errors(spec)
    if errors := errors + parse_parts(full, parse):
        raise WorkloadError(errors)
    return named(full)


def within(field: str, sections: set[str]) -> bool:
    """Whether the field, or a section that contains it, is one of `sections`."""
    ends = [at for at, character in enumerate(field) if character in ".["]
    return any(field[:end] in sections for end in (*ends, len(field)))


def missing(raw: Mapping[str, Any]) -> list[dict[str, str]]:
    """An error for each required field that is missing; `raw` need not be valid otherwise."""
    kind = raw.get("kind", SERVING.name)
    needs = REQUIRED_SECTIONS.get(kind, ()) if isinstance(kind, str) else ()
    errors = [error(key, f"is required for kind {kind}") for key in needs if raw.get(key) is None]
    if errors and kind not in RUNNABLE_KINDS:
        errors.insert(0, unavailable(kind))
    traffic = raw.get("traffic")
    if isinstance(traffic, Mapping) and traffic.get("trace") is None and traffic.get("audio") is None:
        given = ("output_tokens",) if traffic.get("image_output") is not None else ("input_tokens", "output_tokens")
        lengths = [key for key in given if traffic.get(key) is None]
        errors += [error(f"traffic.{key}", "is required", "a number, {mean, p95}, or traffic.trace") for key in lengths]
    rate = ("requests_per_s", "users", "trace")
    if (
        isinstance(traffic, Mapping)
        and kind in [known.name for known in KINDS.values() if known.has_arrivals]
        and all(traffic.get(key) is None for key in rate)
        and not states_rate(traffic)
    ):
        allowed = "a number, {mean, peak}, or traffic.users or traffic.trace instead"
        errors.append(error("traffic.requests_per_s", "is required", allowed))
    return errors


# kinds that people ask for, and what the engine lacks to answer them
NOT_MODELED = {
    "video_generation": "video generation is not modeled: shapes of video transformers and decoders are missing",
    "text_to_speech": "text to speech is not modeled: shapes of speech decoders and vocoders are missing",
    "image_embedding": "image embeddings are not modeled: embedding models with a vision tower are missing",
    "training_rl": "a run of reinforcement learning has no kind of its own: use kind finetuning with "
    "finetuning.objective: grpo",
}


def not_modeled(raw: Mapping[str, Any]) -> list[dict[str, str]]:
    """An error with what is missing, for a kind of workload that the engine cannot answer."""
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in NOT_MODELED:
        return []
    return [error("kind", f"{NOT_MODELED[kind]}; use kind {either(KINDS)}", ", ".join(RUNNABLE_KINDS))]


def unavailable(kind: str) -> dict[str, str]:
    """The error for a kind that is part of the file format but that this version does not support."""
    message = f"{kind} is not available yet; use kind {either(KINDS)}"
    return error("kind", message, ", ".join(RUNNABLE_KINDS))


def fill(spec: Spec) -> dict[str, Any]:
    """The workload as JSON values, with the derived traffic figures (traffic.filled)."""
    values = spec.model_dump(mode="json")
    if values["traffic"]:
        rate = batch_rate(spec.batch) if "batch" in REQUIRED_SECTIONS[spec.kind] and spec.batch else None
        stated = spec.traffic.model_fields_set if spec.traffic else ()
        values["traffic"] = filled(with_requests(values["traffic"], stated), rate)
    if spec.batch and spec.batch.once == "yes":
        values["tco"]["horizon_months"] = spec.batch.months
    return values


def batch_rate(batch: Batch) -> dict[str, float]:
    """Requests/s on average, and the rate needed to finish within the deadline (peak)."""
    repeated = batch.every_hours or batch.deadline_hours
    every_hours = batch.months * HOURS_PER_MONTH if batch.once == "yes" else repeated
    return {"mean": batch.requests / every_hours / 3600, "peak": batch.requests / batch.deadline_hours / 3600}


def batch_errors(batch: Batch, traffic: Traffic | None) -> list[dict[str, str]]:
    """Contradictions between the batch section and other fields."""
    errors = []
    if batch.every_hours is not None and batch.once == "yes":
        errors.append(error("batch.every_hours", "cannot be used with batch.once: yes", "one of the two"))
    if batch.every_hours is not None and batch.every_hours < batch.deadline_hours:
        allowed = f">= {batch.deadline_hours:g}, the deadline"
        errors.append(error("batch.every_hours", "is shorter than the deadline, so batches would overlap", allowed))
    if traffic and traffic.users:
        errors.append(
            error("traffic.users", "cannot be used with kind batch", "batch.requests and batch.deadline_hours")
        )
    if traffic and traffic.requests_per_s and traffic.requests_per_s.model_dump() != batch_rate(batch):
        errors.append(error("traffic.requests_per_s", "contradicts batch.requests", "remove it"))
    return errors


def training_errors(spec: Spec) -> list[dict[str, str]]:
    """Contradictions in the section of a kind that trains."""
    if spec.kind not in KINDS or not kind_named(spec.kind).trains:
        return []
    name = spec.kind
    section: Training | Finetuning | None = getattr(spec, name)
    if section is None:
        return []
    errors = []
    if spec.traffic is not None:
        errors.append(error("traffic", f"cannot be used with kind {name}, which serves no requests", "remove it"))
    if spec.constraints.acquisition == ["api"]:
        errors.append(error("constraints.acquisition", "training needs machines, and api allows none", "rent, own"))
    if isinstance(section, Training) and (section.tokens is None) == (section.budget_usd is None):
        said = "give either tokens or budget_usd" if section.tokens else "is required, or budget_usd in its place"
        errors.append(error(f"{name}.tokens", said, "the tokens to train on, for example 2e12"))
    if isinstance(section, Finetuning):
        errors += objective_errors(section)
    generates = isinstance(section, Finetuning) and section.objective == "grpo"
    if not generates and section.global_batch_tokens < section.sequence_length:
        errors.append(
            error(
                f"{name}.global_batch_tokens",
                f"{section.global_batch_tokens:g} is less than one sequence of {section.sequence_length:,} tokens",
                f">= {section.sequence_length}",
            )
        )
    if section.every_days and section.deadline_days and section.deadline_days > section.every_days:
        allowed = f"<= {section.every_days:g}, the days between runs"
        errors.append(error(f"{name}.deadline_days", "is longer than every_days, so runs would overlap", allowed))
    if isinstance(section, Finetuning) and section.method == "qlora" and section.precision not in ("auto", "bf16"):
        errors.append(error(f"{name}.precision", "is not available with qlora, which computes in BF16", "auto, bf16"))
    return errors


def objective_errors(f: Finetuning) -> list[dict[str, str]]:
    """What the objective of a fine-tuning run lacks, and what belongs to another one."""
    defaults = run_defaults()["finetuning"]
    foreign = [
        (name, objective)
        for objective, names in OF_OBJECTIVE.items()
        for name in names
        if objective != f.objective and getattr(f, name) != defaults[name]
    ]
    errors = [
        error(
            f"finetuning.{name}", f"is not used with objective {f.objective}", f"remove it, or objective: {objective}"
        )
        for name, objective in foreign
    ]
    length = LENGTH_OF_OBJECTIVE[f.objective]
    if getattr(f, length) is None:
        allowed = {
            "sft": "the tokens to train on, for example 5e7", "dpo": "the preference pairs, for example 50000",
            "grpo": "the number of iterations, for example 500",
        }  # fmt: skip
        errors.append(error(f"finetuning.{length}", f"is required for objective {f.objective}", allowed[f.objective]))
    if f.objective == "sft" and f.reference != defaults["reference"]:
        errors.append(
            error(
                "finetuning.reference", "supervised tuning has no reference model", "remove it, or objective: dpo, grpo"
            )
        )
    if f.objective == "dpo" and f.reference == "no":
        errors.append(error("finetuning.reference", "dpo compares with a reference model", "yes, or precomputed"))
    return errors + (rollout_errors(f, defaults) if f.objective == "grpo" else [])


def rollout_errors(f: Finetuning, defaults: Mapping[str, Any]) -> list[dict[str, str]]:
    """Contradictions in what an iteration of GRPO generates."""
    errors = []
    if f.reference == "precomputed":
        errors.append(
            error(
                "finetuning.reference",
                "the responses are new in each iteration of grpo",
                "yes, or no (KL coefficient 0)",
            )
        )
    if f.response_tokens is None:
        said = "is required for objective grpo: the mean length decides how long an iteration takes"
        errors.append(error("finetuning.response_tokens", said, "for example 1000"))
    elif f.longest_response_tokens is not None and f.longest_response_tokens < f.response_tokens:
        said = f"is less than the mean, {f.response_tokens:,} tokens"
        errors.append(error("finetuning.longest_response_tokens", said, f">= {f.response_tokens}"))
    follows = {
        "sequence_length": "prompt_tokens and longest_response_tokens",
        "global_batch_tokens": "prompts_per_iteration and samples_per_prompt",
    }
    for name, of in follows.items():
        if getattr(f, name) != defaults[name]:
            errors.append(
                error(f"finetuning.{name}", f"is not used with objective grpo: it follows from {of}", "remove it")
            )
    return errors


def grammar_errors(spec: Spec) -> list[dict[str, str]]:
    """An error if answers that follow a grammar are asked for, but nothing is generated."""
    if spec.structured_output == "no" or spec.kind not in KINDS or kind_named(spec.kind).generates_tokens:
        return []
    return [error("structured_output", f"cannot be used with kind {spec.kind}, which generates no tokens", "no")]


def adapter_errors(spec: Spec) -> list[dict[str, str]]:
    a = spec.adapters
    if a is None:
        return []
    able = [kind.name for kind in KINDS.values() if kind.serves_adapters]
    if spec.kind not in able:
        return [error("adapters", f"are not supported for kind {spec.kind}", f"kind: {either(able)}")]
    if a.active and a.count and a.active > a.count:
        return [error("adapters.active", f"exceeds adapters.count ({a.count})", f"1 .. {a.count}")]
    return []


def server_errors(spec: Spec) -> list[dict[str, str]]:
    """Contradictions in how servers must be started."""
    c = spec.constraints
    given = [key for key in ("layout", "max_batched_tokens", "max_running_requests") if getattr(c, key) is not None]
    if given and (spec.kind not in KINDS or kind_named(spec.kind).trains):
        return [error(f"constraints.{key}", f"cannot be used with kind {spec.kind}", "remove it") for key in given]
    if c.max_batched_tokens and c.max_running_requests and c.max_running_requests > c.max_batched_tokens:
        message = f"{c.max_running_requests:,} is more than the {c.max_batched_tokens:,} tokens of a step"
        return [error("constraints.max_running_requests", message, f"<= {c.max_batched_tokens}")]
    return []


def cross_checks(spec: Spec) -> list[dict[str, str]]:
    """Errors that depend on several fields."""
    errors = []
    traffic = spec.traffic
    if "batch" in REQUIRED_SECTIONS[spec.kind] and spec.batch:
        errors += batch_errors(spec.batch, traffic)
        if (
            spec.batch.once == "yes"
            and spec.tco.horizon_months != spec.batch.months
            and "horizon_months" in spec.tco.model_fields_set
        ):
            message = "is the horizon of a batch that runs once: the months until its deadline"
            errors.append(error("tco.horizon_months", message, f"{spec.batch.months}, or remove it"))
    if traffic and isinstance(traffic.load_curve, list) and not sum(traffic.load_curve):
        errors.append(error("traffic.load_curve", "is zero in every hour", "at least one hour above 0"))
    output = traffic.output_tokens if traffic else None
    if output and not kind_named(spec.kind).generates_tokens and not one_vector(output):
        errors.append(error("traffic.output_tokens", "embeddings generate no output tokens", "remove it"))
    for key, value in (spec.tco.model_extra or {}).items():
        low, high = RANGES.get(key, (0.0, 1.0 if key.endswith("-fraction") else 1e15))
        if not low <= value <= high:
            errors.append(error(f"tco.{key}", f"{value:g} is out of range", f"{low:g} .. {high:g}"))
    for key in CHOICES:
        choice: Choice | CacheChoice = getattr(spec.constraints, key)
        if both := sorted(set(choice.allow) & set(choice.deny)):
            errors.append(error(f"constraints.{key}", f"{both[0]} is both allowed and denied", "only one of the two"))
    errors += adapter_errors(spec) + server_errors(spec)
    if spec.weights and not sum(spec.weights.values()):
        errors.append(error("weights", "are all zero", "at least one above 0"))
    return errors


def one_vector(output: Any) -> bool:
    return (output.p95 or output.mean) == 1
