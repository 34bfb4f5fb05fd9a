"""The decoders that are measured, with shapes of published models, and what one pass of them costs.

FLOPs count matrix products and attention. Bytes count weights read once (of experts, only the chosen ones) and the KV
cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .axes import EXPERTS, Experts, Heads


@dataclass(frozen=True)
class Net:
    """A decoder. `inner` is the inner size of its MLP or of each expert."""

    name: str
    hidden: int
    heads: Heads
    inner: int
    layers: int = 1
    vocab: int = 0
    experts: Experts | None = None

    @property
    def attention_values(self) -> int:
        return self.hidden * self.heads.dim * (2 * self.heads.query + 2 * self.heads.kv)


NETS = (
    Net("llama-3.1-8b", 4096, Heads(32, 8, 128), 14336),
    Net("qwen3-30b-a3b", 2048, Heads(32, 4, 128), 768, experts=EXPERTS[0]),
)
SMALL_MODEL = Net("llama-3.2-1b", 2048, Heads(32, 8, 64), 8192, layers=16, vocab=128256)
TINY = Net("tiny", 256, Heads(8, 2, 32), 512)
TINY_MODEL = replace(TINY, layers=2, vocab=4096)


def weight_bytes(net: Net) -> int:
    feed = 3 * net.hidden * net.inner * (net.experts.count if net.experts else 1)
    return 2 * (net.layers * (net.attention_values + feed) + net.vocab * net.hidden)


def cost(net: Net, phase: str, batch: int, context: int) -> tuple[int, int]:
    """FLOPs and bytes of one pass."""
    tokens = batch if phase == "decode" else batch * context
    chosen = net.experts.top_k if net.experts else 1
    values = net.attention_values + 3 * net.hidden * net.inner * chosen
    pairs = batch * context if phase == "decode" else batch * context * (context + 1) // 2
    attention = 4 * pairs * net.heads.query * net.heads.dim
    rows = tokens if phase == "decode" else batch
    flops = net.layers * (2 * tokens * values + attention) + 2 * rows * net.vocab * net.hidden
    read = 1.0 if not net.experts else 1 - (1 - chosen / net.experts.count) ** tokens
    feed = 3 * net.hidden * net.inner * (net.experts.count * read if net.experts else 1)
    cache = 2 * batch * context * net.heads.kv * net.heads.dim
    size = 2 * (net.layers * (net.attention_values + feed + cache) + net.vocab * net.hidden)
    return flops, int(size)
