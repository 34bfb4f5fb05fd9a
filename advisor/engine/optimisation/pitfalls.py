"""Known pitfalls of a plan: each rule checks the plan and returns a pitfall only if it applies."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from advisor.engine.kernels import ALIGNED_ELEMENTS
from advisor.engine.launch import context_limit
from advisor.engine.network import Attention, LatentAttention, Model, Recurrent, SoftmaxAttention
from advisor.engine.search import Scored
from advisor.engine.step import (
    Choice,
    Lanes,
    lanes,
    prefill_s,
    prompt_tokens,
    step_s,
)
from advisor.engine.terms import Workload

ROUND_ELEMENTS = 64  # per chip: 128 bytes in 16 bits; FP8 with sizes off it loses up to 30 % (gemm-alignment.csv)
TILE = 128  # matrix kernels use tiles of 64 or 128
VOCAB_TILE = 64  # vLLM and SGLang pad a sharded vocabulary to multiples of this
FAST_LOAD_BYTES = 1e9  # weights that load in about one second
GIB = 2.0**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Pitfall:
    """A known problem of a plan, its remedy and the source of the rule."""

    slug: str
    what: str
    remedy: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """Input of the rules."""

    workload: Workload
    model: Model
    s: Scored
    built: Lanes

    @property
    def attentions(self) -> list[SoftmaxAttention]:
        return [b.mixer for b in self.model.blocks if isinstance(b.mixer, SoftmaxAttention)]


Rule = Callable[[Situation], Pitfall | None]


def pitfalls(workload: Workload, model: Model, s: Scored, built: Lanes) -> list[Pitfall]:
    """The pitfalls that apply to this plan, in the order of RULES."""
    here = Situation(workload=workload, model=model, s=s, built=built)
    return [pitfall for rule in RULES if (pitfall := rule(here)) is not None]


def recompiles(x: Situation) -> Pitfall | None:
    f, lengths = x.s.lane.framework, x.workload.input_tokens
    if not f.torch_compile or lengths.p95_tokens <= lengths.mean_tokens:
        return None
    return Pitfall(
        slug="recompile_limit",
        what=f"prompts vary (mean {lengths.mean_tokens:,.0f}, p95 {lengths.p95_tokens:,.0f} tokens): custom code that "
        "branches on shapes causes graph breaks, and after 8 recompilations torch runs a function in eager mode",
        remedy="start once with TORCH_LOGS=graph_breaks,recompiles and check the log for your own modules",
        source="docs.pytorch.org/docs/2.13/generated/torch.compile.html: recompile_limit is 8 (read 2026-11-21)",
    )


def buckets(x: Situation) -> Pitfall | None:
    f = x.s.lane.framework
    if not set(f.compiled_stacks) & set(f.stacks) & set(x.s.lane.choice.accelerator.stacks):
        return None
    max_tokens = context_limit(x.s, x.model, x.workload).tokens
    count = max(math.ceil(math.log2(max(max_tokens, TILE) / TILE)), 0) + 1
    return Pitfall(
        slug="buckets",
        what=f"programs are compiled for fixed shapes: up to {max_tokens:,} tokens that is about {count} buckets of "
        "doubling length. Each is compiled before its first request, and a prompt just above a bucket is padded to "
        "nearly twice its length",
        remedy="choose buckets from your own length histogram and compile all of them before serving traffic",
        source="scheduling notes of the framework in the catalog; doubling is a planning assumption",
    )


def beyond_graphs(x: Situation) -> Pitfall | None:
    f, row, times = x.s.lane.framework, x.s.row_index, x.built.times
    floor_s, tokens = float(times.eager_floor_s[row] + times.prepare_s[row]), prompt_tokens(x.workload)
    if f.graph_max_tokens <= 0 or tokens <= f.graph_max_tokens or prefill_s(x.built, row, tokens) > floor_s * 1.05:
        return None
    return Pitfall(
        slug="beyond_graphs",
        what=f"steps of more than {f.graph_max_tokens:,} tokens run without CUDA graphs: {floor_s * 1e3:.0f} "
        "ms of host time, more than the chip needs for a mean prompt",
        remedy="a faster CPU core, larger captured batch sizes, or fewer and larger prefill chunks",
        source="eager_s_per_layer of the framework's calibration",
    )


def alignment(x: Situation) -> Pitfall | None:
    c, sizes = x.s.lane.choice, dict[str, float]()
    if c.accelerator.kind == "cpu":
        return None
    sizes["hidden"] = float(x.model.hidden)
    for block in x.model.blocks:
        if block.ffn is not None:
            split = c.tp if block.ffn.experts <= 1 else (c.moe_tp or max(c.tp * c.dp // c.ep, 1))
            sizes["feed-forward width per chip"] = block.ffn.inner / split
    for mixer in x.attentions:
        if isinstance(mixer, Attention):
            sizes["attention width per chip"] = mixer.heads * mixer.head_dim / c.tp
    off = [f"{name} {size:,g}" for name, size in sizes.items() if size % TILE]
    if not off:
        return None
    return Pitfall(
        slug="alignment",
        what=f"not multiples of {TILE}: {', '.join(off)}; part of the last tile of each matrix multiply is wasted",
        remedy="another tensor-parallel size, or padded weights; for your own model choose multiples of 128",
        source="tile and wave quantization in the step model; the matrix-multiply probe measures neighboring sizes",
    )


def misaligned(x: Situation) -> Pitfall | None:
    """Sizes whose rows do not start on 16 bytes, and what the next round size would save: for model designers."""
    sizes = better_sizes(x.model, x.s.lane.choice)
    if not sizes:
        return None
    rounder = rounded_up(x.model, x.s.lane.choice)
    prompt, users = prompt_tokens(x.workload), float(max(x.s.concurrency, 1))
    now, then = (lanes(m, [x.s.lane]) for m in (x.model, rounder))
    context = x.s.lane.context_tokens
    prefill, decode = (
        1.0 - prefill_s(then, 0, prompt) / prefill_s(now, 0, prompt),
        1.0 - step_s(then, 0, users, context) / step_s(now, 0, users, context),
    )
    listed = ", ".join(f"{name} {size:,}" for name, size, _ in sizes)
    changes = "; ".join(f"{name} {size:,} → {better:,}" for name, size, better in sizes)
    return Pitfall(
        slug="misaligned_sizes",
        what=f"with {listed} and tensor parallelism {x.s.lane.choice.tp}, rows of matrices do not start on 16 bytes, "
        "so they are multiplied by slow kernels; FP8 kernels refuse such sizes",
        remedy=f"for your own model: {changes} makes a prefill {prefill:.0%} and a decode step {decode:.0%} shorter",
        source="matrix multiplies on an H200 and an H100, 2026-11-23 (fixtures/measurements/gemm-alignment.csv)",
    )


def better_sizes(model: Model, c: Choice) -> list[tuple[str, int, int]]:
    """(name, size, next round size) of the widths that are misaligned on this layout."""
    sizes = [("hidden size", model.hidden, 1)]
    for f in (block.ffn for block in model.blocks if block.ffn is not None):
        if f.experts <= 1:
            sizes.append(("intermediate size", f.inner, c.tp))
        elif f.shared_inner:
            sizes.append(("shared expert size", f.shared_inner, c.tp))
    found = ((name, size, round_up(size, split)) for name, size, split in sizes if size / split % ALIGNED_ELEMENTS)
    return list(dict.fromkeys(found))


def round_up(size: int, split: int) -> int:
    """The next size that is a multiple of ROUND_ELEMENTS on each of `split` chips."""
    return math.ceil(size / (ROUND_ELEMENTS * split)) * ROUND_ELEMENTS * split


def rounded_up(model: Model, c: Choice) -> Model:
    """The model with its misaligned widths rounded up."""
    better = {(name, size): new for name, size, new in better_sizes(model, c)}
    blocks = []
    for block in model.blocks:
        f = block.ffn
        if f is not None and f.experts <= 1:
            f = replace(f, inner=better.get(("intermediate size", f.inner), f.inner))
        elif f is not None:
            f = replace(f, shared_inner=better.get(("shared expert size", f.shared_inner), f.shared_inner))
        blocks.append(replace(block, ffn=f))
    hidden = better.get(("hidden size", model.hidden), model.hidden)
    return replace(model, hidden=hidden, blocks=tuple(blocks))


def head_split(x: Situation) -> Pitfall | None:
    a, heads = x.s.lane.choice.accelerator, {m.heads for m in x.attentions}
    reach = max(a.links[0].chips if a.links else 1, a.chips_per_host)
    closed = [n for n in (2, 4, 8, 16) if n <= reach and any(h % n for h in heads)]
    if not closed:
        return None
    return Pitfall(
        slug="heads_not_divisible",
        what=f"{'/'.join(map(str, sorted(heads)))} attention heads cannot be split across "
        f"{', '.join(map(str, closed))} chips",
        remedy="a tensor-parallel size that divides the heads, or pipeline parallelism; servers reject other sizes",
        source="tensor parallelism assigns whole heads to a chip (arXiv:1909.08053)",
    )


def vocabulary(x: Situation) -> Pitfall | None:
    unit = VOCAB_TILE * x.s.lane.choice.tp
    rows = -x.model.vocab % unit
    if not rows or x.model.encoder_only:
        return None
    return Pitfall(
        slug="vocabulary_padding",
        what=f"a vocabulary of {x.model.vocab:,} is padded by {rows:,} rows to multiples of "
        f"{VOCAB_TILE} on {x.s.lane.choice.tp} chip{'s' if x.s.lane.choice.tp > 1 else ''}",
        remedy="none needed; tokens that you add should not push it over the next multiple",
        source="vLLM and SGLang pad sharded vocabularies to 64 rows (their vocabulary-parallel layer), not re-read",
    )


def engines(x: Situation) -> Pitfall | None:
    f, c = x.s.lane.framework, x.s.lane.choice
    if not f.builds_engines:
        return None
    return Pitfall(
        slug="built_for_this_chip",
        what=f"an engine that {f.name} {f.version} builds for {c.tp} x {c.accelerator.name} and {c.quantization.name} "
        "runs only there: another chip, number of chips, version or maximum length needs a new build",
        remedy="build in CI, store builds by chip, size, format, version and length, and keep the previous build",
        source=f.source or "documentation of the framework",
    )


def replicated_kv(x: Situation) -> Pitfall | None:
    tp = x.s.lane.choice.tp
    kv = [m.kv_heads for m in x.attentions if isinstance(m, Attention) and not m.cross]
    latent = any(isinstance(m, LatentAttention) for m in x.attentions)
    copies = tp if latent else max((tp / h for h in kv), default=1.0)
    if copies <= 1:
        return None
    held = "the latent KV cache has no heads to split" if latent else f"{min(kv)} KV heads on {tp} chips"
    return Pitfall(
        slug="kv_replicated",
        what=f"{held}: the cache of each token is stored {copies:g} times",
        remedy="attention data parallelism" if latent else f"replicas of {min(kv)} chips, or pipeline parallelism",
        source="tensor parallelism splits KV heads; arXiv:2405.04434 for latent attention",
    )


def no_peers(x: Situation) -> Pitfall | None:
    c = x.s.lane.choice
    joined = c.accelerator.links[0] if c.accelerator.links else None
    if c.tp * c.dp < 2 or (joined and joined.topology != "host" and "pcie" not in joined.name.lower()):
        return None
    return Pitfall(
        slug="pcie_peers",
        what=f"{c.tp * c.dp} chips communicate over PCIe; if the driver, an IOMMU or the card blocks peer "
        "access, every all-reduce goes through host memory",
        remedy="check p2pBandwidthLatencyTest or `nvidia-smi topo -p2p r` on the host before you commit; otherwise "
        "use replicas of one chip",
        source="links of the accelerator in the catalog; GeForce drivers do not support peer access",
    )


def prefix_default(x: Situation) -> Pitfall | None:
    f, hit = x.s.lane.framework, x.workload.prefix_cache_hit_fraction
    if not hit:
        return None
    recurrent = any(isinstance(b.mixer, Recurrent) for b in x.model.blocks)
    assumed = f"the plan assumes that {hit:.0%} of a prompt is cached"
    if "prefix_caching" not in f.features:
        what = f"{assumed}, but {f.name} {f.version} has no known prefix caching"
    elif recurrent:
        what = (
            "recurrent layers are cached in large blocks (528 tokens in one case), so shorter prompts get no cache hits"
        )
    elif f.prefixes_by_default:
        return None
    else:
        what = f"{assumed}, but {f.name} {f.version} may have prefix caching off by default"
    return Pitfall(
        slug="prefix_caching_off",
        what=what,
        remedy="set the flag in the launch file, then check the hit rate in the server's metrics under real traffic",
        source="github.com/vllm-project/vllm/issues/40696 (read 2026-11-21)"
        if recurrent
        else f.source or "documentation of the framework",
    )


def memory_share(x: Situation) -> Pitfall | None:
    f, a, m = x.s.lane.framework, x.s.lane.choice.accelerator, x.s.memory
    if f.memory_as_needed:
        return None
    spare = a.memory_bytes * (1 - f.memory_fraction) / GIB
    room = m.kv_bytes + m.free_bytes
    full = m.kv_bytes / room if room > 0 else 0.0
    tight = f"; the KV cache is {full:.0%} full at the peak, so requests are preempted" if full > 0.9 else ""
    return Pitfall(
        slug="memory_fraction",
        what=f"{f.name} reserves {f.memory_fraction:.0%} of a chip's memory at startup and leaves {spare:.1f} GiB for "
        f"everything else; startup fails if another process uses the chip{tight}",
        remedy="one server per chip; raise the fraction only after a day of real traffic, lower it for adapters or "
        "a draft model",
        source=f.source or "documentation of the framework",
    )


def refused(x: Situation) -> Pitfall | None:
    request = context_limit(x.s, x.model, x.workload)
    if not request.limit:
        return None
    return Pitfall(
        slug="longest_request",
        what=f"requests over {request.tokens:,} tokens are rejected (limited by {request.limit}); one in a thousand "
        f"exceeds {request.wanted_tokens:,}",
        remedy="more chips per replica, a smaller KV-cache format, or a length limit with a clear error in front of "
        "the server",
        source="lengths of the workload",
    )


def cold_start(x: Situation) -> Pitfall | None:
    f, weights = x.s.lane.framework, x.s.memory.weights_bytes * x.s.chips / x.s.replicas / 1e9
    if weights * 1e9 < FAST_LOAD_BYTES and not f.graph_max_tokens and not f.builds_engines:
        return None
    return Pitfall(
        slug="cold_start",
        what=f"a new replica reads {weights:,.0f} GB of weights before its first token ({weights:,.0f} s at 1 GB/s "
        "of storage bandwidth), then compiles and captures graphs",
        remedy="keep weights on the host's disk and the compile cache between starts, and run one extra replica while "
        "another starts",
        source="weight bytes of this plan; one case of 142 s loading, 39 s compiling, route179.dev (read 2026-11-21)",
    )


RULES: tuple[Rule, ...] = (
    *(
        recompiles,
        buckets,
        beyond_graphs,
        misaligned,
        alignment,
        head_split,
        vocabulary,
        engines,
        replicated_kv,
        no_peers,
    ),
    *(prefix_default, memory_share, refused, cold_start),
)
