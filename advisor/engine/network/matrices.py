"""The matrices of a layer: the one list that parameter counts, memory, adapters and the time of every phase read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from advisor.engine.network.blocks import Attention, Block, CompressedAttention, Ffn, LatentAttention, Mixer, Recurrent

Split = Literal["columns", "rows", "whole"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One weight matrix, (inner, columns): it maps `inner` inputs of a token to `columns` outputs.

    `split` is the axis that tensor parallelism divides; whole: every rank has all of it. A rank holds at least `least`
    columns: one head of keys or values, which ranks share if there are more ranks than heads.
    """

    name: str
    inner: int
    columns: int
    split: Split = "columns"
    copies: int = 1  # experts
    used: int = 1  # of them, by one token
    least: int = 1
    half: bool = False  # stored in 16 bits in quantized checkpoints too

    @property
    def elements(self) -> int:
        """Weights of one copy."""
        return self.inner * self.columns

    @property
    def routed(self) -> bool:
        """Whether a router chooses among copies of it."""
        return self.copies > 1


def mixer_matrices(mixer: Mixer | None, hidden: int) -> Iterator[Matrix]:
    """The matrices of attention or recurrence, in order of use."""
    match mixer:
        case Attention():
            yield from _attention(mixer, hidden)
        case LatentAttention():
            yield from _latent(mixer, hidden)
        case CompressedAttention():
            yield from _compressed(mixer, hidden)
        case Recurrent():
            yield from _recurrent(mixer, hidden)


def _attention(a: Attention, hidden: int) -> Iterator[Matrix]:
    yield Matrix("q", hidden, a.heads * a.head_dim * (2 if a.output_gate else 1))
    if not a.shared_kv:
        yield Matrix("k", hidden, a.kv_heads * a.head_dim, least=a.head_dim)
    if not (a.shared_kv or a.keys_are_values):
        yield Matrix("v", hidden, a.kv_heads * a.v_dim, least=a.v_dim)
    if a.head_gate:
        yield Matrix("gate_heads", hidden, a.heads)
    yield from _indexer(a, hidden, hidden, weights=False)
    yield Matrix("o", a.heads * a.v_dim, hidden, "rows")


def _latent(a: LatentAttention, hidden: int) -> Iterator[Matrix]:
    """Latent attention with its indexer (arXiv 2405.04434, 2512.02556)."""
    if a.q_rank:
        yield Matrix("q_down", hidden, a.q_rank, "whole")
    yield Matrix("q", a.q_rank or hidden, a.heads * (a.nope_dim + a.rope_dim))
    if not a.shared_kv:
        yield Matrix("kv_down", hidden, a.kv_rank + a.rope_dim, "whole")
    yield Matrix("kv_up", a.kv_rank, a.heads * (a.nope_dim + a.v_dim))
    yield from _indexer(a, hidden, a.q_rank or hidden)
    if a.index_heads and a.index_pool > 1:
        yield Matrix("index_pool", hidden, a.index_dim, "whole")
    if a.gate:
        yield Matrix("gate_heads", hidden, a.gate)
    yield Matrix("o", a.heads * a.v_dim, hidden, "rows")


def _indexer(
    a: Attention | LatentAttention | CompressedAttention, hidden: int, queries_from: int, *, weights: bool = True
) -> Iterator[Matrix]:
    """The indexer of sparse attention (arXiv 2512.02556): its queries, one key per token, weights of its heads."""
    if not a.index_heads:
        return
    yield Matrix("index_q", queries_from, a.index_heads * a.index_dim, "whole")
    overlapping = 4 if isinstance(a, CompressedAttention) else 1  # entries and gates of two parts
    yield Matrix("index_k", hidden, overlapping * a.index_dim, "whole")
    if weights:
        yield Matrix("index_weights", hidden, a.index_heads, "whole")


def _compressed(a: CompressedAttention, hidden: int) -> Iterator[Matrix]:
    """Compressed attention: `compress` makes entries and their gates; the output projection has two low-rank steps."""
    yield Matrix("q_down", hidden, a.q_rank, "whole")
    yield Matrix("q", a.q_rank, a.heads * a.head_dim)
    yield Matrix("kv_down", hidden, a.head_dim, "whole")
    if a.ratio:
        yield Matrix("compress", hidden, 2 * a.parts * a.head_dim, "whole")
    yield from _indexer(a, hidden, a.q_rank)
    yield Matrix("o_groups", a.heads * a.head_dim // a.output_groups, a.output_groups * a.output_rank)
    yield Matrix("o", a.output_groups * a.output_rank, hidden, "rows")


def _recurrent(r: Recurrent, hidden: int) -> Iterator[Matrix]:
    """Mamba-1 (arXiv 2312.00752) projects step and state from the inner width; the others do so from the input."""
    if r.kind == "mamba1":
        yield Matrix("in", hidden, 2 * r.inner)
        yield Matrix("select", r.inner, r.dt_rank + 2 * r.state, "rows")
        yield Matrix("dt", r.dt_rank, r.inner)
    elif r.kind == "mamba2":
        yield Matrix("in", hidden, 2 * r.inner + 2 * r.groups * r.state + r.heads)
    elif r.kind == "gated_delta":
        yield Matrix("in", hidden, 2 * r.inner + 2 * r.groups * r.state + 2 * r.heads)
    elif r.kind == "channel_delta":
        yield from _channel_delta(r, hidden)
    elif r.kind == "lightning":
        yield Matrix("in", hidden, 2 * r.inner + 2 * r.groups * r.state)
    elif r.kind == "short_conv":
        yield Matrix("in", hidden, 3 * r.inner)
    else:
        raise ValueError(
            f"unknown kind of recurrent layer {r.kind!r}: mamba1, mamba2, gated_delta, channel_delta, lightning or "
            "short_conv"
        )
    yield Matrix("out", r.inner, hidden, "rows")


def _channel_delta(r: Recurrent, hidden: int) -> Iterator[Matrix]:
    """Kimi Delta Attention (arXiv 2510.26692): a decay for each key channel and an output gate, of low rank or full."""
    keys = r.groups * r.state
    full = (0 if r.decay_rank else keys) + (0 if r.gate_rank else r.inner)
    yield Matrix("in", hidden, r.inner + 2 * keys + r.heads + full)
    for name, rank, columns in (("decay", r.decay_rank, keys), ("gate", r.gate_rank, r.inner)):
        if rank:
            yield Matrix(f"{name}_down", hidden, rank, "whole")
            yield Matrix(f"{name}_up", rank, columns)


def ffn_matrices(ffn: Ffn | None, hidden: int) -> Iterator[Matrix]:
    """Router, experts or dense feed-forward, and shared experts."""
    if ffn is None:
        return
    routed = ffn.experts > 1
    copies, used = (ffn.experts, ffn.top_k) if routed else (1, 1)
    inward = ("gate", "up") if ffn.matrices == 3 else ("up",)
    width = ffn.latent or hidden
    if routed:
        yield Matrix("router", hidden, ffn.experts + ffn.zero_experts, "whole", half=True)
    if ffn.latent:
        yield Matrix("latent_in", hidden, ffn.latent, "whole")
    for name in inward:
        yield Matrix(name, width, ffn.inner, copies=copies, used=used)
    yield Matrix("down", ffn.inner, width, "rows", copies=copies, used=used)
    if ffn.latent:
        yield Matrix("latent_out", ffn.latent, hidden, "whole")
    if ffn.shared_inner:
        for name in inward:
            yield Matrix(f"shared_{name}", hidden, ffn.shared_inner)
        yield Matrix("shared_down", ffn.shared_inner, hidden, "rows")


def matrices(block: Block, hidden: int) -> tuple[Matrix, ...]:
    """All matrices of ONE layer, of one of its streams."""
    return (*mixer_matrices(block.mixer, hidden), *ffn_matrices(block.ffn, hidden), *stream_matrices(block, hidden))


def stream_matrices(block: Block, hidden: int) -> Iterator[Matrix]:
    """What mixes the residual streams before and after mixer and feed-forward, and what adds a layer's own input."""
    for side in ("mixer", "ffn") if block.residual_mixes else ():
        yield Matrix(f"mix_{side}", block.residual_streams * hidden, block.residual_mixes, "whole", half=True)
    if block.layer_input:
        yield Matrix("layer_project", hidden, block.layer_input, "whole", half=True)
        yield Matrix("layer_gate", hidden, block.layer_input, "whole", half=True)
        yield Matrix("layer_out", block.layer_input, hidden, "whole", half=True)


# --- what is no matrix --------------------------------------------------------------------------------------------


def mixer_vectors(mixer: Mixer | None, hidden: int) -> int:
    """Weights of a mixer outside its matrices: biases, norms of queries and latents, convolutions, decay."""
    match mixer:
        case Attention():
            own = 0 if mixer.shared_kv else 1
            query, key, value = (
                mixer.heads * mixer.head_dim,
                own * mixer.kv_heads * mixer.head_dim,
                0 if mixer.keys_are_values else own * mixer.kv_heads * mixer.v_dim,
            )
            biases = (query + key + value if mixer.qkv_bias else 0) + (hidden if mixer.output_bias else 0)
            norms = (1 + own) * mixer.head_dim if mixer.qk_norm else 0
            return biases + norms + (2 * mixer.index_dim if mixer.index_heads else 0)
        case CompressedAttention():
            positions = mixer.ratio * mixer.parts * mixer.head_dim + (mixer.head_dim if mixer.ratio else 0)
            index = (2 * mixer.ratio + 1) * mixer.index_dim if mixer.index_heads else 0
            return mixer.q_rank + mixer.head_dim + mixer.heads + positions + index
        case LatentAttention():
            return mixer.q_rank + mixer.kv_rank + (2 * mixer.index_dim if mixer.index_heads else 0)
        case Recurrent(kind="mamba1"):
            return mixer.inner * (mixer.conv + 1) + mixer.inner + mixer.inner * (mixer.state + 1)
        case Recurrent(kind="mamba2"):
            return (mixer.inner + 2 * mixer.groups * mixer.state) * (mixer.conv + 1) + 3 * mixer.heads + mixer.inner
        case Recurrent(kind="channel_delta"):
            keys = mixer.groups * mixer.state
            return (mixer.inner + 2 * keys) * mixer.conv + keys + mixer.heads + mixer.head_dim
        case Recurrent(kind="lightning"):
            return mixer.inner + 2 * mixer.head_dim
        case Recurrent(kind="short_conv"):
            return mixer.inner * mixer.conv
        case Recurrent():
            return (mixer.inner + 2 * mixer.groups * mixer.state) * mixer.conv + 2 * mixer.heads + mixer.head_dim
        case None:
            return 0


def ffn_vectors(ffn: Ffn | None, hidden: int, *, active: bool = False) -> int:
    """Weights of a feed-forward part outside its matrices; `active`: only those used for one token."""
    if ffn is None:
        return 0
    routed = ffn.experts > 1
    count = ffn.top_k if active and routed else ffn.experts
    each = (ffn.matrices - 1) * ffn.inner + hidden if ffn.bias else 0
    router = ffn.experts if ffn.bias and routed else 0
    return count * each + router + (hidden if ffn.shared_gate else 0) + ffn.latent


def vectors(block: Block, hidden: int, *, active: bool = False, norm_bias: bool = False) -> int:
    """All weights of ONE layer outside its matrices, of one of its streams."""
    norms = block.norms * hidden * (2 if norm_bias else 1)
    mixes = 2 * (block.residual_mixes + 3) if block.residual_mixes else 0  # base, and a scale for each use
    own = mixer_vectors(block.mixer, hidden) + ffn_vectors(block.ffn, hidden, active=active)
    return own + norms + mixes + (hidden if block.layer_input else 0)


def layer_weights(block: Block, hidden: int, *, active: bool = False, norm_bias: bool = False) -> int:
    """Weights of ONE layer of this block; `active`: only those used for one token."""
    each = sum(m.elements * (m.used if active else m.copies) for m in matrices(block, hidden))
    each += vectors(block, hidden, active=active, norm_bias=norm_bias)
    return block.streams * each + block.modulation * hidden**2
