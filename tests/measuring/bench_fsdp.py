"""A training step of a few decoder layers on every GPU of this host: alone, and sharded over all of them with FSDP2.

    python -m torch.distributed.run --nproc-per-node 2 -m tests.measuring.bench_fsdp [--layers 8] [--tokens 4096]

Prints one JSON line: seconds of a step on one GPU, of a step with FSDP2 on all, and of its communication alone. The two
steps differ in more than communication: FSDP2 keeps FP32 weights and states, shards the update, and casts and copies.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 4096, 32, 8, 128, 14336  # Llama 3.1 8B


def layer(torch: Any) -> Any:
    """One decoder layer as a module."""
    nn, functional = torch.nn, torch.nn.functional

    class Layer(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
            self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM, bias=False)
            self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
            self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
            self.down = nn.Linear(INNER, HIDDEN, bias=False)

        def forward(self, x: Any) -> Any:
            sizes = [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
            parts = self.qkv(self.norm_1(x)).split(sizes, dim=-1)
            q, k, v = (p.reshape(x.shape[0], x.shape[1], -1, HEAD_DIM).transpose(1, 2) for p in parts)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
            gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * up)

    return Layer()


def timed(torch: Any, call: Callable[[], object], repeats: int = 12) -> float:
    """Median seconds of a call after a warm-up of four."""
    times = []
    for i in range(repeats + 4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if i >= 4:
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def step_of(torch: Any, model: Any, x: Any) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def step() -> None:
        model(x).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def communication(torch: Any, model_bytes: int, layers: int, ranks: int) -> Callable[[], object]:
    """The collectives of an FSDP step alone: two gathers of each layer's weights and a reduction of its gradients."""
    dist, each = torch.distributed, model_bytes // layers // 2
    shard = torch.zeros(each // ranks, dtype=torch.bfloat16, device="cuda")
    whole = torch.zeros(each // ranks * ranks, dtype=torch.bfloat16, device="cuda")

    def call() -> None:
        for _ in range(layers):
            dist.all_gather_into_tensor(whole, shard)
            dist.all_gather_into_tensor(whole, shard)
            dist.reduce_scatter_tensor(shard, whole)

    return call


def main() -> None:
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--micro-batch", type=int, default=1)
    given = parser.parse_args()
    torch.distributed.init_process_group("nccl")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.cuda.set_device(rank)
    x = torch.randn(given.micro_batch, given.tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)

    def stack(dtype: Any) -> Any:
        return torch.nn.Sequential(*(layer(torch) for _ in range(given.layers))).to("cuda", dtype)

    alone = stack(torch.bfloat16)
    parameters = sum(p.numel() for p in alone.parameters())
    alone_s = timed(torch, step_of(torch, alone, x))
    alone_peak = torch.cuda.max_memory_allocated()
    del alone
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = stack(torch.float32)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for one in model:
        fully_shard(one, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    sharded_s, sharded_peak = timed(torch, step_of(torch, model, x)), torch.cuda.max_memory_allocated()
    moved_s = timed(torch, communication(torch, 2 * parameters, given.layers, ranks))
    if rank == 0:
        print(json.dumps({
            "gpu": torch.cuda.get_device_name(), "ranks": ranks, "torch": torch.__version__, "layers": given.layers,
            "tokens": given.tokens, "micro_batch": given.micro_batch, "parameters": parameters, "alone_s": alone_s,
            "fsdp_s": sharded_s, "communication_s": moved_s,
            "alone_peak_bytes": alone_peak, "fsdp_peak_bytes": sharded_peak,
        }))  # fmt: skip
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
