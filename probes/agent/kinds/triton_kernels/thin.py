"""Autotuning of our Triton kernel for products with few rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...measure import Device, Skip, Work, time_work
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
    """A call of out = x w^T for an x of at most 64 rows. Skip: the shape is not supported."""
    ready(device)
    (m, k), n = x.shape, len(w)
    if m > 64 or k % 256:
        raise Skip("this Triton kernel needs at most 64 rows and a k that is a multiple of 256")
    key = ("thin", m, n, k)
    if key not in device.kept:
        calls = {tiles: _call(device, x, w, out, tiles) for tiles in SETTINGS}
        times = {tiles: time_work(device, Work([call]), 2e-3, 1e-3).median_s for tiles, call in calls.items()}
        device.kept[key] = min(times, key=lambda tiles: times[tiles])
    return _call(device, x, w, out, device.kept[key])


def _call(device: Device, x: Any, w: Any, out: Any, tiles: Tiles) -> Callable[[], Any]:
    torch, (m, k), n = device.torch, x.shape, len(w)
    rows = max(16, 1 << (m - 1).bit_length())
    grid = (-(-n // tiles.n), tiles.parts)
    shape = {"BLOCK_M": rows, "BLOCK_N": tiles.n, "BLOCK_K": tiles.k, "SPLIT_K": tiles.parts}
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    if tiles.parts == 1:
        return partial(_whole_k, grid, x, w, out, (m, n, k), shape, options)
    sums = torch.empty(tiles.parts, m, n, device=device.device, dtype=torch.float32)
    return partial(_split_k, grid, x, w, sums, out, (m, n, k), shape, options)


def _whole_k(grid: Any, x: Any, w: Any, out: Any, mnk: Any, shape: Any, options: Any) -> Any:
    thin_mm[grid](x, w, out, *mnk, **shape, **options)
    return out


def _split_k(grid: Any, x: Any, w: Any, sums: Any, out: Any, mnk: Any, shape: Any, options: Any) -> Any:
    thin_mm[grid](x, w, sums, *mnk, **shape, **options)
    count = out.numel()
    add_parts[(-(-count // 1024),)](sums, out, count, SPLIT_K=shape["SPLIT_K"], BLOCK=1024, num_warps=4)
    return out
