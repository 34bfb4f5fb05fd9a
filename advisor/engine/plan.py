"""One deployment and one question, as values: what is asked, what could be run, and why a plan is not legal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .command_template import CommandTemplate
from .demand import Trace, Users
from .money import Part

OWNED = "owned"  # term of an offer: hosts that are there already, and no more of them
BATCH = "batch"  # kind of a workload that has a deadline and nobody who waits


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Token lengths of a request part: constant (p95 == mean), or log-normal with this mean and 95th percentile."""

    mean_tokens: float
    p95_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Slo:
    """Service levels at the 95th percentile; None: not asked."""

    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    e2e_p95_s: float | None = None
    tokens_per_s_per_user: float | None = None
    spare_replicas: int = 0  # availability n+1 -> 1
    doubled: bool = False  # availability 2n: as many again

    def spares(self, carrying: Any) -> Any:
        """Spare replicas beside so many (a number, or an array of numbers) that carry the peak."""
        return carrying if self.doubled else self.spare_replicas


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    accelerators_allow: tuple[str, ...] = ()
    accelerators_deny: tuple[str, ...] = ()
    vendors_allow: tuple[str, ...] = ()
    vendors_deny: tuple[str, ...] = ()
    providers_allow: tuple[str, ...] = ()
    providers_deny: tuple[str, ...] = ()
    regions_allow: tuple[str, ...] = ()
    regions_deny: tuple[str, ...] = ()
    frameworks_allow: tuple[str, ...] = ()
    frameworks_deny: tuple[str, ...] = ()
    formats_allow: tuple[str, ...] = ()  # of weights
    formats_deny: tuple[str, ...] = ()
    kv_formats_allow: tuple[str, ...] = ()
    kv_formats_deny: tuple[str, ...] = ()
    acquisition: tuple[str, ...] = ("rent",)
    quality: str = "near_lossless"  # lossless | near_lossless | any
    partitions: str = "auto"  # hardware instances of a chip: no | auto (told beside) | yes (ranked too) | required
    max_accelerators: int | None = None
    max_usd_per_month: float | None = None
    bound_factor: float | None = None  # the limit above is this many times the cheapest that holds, not the planner's
    inventory_chips: Mapping[str, int] = field(default_factory=dict)  # accelerator -> what can be had; absent: any
    max_watts: float | None = None  # of the site, all chips busy, PUE included
    max_rack_watts: float | None = None  # that one rack feeds, before PUE
    cooling: str = "any"  # any | air | liquid: what the site has


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    name: str
    kind: str
    input_tokens: Lengths
    output_tokens: Lengths
    requests_per_s_mean: float
    requests_per_s_peak: float
    prefix_cache_hit_fraction: float
    slo: Slo
    constraints: Constraints
    objective: str = "cost"
    weights: tuple[tuple[str, float], ...] = ()  # of `balanced`, over the defaults of scores.py
    team: tuple[tuple[str, int], ...] = ()  # (stack, level 0..5)
    horizon_months: int = 36
    discount_fraction: float = 0.08
    deadline_s: float | None = None  # of a batch, and then its peak rate is what ends in time
    users: Users | None = None  # then the rates above are their limit, and each design has its own
    trace: Trace | None = None  # finalists are simulated under it too
    week: tuple[float, ...] = ()  # load of each hour as a share of the busiest; empty: flat
    cold_start_s: float = 0.0  # from asking for an instance until it serves
    growth_fraction_per_year: float = 0.0
    source_tokens: Lengths | None = None  # of an encoder-decoder; its input tokens are then the decoder's start
    variants: str = "show"  # drafts and pools apart: show beside the finalists | adopt what is better | no
    drafts: bool = True  # tried among the variants
    apart: bool = True  # pools of their own for prefill and decode tried among them
    host_cache_hit_fraction: float | None = None  # of a prompt, beside the share found on the chip; None: not stated
    # what the tokens are for, see Task of the workload file: how well drafts hold, what a format may cost
    task: str = "any"

    @property
    def given_tokens(self) -> float:
        """Mean tokens that a request brings, whichever part of the model reads them."""
        return (self.source_tokens or self.input_tokens).mean_tokens


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One way to pay for chips: a whole instance by the hour, or a bought host."""

    provider: str
    instance: str
    region: str
    accelerator: str
    accelerators: int  # per instance
    acquisition: str  # rent | own
    term: str  # on_demand | spot | reserved_1y | reserved_3y | purchase
    usd_per_hour: float
    as_of: str
    source: str
    kgco2e_per_kwh: float | None = None
    usd_per_kwh: float | None = None
    pue: float = 1.0
    host_watts_per_accelerator: float | None = None  # each chip's share of the host; None: the default of servers
    joined_accelerators: int = 0  # sold by the chip out of a host: how many one host joins (0: those of the instance)
    notes: str = ""
    parts: tuple[Part, ...] = ()  # of usd_per_hour; empty: one part
    capital_usd: float = 0.0  # bought, with its share of network, storage and spares
    purchase_usd: float = 0.0  # within it: the host alone
    purchase_low_usd: float = 0.0  # as the source of the price prints a range; 0: it does not
    purchase_high_usd: float = 0.0
    full_watts: float | None = None  # of the instance, before PUE; None: not known
    cooling: str = ""  # air | liquid | air or liquid; empty: not published
    held_instances: int = 0  # there already: they cost what they draw and take, and are not bought
    held_parts: tuple[Part, ...] = ()  # of an hour of one of those, where more can be bought

    @property
    def together(self) -> int:
        """Chips that a tensor-parallel group can have from this offer."""
        return max(self.accelerators, self.joined_accelerators)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """Why a chip (or plan) is not among the answers: number against limit, and what would change it."""

    accelerator: str
    reason: str  # does_not_fit | misses_slo | unsupported | unpriced | excluded | too_expensive | too_many
    detail: str
    limit: float | None = None
    reached: float | None = None
    smallest_change: str = ""
