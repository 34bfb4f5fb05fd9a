"""The thin product's settings: tried on the shape itself, the fastest kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..measure import Device, Skip, Work, time_work
from .kernels import add_parts, ready, thin_mm


@dataclass(frozen=True)
class Tiles:
    n: int
    k: int
    parts: int
    warps: int
    stages: int


SETTINGS = (Tiles(16, 256, 1, 4, 4), Tiles(32, 128, 2, 4, 5), Tiles(32, 256, 4, 4, 3), Tiles(64, 128, 4, 4, 4))


def thin(device: Device, x: Any, w: Any, out: Any) -> Callable[[], Any]:
    """A call of out = x w^T for at most 64 rows of x."""
    ready(device)
    (m, k), n = x.shape, len(w)
    if m > 64 or k % 256:
        raise Skip("our thin product takes at most 64 rows and a k that is a multiple of 256")
    kept = ("thin", m, n, k)
    if kept not in device.kept:
        calls = {tiles: _call(device, x, w, out, tiles) for tiles in SETTINGS}
        times = {tiles: time_work(device, Work([call]), 2e-3, 1e-3).median_s for tiles, call in calls.items()}
        device.kept[kept] = min(times, key=lambda tiles: times[tiles])
    return _call(device, x, w, out, device.kept[kept])


def _call(device: Device, x: Any, w: Any, out: Any, tiles: Tiles) -> Callable[[], Any]:
    torch, (m, k), n = device.torch, x.shape, len(w)
    rows = max(16, 1 << (m - 1).bit_length())
    grid = (-(-n // tiles.n), tiles.parts)
    shape = {"BLOCK_M": rows, "BLOCK_N": tiles.n, "BLOCK_K": tiles.k, "SPLIT_K": tiles.parts}
    how = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    if tiles.parts == 1:
        return partial(_straight, grid, x, w, out, (m, n, k), shape, how)
    sums = torch.empty(tiles.parts, m, n, device=device.device, dtype=torch.float32)
    return partial(_in_parts, grid, x, w, sums, out, (m, n, k), shape, how)


def _straight(grid: Any, x: Any, w: Any, out: Any, mnk: Any, shape: Any, how: Any) -> Any:
    thin_mm[grid](x, w, out, *mnk, **shape, **how)
    return out


def _in_parts(grid: Any, x: Any, w: Any, sums: Any, out: Any, mnk: Any, shape: Any, how: Any) -> Any:
    thin_mm[grid](x, w, sums, *mnk, **shape, **how)
    count = out.numel()
    add_parts[(-(-count // 1024),)](sums, out, count, SPLIT_K=shape["SPLIT_K"], BLOCK=1024, num_warps=4)
    return out
