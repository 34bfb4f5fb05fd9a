"""A model as a tuple of blocks, each a mixer (attention or recurrence) with a feed-forward part."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


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
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int = 0  # 0: dense attention


@dataclass(frozen=True, kw_only=True, slots=True)
class Recurrent:
    """Linear attention or a state-space layer: a fixed state per sequence, no per-token cache."""

    kind: str  # mamba1 | mamba2 | gated_delta
    inner: int  # width of the value path
    state: int  # state size per channel (mamba) or key dimension (gated_delta)
    heads: int
    head_dim: int
    groups: int = 1  # key/query groups (mamba2) or key heads (gated_delta)
    conv: int = 4
    dt_rank: int = 0  # mamba1 only


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """`count` identical layers."""

    count: int
    mixer: Attention | LatentAttention | Recurrent | None
    ffn: Ffn | None
    norms: int = 2  # norm vectors of width hidden
    stage: str = "decoder"  # encoder: the encoder of an encoder-decoder; runs once over the source, has no KV cache


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """LoRA adapters (arXiv 2106.09685) served with one base model, not merged into it."""

    count: int  # adapters that requests may name
    rank: int
    active: int  # distinct adapters in use at once: slots on the accelerator
    attention_only: bool = False  # else every matrix of the dense layers


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    slug: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tied_embeddings: bool = False
    position_embeddings: int = 0  # rows of width `hidden`: learned positions, token types, input convolutions
    norm_bias: bool = False  # LayerNorm with bias instead of RMSNorm
    native_dtype: str = "bf16"
    max_context_tokens: int = 131072
    encoder_only: bool = False
    source_tokens: int = 0  # longest source of an encoder-decoder; 0: not an encoder-decoder
    source_s: float = 0.0  # seconds of audio in one source, padded to source_tokens; 0: the source is text
    start_tokens: int = 1  # tokens that the decoder of an encoder-decoder starts with
    adapters: Adapters | None = None


Mixer = Attention | LatentAttention | Recurrent
MIXERS: dict[str, type[Mixer]] = {"attention": Attention, "latent": LatentAttention, "recurrent": Recurrent}


def attention_parameters(mixer: Attention, hidden: int) -> int:
    """Weights of the four projections of softmax attention."""
    query, key, value = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.v_dim
    weights = hidden * (query * (2 if mixer.output_gate else 1) + key + value + mixer.heads * mixer.v_dim)
    biases = (query + key + value if mixer.qkv_bias else 0) + (hidden if mixer.output_bias else 0)
    return weights + biases + (2 * mixer.head_dim if mixer.qk_norm else 0)


def latent_parameters(mixer: LatentAttention, hidden: int) -> int:
    """Weights of latent attention with its indexer (arXiv 2405.04434, 2512.02556)."""
    query = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    queries = hidden * mixer.q_rank + mixer.q_rank * (1 + query) if mixer.q_rank else hidden * query
    latents = hidden * (mixer.kv_rank + mixer.rope_dim) + mixer.kv_rank
    up = mixer.kv_rank * mixer.heads * (mixer.nope_dim + mixer.v_dim)
    return queries + latents + up + mixer.heads * mixer.v_dim * hidden + indexer_parameters(mixer, hidden)


def indexer_parameters(mixer: LatentAttention, hidden: int) -> int:
    """Weights of the sparse indexer: query, key, key norm and head weights."""
    if not mixer.index_heads:
        return 0
    query = mixer.q_rank * mixer.index_heads * mixer.index_dim
    return query + hidden * mixer.index_dim + 2 * mixer.index_dim + hidden * mixer.index_heads


def recurrent_parameters(mixer: Recurrent, hidden: int) -> int:
    """Weights of a recurrent layer."""
    inner, state, heads, conv = mixer.inner, mixer.state, mixer.heads, mixer.conv
    outward = inner * hidden
    if mixer.kind == "mamba1":
        selection = inner * (mixer.dt_rank + 2 * state) + mixer.dt_rank * inner + inner
        return hidden * 2 * inner + inner * (conv + 1) + selection + inner * (state + 1) + outward
    if mixer.kind == "mamba2":
        shared = 2 * mixer.groups * state
        inward = hidden * (2 * inner + shared + heads)
        return inward + (inner + shared) * (conv + 1) + 3 * heads + inner + outward
    if mixer.kind == "gated_delta":
        keys = 2 * mixer.groups * state
        inward = hidden * (keys + 2 * inner + 2 * heads)
        return inward + (keys + inner) * conv + 2 * heads + mixer.head_dim + outward
    raise ValueError(f"unknown kind of recurrent layer {mixer.kind!r}: mamba1, mamba2 or gated_delta")


def mixer_parameters(mixer: Mixer | None, hidden: int) -> int:
    """Weights of the mixer of one layer."""
    match mixer:
        case Attention():
            return attention_parameters(mixer, hidden)
        case LatentAttention():
            return latent_parameters(mixer, hidden)
        case Recurrent():
            return recurrent_parameters(mixer, hidden)
        case None:
            return 0


def ffn_parameters(ffn: Ffn | None, hidden: int, *, active: bool = False) -> int:
    """Weights of one feed-forward part; `active`: only those used for one token."""
    if ffn is None:
        return 0
    expert = ffn.matrices * hidden * ffn.inner
    if ffn.bias:
        expert += (ffn.matrices - 1) * ffn.inner + hidden
    routed = ffn.experts > 1
    count = ffn.top_k if active and routed else ffn.experts
    router = (hidden + (1 if ffn.bias else 0)) * ffn.experts if routed else 0
    shared = ffn.matrices * hidden * ffn.shared_inner + (hidden if ffn.shared_gate else 0)
    return count * expert + router + shared


def block_parameters(model: Model, block: Block, *, active: bool = False) -> int:
    """Weights of ONE layer of this block; `active`: only those used for one token."""
    norms = block.norms * model.hidden * (2 if model.norm_bias else 1)
    mixing = mixer_parameters(block.mixer, model.hidden)
    return mixing + ffn_parameters(block.ffn, model.hidden, active=active) + norms


def embedding_parameters(model: Model) -> int:
    """Weights outside the blocks: embeddings, output head, final norm, an encoder's pooler."""
    matrices = 1 if model.tied_embeddings else 2
    pooler = model.hidden * (model.hidden + 1) if model.encoder_only else 0
    norm = model.hidden * (2 if model.norm_bias else 1)
    return (matrices * model.vocab + model.position_embeddings) * model.hidden + norm + pooler


def parameters(model: Model) -> int:
    """Weights of the whole model."""
    return embedding_parameters(model) + sum(block.count * block_parameters(model, block) for block in model.blocks)


def active_parameters(model: Model) -> int:
    """Weights used for one token, including both embeddings and the routers, which model cards often omit."""
    blocks = sum(block.count * block_parameters(model, block, active=True) for block in model.blocks)
    return embedding_parameters(model) + blocks


def attention_kv_elements(mixer: Attention) -> int:
    """Key and value elements of one token in one layer."""
    return mixer.kv_heads * mixer.key_value_dim


def mixer_kv_elements(mixer: Mixer | None) -> int:
    """KV cache elements that one more token adds in one layer."""
    match mixer:
        case Attention():
            return attention_kv_elements(mixer) if mixer.causal else 0
        case LatentAttention():
            return mixer.kv_rank + mixer.rope_dim + mixer.index_dim
        case _:
            return 0


def kv_elements(model: Model, context_tokens: int) -> int:
    """KV cache elements of one sequence of this length; windowed layers keep at most their window."""
    total = 0
    for block in decoder_blocks(model):
        window = block.mixer.window_tokens if isinstance(block.mixer, Attention) else None
        tokens = min(context_tokens, window) if window else context_tokens
        total += block.count * mixer_kv_elements(block.mixer) * tokens
    return total


def decoder_blocks(model: Model) -> tuple[Block, ...]:
    """The blocks that run for every generated token and have a KV cache."""
    return tuple(block for block in model.blocks if block.stage == "decoder")


def cross_kv_elements(model: Model, source_tokens: int) -> int:
    """Cross-attention key and value elements of one source: written once, read by every decode step."""
    per_token = (
        block.count * attention_kv_elements(block.mixer)
        for block in model.blocks
        if isinstance(block.mixer, Attention) and block.mixer.cross
    )
    return source_tokens * sum(per_token)


def kv_elements_per_token(model: Model) -> int:
    """KV cache elements that one token adds while the context is shorter than every window."""
    return kv_elements(model, 1)


def state_elements(model: Model) -> int:
    """Elements of the fixed state of one sequence: recurrent state and convolution window."""
    return sum(block.count * recurrent_state(block.mixer) for block in model.blocks)


def recurrent_state(mixer: Mixer | None) -> int:
    """State elements of one sequence in one layer."""
    if not isinstance(mixer, Recurrent):
        return 0
    shared = 0 if mixer.kind == "mamba1" else 2 * mixer.groups * mixer.state
    return mixer.inner * mixer.state + (mixer.inner + shared) * (mixer.conv - 1)


def from_shape(slug: str, shape: Mapping[str, Any]) -> Model:
    """The model of a stored shape. ValueError names unknown keys."""
    outer = {key: value for key, value in shape.items() if key != "blocks"}
    _refuse_unknown("model", outer, Model)
    return Model(slug=slug, blocks=tuple(_block(block) for block in shape["blocks"]), **outer)


def to_shape(model: Model) -> dict[str, Any]:
    """The stored shape of a model, without fields that have their default; the inverse of from_shape."""
    shape = _sparse(model, skip=("slug", "blocks"))
    shape["blocks"] = [_block_shape(block) for block in model.blocks]
    return shape


def _block(stored: Mapping[str, Any]) -> Block:
    _refuse_unknown("block", stored, Block)
    mixer, ffn = stored.get("mixer"), stored.get("ffn")
    rest = {key: value for key, value in stored.items() if key not in ("mixer", "ffn")}
    if ffn is not None:
        _refuse_unknown("ffn", ffn, Ffn)
    return Block(mixer=_mixer(mixer) if mixer else None, ffn=Ffn(**ffn) if ffn else None, **rest)


def _mixer(stored: Mapping[str, Any]) -> Mixer:
    kind = stored.get("type", "")
    if kind not in MIXERS:
        raise ValueError(f"mixer type {kind!r}: allowed are {', '.join(MIXERS)}")
    values = {key: value for key, value in stored.items() if key != "type"}
    _refuse_unknown(f"{kind} mixer", values, MIXERS[kind])
    return MIXERS[kind](**values)


def _block_shape(block: Block) -> dict[str, Any]:
    shape = _sparse(block, skip=("mixer", "ffn"))
    if block.mixer is not None:
        name = next(key for key, kind in MIXERS.items() if isinstance(block.mixer, kind))
        shape["mixer"] = {"type": name} | _sparse(block.mixer)
    if block.ffn is not None:
        shape["ffn"] = _sparse(block.ffn)
    return shape


def _sparse(value: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(value)}
    return {key: item for key, item in asdict(value).items() if key not in skip and item != defaults[key]}


def _refuse_unknown(what: str, stored: Mapping[str, Any], kind: type) -> None:
    allowed = {field.name for field in fields(kind)}
    if unknown := sorted(set(stored) - allowed):
        raise ValueError(f"{what}: unknown {', '.join(unknown)}; allowed are {', '.join(sorted(allowed))}")
