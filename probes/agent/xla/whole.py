"""In jax: launches, host copies, a decoder block, the decode step of a small model, and collectives."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from ..axes import MIB
from ..decoders import NETS, SMALL_MODEL, TINY, TINY_MODEL, Net, cost
from ..kinds.answers import ANSWER, PRIME, SIDE
from ..measure import Case, Check, Skip, summary
from .device import JaxDevice, Program
from .kinds import Build, Key, case, compared, exact, gated, random

LIMIT: Final = 3e-2  # a block rounds to bf16 about ten times


def refused(reason: str) -> Callable[[str, str, JaxDevice], Iterator[Case]]:
    def build(device: JaxDevice) -> Program:
        raise Skip(reason)

    return lambda kind, suite, device: iter([case(kind, {}, build)])


# --- known answer, launches, copies -----------------------------------------------------------------------------


def known_answer(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    yield case(kind, {"side": SIDE, "dtype": "fp32"}, known, 2 * SIDE**3, 12 * SIDE**2)


def known(device: JaxDevice) -> Program:
    jnp = device.jax.numpy

    def matrix(step: int) -> Any:
        at = jnp.arange(SIDE * SIDE).reshape(SIDE, SIDE)
        return ((at * step + at // SIDE * 5) % 17 - 8).astype("float32")

    def check(out: Any) -> Check:
        import numpy

        index = numpy.arange(1, SIDE + 1)
        found = int((numpy.asarray(out).astype(numpy.int64) * index[:, None] * index).sum()) % PRIME
        return Check(abs(found - ANSWER) / ANSWER, 0.0, against="exact")

    return Program(lambda a, b: jnp.dot(a, b, precision="highest"), [(matrix(7), matrix(11))], check)


def launch(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    yield case(kind, {"mode": "eager"}, lambda at: chained(at, 500, 20))
    yield case(kind, {"mode": "round_trip"}, lambda at: chained(at, 1, 180))


def chained(device: JaxDevice, each: int, samples: int) -> Program:
    """The time per call of a compiled function, with `each` calls per wait."""
    jax = device.jax
    add, x = jax.jit(lambda x: x + 1), jax.numpy.zeros((32,), "float32")
    seconds = []
    for _ in range(samples + 1):
        jax.block_until_ready(x)
        start = time.perf_counter()
        for _ in range(each):
            x = add(x)
        jax.block_until_ready(x)
        seconds.append((time.perf_counter() - start) / each)
    error = abs(float(x[0]) - each * (samples + 1))
    return Program(add, [], lambda out: Check(error, 0.0, against="exact"), timing=summary(seconds[1:]))


def host_copy(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    for size in (256 * MIB, 16 * MIB, MIB) if device.gpu else (MIB,):
        for direction in ("to_device", "to_host"):
            key: Key = {"bytes": size, "memory": "pageable", "direction": direction}
            yield case(kind, key, functools.partial(copied, direction=direction, size=size), size=size)


def copied(device: JaxDevice, direction: str, size: int) -> Program:
    if not device.gpu:
        raise Skip("the device is the host")
    import numpy

    jax = device.jax
    host = numpy.random.default_rng(0).integers(0, 256, size, dtype=numpy.uint8)
    seconds, back = [], host
    for _ in range(8):
        # A new array, because jax caches the host copy of an existing one.
        there = jax.block_until_ready(jax.device_put(host) + 0)
        start = time.perf_counter()
        if direction == "to_device":
            there = jax.block_until_ready(jax.device_put(host))
        else:
            back = jax.device_get(there)
        seconds.append(time.perf_counter() - start)
    wrong = float((numpy.asarray(there if direction == "to_device" else back) != host).mean())
    return Program(lambda: None, [], lambda out: Check(wrong, 0.0), timing=summary(seconds[1:]))


# --- models -----------------------------------------------------------------------------------------------------


def blocks(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    net = NETS[0] if device.gpu else TINY
    for batch in (1, 64) if suite == "quick" else (1, 8, 64, 256):
        yield network(kind, net, "decode", batch, 2048)
    for tokens in (2048,) if suite == "quick" else (512, 2048, 8192):
        yield network(kind, net, "prefill", 1, tokens)


def decode_steps(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    for batch in (1, 64) if suite == "quick" else (1, 8, 64, 256):
        yield network(kind, SMALL_MODEL if device.gpu else TINY_MODEL, "decode", batch, 1024)


def network(kind: str, net: Net, phase: str, batch: int, context: int) -> Case:
    tokens = batch if phase == "decode" else context
    flops, size = cost(net, phase, batch, context)
    key: Key = {"dtype": "bf16", "model": net.name, "phase": phase, "batch": batch, "context_tokens": context}
    needs = 3 * size + 40 * tokens * net.inner + (8 * net.heads.query * context**2 if phase == "prefill" else 0)
    return case(kind, key, passes(net, phase, batch, context), flops, size, needs)


def passes(net: Net, phase: str, batch: int, context: int) -> Build:
    def build(device: JaxDevice) -> Program:
        cache = (batch, context) if phase == "decode" else None
        tree = [weights(device, net, at, cache) for at in range(net.layers)]
        head = random(device, 7, (net.vocab, net.hidden), scale=net.hidden**-0.5) if net.vocab else None
        x = random(device, 8, (batch if phase == "decode" else context, net.hidden))

        def call(x: Any, tree: Any, head: Any) -> Any:
            return forward(device, net, phase, x, tree, head)

        return Program(call, [(x, tree, head)], lambda out: in_float32(device, call, out, (x, tree, head)))

    return build


def weights(device: JaxDevice, net: Net, seed: int, cache: tuple[int, int] | None) -> dict[str, Any]:
    heads = net.heads
    shapes = {
        "qkv": ((heads.query + 2 * heads.kv) * heads.dim, net.hidden),
        "out": (net.hidden, heads.query * heads.dim),
    }
    shapes |= {"gate_up": (2 * net.inner, net.hidden), "down": (net.hidden, net.inner)}
    found = {
        name: random(device, 10 * seed + at, shape, scale=1 / math.sqrt(shape[1]))
        for at, (name, shape) in enumerate(shapes.items())
    }
    for at, side in enumerate(("keys", "values") if cache else ()):
        assert cache
        found[side] = random(device, 10 * seed + 5 + at, (*cache, heads.kv, heads.dim))
    return found


def forward(device: JaxDevice, net: Net, phase: str, x: Any, tree: Any, head: Any) -> Any:
    """One pass: every layer, then the logits if there is a vocabulary."""
    np = device.jax.numpy
    for layer in tree:
        x = x + attend(device, net, phase, rms(np, x) @ layer["qkv"].T, layer) @ layer["out"].T
        x = x + gated(np, rms(np, x) @ layer["gate_up"].T) @ layer["down"].T
    if head is None:
        return x
    return rms(np, x if phase == "decode" else x[-1:]) @ head.T


def rms(np: Any, x: Any) -> Any:
    wide = x.astype("float32")
    return (wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def attend(device: JaxDevice, net: Net, phase: str, qkv: Any, layer: Any) -> Any:
    jax, heads = device.jax, net.heads
    rows = qkv.reshape(len(qkv), -1, heads.dim)
    q, k, v = rows[:, : heads.query], rows[:, heads.query : -heads.kv], rows[:, -heads.kv :]
    causal = phase == "prefill"
    if causal:
        q, k, v = q[None], k[None], v[None]
    else:  # the new token replaces the last one in the cache
        q = q[:, None]
        k, v = (
            jax.numpy.concatenate([layer[name][:, :-1], new[:, None]], axis=1)
            for name, new in (("keys", k), ("values", v))
        )
    fast = device.backend == "cuda" and qkv.dtype == "bfloat16"
    out = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn" if fast else "xla")
    return out.reshape(len(qkv), heads.query * heads.dim)


def in_float32(device: JaxDevice, call: Any, out: Any, given: Any) -> Check:
    """A check against the same pass in float32."""
    jax = device.jax
    with jax.default_matmul_precision("highest"):
        wide = jax.tree.map(lambda leaf: leaf.astype("float32"), given)
        reference = jax.jit(call)(*wide)
    check = compared(out[:64], exact(reference[:64]), LIMIT)
    return Check(check.error, check.limit, against="float32")


# --- collectives ------------------------------------------------------------------------------------------------


def collectives(kind: str, suite: str, device: JaxDevice) -> Iterator[Case]:
    sizes = (MIB, 64 * MIB) if suite == "quick" else tuple(4096 << (2 * power) for power in range(9))
    counts = [2] if kind == "point_to_point" else [count for count in (2, 4, 8) if count <= device.count] or [2]
    for count in counts[-1:] if suite == "quick" else counts:
        for size in sizes:
            sent = size * {"all_reduce": 2 * (count - 1), "point_to_point": count}.get(kind, count - 1) // count
            key: Key = {"dtype": "bf16", "bytes": size, "devices": count, "backend": "xla"}
            yield case(kind, key, exchange(kind, size, count), size=sent, needs=4 * size)


def exchange(kind: str, size: int, count: int) -> Build:
    def build(device: JaxDevice) -> Program:
        if device.count < count:
            raise Skip("one device only" if device.count < 2 else f"{device.count} devices only")
        jax = device.jax
        mesh = jax.sharding.Mesh(jax.local_devices()[:count], ("d",))
        spec = jax.sharding.PartitionSpec("d")
        x = random(device, 3, (count, size // 2 // (count if kind == "all_gather" else 1)))
        whole = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
        function, expected = OPERATIONS[kind](jax.lax, count)

        def wrap(loop: Any) -> Any:
            return shard_map(jax)(loop, mesh=mesh, in_specs=spec, out_specs=spec)

        return Program(function, [(whole,)], lambda out: compared(out, expected(exact(x)), 1e-2), wrap=wrap)

    return build


def shard_map(jax: Any) -> Any:
    """jax.shard_map under its name in this version, without the replication check, which fails on barriers."""
    function: Any = getattr(jax, "shard_map", None) or import_module("jax.experimental.shard_map").shard_map
    names = inspect.signature(function).parameters
    return functools.partial(function, **{name: False for name in ("check_vma", "check_rep") if name in names})


def all_reduce(lax: Any, count: int) -> Any:
    return lambda x: lax.psum(x, "d"), lambda x: x.sum(axis=0, keepdims=True).repeat(count, axis=0)


def all_gather(lax: Any, count: int) -> Any:
    """Each device starts with one part and ends with all parts."""
    return lambda x: lax.all_gather(x[0], "d", tiled=True)[None], lambda x: x.reshape(1, -1).repeat(count, axis=0)


def all_to_all(lax: Any, count: int) -> Any:
    def expected(x: Any) -> Any:
        return x.reshape(count, count, -1).swapaxes(0, 1).reshape(count, -1)

    return lambda x: lax.all_to_all(x.reshape(count, -1), "d", 0, 0, tiled=True).reshape(1, -1), expected


def point_to_point(lax: Any, count: int) -> Any:
    """The first device sends to the second."""
    return lambda x: lax.ppermute(x, "d", [(0, 1)]), lambda x: x[[0, 0]] * [[0], [1]]


OPERATIONS: Final[Mapping[str, Callable[[Any, int], Any]]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
    "point_to_point": point_to_point,
}
KINDS: Final[Mapping[str, Callable[[str, str, JaxDevice], Iterator[Case]]]] = {
    "known_answer": known_answer,
    "launch": launch,
    "host_copy": host_copy,
    "block": blocks,
    "decode_step": decode_steps,
    "compile_gain": refused("jax compiles every call: there is no uncompiled one to compare with"),
    "train_step": refused("the training step is written in torch"),
    "train_overlap": refused("the training step is written in torch"),
    **dict.fromkeys(OPERATIONS, collectives),
}
