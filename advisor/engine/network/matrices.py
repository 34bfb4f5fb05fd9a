"""The matrices of a layer: the one list that parameter counts, memory, adapters and the time of every phase read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from advisor.engine.network.blocks import Attention, Block, Ffn, LatentAttention, Mixer, Recurrent

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
        case Recurrent():
            yield from _recurrent(mixer, hidden)


def _attention(a: Attention, hidden: int) -> Iterator[Matrix]:
    yield Matrix("q", hidden, a.heads * a.head_dim * (2 if a.output_gate else 1))
    yield Matrix("k", hidden, a.kv_heads * a.head_dim, least=a.head_dim)
    yield Matrix("v", hidden, a.kv_heads * a.v_dim, least=a.v_dim)
    yield Matrix("o", a.heads * a.v_dim, hidden, "rows")


def _latent(a: LatentAttention, hidden: int) -> Iterator[Matrix]:
    """Latent attention with its indexer (arXiv 2405.04434, 2512.02556)."""
    if a.q_rank:
        yield Matrix("q_down", hidden, a.q_rank, "whole")
    yield Matrix("q", a.q_rank or hidden, a.heads * (a.nope_dim + a.rope_dim))
    yield Matrix("kv_down", hidden, a.kv_rank + a.rope_dim, "whole")
    yield Matrix("kv_up", a.kv_rank, a.heads * (a.nope_dim + a.v_dim))
    if a.index_heads:
        yield Matrix("index_q", a.q_rank or hidden, a.index_heads * a.index_dim, "whole")
        yield Matrix("index_k", hidden, a.index_dim, "whole")
        yield Matrix("index_weights", hidden, a.index_heads, "whole")
    yield Matrix("o", a.heads * a.v_dim, hidden, "rows")


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
    else:
        raise ValueError(f"unknown kind of recurrent layer {r.kind!r}: mamba1, mamba2 or gated_delta")
    yield Matrix("out", r.inner, hidden, "rows")


def ffn_matrices(ffn: Ffn | None, hidden: int) -> Iterator[Matrix]:
    """Router, experts or dense feed-forward, and shared experts."""
    if ffn is None:
        return
    routed = ffn.experts > 1
    copies, used = (ffn.experts, ffn.top_k) if routed else (1, 1)
    inward = ("gate", "up") if ffn.matrices == 3 else ("up",)
    if routed:
        yield Matrix("router", hidden, ffn.experts, "whole", half=True)
    for name in inward:
        yield Matrix(name, hidden, ffn.inner, copies=copies, used=used)
    yield Matrix("down", ffn.inner, hidden, "rows", copies=copies, used=used)
    if ffn.shared_inner:
        for name in inward:
            yield Matrix(f"shared_{name}", hidden, ffn.shared_inner)
        yield Matrix("shared_down", ffn.shared_inner, hidden, "rows")


def matrices(block: Block, hidden: int) -> tuple[Matrix, ...]:
    """All matrices of ONE layer, of one of its streams."""
    return (*mixer_matrices(block.mixer, hidden), *ffn_matrices(block.ffn, hidden))


# --- what is no matrix --------------------------------------------------------------------------------------------


def mixer_vectors(mixer: Mixer | None, hidden: int) -> int:
    """Weights of a mixer outside its matrices: biases, norms of queries and latents, convolutions, decay."""
    match mixer:
        case Attention():
            query, key, value = (
                mixer.heads * mixer.head_dim,
                mixer.kv_heads * mixer.head_dim,
                mixer.kv_heads * mixer.v_dim,
            )
            biases = (query + key + value if mixer.qkv_bias else 0) + (hidden if mixer.output_bias else 0)
            return biases + (2 * mixer.head_dim if mixer.qk_norm else 0)
        case LatentAttention():
            return mixer.q_rank + mixer.kv_rank + (2 * mixer.index_dim if mixer.index_heads else 0)
        case Recurrent(kind="mamba1"):
            return mixer.inner * (mixer.conv + 1) + mixer.inner + mixer.inner * (mixer.state + 1)
        case Recurrent(kind="mamba2"):
            return (mixer.inner + 2 * mixer.groups * mixer.state) * (mixer.conv + 1) + 3 * mixer.heads + mixer.inner
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
    return count * each + router + (hidden if ffn.shared_gate else 0)


def vectors(block: Block, hidden: int, *, active: bool = False, norm_bias: bool = False) -> int:
    """All weights of ONE layer outside its matrices, of one of its streams."""
    norms = block.norms * hidden * (2 if norm_bias else 1)
    return mixer_vectors(block.mixer, hidden) + ffn_vectors(block.ffn, hidden, active=active) + norms


def layer_weights(block: Block, hidden: int, *, active: bool = False, norm_bias: bool = False) -> int:
    """Weights of ONE layer of this block; `active`: only those used for one token."""
    each = sum(m.elements * (m.used if active else m.copies) for m in matrices(block, hidden))
    each += vectors(block, hidden, active=active, norm_bias=norm_bias)
    return block.streams * each + block.modulation * hidden**2
