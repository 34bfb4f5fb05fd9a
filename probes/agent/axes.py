"""The closed list of measurement kinds, and their shapes and sizes. Constants only."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = tuple(
    """known_answer launch memory_read memory_write memory_copy memory_strided memory_gather l2_read gemm grouped_gemm
    attention_prefill attention_decode norm rotary activation softmax mlp host_copy block decode_step compile_gain
    train_step all_reduce all_gather all_to_all point_to_point train_overlap""".split()
)
SUITES = ("quick", "full", "custom")
# Seconds: of a whole suite, of the timed window of one case, and of its warm-up.
SUITE_S = {"quick": 50.0, "full": 540.0, "custom": 540.0}
WINDOW_S = {"quick": 0.03, "full": 0.06, "custom": 0.06}
WARM_S = {"quick": 0.02, "full": 0.03, "custom": 0.03}
# Relative time budget of each kind. Time left over by one kind goes to those after it.
SHARES = {
    "known_answer": 1, "launch": 2, "memory_read": 3, "memory_write": 3, "memory_copy": 4, "memory_strided": 2,
    "memory_gather": 2, "l2_read": 1, "gemm": 40, "grouped_gemm": 8, "attention_prefill": 10, "attention_decode": 14,
    "norm": 2, "rotary": 2, "activation": 2, "softmax": 1, "mlp": 4, "host_copy": 3, "block": 6, "decode_step": 6,
    "compile_gain": 6, "train_step": 8, "all_reduce": 12, "all_gather": 4, "all_to_all": 4, "point_to_point": 4,
    "train_overlap": 8,
}  # fmt: skip

MIB = 1 << 20
GPU_SIZES = tuple(MIB << power for power in range(14))  # 1 MiB .. 8 GiB
CPU_SIZES = tuple(MIB << power for power in range(0, 10, 2))


@dataclass(frozen=True)
class Layer:
    """A weight matrix of a real model: y[m, n] = x[m, k] w[n, k]^T."""

    name: str
    n: int
    k: int


# Shapes from published config.json files; tp8: one of eight tensor-parallel shards.
LAYERS = (
    Layer("llama-3.1-8b.qkv", 6144, 4096),
    Layer("llama-3.1-8b.o", 4096, 4096),
    Layer("llama-3.1-8b.gate_up", 28672, 4096),
    Layer("llama-3.1-8b.down", 4096, 14336),
    Layer("llama-3.1-8b.lm_head", 128256, 4096),
    Layer("llama-3.1-70b.tp8.qkv", 1280, 8192),
    Layer("llama-3.1-70b.tp8.o", 8192, 1024),
    Layer("llama-3.1-70b.tp8.gate_up", 7168, 8192),
    Layer("llama-3.1-70b.tp8.down", 8192, 3584),
    Layer("llama-3.1-70b.gate_up", 57344, 8192),
    Layer("qwen3-30b-a3b.qkv", 5120, 2048),
    Layer("qwen3-30b-a3b.expert.gate_up", 1536, 2048),
    Layer("qwen3-30b-a3b.expert.down", 2048, 768),
    Layer("deepseek-v3.q_a", 1536, 7168),
    Layer("deepseek-v3.q_b", 24576, 1536),
    Layer("deepseek-v3.kv_a", 576, 7168),
    Layer("deepseek-v3.kv_b", 32768, 512),
    Layer("deepseek-v3.o", 7168, 16384),
)
SQUARES = (4096, 8192)
QUICK_LAYERS = tuple(layer for layer in LAYERS if layer.name in ("llama-3.1-8b.gate_up", "llama-3.1-8b.qkv"))
CPU_LAYERS = (Layer("llama-3.2-1b.qkv", 3072, 2048), Layer("llama-3.2-1b.gate_up", 16384, 2048))
M_FULL = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1000, 1024, 2048, 3000, 4096, 8192)
M_SOME = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 8192)
M_BETWEEN = (136, 264, 392, 520, 640, 768, 1032, 1088, 1152, 1280, 1536, 2064, 2304)
M_QUICK = (1, 16, 64, 256, 1024, 4096)
OFF_BY = (8, 16, 64)
# Below a multiple of 8, with rows that are limited by memory and by compute: rows off 16 bytes get slower kernels.
UNALIGNED_BY = (1, 2, 4, 5)
UNALIGNED_ROWS = (16, 2048)


@dataclass(frozen=True)
class Experts:
    """The experts of one MoE layer: `count` in all, `top_k` per token."""

    name: str
    count: int
    top_k: int
    hidden: int
    inner: int


EXPERTS = (
    Experts("qwen3-30b-a3b", 128, 8, 2048, 768),
    Experts("mixtral-8x7b", 8, 2, 4096, 14336),
    Experts("deepseek-v3.ep8", 32, 8, 7168, 2048),
)
TOKENS_PER_EXPERT = (1, 4, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Heads:
    """Attention heads: number of query heads and KV heads, and head dimension."""

    query: int
    kv: int
    dim: int


GQA = (Heads(32, 8, 128), Heads(64, 8, 128))
PREFILL_TOKENS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
DECODE_BATCH = (1, 8, 32, 64, 128, 256)
DECODE_TOKENS = (256, 1024, 2048, 4096, 8192, 16384, 32768)
KV_LIMIT_TOKENS = 1 << 20  # Limit per case: 4 GiB of keys and values in bf16 with 8 heads of 128.
