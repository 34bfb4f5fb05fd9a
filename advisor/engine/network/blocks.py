"""The layers of a model: a mixer (attention or recurrence) with a feed-forward part, their weights and caches."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Softmax attention. MHA, GQA and MQA differ only in kv_heads; a window limits the context."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None  # None: the same as head_dim
    window_tokens: int | None = None  # None: the whole context
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    output_gate: bool = False  # a gate as wide as the query (Qwen3-Next)
    head_gate: bool = False  # a gate of one value per head (Step 3.5)
    keys_are_values: bool = False  # values are the projected keys, without a matrix of their own (Gemma 4)
    shared_kv: bool = False  # reads the keys and values of an earlier layer: no matrices for them, no cache (Gemma 3n)
    index_heads: int = 0  # of an indexer that chooses blocks of the context (MiniMax M3)
    index_dim: int = 0
    index_top_k: int = 0  # tokens that are read of the context; 0: all
    causal: bool = True
    cross: bool = False  # keys and values come from the encoder's output: cached once, never grow

    @property
    def v_dim(self) -> int:
        """Width of a value head."""
        return self.v_head_dim or self.head_dim

    @property
    def key_value_dim(self) -> int:
        """Width of a key head and its value head together."""
        return self.head_dim + self.v_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), with an optional sparse indexer (V3.2)."""

    heads: int
    q_rank: int  # 0: queries are projected directly
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    index_heads: int = 0  # 0 with an index_top_k: uses the choice of an earlier layer's indexer
    index_dim: int = 0
    index_top_k: int = 0  # 0: dense attention
    index_pool: int = 1  # tokens that share one key of the indexer
    gate: int = 0  # columns of a gate on the output
    shared_kv: bool = False  # reads the latent of an earlier layer


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressedAttention:
    """Attention over the last tokens and over compressed entries, one for `ratio` tokens (DeepSeek V4).

    As transformers 5.24.0 (models/deepseek_v4) computes it: one vector per token or entry is key and value of all
    heads; heads are projected back in groups of low rank. With an indexer, entries overlap (each is made of 2 x ratio
    tokens) and each token reads `index_top_k` of them, else all.
    """

    heads: int
    head_dim: int
    q_rank: int
    rope_dim: int
    window_tokens: int
    output_groups: int
    output_rank: int  # of each group
    ratio: int = 0  # 0: only the window
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int = 0

    @property
    def parts(self) -> int:
        """Vectors that a token adds to compressed entries: two if entries overlap."""
        return 0 if not self.ratio else 2 if self.index_heads else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Recurrent:
    """Linear attention or a state-space layer: a fixed state per sequence, no per-token cache."""

    kind: str  # mamba1 | mamba2 | gated_delta | channel_delta | lightning | short_conv
    inner: int  # width of the value path
    state: int  # state size per channel (mamba) or key dimension; 0: only a convolution
    heads: int
    head_dim: int
    groups: int = 1  # key/query groups (mamba2) or key heads
    conv: int = 4  # 1: no convolution
    dt_rank: int = 0  # mamba1 only
    decay_rank: int = 0  # of the decay of channel_delta; 0: one full matrix
    gate_rank: int = 0  # of its output gate; 0: one full matrix


@dataclass(frozen=True, kw_only=True, slots=True)
class Ffn:
    """A dense feed-forward (one expert), or a mixture of experts with optional shared experts."""

    inner: int  # width of one expert
    matrices: int = 3  # 3: gated (SwiGLU), 2: not gated
    experts: int = 1
    top_k: int = 1
    shared_inner: int = 0  # total width of the always-on experts
    shared_gate: bool = False
    bias: bool = False
    latent: int = 0  # width in which routed experts work, with a projection before and after them; 0: hidden
    zero_experts: int = 0  # further choices of the router that compute nothing (LongCat-Flash)
    hashed: bool = False  # the token itself chooses its experts, by a table (DeepSeek V4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """`count` identical layers."""

    count: int
    mixer: "Mixer | None"
    ffn: Ffn | None
    norms: int = 2  # norm vectors of width hidden
    streams: int = 1  # sets of weights, each for a part of the tokens (text and image of an MMDiT block)
    modulation: int = 0  # matrices (hidden, hidden) over the time step, once per pass (adaLN of a DiT)
    stage: str = "decoder"  # encoder: the encoder of an encoder-decoder; runs once over the source, has no KV cache
    residual_streams: int = 1  # of width hidden, mixed around each mixer and feed-forward (hyper-connections)
    residual_mixes: int = 0  # numbers that each mixing computes from all streams
    layer_input: int = 0  # width of an embedding of the token that this layer adds (Gemma 3n)


Mixer = Attention | LatentAttention | CompressedAttention | Recurrent
SoftmaxAttention = Attention | LatentAttention | CompressedAttention
MIXERS: dict[str, type[Mixer]] = {
    "attention": Attention, "latent": LatentAttention, "compressed": CompressedAttention, "recurrent": Recurrent,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cached:
    """What one layer caches of a sequence: `elements` for each of its last `window` tokens, or for `every` tokens."""

    elements: float
    window: int | None = None
    every: int = 1
    indexer: bool = False  # keys of an indexer: 8 bits, the same on every rank
    split: bool = False  # tensor parallelism divides its key-value heads

    def tokens(self, context_tokens: Any) -> Any:
        """Entries of a sequence of this length; broadcasts."""
        kept = np.minimum(context_tokens, self.window) if self.window else context_tokens
        return kept if self.every == 1 else kept // self.every


def cached(mixer: "Mixer | None") -> tuple[Cached, ...]:
    """The caches of one layer; the state of recurrent layers is no cache."""
    match mixer:
        case Attention(causal=True, shared_kv=False):
            keys = Cached(attention_kv_elements(mixer), mixer.window_tokens, split=True)
            return (keys, *indexer_keys(mixer.index_dim if mixer.index_heads else 0, 1))
        case LatentAttention():
            latent = () if mixer.shared_kv else (Cached(mixer.kv_rank + mixer.rope_dim),)
            return (*latent, *indexer_keys(mixer.index_dim if mixer.index_heads else 0, mixer.index_pool))
        case CompressedAttention():
            entries = (Cached(mixer.head_dim, every=mixer.ratio),) if mixer.ratio else ()
            index = indexer_keys(mixer.index_dim if mixer.index_heads else 0, mixer.ratio)
            return (Cached(mixer.head_dim, mixer.window_tokens), *entries, *index)
        case _:
            return ()


def indexer_keys(width: int, every: int) -> tuple[Cached, ...]:
    return (Cached(width, every=every, indexer=True),) if width else ()


@dataclass(frozen=True, slots=True)
class Read:
    """Keys that a new token of one layer attends to: one for `every` tokens of the context, of the last `limit` tokens.

    An indexer that chooses keys reads as many of them as the limit, wherever they are. None: of the whole context.
    """

    every: int = 1
    limit: int | None = None


def reads(mixer: "SoftmaxAttention") -> tuple[Read, ...]:
    """What attention reads for a new token, without its indexer."""
    if isinstance(mixer, CompressedAttention):
        chosen = mixer.index_top_k * mixer.ratio if mixer.index_heads else None
        return (Read(limit=mixer.window_tokens), *((Read(mixer.ratio, chosen),) if mixer.ratio else ()))
    window = mixer.window_tokens if isinstance(mixer, Attention) else None
    return (Read(limit=window or mixer.index_top_k or None),)


def index_every(mixer: "SoftmaxAttention") -> int:
    """Tokens that share one key of the indexer."""
    match mixer:
        case CompressedAttention():
            return mixer.ratio
        case LatentAttention():
            return mixer.index_pool
        case _:
            return 1


def attention_kv_elements(mixer: Attention) -> int:
    """Key and value elements of one token in one layer."""
    return mixer.kv_heads * mixer.key_value_dim


def mixer_kv_elements(mixer: Mixer | None) -> float:
    """KV cache elements that one more token adds in one layer, on average, while every window has room."""
    return sum(c.elements if c.every == 1 else c.elements / c.every for c in cached(mixer))


def recurrent_state(mixer: Mixer | None) -> int:
    """State elements of one sequence in one layer: a recurrence, a convolution, tokens that are not yet compressed."""
    if isinstance(mixer, CompressedAttention):
        waiting = (
            2 * mixer.ratio * (mixer.parts * (mixer.parts + 1) // 2)
        )  # overlapping entries keep the previous tokens too
        return waiting * (mixer.head_dim + (mixer.index_dim if mixer.index_heads else 0))
    return mixer.inner * mixer.state + convolution_elements(mixer) if isinstance(mixer, Recurrent) else 0


def convolution_elements(mixer: Recurrent) -> int:
    """Inputs of the convolution that the next token needs, in one layer."""
    shared = 0 if mixer.kind in ("mamba1", "short_conv") else 2 * mixer.groups * mixer.state
    return (mixer.inner + shared) * (mixer.conv - 1)


def block_of(stored: Mapping[str, Any]) -> Block:
    refuse_unknown("block", stored, Block)
    mixer, ffn = stored.get("mixer"), stored.get("ffn")
    rest = {key: value for key, value in stored.items() if key not in ("mixer", "ffn")}
    if ffn is not None:
        refuse_unknown("ffn", ffn, Ffn)
    return Block(mixer=mixer_of(mixer) if mixer else None, ffn=Ffn(**ffn) if ffn else None, **rest)


def mixer_of(stored: Mapping[str, Any]) -> Mixer:
    kind = stored.get("type", "")
    if kind not in MIXERS:
        raise ValueError(f"mixer type {kind!r}: allowed are {', '.join(MIXERS)}")
    values = {key: value for key, value in stored.items() if key != "type"}
    refuse_unknown(f"{kind} mixer", values, MIXERS[kind])
    return MIXERS[kind](**values)


def block_shape(block: Block) -> dict[str, Any]:
    shape = sparse(block, skip=("mixer", "ffn"))
    if block.mixer is not None:
        name = next(key for key, kind in MIXERS.items() if isinstance(block.mixer, kind))
        shape["mixer"] = {"type": name} | sparse(block.mixer)
    if block.ffn is not None:
        shape["ffn"] = sparse(block.ffn)
    return shape


def sparse(value: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(value)}
    return {key: item for key, item in asdict(value).items() if key not in skip and item != defaults[key]}


def refuse_unknown(what: str, stored: Mapping[str, Any], kind: type, but: tuple[str, ...] = ()) -> None:
    """ValueError if `stored` has keys that are no fields of the class, or are among `but`."""
    allowed = {field.name for field in fields(kind)} - set(but)
    if unknown := sorted(set(stored) - allowed):
        raise ValueError(f"{what}: unknown {', '.join(unknown)}; allowed are {', '.join(sorted(allowed))}")
