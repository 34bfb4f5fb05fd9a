"""The layers of a model: a mixer (attention or recurrence) with a feed-forward part, their weights and caches."""

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
    streams: int = 1  # sets of weights, each for a part of the tokens (text and image of an MMDiT block)
    modulation: int = 0  # matrices (hidden, hidden) over the time step, once per pass (adaLN of a DiT)
    stage: str = "decoder"  # encoder: the encoder of an encoder-decoder; runs once over the source, has no KV cache


Mixer = Attention | LatentAttention | Recurrent
MIXERS: dict[str, type[Mixer]] = {"attention": Attention, "latent": LatentAttention, "recurrent": Recurrent}


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


def recurrent_state(mixer: Mixer | None) -> int:
    """State elements of one sequence in one layer."""
    return mixer.inner * mixer.state + convolution_elements(mixer) if isinstance(mixer, Recurrent) else 0


def convolution_elements(mixer: Recurrent) -> int:
    """Inputs of the convolution that the next token needs, in one layer."""
    shared = 0 if mixer.kind == "mamba1" else 2 * mixer.groups * mixer.state
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
