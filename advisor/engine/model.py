"""What a network is: a tuple of blocks, each a mixer (attention or recurrence) with a feed-forward part."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Softmax attention: MHA, GQA and MQA differ only in kv_heads; a window bounds the context it sees."""

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
    """A dense feed-forward (one expert) or a mixture of experts with optional shared ones."""

    inner: int
    matrices: int = 3  # 3: gated (SwiGLU), 2: plain
    experts: int = 1
    top_k: int = 1
    shared_inner: int = 0  # total width of the always-on experts
    shared_gate: bool = False
    bias: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """`count` equal layers."""

    count: int
    mixer: Attention | LatentAttention | Recurrent | None
    ffn: Ffn | None
    norms: int = 2  # norm vectors of width hidden


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    slug: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tied_embeddings: bool = False
    position_embeddings: int = 0  # learned positions (0: rotary or none)
    norm_bias: bool = False  # LayerNorm with bias instead of RMSNorm
    native_dtype: str = "bf16"
    max_context_tokens: int = 131072
    encoder_only: bool = False
