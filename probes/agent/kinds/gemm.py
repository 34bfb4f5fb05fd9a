"""Matrix products of real layers in every precision: y = x w^T, with w stored as [n, k] like in checkpoints.

Bytes are x, w (with its scales) and y, each counted once. Rows with `backend` triton ran our own kernel. The others
ran what torch calls (cuBLAS or CUTLASS); `kernel` says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..axes import (
    CPU_LAYERS,
    LAYERS,
    M_BETWEEN,
    M_FULL,
    M_QUICK,
    M_SOME,
    OFF_BY,
    QUICK_LAYERS,
    SQUARES,
    UNALIGNED_BY,
    UNALIGNED_ROWS,
    Layer,
)
from ..measure import Case, Check, Device, Scalar, Skip, Work, exact, finite, indexed, relative_error
from . import onset

WIDTH_BYTES = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "mxfp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "nvfp4": 0.5,
}
# Relative error of the product alone: inputs are exact in their dtype, the output is rounded to bf16.
LIMITS = {
    "fp32": 1e-5,
    "tf32": 2e-3,
    "bf16": 1e-2,
    "fp16": 2e-3,
    "fp8": 1e-2,
    "mxfp8": 1e-2,
    "int8": 0.0,
    "int4": 1e-2,
    "nvfp4": 1e-2,
}
OUT_BYTES = {"fp32": 4, "tf32": 4, "int8": 4}  # 2 for the others
GROUP = 128  # weights per scale, in int4 and in fp8 blocks
SUSTAINED_S = 1.0
SUSTAINED_LAYERS = ("llama-3.1-8b.qkv", "llama-3.1-8b.gate_up", "llama-3.1-8b.down", "llama-3.1-70b.gate_up")
SUSTAINED_ROWS = 8192
SUSTAINED: Mapping[str, Any] = {"window_s": SUSTAINED_S, "warm_s": 0.5, "setup_s": 1.6}
ONSET_SHAPE = (2048, 28672, 4096)  # under a millisecond in bf16, so that a short span has several calls
SAMPLED = 64  # rows and columns of the output that are checked against float64


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True)
class Operands:
    """One set of buffers: the call, and functions that return sampled rows and columns for the check."""

    call: Callable[[], Any]
    left: Callable[[Any], Any]
    right: Callable[[Any], Any]


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    """The cases, most important first. When time runs out, the last ones are skipped."""
    yield from _quick(device) if suite == "quick" else _full(device)


def _quick(device: Device) -> Iterator[Case]:
    if not device.gpu:
        for dtype in ("fp32", "bf16"):
            yield from _over(dtype, CPU_LAYERS[:1], (1, 16, 128))
        yield case("int8", Shape(64, 2048, 2048))
        return
    for dtype in ("bf16", "fp8"):
        yield from _squares(dtype)
        yield from _over(dtype, QUICK_LAYERS, M_QUICK)
    for dtype in ("fp16", "tf32", "int8", "fp32", "int4", "nvfp4", "mxfp8"):
        yield case(dtype, Shape(4096, 4096, 4096))
    yield sustained("bf16", 8192)
    yield from _unaligned(UNALIGNED_BY[:2])


def _full(device: Device) -> Iterator[Case]:
    if not device.gpu:
        for dtype in ("fp32", "bf16", "fp16", "fp8", "int8", "int4"):
            yield from _over(dtype, CPU_LAYERS, (1, 4, 16, 64, 256))
        return
    for dtype in ("bf16", "fp8", "fp16", "tf32", "int8", "fp32"):
        yield from _squares(dtype)
    yield from (sustained(dtype, 8192) for dtype in ("bf16", "fp8"))
    yield from _unaligned(UNALIGNED_BY)  # before the layers, which can take all the time of the kind
    for dtype in ("bf16", "fp8"):
        yield from onset.cases(case(dtype, Shape(*ONSET_SHAPE)))
    yield from _sustained_layers()
    yield from _between_tiles()
    yield from _over("bf16", LAYERS, M_SOME)
    yield from _over("fp8", LAYERS, M_SOME, scaling="tensor")
    yield from _off_sizes()
    yield from _over("fp8", LAYERS[:4], M_SOME, scaling="row")
    yield from _over("fp8", LAYERS[:4], (64, 1024, 4096), scaling="block128")
    yield from _over("bf16", LAYERS[:4], (1, 8, 16, 32, 64), backend="triton")
    for dtype in ("int8", "int4", "nvfp4", "mxfp8"):
        yield from _over(dtype, LAYERS[:4], (1, 16, 64, 256, 1024, 4096))
    yield from _over("fp16", LAYERS[:4], (1, 64, 1024))
    yield from _over("tf32", LAYERS[:2], (64, 1024))
    yield from _over("fp32", LAYERS[:2], (64, 1024))
    for dtype in ("bf16", "fp8"):
        yield from _over(dtype, LAYERS, [m for m in M_FULL if m not in M_SOME])


def _squares(dtype: str) -> Iterator[Case]:
    yield from (case(dtype, Shape(side, side, side)) for side in SQUARES)


def _over(dtype: str, layers: tuple[Layer, ...], ms: Any, **axes: Scalar) -> Iterator[Case]:
    for layer in layers:
        yield from (case(dtype, Shape(m, layer.n, layer.k), layer=layer.name, **axes) for m in ms)


def _off_sizes() -> Iterator[Case]:
    """N or K slightly off a round size: misaligned shapes get slower kernels, or none."""
    for dtype in ("bf16", "fp8"):
        for off in OFF_BY:
            yield case(dtype, Shape(512, 4096 + off, 4096), off=f"n+{off}")
            yield case(dtype, Shape(512, 4096, 4096 + off), off=f"k+{off}")
            yield case(dtype, Shape(512, 4096 - off, 4096 - off), off=f"nk-{off}")


def _unaligned(less: tuple[int, ...]) -> Iterator[Case]:
    """Sizes whose rows do not start on 16 bytes, and the round size that they are compared with. fp8 refuses them."""
    for m in UNALIGNED_ROWS:
        yield case("bf16", Shape(m, 4096, 4096), off="none")
        for off in less:
            yield case("bf16", Shape(m, 4096 - off, 4096), off=f"n-{off}")
            yield case("bf16", Shape(m, 4096, 4096 - off), off=f"k-{off}")
            yield case("bf16", Shape(m, 4096 - off, 4096 - off), off=f"nk-{off}")


def case(dtype: str, shape: Shape, **axes: Scalar) -> Case:
    if dtype == "fp8":
        axes = {"scaling": "tensor", **axes}
    key = {"dtype": dtype, "m": shape.m, "n": shape.n, "k": shape.k, **axes}
    # Weights are generated in float32, which needs extra memory.
    needs = int(traffic_bytes(dtype, shape) * 2 + 6 * shape.n * shape.k)
    return Case(
        "gemm", key, lambda device: build(device, dtype, shape, axes), shape.flops, traffic_bytes(dtype, shape), needs
    )


def sustained(dtype: str, side: int) -> Case:
    """A case measured for one second after half a second, when the power cap has lowered the clock."""
    short = case(dtype, Shape(side, side, side))
    return replace(short, key={**short.key, "sustained_s": SUSTAINED_S}, **SUSTAINED)


def _between_tiles() -> Iterator[Case]:
    """Numbers of rows slightly above and between round numbers, as in real prefill and decode steps."""
    chosen = tuple(layer for layer in LAYERS if layer.name in SUSTAINED_LAYERS)
    for axes in ({"dtype": "bf16"}, {"dtype": "fp8", "scaling": "tensor"}, {"dtype": "fp8", "scaling": "row"}):
        yield from _over(layers=chosen, ms=M_BETWEEN, **axes)


def _sustained_layers() -> Iterator[Case]:
    """The products of two dense models over a long prompt, sustained. Squares alone are not representative."""
    for layer in (layer for layer in LAYERS if layer.name in SUSTAINED_LAYERS):
        for dtype in ("bf16", "fp8"):
            short = case(dtype, Shape(SUSTAINED_ROWS, layer.n, layer.k), layer=layer.name)
            yield replace(short, key={**short.key, "sustained_s": SUSTAINED_S}, **SUSTAINED)


def traffic_bytes(dtype: str, shape: Shape) -> int:
    width = WIDTH_BYTES[dtype]
    left = 2.0 if dtype == "int4" else width  # int4 is weight-only
    scales = {"int4": 4 * shape.n * shape.k // GROUP, "nvfp4": (shape.m + shape.n) * shape.k // 16}.get(dtype, 0)
    scales += (shape.m + shape.n) * shape.k // 32 if dtype == "mxfp8" else 0
    out = OUT_BYTES.get(dtype, 2) * shape.m * shape.n
    return int(left * shape.m * shape.k + width * shape.n * shape.k) + scales + out


def build(device: Device, dtype: str, shape: Shape, axes: Mapping[str, Scalar]) -> Work:
    make, path = maker(device, dtype, axes)
    size = traffic_bytes(dtype, shape)
    sets = [make(device, shape) for _ in range(device.sets(size, at_most=64))]

    def check() -> Check:
        return verify(device, sets[0], shape, LIMITS[dtype])

    return Work([one.call for one in sets], shape.flops, size, check, path)


def maker(device: Device, dtype: str, axes: Mapping[str, Scalar]) -> tuple[Callable[[Device, Shape], Operands], str]:
    """The function that creates operands of a dtype, and its path: native or reference."""
    if axes.get("backend") == "triton":
        return triton_operands, "native"
    if dtype == "fp8":
        if device.nvidia and device.capability < (8, 9):
            return fp8_dequantized, "reference"
        scaling = str(axes.get("scaling", "tensor"))
        return lambda at, shape: fp8_operands(at, shape, scaling), "native"
    if dtype in ("nvfp4", "mxfp8"):
        return lambda at, shape: block_scaled_operands(at, shape, dtype), "native"
    if dtype == "int4":
        return int4_operands, "native"
    if dtype == "int8":
        return int8_operands, "native"
    return lambda at, shape: plain_operands(at, shape, dtype), "native"


def verify(device: Device, one: Operands, shape: Shape, limit: float) -> Check:
    """A check of sampled rows and columns against float64. Every output element must be finite, and so written."""
    out = one.call()
    rows = device.torch.randperm(shape.m, device=device.device)[:SAMPLED]
    columns = device.torch.randperm(shape.n, device=device.device)[: 2 * SAMPLED]
    left, right = one.left(rows), one.right(columns)
    reference = exact(left) @ exact(right).T
    sample = out[rows][:, columns]
    error = relative_error(device.torch, sample, reference) if finite(device.torch, out) else math.inf
    return Check(error, limit)


def plain_operands(device: Device, shape: Shape, dtype: str) -> Operands:
    torch = device.torch
    if dtype == "tf32" and not (device.nvidia and device.capability >= (8, 0)):
        raise Skip("no tf32 on this device")
    element = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    x, w = (device.random(side, shape.k, dtype=element) for side in (shape.m, shape.n))
    out = device.poisoned(shape.m, shape.n, dtype=element)
    precision = "high" if dtype == "tf32" else "highest"

    def call() -> Any:
        torch.set_float32_matmul_precision(precision)
        return torch.mm(x, w.t(), out=out)

    return Operands(call, lambda rows: x[rows], lambda columns: w[columns])


def triton_operands(device: Device, shape: Shape) -> Operands:
    from .triton_kernels.thin import thin

    torch = device.torch
    x, w = (device.random(side, shape.k, dtype=torch.bfloat16) for side in (shape.m, shape.n))
    out = device.poisoned(shape.m, shape.n, dtype=torch.bfloat16)
    call = thin(device, x, w, out)
    return Operands(call, lambda rows: x[rows], lambda columns: w[columns])


def fp8_values(device: Device, rows: int, k: int) -> Any:
    """Normal values spread over the range of e4m3, up to 448."""
    return device.random(rows, k, dtype=device.torch.bfloat16, scale=32.0).to(device.torch.float8_e4m3fn)


def fp8_operands(device: Device, shape: Shape, scaling: str) -> Operands:
    torch = device.torch
    x, w = (fp8_values(device, side, shape.k) for side in (shape.m, shape.n))
    make = {"tensor": _tensor_scales, "row": _row_scales, "block128": _block_scales}[scaling]
    call, scale_x, scale_w = make(device, x, w)

    return Operands(
        call, lambda at: indexed(torch, x, at) * scale_x(at), lambda at: indexed(torch, w, at) * scale_w(at)
    )


def _tensor_scales(device: Device, x: Any, w: Any) -> Any:
    torch = device.torch
    a, b = (torch.tensor(value, device=device.device) for value in (0.0173, 0.0119))

    def call() -> Any:
        return torch._scaled_mm(x, w.t(), a, b, out_dtype=torch.bfloat16, use_fast_accum=device.gpu)

    return call, lambda rows: a, lambda columns: b


def _row_scales(device: Device, x: Any, w: Any) -> Any:
    torch = device.torch
    a, b = (torch.rand(len(side), 1, device=device.device) * 0.02 + 0.01 for side in (x, w))

    def call() -> Any:
        return torch._scaled_mm(x, w.t(), a, b.t(), out_dtype=torch.bfloat16, use_fast_accum=True)

    return call, lambda rows: a[rows], lambda columns: b[columns]


def _block_scales(device: Device, x: Any, w: Any) -> Any:
    """A scale per 128 values of x and per 128 x 128 block of w, as in block-quantized checkpoints."""
    torch, functional = device.torch, device.torch.nn.functional
    if not hasattr(functional, "scaled_mm") or device.capability[0] != 9:
        raise Skip("128 x 128 scaled products need torch 2.10 or newer and compute capability 9")
    (m, k), n = x.shape, len(w)
    if k % GROUP or n % GROUP:
        raise Skip("n and k must be multiples of 128")
    blocks = k // GROUP
    a = (torch.rand(blocks, m, device=device.device) * 0.02 + 0.01).t()
    padded = math.ceil(blocks / 4) * 4
    b = torch.rand(n // GROUP, padded, device=device.device) * 0.02 + 0.01

    def call() -> Any:
        recipes = functional.ScalingType
        return functional.scaled_mm(x, w.t(), a, recipes.BlockWise1x128, b.t(), recipes.BlockWise128x128)

    def wide(scales: Any) -> Any:
        return scales.repeat_interleave(GROUP, dim=1)

    return call, lambda rows: wide(a[rows]), lambda at: wide(b[at // GROUP][:, :blocks])


def fp8_dequantized(device: Device, shape: Shape) -> Operands:
    """For chips without fp8 compute: weights are converted to bf16 in every call, then multiplied."""
    torch = device.torch
    x = device.random(shape.m, shape.k, dtype=torch.bfloat16)
    w = fp8_values(device, shape.n, shape.k)

    def call() -> Any:
        return torch.mm(x, w.to(torch.bfloat16).t())

    return Operands(call, lambda rows: x[rows], lambda columns: indexed(torch, w, columns))


def int8_operands(device: Device, shape: Shape) -> Operands:
    torch = device.torch
    if device.nvidia and shape.m <= 16:
        raise Skip("torch._int_mm needs more than 16 rows")

    def whole(rows: int) -> Any:
        return torch.randint(-127, 128, (rows, shape.k), device=device.device, dtype=torch.int8)

    x, w = whole(shape.m), whole(shape.n)
    out = device.poisoned(shape.m, shape.n, dtype=torch.int32)

    def call() -> Any:
        return torch._int_mm(x, w.t(), out=out)

    return Operands(call, lambda rows: x[rows], lambda columns: w[columns])


def int4_operands(device: Device, shape: Shape) -> Operands:
    """4-bit weights in groups of 128, with torch's weight-only kernel."""
    torch = device.torch
    if device.nvidia and device.capability < (8, 0):
        raise Skip("torch's int4 kernel needs compute capability 8.0")
    x = device.random(shape.m, shape.k, dtype=torch.bfloat16)
    whole = torch.randint(0, 16, (shape.n, shape.k), device=device.device, dtype=torch.int32)
    scales = torch.rand(shape.k // GROUP, shape.n, 1, device=device.device) * 0.02 + 0.01
    pairs = torch.cat([scales, torch.randn_like(scales) * 0.02], dim=2).to(torch.bfloat16).contiguous()
    if device.gpu:
        packed = torch._convert_weight_to_int4pack((whole[:, ::2] << 4 | whole[:, 1::2]).to(torch.uint8), 8)
    else:
        packed = torch._convert_weight_to_int4pack_for_cpu(whole, 2)
    multiply = torch._weight_int4pack_mm if device.gpu else torch._weight_int4pack_mm_for_cpu

    def call() -> Any:
        return multiply(x, packed, GROUP, pairs)

    wide = pairs.float().permute(1, 0, 2).repeat_interleave(GROUP, dim=1)
    whole = whole.to(torch.int8)  # only for the check

    def weights(at: Any) -> Any:
        return (whole[at].float() - 8) * wide[at, :, 0] + wide[at, :, 1]

    return Operands(call, lambda rows: x[rows], weights)


# The values of the sixteen e2m1 codes.
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def block_scaled_operands(device: Device, shape: Shape, dtype: str) -> Operands:
    """nvfp4 (16 values per scale) and mxfp8 (32), on chips that support them.

    Every scale is 1, so that the layout of the scales does not affect the check.
    """
    torch = device.torch
    if not device.nvidia or device.capability[0] < 10:
        raise Skip(f"{dtype} products need compute capability 10.0 or newer")

    def rounded(rows: int) -> Any:
        return math.ceil(rows / 128) * 128

    group = 16 if dtype == "nvfp4" else 32
    columns = math.ceil(shape.k / group / 4) * 4
    element = torch.float8_e4m3fn if dtype == "nvfp4" else torch.float8_e8m0fnu
    ones = [torch.ones(rounded(side) * columns, device=device.device).to(element) for side in (shape.m, shape.n)]
    make = _fp4_side if dtype == "nvfp4" else _fp8_side
    (x, left), (w, right) = (make(device, side, shape.k) for side in (shape.m, shape.n))

    def call() -> Any:
        return torch._scaled_mm(x, w.t(), *ones, out_dtype=torch.bfloat16)

    return Operands(call, left, right)


def _fp4_side(device: Device, rows: int, k: int) -> Any:
    torch = device.torch
    codes = torch.randint(0, 256, (rows, k // 2), device=device.device, dtype=torch.uint8)
    values = torch.tensor(FP4_VALUES, device=device.device)

    def decoded(at: Any) -> Any:
        return torch.stack([values[(codes[at] & 15).long()], values[(codes[at] >> 4).long()]], -1).flatten(1)

    return codes.view(torch.float4_e2m1fn_x2), decoded


def _fp8_side(device: Device, rows: int, k: int) -> Any:
    values = fp8_values(device, rows, k)
    return values, lambda at: indexed(device.torch, values, at)
