"""Serving frameworks and quantization methods as the engine sees them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.engine.spec.command_template import CommandTemplate


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantization:
    """How weights are stored and what they are multiplied in."""

    slug: str
    name: str
    weights_dtype: str  # bf16 | fp8 | int8 | int4 | nvfp4 | mxfp4 ...
    bits_per_weight: float  # of the matrices it covers, scales included
    activations_dtype: str  # the dtype of the matrix multiply
    quality: str  # lossless | near_lossless | lossy
    quality_note: str
    source: str
    stacks: tuple[str, ...] = ()  # empty: every stack that has the dtype
    weight_only: bool = False
    block_scaled: bool = False  # one scale for each block of weights and activations
    training: str = ""  # fine_tuning | from_scratch: what making a checkpoint takes; empty: no training
    experts_only: str = ""  # always | latent: models whose attention stays in 16 bits; empty: none


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagLists:
    """The lists of options in fixtures/flags/ that commands are checked against."""

    lists: tuple[str, ...] = ()  # of this release: an option must be in all of them
    nearest: str = ""  # of the project's source at another commit, where no release can be read
    why: str = ""
    options_file: str = ""  # keys of the file beside the command


TOKENS, VECTORS, SOURCES = "tokens", "vectors", "sources"  # what a server is started for
UNRANKED = 100  # preference of a framework that states none


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFacts:
    """How a framework is installed and started; $version stands for the framework's own version."""

    template: CommandTemplate
    serves: tuple[str, ...]  # tokens (decoders) | vectors (encoders) | sources (encoder-decoders)
    preference: int = UNRANKED  # the lowest is used where a question names no framework
    package: str = ""  # what pip installs; empty: the vendor's or project's own build
    package_vendors: tuple[str, ...] = ()  # whose accelerators the package is built for; empty: all
    package_note: str = ""
    checkpoint_file: str = ""  # kind of file that has to be made from a checkpoint first
    formats_on_load: Mapping[str, str] = field(default_factory=dict)  # made from 16 bits while loading: its name there
    format_names: Mapping[str, str] = field(default_factory=dict)  # weight formats that the command has to name
    cache_names: Mapping[str, str] = field(default_factory=dict)  # cache formats that the command has to name
    hosts: str = ""  # ranked | ray | slurm: how one replica spans hosts; empty: not known
    images: Mapping[str, str] = field(default_factory=dict)  # vendor -> the project's own container image
    image_has_entrypoint: bool = False  # the image starts the server itself
    health_path: str = ""  # answers once the server is ready; empty: unknown, so no manifests are written
    load_test: bool = True  # load generators can send it requests
    default_model_name: str = ""  # by which it answers for a checkpoint that is a path
    device_note: str = ""  # set for a runtime on a personal device, which needs no service around it
    card_share: str = ""  # options that limit it to a share of an accelerator; empty: it has none


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """A serving framework at one version: where it runs, what it can load, how it schedules."""

    slug: str
    name: str
    version: str
    stacks: tuple[str, ...]
    vendors: tuple[str, ...]
    kinds: tuple[str, ...]  # accelerator kinds
    quantizations: tuple[str, ...]
    kv_dtypes: tuple[str, ...]
    mixers: tuple[str, ...]  # attention | latent | recurrent | window | encoder | cross-attention | speech
    scheduler: str  # chunked | prefill_first | static
    default_max_batched_tokens: int
    max_running_requests: int
    memory_fraction: float  # share of memory that the framework may fill, read as memory_policy says
    runtime_bytes: float  # context, graphs, communication buffers per chip
    block_tokens: int
    graph_max_tokens: int
    # total: weights, workspace and cache inside the fraction (vLLM); static: weights and cache inside it, the workspace
    # beside (SGLang); free: the cache gets the fraction of what weights and workspace leave (TensorRT-LLM)
    memory_policy: str = "total"
    features: tuple[str, ...] = ()
    speculative: tuple[str, ...] = ()  # methods of drafting that it documents
    aliases: tuple[str, ...] = ()  # other names that people use
    launch: LaunchFacts | None = None  # None: catalogued, not advised
    flags: FlagLists = FlagLists()
    compiled_stacks: tuple[str, ...] = ()  # on which programs are compiled for fixed shapes before they serve
    torch_compile: bool = False  # runs the model through torch.compile
    prefixes_by_default: bool = False  # shares prefixes without being told to
    builds_engines: bool = False  # builds a program for one accelerator, layout, format and version
    memory_as_needed: bool = False  # takes memory for weights and requests, not a share at start
    host_cache_option: str = ""  # keeps evicted cache blocks in host memory; empty: not known to
    fp8_cache_weights: tuple[str, ...] = ()  # weight dtypes with which it stores its cache in FP8 unless told otherwise
    source: str = ""
    releases: int | None = None  # that a package index lists; None: not counted
    first_release: str = ""

    def starts(self, what: str) -> bool:
        """Whether the advice knows how to start it for tokens, vectors or sources."""
        return self.launch is not None and what in self.launch.serves

    @property
    def startable(self) -> bool:
        return self.launch is not None
