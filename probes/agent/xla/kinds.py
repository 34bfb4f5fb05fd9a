"""The measurement kinds in jax: operators, operands and checks. Keys are the same as in the torch suite.

FLOPs and bytes have the same definitions (docs/reference/probes.md). Weights are [n, k], as in checkpoints.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from probes.agent.xla.device import JaxDevice, Program

from ..axes import (
    CPU_LAYERS,
    EXPERTS,
    GQA,
    LAYERS,
    M_SOME,
    MIB,
    QUICK_LAYERS,
    SQUARES,
    TOKENS_PER_EXPERT,
    Experts,
    Heads,
)
from ..measure import Case, Check, Scalar, Skip

Build = Callable[[JaxDevice], Program]
SAMPLED: Final = 64
LIMITS: Final = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3, "fp8": 1e-2, "int8": 0.0}
WIDTHS: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
# Hidden size, heads, inner size and vocabulary: of Llama 3.1 8B, and of a small model.
WIDE: Final = (4096, Heads(32, 8, 128), 14336, 128256)
SMALL: Final = (512, Heads(8, 2, 64), 1024, 8192)
Key = dict[str, Scalar]


def case(kind: str, key: Key, build: Build, flops: int = 0, size: int = 0, needs: int = 0) -> Case:
    untyped: Any = build
    return Case(kind, key, untyped, flops, size, needs or 4 * size)


def random(device: JaxDevice, seed: int, shape: tuple[int, ...], dtype: str = "bfloat16", scale: float = 1.0) -> Any:
    """Normal values with this scale, generated on the device; integers for int8."""
    jax = device.jax
    key = jax.random.key(seed)
    if dtype == "int8":
        return jax.random.randint(key, shape, -127, 128, jax.numpy.int8)
    wide = jax.numpy.float32 if dtype == "float32" else jax.numpy.bfloat16
    return (jax.random.normal(key, shape, wide) * scale).astype(dtype)


def exact(side: Any) -> Any:
    """The values as float64 on the host."""
    import numpy

    return numpy.asarray(side).astype(numpy.float64)


def compared(out: Any, reference: Any, limit: float) -> Check:
    """The relative error of an output: norm of the difference over norm of the reference."""
    import numpy

    wide = exact(out)
    error = float(numpy.linalg.norm(wide - reference) / numpy.linalg.norm(reference))
    return Check(error if math.isfinite(error) else math.inf, limit)


def identical(out: Any, reference: Any) -> Check:
    """The share of elements that differ; copies must be exact."""
    return Check(float((exact(out) != exact(reference)).mean()), 0.0)


# --- memory -----------------------------------------------------------------------------------------------------


def buffers(suite: str, device: JaxDevice) -> list[int]:
    if not device.gpu:
        return [64 * MIB] if suite == "quick" else [256 * MIB, 64 * MIB, 16 * MIB]
    return [2048 * MIB, 256 * MIB] if suite == "quick" else [MIB << power for power in (12, 11, 10, 8, 6, 4)]


def memory(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    build = {"memory_read": read, "memory_write": write, "memory_copy": copy}[kind]
    for size in buffers(suite, device):
        traffic = 2 * size if kind == "memory_copy" else size
        yield case(kind, {"bytes": size}, functools.partial(build, size=size), size=traffic, needs=3 * traffic)


def values(device: JaxDevice, seed: int, size: int) -> Any:
    return random(device, seed, (size // 8192, 4096))


def read(device: JaxDevice, size: int, sets: int = 0) -> Program:
    """Reads a buffer: the maximum of each row."""
    operands = [(values(device, seed, size),) for seed in range(sets or device.sets(size))]
    return Program(lambda x: x.max(axis=1), operands, lambda out: identical(out, operands[0][0].max(axis=1)))


def write(device: JaxDevice, size: int) -> Program:
    """Writes a buffer: one value into every element."""
    jnp = device.jax.numpy
    number = jnp.asarray([1.6180339], jnp.float32)
    return Program(
        lambda value: jnp.broadcast_to(value[:, None], (size // 4096, 1024)),
        [(number + 0,) for _ in range(device.sets(size))],
        lambda out: Check(float((out != number[0]).mean()), 0.0),
    )


def copy(device: JaxDevice, size: int) -> Program:
    """Copies a buffer, by multiplying with a 1 that XLA cannot fold. Bytes read plus bytes written."""
    one = device.jax.numpy.ones((), "bfloat16")
    operands = [(values(device, seed, size), one) for seed in range(device.sets(2 * size))]
    return Program(lambda x, by: x * by, operands, lambda out: identical(out, operands[0][0]))


def strided(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    size = max(size for size in buffers(suite, device) if size <= 1 << 30)
    for run_bytes, stride_bytes in ((32, 64), (128, 512)):
        key: Key = {"bytes": size, "run_bytes": run_bytes, "stride_bytes": stride_bytes}
        moved = 2 * size * run_bytes // stride_bytes
        build = strided_rows(size, run_bytes // 2, stride_bytes // 2)
        yield case(kind, key, build, size=moved, needs=3 * size)


def strided_rows(size: int, run: int, stride: int) -> Build:
    def build(device: JaxDevice) -> Program:
        one = device.jax.numpy.ones((), "bfloat16")
        operands = [(random(device, seed, (size // 2 // stride, stride)), one) for seed in range(device.sets(size))]
        return Program(lambda x, by: x[:, :run] * by, operands, lambda out: identical(out, operands[0][0][:, :run]))

    return build


def gather(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    size = max(size for size in buffers(suite, device) if size <= 1 << 30)
    for name, row_bytes in {"page": 16 * 8 * 128 * 2, "token": 8 * 128 * 2, "head": 128 * 2}.items():
        key: Key = {"bytes": size, "row_bytes": row_bytes, "rows": name, "share_of_buffer": 0.25}
        yield case(kind, key, gathered(size, row_bytes // 2), size=size // 2, needs=3 * size)


def gathered(size: int, row: int) -> Build:
    def build(device: JaxDevice) -> Program:
        jax = device.jax
        source, count = random(device, 0, (size // 2 // row, row)), size // 2 // row // 4
        orders = [jax.random.permutation(jax.random.key(seed), len(source))[:count] for seed in range(4)]
        operands = [(source, order) for order in orders]
        take = jax.numpy.take
        return Program(
            lambda x, at: take(x, at, axis=0, mode="clip"), operands, lambda out: identical(out, source[orders[0]])
        )

    return build


def cached(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    for part in (2, 4, 8):
        size = max(MIB, device.l2_bytes // part // MIB * MIB)
        build = functools.partial(read, size=size, sets=1)
        yield case(kind, {"bytes": size, "share_of_l2": 1 / part}, build, size=size)


# --- matrix products --------------------------------------------------------------------------------------------


def gemm(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    if not device.gpu:
        for dtype in ("fp32", "bf16"):
            yield from (product(dtype, m, CPU_LAYERS[0].name, CPU_LAYERS[0].n, CPU_LAYERS[0].k) for m in (1, 16, 128))
        return
    for dtype in ("bf16", "fp8", "fp16", "tf32", "int8", "fp32"):
        yield from (product(dtype, side, "", side, side) for side in SQUARES if dtype != "fp32" or side < 8192)
    for dtype in ("bf16", "fp8"):
        layers, ms = (QUICK_LAYERS, (1, 64, 1024)) if suite == "quick" else (LAYERS, M_SOME)
        yield from (product(dtype, m, layer.name, layer.n, layer.k) for layer in layers for m in ms)


def product(dtype: str, m: int, layer: str, n: int, k: int) -> Case:
    out = 4 if dtype in ("fp32", "tf32", "int8") else 2
    size = WIDTHS[dtype] * (m + n) * k + out * m * n
    key: Key = {"dtype": dtype, "m": m, "n": n, "k": k, **({"layer": layer} if layer else {})}
    key |= {"scaling": "tensor"} if dtype == "fp8" else {}
    return case("gemm", key, lambda device: multiplied(device, dtype, m, n, k), 2 * m * n * k, size)


def multiplied(device: JaxDevice, dtype: str, m: int, n: int, k: int) -> Program:
    element = {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn", "int8": "int8"}.get(dtype, "float32")
    size = WIDTHS[dtype] * (m + n) * k
    operands = [
        (random(device, 2 * at, (m, k), element), random(device, 2 * at + 1, (n, k), element))
        for at in range(device.sets(size))
    ]
    check = sampled(operands[0], LIMITS[dtype])
    return Program(dot(device, dtype), operands, check, path=fp8_path if dtype == "fp8" else native)


def dot(device: JaxDevice, dtype: str) -> Callable[[Any, Any], Any]:
    lax, jnp = device.jax.lax, device.jax.numpy
    if dtype == "tf32" and device.backend != "cuda":
        raise Skip("no tf32 on this device")
    precision = {"fp32": "highest", "tf32": "tensorfloat32"}.get(dtype)
    kept = {"fp8": jnp.bfloat16, "int8": jnp.int32}.get(dtype)
    sides = (((1,), (1,)), ((), ()))
    return lambda x, w: lax.dot_general(x, w, sides, precision=precision, preferred_element_type=kept)


def native(text: str) -> str:
    return "native"


def fp8_path(text: str) -> str:
    """native if the program calls a library with fp8 operands; otherwise XLA may have widened them first."""
    return "native" if "$f8" in text else "reference"


def sampled(operands: tuple[Any, Any], limit: float) -> Callable[[Any], Check]:
    """A check of the first rows and every n/512th column against float64."""
    x, w = operands

    def check(out: Any) -> Check:
        step = max(1, len(w) // (8 * SAMPLED))
        reference = exact(x[:SAMPLED]) @ exact(w[::step]).T
        return compared(out[:SAMPLED, ::step], reference, limit)

    return check


def grouped(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    if not device.gpu:
        yield expert_product(Experts("tiny", 8, 2, 256, 128), 16)
        return
    for experts in EXPERTS[:1] if suite == "quick" else EXPERTS:
        for tokens in (16, 128) if suite == "quick" else TOKENS_PER_EXPERT:
            yield expert_product(experts, tokens)


def expert_product(experts: Experts, each: int) -> Case:
    m, n, k = each * experts.count, 2 * experts.inner, experts.hidden
    size = 2 * (m * k + experts.count * n * k + m * n)
    key: Key = {"dtype": "bf16", "experts": experts.count, "model": experts.name, "tokens_per_expert": each}
    key |= {"m": m, "n": n, "k": k}
    return case("grouped_gemm", key, lambda device: ragged(device, experts, each), 2 * m * n * k, size)


def ragged(device: JaxDevice, experts: Experts, each: int) -> Program:
    """A ragged product of experts. Native only on TPUs: elsewhere XLA multiplies every token with every expert."""
    jax, n, k = device.jax, 2 * experts.inner, experts.hidden
    counts = jax.numpy.full((experts.count,), each, "int32")
    operands = [
        (random(device, at, (each * experts.count, k)), random(device, at + 99, (experts.count, k, n)), counts)
        for at in range(device.sets(2 * experts.count * n * k))
    ]
    x, w, _ = operands[0]

    def check(out: Any) -> Check:
        return compared(out[-each:], exact(x[-each:]) @ exact(w[-1]), LIMITS["bf16"])

    path = native if device.backend == "xla" else (lambda text: "reference")
    return Program(jax.lax.ragged_dot, operands, check, path=path)


# --- attention --------------------------------------------------------------------------------------------------


def prefill(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    lengths = (2048, 8192) if suite == "quick" else (512, 1024, 2048, 4096, 8192, 16384, 32768)
    for heads in (GQA[:1] if suite == "quick" else GQA) if device.gpu else (Heads(8, 2, 64),):
        for tokens in lengths if device.gpu else (128, 512):
            flops = 2 * tokens * (tokens + 1) * heads.query * heads.dim
            size = 4 * tokens * heads.dim * (heads.query + heads.kv)
            for backend in backends(device):
                scores = 8 * heads.query * tokens**2 if backend == "xla" else 0
                key: Key = {"dtype": "bf16", "backend": backend, "tokens": tokens, "batch": 1, **head_key(heads)}
                build = attention(backend, heads, 1, tokens, tokens)
                yield case(kind, key, build, flops, size, 4 * size + 2 * scores)


def decode(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    points = (
        ((64, 2048), (8, 8192)) if suite == "quick" else ((1, 4096), (8, 8192), (64, 2048), (64, 8192), (256, 1024))
    )
    heads = GQA[0] if device.gpu else Heads(8, 2, 64)
    for batch, context in points if device.gpu else ((1, 512), (4, 1024)):
        flops = 4 * batch * context * heads.query * heads.dim
        size = 4 * batch * heads.dim * (context * heads.kv + heads.query)
        for backend in backends(device):
            key: Key = {
                "dtype": "bf16",
                "backend": backend,
                "batch": batch,
                "context_tokens": context,
                **head_key(heads),
            }
            yield case(kind, key, attention(backend, heads, batch, 1, context), flops, size, 6 * size)


def backends(device: JaxDevice) -> tuple[str, ...]:
    return ("cudnn", "xla") if device.backend == "cuda" else ("xla",)


def head_key(heads: Heads) -> Key:
    return {"heads": heads.query, "kv_heads": heads.kv, "head_dim": heads.dim}


def attention(backend: str, heads: Heads, batch: int, queries: int, context: int) -> Build:
    def build(device: JaxDevice) -> Program:
        shapes = ((batch, queries, heads.query, heads.dim), *((batch, context, heads.kv, heads.dim),) * 2)
        size = 4 * batch * context * heads.kv * heads.dim
        operands = [
            tuple(random(device, 3 * at + side, shape) for side, shape in enumerate(shapes))
            for at in range(min(device.sets(size), 16))
        ]
        attend, causal = device.jax.nn.dot_product_attention, queries > 1

        def call(q: Any, k: Any, v: Any) -> Any:
            return attend(q, k, v, is_causal=causal, implementation=backend)

        return Program(call, operands, lambda out: attended(out, operands[0], causal))

    return build


def attended(out: Any, operands: tuple[Any, ...], causal: bool) -> Check:
    """A check of some queries of the last head of the last sequence against float64."""
    import numpy

    q, k, v = (exact(side[-1, :, -1]) for side in operands)
    rows = numpy.linspace(0, len(q) - 1, min(SAMPLED, len(q))).astype(int)
    scores = q[rows] @ k.T / math.sqrt(q.shape[1])
    if causal:
        scores = numpy.where(numpy.arange(len(k)) > rows[:, None], -numpy.inf, scores)
    weights = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return compared(exact(out[-1, :, -1])[rows], weights / weights.sum(axis=1, keepdims=True) @ v, 1e-2)


# --- layers -----------------------------------------------------------------------------------------------------


def layers(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    hidden, heads, inner, vocab = WIDE if device.gpu else SMALL
    counts = ((64, 4096) if suite == "quick" else (1, 64, 512, 4096, 16384)) if device.gpu else (64,)
    for tokens in counts if kind != "softmax" else counts[:4]:
        shapes, flops, size, more = part(kind, tokens, hidden, heads, inner, vocab)
        key: Key = {"dtype": "bf16", "tokens": tokens, **more, "fused": True}
        yield case(kind, key, layer(kind, shapes, size), flops, size, 6 * size)


def part(kind: str, tokens: int, hidden: int, heads: Heads, inner: int, vocab: int) -> tuple[Any, int, int, Key]:
    """Shapes, FLOPs, minimum bytes and key of one operator."""
    shapes: tuple[tuple[int, ...], ...]
    turned = heads.query + heads.kv
    if kind == "norm":
        return ((tokens, hidden),) * 2, 0, 6 * tokens * hidden, {"hidden": hidden}
    if kind == "rotary":
        shapes = (tokens, turned, heads.dim), (tokens, heads.dim // 2)
        return shapes, 0, tokens * heads.dim * (4 * turned + 1), {"heads": turned, "head_dim": heads.dim}
    if kind == "activation":
        return ((tokens, 2 * inner),), 0, 6 * tokens * inner, {"inner": inner}
    if kind == "softmax":
        return ((tokens, vocab),), 0, 4 * tokens * vocab, {"vocab": vocab}
    shapes = (tokens, hidden), (2 * inner, hidden), (hidden, inner)
    size = 4 * tokens * hidden + 6 * hidden * inner
    return shapes, 6 * tokens * hidden * inner, size, {"hidden": hidden, "inner": inner}


def layer(kind: str, shapes: tuple[tuple[int, ...], ...], size: int) -> Build:
    def build(device: JaxDevice) -> Program:
        def one(at: int) -> tuple[Any, ...]:
            scales = [1.0 if not side else 1 / math.sqrt(shape[-1]) for side, shape in enumerate(shapes)]
            return tuple(random(device, 5 * at + i, shape, scale=scales[i]) for i, shape in enumerate(shapes))

        operands = [one(at) for at in range(device.sets(size))]
        function = FUNCTIONS[kind]
        sample = [side if i and kind == "mlp" else side[:32] for i, side in enumerate(operands[0])]

        def check(out: Any) -> Check:
            import numpy

            return compared(out[:32], function(numpy, *map(exact, sample)), 1e-2)

        return Program(lambda *given: function(device.jax.numpy, *given), operands, check)

    return build


def add_norm(np: Any, x: Any, residual: Any) -> Any:
    summed = (x + residual).astype(np.promote_types(x.dtype, np.float32))
    return (summed / np.sqrt((summed * summed).mean(axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def rotary(np: Any, x: Any, angles: Any) -> Any:
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def gated(np: Any, x: Any) -> Any:
    gate, up = np.split(x, 2, axis=-1)
    return gate / (1 + np.exp(-gate)) * up


def softmax(np: Any, x: Any) -> Any:
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(x.dtype)


def mlp(np: Any, x: Any, gate_up: Any, down: Any) -> Any:
    return gated(np, x @ gate_up.T) @ down.T


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "norm": add_norm,
    "rotary": rotary,
    "activation": gated,
    "softmax": softmax,
    "mlp": mlp,
}


KINDS: Final[Mapping[str, Callable[[str, str, JaxDevice], Iterator[Case]]]] = {
    "memory_read": memory,
    "memory_write": memory,
    "memory_copy": memory,
    "memory_strided": strided,
    "memory_gather": gather,
    "l2_read": cached,
    "gemm": gemm,
    "grouped_gemm": grouped,
    "attention_prefill": prefill,
    "attention_decode": decode,
    **dict.fromkeys(FUNCTIONS, layers),
}
