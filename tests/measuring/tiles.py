"""A plain tiled matrix product in Triton, used only by tests/measuring/bench_ceiling.py for comparison with cuBLAS."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probes.agent.kinds.triton_kernels.kernels import kernel, ready
from probes.agent.measure import Device, Work, time_work

try:
    import triton.language as tl
except ImportError:
    tl = None

# (m, n, k) of a tile, warps, stages.
SETTINGS = ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (16, 64, 128, 4, 5), (128, 256, 128, 8, 3))
GROUP = 8


@kernel()
def tiled_mm(
    x, w, out, m, n, k,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of x w^T. Tiles are ordered in groups of rows to reuse cached data."""
    tiles_m, tiles_n = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    tile = tl.program_id(0)
    group = tile // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    rows = (first + tile % (GROUP_M * tiles_n) % height) * TILE_M + tl.arange(0, TILE_M)
    columns = (tile % (GROUP_M * tiles_n)) // height * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    left = x + (rows % m)[:, None] * k + inner[None, :]
    right = w + (columns % n)[None, :] * k + inner[:, None]
    sums = tl.zeros([TILE_M, TILE_N], tl.float32)
    for at in range(0, tl.cdiv(k, TILE_K)):
        live = inner < k - at * TILE_K
        a = tl.load(left, mask=live[None, :], other=0.0)
        b = tl.load(right, mask=live[:, None], other=0.0)
        sums = tl.dot(a, b, sums)
        left += TILE_K
        right += TILE_K
    place = rows[:, None] * n + columns[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def product(device: Device, m: int, n: int, k: int) -> Callable[[Any, Any], Any]:
    """A function (x, w) -> x w^T, autotuned on its first operands."""
    ready(device)
    chosen: list[tuple[int, ...]] = []

    def run(setting: tuple[int, ...], x: Any, w: Any) -> Any:
        tile_m, tile_n, tile_k, warps, stages = setting
        out = device.torch.empty(m, n, device=device.device, dtype=x.dtype)
        grid = (-(-m // tile_m) * -(-n // tile_n),)
        sizes = {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k, "GROUP_M": GROUP}
        tiled_mm[grid](x, w, out, m, n, k, **sizes, num_warps=warps, num_stages=stages)
        return out

    def seconds(setting: tuple[int, ...], x: Any, w: Any) -> float:
        return time_work(device, Work([lambda: run(setting, x, w)]), 0.01, 0.01).median_s

    def fastest(x: Any, w: Any) -> Any:
        if not chosen:
            chosen.append(min(SETTINGS, key=lambda setting: seconds(setting, x, w)))
        return run(chosen[0], x, w)

    return fastest
