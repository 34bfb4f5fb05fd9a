"""Counts the experts that a prompt uses when all weights are random, as in benchmarks with dummy weights.

    python -m tests.measuring.random_routing --out routing.csv

With random weights, attention makes the tokens of a prompt more alike in each layer, so their routers agree: a prompt
uses far fewer experts than the same number of tokens from different requests. This runs a forward pass with the real
shapes. Weights are normal with a fixed standard deviation, like dummy weights, and generated one layer at a time. One
causal prompt also gives the figures of every shorter prompt. Needs torch and a GPU; a CPU can run only the small model.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WEIGHT_STD = 0.02
PROMPT_TOKENS, PROMPTS = 4096, 3
USERS, USER_TOKENS = 128, 64  # for comparison: the newest tokens of this many requests
BASE = 1e6  # of the rotary embedding
COLUMNS = ("model", "of", "tokens", "experts", "top_k", "layers", "touched", "fullest_share")


@dataclass(frozen=True)
class Net:
    """An MoE decoder."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    inner: int
    qk_norm: bool


# From the published config.json files.
NETS = (
    Net("Qwen/Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 128, 8, 768, True),
    Net("mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32, 8, 128, 8, 2, 14336, False),
)
SMALL = Net("small", 4, 256, 8, 2, 32, 16, 2, 128, True)


def norm(torch: Any, x: Any) -> Any:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), eps=1e-6)


def turned(torch: Any, x: Any) -> Any:
    """Rotary embedding of x[requests, heads, tokens, dim]."""
    half, places = x.shape[-1] // 2, torch.arange(x.shape[-2], device=x.device)
    angles = places[:, None] / BASE ** (torch.arange(half, device=x.device) / half)
    first, second = x.float().chunk(2, dim=-1)
    both = [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()]
    return torch.cat(both, dim=-1).to(x.dtype)


def attended(torch: Any, net: Net, x: Any, weight: Any) -> Any:
    """The attention output for x[requests, tokens, hidden]."""
    sides = norm(torch, x) @ weight(net.hidden, (net.heads + 2 * net.kv_heads) * net.head_dim)
    parts = sides.unflatten(-1, (-1, net.head_dim)).transpose(1, 2)
    q, k, v = parts.split([net.heads, net.kv_heads, net.kv_heads], dim=1)
    if net.qk_norm:
        q, k = norm(torch, q), norm(torch, k)
    k, v = (side.repeat_interleave(net.heads // net.kv_heads, dim=1) for side in (turned(torch, k), v))
    out = torch.nn.functional.scaled_dot_product_attention(turned(torch, q), k, v, is_causal=True)
    return out.transpose(1, 2).flatten(2) @ weight(net.heads * net.head_dim, net.hidden)


def routed(torch: Any, net: Net, x: Any, weight: Any) -> tuple[Any, Any]:
    """The MoE output for x[tokens, hidden], and the chosen experts [tokens, top_k]."""
    h = norm(torch, x)
    shares, chosen = torch.topk(torch.softmax((h @ weight(net.hidden, net.experts)).float(), dim=-1), net.top_k)
    shares = (shares / shares.sum(dim=-1, keepdim=True)).to(x.dtype)
    out = torch.zeros_like(x)
    for expert in range(net.experts):
        rows, place = (chosen == expert).nonzero(as_tuple=True)
        gate, up = (h[rows] @ weight(net.hidden, 2 * net.inner)).chunk(2, dim=-1)
        values = (torch.nn.functional.silu(gate) * up) @ weight(net.inner, net.hidden)
        out.index_add_(0, rows, values * shares[rows, place][:, None])
    return out, chosen


def chosen_experts(torch: Any, net: Net, requests: int, tokens: int, device: str) -> Iterator[Any]:
    """The chosen experts of each layer, [requests, tokens, top_k], for requests with random tokens."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def weight(rows: int, columns: int) -> Any:
        return torch.randn(rows, columns, device=device, dtype=dtype) * WEIGHT_STD

    x = torch.randn(requests, tokens, net.hidden, device=device, dtype=dtype) * WEIGHT_STD
    for _ in range(net.layers):
        x = x + attended(torch, net, x, weight)
        added, chosen = routed(torch, net, x.flatten(0, 1), weight)
        x = x + added.reshape(x.shape)
        yield chosen.reshape(requests, tokens, net.top_k)


def counted(torch: Any, net: Net, chosen: Any) -> tuple[float, float]:
    """The number of experts used by [tokens, top_k], and the share of the most used expert."""
    loads = torch.bincount(chosen.flatten(), minlength=net.experts)
    return float((loads > 0).sum()), float(loads.max() / loads.sum())


def rows(torch: Any, net: Net, of: str, requests: int, tokens: int, device: str) -> Iterator[dict[str, Any]]:
    """Means over the layers, for the first tokens of one prompt or for the newest tokens of several requests."""
    layers = [
        chosen if of == "requests" else chosen[0] for chosen in chosen_experts(torch, net, requests, tokens, device)
    ]
    most, count = (requests if of == "requests" else tokens), 1
    while count <= most:
        samples = [layer[:count, -1] if of == "requests" else layer[:count] for layer in layers]
        counts = [counted(torch, net, sample) for sample in samples]
        touched, fullest = (sum(side) / len(counts) for side in zip(*counts, strict=True))
        values = (net.name, of, count, net.experts, net.top_k, net.layers, round(touched, 2), round(fullest, 4))
        yield dict(zip(COLUMNS, values, strict=True))
        count *= 2


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", required=True, help="CSV file to write")
    parser.add_argument("--small", action="store_true", help="run only the small model, to try it on a CPU")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    with open(given.out, "w", newline="", encoding="utf-8") as file, torch.inference_mode():
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for net in (SMALL,) if given.small else NETS:
            for _ in range(PROMPTS):
                table.writerows(rows(torch, net, "prompt", 1, 256 if given.small else PROMPT_TOKENS, device))
                file.flush()
            table.writerows(rows(torch, net, "requests", USERS, USER_TOKENS, device))
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
