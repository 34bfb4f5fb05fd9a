"""Serving frameworks and quantization methods."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.terms.command_template import CommandTemplate


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantization:
    """Storage format of the weights and dtype of the matrix multiply."""

    slug: str
    name: str
    weights_dtype: str  # bf16 | fp8 | int8 | int4 | nvfp4 | mxfp4 ...
    bits_per_weight: float  # of the quantized matrices, scales included
    activations_dtype: str  # of the matrix multiply
    quality: str  # lossless | near_lossless | lossy
    quality_note: str
    source: str
    weight_only: bool = False
    block_scaled: bool = False  # one scale per block of weights and activations
    shard_elements: int = 1  # the width of a tensor-parallel shard has to be a multiple of this
    training: str = ""  # fine_tuning | from_scratch: required to make a checkpoint; empty: none
    experts_only: str = ""  # always | latent: models whose attention stays in 16 bits; empty: none
    checkpoint_format: str = ""  # method whose checkpoints it loads; empty: its own
    published_quality: str = "lossless"  # against a checkpoint that is published in this format

    @property
    def loads(self) -> str:
        """Slug of the method whose checkpoints it loads."""
        return self.checkpoint_format or self.slug


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagLists:
    """Lists of command-line options in fixtures/flags/ that commands are checked against."""

    lists: tuple[str, ...] = ()  # of this release: an option must be in all of them
    nearest: str = ""  # list of another commit, if no list of this release exists
    why: str = ""
    options_file: str = ""  # list of the keys of the options file


TOKENS, VECTORS, SOURCES, IMAGES = "tokens", "vectors", "sources", "images"  # what a server serves
UNRANKED = 100  # preference of a framework without one


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFacts:
    """How a framework is installed and started; $version is the framework's version."""

    template: CommandTemplate
    serves: tuple[str, ...]  # tokens (decoders) | vectors (encoders) | sources (encoder-decoders)
    preference: int = UNRANKED  # the lowest is used if the workload names no framework
    package: str = ""  # for pip; empty: the vendor's or project's own build
    package_vendors: tuple[str, ...] = ()  # accelerator vendors that the package supports; empty: all
    package_note: str = ""
    checkpoint_file: str = ""  # file format that the checkpoint has to be converted to first
    formats_on_load: Mapping[str, str] = field(default_factory=dict)  # quantized while loading: format -> its name
    format_names: Mapping[str, str] = field(default_factory=dict)  # weight formats that the command has to name
    cache_names: Mapping[str, str] = field(default_factory=dict)  # cache formats that the command has to name
    hosts: str = ""  # ranked | ray | slurm: how one replica spans hosts; empty: unknown
    expert_hosts: tuple[str, ...] = ()  # stacks on which experts with data-parallel attention may span hosts
    images: Mapping[str, str] = field(default_factory=dict)  # vendor -> the project's container image
    image_has_entrypoint: bool = False  # the image starts the server itself
    health_path: str = ""  # responds once the server is ready; empty: unknown, so no manifests are written
    load_test: bool = True  # load generators can send it requests
    default_model_name: str = ""  # served model name if the checkpoint is a path
    device_note: str = ""  # set for a runtime on a personal device, which does not run as a service
    card_share: str = ""  # options that limit it to a fraction of an accelerator; empty: it has none


@dataclass(frozen=True, kw_only=True, slots=True)
class SupportRule:
    """Formats of weights or of the KV cache that work on some chips, for some models, as a source says."""

    formats: tuple[str, ...]
    chips: tuple[str, ...] = ()  # chips, families or stacks; empty: every chip that the framework runs on
    not_chips: tuple[str, ...] = ()  # chips, families or stacks that `chips` would include
    layers: str = ""  # dense | experts: only models without or with expert layers; empty: both
    mixers: tuple[str, ...] = ()  # only models whose layers are all of these kinds; empty: all that the framework has
    weight_only: bool = False  # these chips convert the weights to 16 bits before they multiply
    source: str = ""
    as_of: str = ""
    basis: str = ""  # read | mixed | memory ...

    def covers(self, names: Collection[str]) -> bool:
        """Whether the rule applies to the chip with this slug, family and stacks."""
        return (not self.chips or any(n in self.chips for n in names)) and not any(n in self.not_chips for n in names)


# What an engine may refuse when it starts: heads, widths or experts that do not split evenly, more stages than layers,
# stages of an encoder, experts spread where there are none, contexts beyond the model's, steps of fewer tokens than one
# context (without chunked prefill) or than running requests, BF16 on chips without it, speech models, a model without
# an option that it needs.
KV_HEADS, FFN_WIDTH, EXPERTS, STAGES = "uneven_heads", "uneven_ffn_width", "uneven_experts", "too_many_stages"
ENCODER_STAGES = "stages_of_encoder"
NO_EXPERTS, CONTEXT, STEP_TOKENS, NO_BF16 = "experts_of_dense_model", "context", "step_tokens", "bf16"
SPEECH, NEEDS_OPTION = "speech", "missing_option"
START_CHECKS = (
    *(KV_HEADS, FFN_WIDTH, EXPERTS, STAGES, ENCODER_STAGES, NO_EXPERTS),
    *(CONTEXT, STEP_TOKENS, NO_BF16, SPEECH, NEEDS_OPTION),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRule:
    """What a framework refuses when it starts, as its source code says."""

    refuses: tuple[str, ...]  # of START_CHECKS
    chips: tuple[str, ...] = ()  # chips, families or stacks; empty: every chip that the framework runs on
    models: tuple[str, ...] = ()  # slugs; empty: every model
    option: str = ""  # of missing_option: what the command of these models has to have
    source: str = ""
    as_of: str = ""
    basis: str = ""  # read | mixed | memory ...

    def covers(self, names: Collection[str], model: str = "") -> bool:
        """Whether the rule applies to the chip with this slug, family and stacks, and to the model of this slug."""
        of_chip = not self.chips or any(n in self.chips for n in names)
        return of_chip and (not self.models or model in self.models)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipDefaults:
    """Scheduling defaults that a framework sets by the chip it starts on; None: as elsewhere."""

    chips: tuple[str, ...] = ()  # chips, families or stacks; empty: every chip
    from_gib: float = 0.0  # memory of the chip
    below_gib: float = math.inf
    default_max_batched_tokens: int | None = None
    max_running_requests: int | None = None
    graph_max_tokens: int | None = None

    def covers(self, names: Collection[str], memory_gib: float) -> bool:
        """Whether the rule applies to the chip with this slug, family, stacks and memory."""
        named = not self.chips or any(n in self.chips for n in names)
        return named and self.from_gib <= memory_gib < self.below_gib

    @property
    def values(self) -> dict[str, int]:
        """The defaults that it sets."""
        given = {key: getattr(self, key) for key in CHIP_DEFAULTS}
        return {key: value for key, value in given.items() if value is not None}


CHIP_DEFAULTS = ("default_max_batched_tokens", "max_running_requests", "graph_max_tokens")


def chip_defaults_of(row: Mapping[str, Any]) -> tuple[ChipDefaults, ...]:
    """The scheduling defaults by chip in the row of a framework."""
    return tuple(ChipDefaults(**{**rule, "chips": tuple(rule.get("chips", ()))}) for rule in row.get("on_chips", ()))


RULE_LISTS = {"weights": "quantizations", "caches": "kv_dtypes"}  # rules of a framework -> plain list of older rows


def rules_of(row: Mapping[str, Any], key: str) -> tuple[SupportRule, ...]:
    """The rules of a framework's row, weights or caches; a plain list of formats holds on all its chips."""
    rules = row.get(key) or [{"formats": row[RULE_LISTS[key]]}]
    values: list[dict[str, Any]] = [
        {name: tuple(item) if isinstance(item, list) else item for name, item in rule.items()} for rule in rules
    ]
    return tuple(SupportRule(**rule) for rule in values)


def start_rules_of(row: Mapping[str, Any]) -> tuple[StartRule, ...]:
    """What the framework of this row refuses when it starts; empty where nobody read its source."""
    rules: list[dict[str, Any]] = [
        {name: tuple(item) if isinstance(item, list) else item for name, item in rule.items()}
        for rule in row.get("start_checks", ())
    ]
    return tuple(StartRule(**rule) for rule in rules)


def formats_of(rules: Iterable[SupportRule]) -> tuple[str, ...]:
    """All formats of the rules, each once, in order."""
    return tuple(dict.fromkeys(slug for rule in rules for slug in rule.formats))


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """One version of a serving framework: supported hardware and formats, scheduling defaults, launch."""

    slug: str
    name: str
    version: str
    stacks: tuple[str, ...]
    vendors: tuple[str, ...]
    kinds: tuple[str, ...]  # accelerator kinds
    weights: tuple[SupportRule, ...]  # weight formats
    caches: tuple[SupportRule, ...]  # formats of the KV cache
    mixers: tuple[str, ...]  # attention | latent | compressed | recurrent | window | encoder | cross-attention | speech
    scheduler: str  # chunked | prefill_first | static
    default_max_batched_tokens: int
    max_running_requests: int
    memory_fraction: float  # of the memory that the framework may use, see memory_policy
    runtime_bytes: float  # CUDA context, graphs, communication buffers per chip
    block_tokens: int
    graph_max_tokens: int
    # total: the fraction covers weights, workspace and cache (vLLM); static: it covers weights and cache, workspace is
    # extra (SGLang); free: the cache gets the fraction of what weights and workspace leave free (TensorRT-LLM)
    memory_policy: str = "total"
    chip_defaults: tuple[ChipDefaults, ...] = ()  # the last one that covers a chip wins
    start_checks: tuple[StartRule, ...] = ()
    features: tuple[str, ...] = ()
    feature_chips: Mapping[str, Sequence[str]] = field(default_factory=dict)  # features that hold on these chips alone
    speculative: tuple[str, ...] = ()  # documented speculative decoding methods
    aliases: tuple[str, ...] = ()  # other common names
    launch: LaunchFacts | None = None  # None: listed in the catalog, never recommended
    not_started_reason: str = ""  # why it has no start command, or none for some kinds of model
    flags: FlagLists = FlagLists()
    compiled_stacks: tuple[str, ...] = ()  # stacks on which it compiles programs for fixed shapes before serving
    torch_compile: bool = False  # runs the model through torch.compile
    prefixes_by_default: bool = False  # prefix caching is on by default
    builds_engines: bool = False  # builds an engine for one accelerator, layout, format and version
    ranks_wait: bool = False  # attention-DP ranks step together, and nothing lines up their prompts
    one_accelerator: bool = False  # one server uses one accelerator: no tensor parallelism
    memory_as_needed: bool = False  # allocates memory as needed, not a fraction at startup
    host_cache_option: str = ""  # option that offloads evicted cache blocks to host memory; empty: none known
    fp8_cache_weights: tuple[str, ...] = ()  # weight dtypes with which its cache is FP8 by default
    audio_window_s: float = 0.0  # host time of its server process for a window of speech, one after another; 0: none
    source: str = ""
    releases: int | None = None  # in a package index; None: not counted
    first_release: str = ""

    @property
    def quantizations(self) -> tuple[str, ...]:
        """Weight formats that it loads on at least one chip."""
        return formats_of(self.weights)

    @property
    def kv_dtypes(self) -> tuple[str, ...]:
        """Cache formats that it has on at least one chip."""
        return formats_of(self.caches)

    def starts(self, what: str) -> bool:
        """Whether a launch command is known for serving tokens, vectors or sources."""
        return self.launch is not None and what in self.launch.serves

    @property
    def startable(self) -> bool:
        """Whether a launch command is known at all."""
        return self.launch is not None
