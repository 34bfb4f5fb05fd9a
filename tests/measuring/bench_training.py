"""Measures the kernels of a training step on this GPU, and whole steps of a few decoder layers.

    python -m tests.measuring.bench_training [--seconds 0.4] [--out FILE.json]

Products run as autograd runs them: forward x W^T, the gradient of x, the gradient of W. Each kernel repeats for about
`--seconds`, so that clocks settle under the power limit. The layers are random and small in number: what is measured is
the time and the allocator's peak of each further layer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Row = dict[str, Any]
LAYERS = {  # hidden, query heads, key heads, head size, inner, vocabulary
    "llama-1b": (2048, 32, 8, 64, 8192, 128256),
    "qwen3-4b": (2560, 32, 8, 128, 9728, 151936),
    "llama-8b": (4096, 32, 8, 128, 14336, 128256),
    "llama-70b": (8192, 64, 8, 128, 28672, 128256),
}
EPS = 1e-5


def timed(torch: Any, work: Callable[[], object], seconds: float) -> float:
    """Median seconds of a call over repeated windows, after a warm-up as long as the measurement."""
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    each = max(time.perf_counter() - start, 1e-5)
    calls = max(int(seconds / 4 / each), 1)
    times = []
    for window in range(8):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        if window >= 4:
            times.append(begin.elapsed_time(end) / 1e3 / calls)
    return sorted(times)[len(times) // 2]


Call = Callable[[], Any]


def product_calls(x: Any, w: Any, g: Any) -> dict[str, Call]:
    """The forward product of a linear layer, and those for the gradients of its input and its weight."""
    return {"forward": lambda: x @ w.t(), "data": lambda: g @ w, "weight": lambda: g.t() @ x}


def gradient_call(torch: Any, out: Any, into: tuple[Any, ...], grad: Any) -> Call:
    """The backward pass of `out`, repeatable."""
    return lambda: torch.autograd.grad(out, into, grad, retain_graph=True)


def products(torch: Any, seconds: float) -> Iterator[Row]:
    for name, (h, heads, kv, size, inner, vocab) in LAYERS.items():
        shapes = {
            "qkv": ((heads + 2 * kv) * size, h), "output": (h, heads * size), "gate": (inner, h), "down": (h, inner),
            "lm_head": (vocab, h),
        }  # fmt: skip
        for tokens in (2048, 4096, 16384):
            for what, (out, into) in shapes.items():
                if what == "lm_head" and tokens > 4096:
                    continue
                x = torch.randn(tokens, into, device="cuda", dtype=torch.bfloat16)
                w = torch.randn(out, into, device="cuda", dtype=torch.bfloat16) * into**-0.5
                g = torch.randn(tokens, out, device="cuda", dtype=torch.bfloat16)
                for direction, call in product_calls(x, w, g).items():
                    time_s = timed(torch, call, seconds)
                    rate = 2.0 * tokens * out * into / time_s
                    yield {"kind": "product", "model": name, "shape": what, "tokens": tokens, "out": out, "in": into,
                           "direction": direction, "time_s": time_s, "flops_per_s": rate}  # fmt: skip


def attention(torch: Any, seconds: float) -> Iterator[Row]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sdpa = torch.nn.functional.scaled_dot_product_attention
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        for heads, kv, size in ((32, 8, 64), (32, 8, 128), (64, 8, 128)):
            for length, batch in ((2048, 4), (4096, 2), (8192, 1), (16384, 1)):
                q = torch.randn(batch, heads, length, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                k, v = (
                    torch.randn(batch, kv, length, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                    for _ in range(2)
                )
                flops = 4.0 * batch * heads * size * length**2 / 2
                row = {"kind": "attention", "backend": backend, "heads": heads, "kv_heads": kv, "head_dim": size,
                       "tokens": length, "batch": batch}  # fmt: skip
                try:
                    with sdpa_kernel([getattr(SDPBackend, backend)]):
                        attend = partial(sdpa, q, k, v, is_causal=True, enable_gqa=True)
                        out = attend()
                        back_call = gradient_call(torch, out, (q, k, v), torch.randn_like(out))
                        with torch.no_grad():
                            ahead = timed(torch, attend, seconds)
                        back = timed(torch, back_call, seconds)
                except RuntimeError as error:
                    yield row | {"refused": str(error).splitlines()[0][:200]}
                    continue
                yield row | {
                    "forward_s": ahead, "backward_s": back, "forward_flops_per_s": flops / ahead,
                    "backward_flops_per_s": 2.5 * flops / back,
                }  # fmt: skip


def eager_norm(torch: Any, x: Any, w: Any) -> Any:
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    return w * (wide * scale).to(x.dtype)


def rotated(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def gated(torch: Any, gate: Any, up: Any) -> Any:
    return torch.nn.functional.silu(gate) * up


def loss(torch: Any, logits: Any, target: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits.float(), target)


def elements(torch: Any, seconds: float) -> Iterator[Row]:
    functional = torch.nn.functional
    tokens = 8192
    for name, (h, heads, _, size, inner, vocab) in LAYERS.items():
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.randn(tokens, h, device="cuda", dtype=dtype, requires_grad=True)
            w = torch.ones(h, device="cuda", dtype=dtype, requires_grad=True)
            a, b = (
                torch.randn(tokens, inner, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2)
            )
            q = torch.randn(1, heads, tokens, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            cos, sin = (torch.randn(1, 1, tokens, size, device="cuda", dtype=dtype) for _ in range(2))
            parts: dict[str, tuple[Call, tuple[Any, ...]]] = {
                "eager_norm": (partial(eager_norm, torch, x, w), (x, w)),
                "rms_norm": (partial(functional.rms_norm, x, (h,), w, EPS), (x, w)),
                "rotary": (partial(rotated, torch, q, cos, sin), (q,)),
                "gate": (partial(gated, torch, a, b), (a, b)),
            }
            if name == "llama-8b" and dtype == torch.bfloat16:
                logits = torch.randn(4096, vocab, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                target = torch.randint(0, vocab, (4096,), device="cuda")
                parts["loss"] = (partial(loss, torch, logits, target), (logits,))
            for what, (call, into) in parts.items():
                if what == "gate" and dtype == torch.float32:
                    continue
                out = call()
                back_call = gradient_call(torch, out, into, torch.randn_like(out))
                with torch.no_grad():
                    ahead = timed(torch, call, seconds / 2)
                back = timed(torch, back_call, seconds / 2)
                yield {"kind": "element", "part": what, "model": name, "tokens": tokens, "dtype": str(dtype),
                       "elements": int(into[0].numel()), "forward_s": ahead, "backward_s": back}  # fmt: skip


def optimizer(torch: Any, seconds: float) -> Iterator[Row]:
    for dtype in (torch.float32, torch.bfloat16):
        weights = [torch.zeros(4096, 14336, device="cuda", dtype=dtype, requires_grad=True) for _ in range(16)]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        adam = torch.optim.AdamW(weights, lr=1e-4, fused=True)
        time_s = timed(torch, adam.step, seconds)
        count = sum(weight.numel() for weight in weights)
        yield {"kind": "optimizer", "dtype": str(dtype), "parameters": count, "time_s": time_s,
               "bytes_per_s": count * 7 * (4 if dtype == torch.float32 else 2) / time_s}  # fmt: skip


def layer_class(torch: Any) -> Any:
    """A Llama layer; made here because the module loads torch only when it measures."""
    functional, nn = torch.nn.functional, torch.nn

    class Layer(nn.Module):  # type: ignore[name-defined]
        def __init__(self, shape: tuple[int, ...], eager: bool) -> None:
            super().__init__()
            h, self.heads, self.kv, self.size, inner, _ = shape
            wide, narrow = self.heads * self.size, self.kv * self.size
            linear = partial(nn.Linear, bias=False, device="cuda", dtype=torch.bfloat16)
            self.q, self.k, self.v, self.o = linear(h, wide), linear(h, narrow), linear(h, narrow), linear(wide, h)
            self.gate, self.up, self.down = linear(h, inner), linear(h, inner), linear(inner, h)
            self.norms = nn.ParameterList(torch.ones(h, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            self.eager = eager

        def norm(self, x: Any, w: Any) -> Any:
            return eager_norm(torch, x, w) if self.eager else functional.rms_norm(x, w.shape, w, EPS)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            b, s, _ = x.shape
            y = self.norm(x, self.norms[0])
            q = rotated(torch, self.q(y).view(b, s, self.heads, self.size).transpose(1, 2), cos, sin)
            k = rotated(torch, self.k(y).view(b, s, self.kv, self.size).transpose(1, 2), cos, sin)
            v = self.v(y).view(b, s, self.kv, self.size).transpose(1, 2)
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(a.transpose(1, 2).reshape(b, s, self.heads * self.size))
            y = self.norm(x, self.norms[1])
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    return Layer


def train(stack: Any, run: Any, x: Any, cos: Any, sin: Any) -> None:
    """Forward and backward pass of the layers."""
    y = x.requires_grad_()
    for layer in run:
        y = layer(y, cos, sin)
    y.backward(y.detach())
    stack.zero_grad(set_to_none=True)


def layers(torch: Any, seconds: float) -> Iterator[Row]:
    """Whole steps without an output head: the second and further layers cost the difference between two depths."""
    Layer = layer_class(torch)  # noqa: N806
    choices = itertools.product(LAYERS.items(), (True, False), (False, True), (4096, 8192), (2, 4))
    for (name, shape), eager, compiled, length, depth in choices:
        torch.cuda.empty_cache()
        torch.compiler.reset()  # each size compiles anew, below the limit on recompilation
        stack = torch.nn.ModuleList(Layer(shape, eager) for _ in range(depth))
        run = [torch.compile(layer, dynamic=False) if compiled else layer for layer in stack]
        x = torch.randn(1, length, shape[0], device="cuda", dtype=torch.bfloat16)
        cos, sin = (torch.randn(1, 1, length, shape[3], device="cuda", dtype=torch.bfloat16) for _ in range(2))
        step = partial(train, stack, run, x, cos, sin)
        step()
        torch.cuda.reset_peak_memory_stats()
        time_s = timed(torch, step, seconds)
        yield {"kind": "layers", "model": name, "eager_norm": eager, "compiled": compiled, "tokens": length, "batch": 1,
               "depth": depth, "time_s": time_s, "peak_bytes": torch.cuda.max_memory_allocated()}  # fmt: skip
        del stack, run, step


def adapters(torch: Any, seconds: float) -> Iterator[Row]:
    """A frozen linear layer with a LoRA adapter of rank 16, as PEFT computes it, over the layer alone."""
    for name in ("llama-1b", "llama-8b"):
        h, _, _, _, inner, _ = LAYERS[name]
        for tokens, dtype in itertools.product((4096, 8192), (torch.float32, torch.bfloat16)):
            for out, into in ((h, h), (inner, h), (h, inner)):
                x = torch.randn(tokens, into, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                w = torch.randn(out, into, device="cuda", dtype=torch.bfloat16) * into**-0.5
                a = torch.randn(16, into, device="cuda", dtype=dtype, requires_grad=True)
                b = torch.zeros(out, 16, device="cuda", dtype=dtype, requires_grad=True)
                plain, adapted = partial(torch.nn.functional.linear, x, w), partial(with_adapter, x, w, a, b)
                for what, call, leaves in (("linear", plain, (x,)), ("lora16", adapted, (x, a, b))):
                    result = call()
                    back_call = gradient_call(torch, result, leaves, torch.randn_like(result))
                    with torch.no_grad():
                        ahead = timed(torch, call, seconds / 2)
                    yield {"kind": "adapter", "part": what, "model": name, "tokens": tokens, "out": out, "in": into,
                           "dtype": str(dtype), "forward_s": ahead,
                           "backward_s": timed(torch, back_call, seconds / 2)}  # fmt: skip


def with_adapter(x: Any, w: Any, a: Any, b: Any) -> Any:
    base = x @ w.t()
    return (base + (x.to(a.dtype) @ a.t() @ b.t()) * 2.0).to(x.dtype)


PARTS = {
    "products": products,
    "attention": attention,
    "elements": elements,
    "optimizer": optimizer,
    "adapters": adapters,
    "layers": layers,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the kernels of a training step on this GPU.")
    parser.add_argument("--seconds", type=float, default=0.4, help="time for each kernel; default: 0.4")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated; default: all")
    parser.add_argument("--out", help="file for the rows as JSON; default: standard output")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: run this on a machine with a GPU", file=sys.stderr)
        return 2
    rows: list[Row] = []
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    for part in options.parts.split(","):
        begun = time.perf_counter()
        for row in PARTS[part](torch, options.seconds):
            rows.append(row)
        print(f"{part}: {len(rows)} rows, {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        if options.out:
            with open(options.out, "w") as file:
                json.dump({"machine": machine, "rows": rows}, file)
    if not options.out:
        json.dump({"machine": machine, "rows": rows}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
