"""Launch overhead, eager and in graphs, and copies between host and device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from ..axes import MIB
from ..decoders import NETS, Net
from ..measure import Case, Check, Device, Skip, Timing, Work, captured, summary
from . import network

CHAINS = (100, 1100)  # kernels in a graph; the difference gives the cost of one kernel
REPEATS = 20
ISSUE_TOKENS, BLOCKS = 16, 10  # few, so that the launch queue does not fill up


def cases(kind: str, suite: str, device: Device) -> Iterator[Case]:
    yield from _launches(kind) if kind == "launch" else _copies(kind, suite, device)


def _launches(kind: str) -> Iterator[Case]:
    for mode, build in (("eager", eager), ("graph", graph), ("round_trip", round_trip)):
        yield Case(kind, {"mode": mode}, build)

    for net in NETS:
        yield Case(kind, {"mode": "issue", "model": net.name}, _issue(net), setup_s=1.0)


def _issue(net: Net) -> Callable[[Device], Work]:
    def build(device: Device) -> Work:
        """Host time to issue the operators of one decoder block, with a device that is faster than the host."""
        parts = network.halves(device, net)
        if net.experts and not hasattr(device.torch, "_grouped_mm") or not device.gpu:
            raise Skip("needs a GPU and torch's grouped product")
        given = network.Pass.random(device, net, "prefill", 1, ISSUE_TOKENS)
        samples = []
        for _ in range(REPEATS + 1):
            device.synchronize()
            start = time.perf_counter()
            for _ in range(BLOCKS):
                out = network.forward(net, given, parts)
            samples.append((time.perf_counter() - start) / BLOCKS)
        check = network.verify(device, net, given, out)
        return Work([], check=lambda: check, timing=summary(samples[1:]))

    return build


def _counter(device: Device) -> Any:
    return device.torch.zeros(32, device=device.device)


def _counted(device: Device, x: Any, times: int) -> Check:
    """A check that every launch added one."""
    return Check(float((x - times).abs().max()), 0.0, against="exact")


def eager(device: Device) -> Work:
    """Time between launches when the host issues them as fast as it can."""
    x, samples, each = _counter(device), [], 500
    for _ in range(REPEATS + 1):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(each):
            x.add_(1.0)
        device.synchronize()
        samples.append((time.perf_counter() - start) / each)
    check = _counted(device, x, (REPEATS + 1) * each)
    return Work([], check=lambda: check, timing=summary(samples[1:]))


def round_trip(device: Device) -> Work:
    """Time from launching a kernel until the host knows that it has finished."""
    x, samples = _counter(device), []
    for _ in range(200):
        start = time.perf_counter()
        x.add_(1.0)
        device.synchronize()
        samples.append(time.perf_counter() - start)
    check = _counted(device, x, 200)
    return Work([], check=lambda: check, timing=summary(samples[20:]))


def graph(device: Device) -> Work:
    """Time of one more kernel in a graph of dependent kernels."""
    if not device.streams:
        raise Skip("no graphs on this backend")
    x = _counter(device)
    x.add_(1.0)
    short, long = (_replays(device, x, chain) for chain in CHAINS)
    slopes = [(b - a) / (CHAINS[1] - CHAINS[0]) for a, b in zip(short, long, strict=True)]
    check = _counted(device, x, 1 + (REPEATS + 1) * sum(CHAINS))
    return Work([], check=lambda: check, timing=summary(slopes))


def _replays(device: Device, x: Any, chain: int) -> list[float]:
    cuda = device.torch.cuda
    replayed = captured(device, [lambda: x.add_(1.0)], chain)
    if replayed is None:
        raise Skip("graph capture failed on this device")
    seconds = []
    for _ in range(REPEATS + 1):
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replayed.replay()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    replayed.reset()
    return seconds[1:]


def _copies(kind: str, suite: str, device: Device) -> Iterator[Case]:
    if not device.gpu:
        yield Case(kind, {"memory": "host"}, _no_copies, setup_s=0.0)
        return
    sizes = [64 * MIB, MIB, 4096] if suite == "quick" else [4096 << 2 * power for power in range(10)]
    for size in sizes:
        for memory in ("pinned", "pageable"):
            for direction in ("to_device", "to_host"):
                key = {"bytes": size, "memory": memory, "direction": direction}
                yield Case(kind, key, _copy(size, memory, direction), bytes=size, needs_bytes=2 * size)


def _no_copies(device: Device) -> Work:
    raise Skip("the device is the host")


def _copy(size: int, memory: str, direction: str) -> Callable[[Device], Work]:
    def build(device: Device) -> Work:
        torch = device.torch
        host = torch.randint(0, 256, (size,), dtype=torch.uint8)
        if memory == "pinned":
            host = host.pin_memory()
        there = host.to(device.device)
        source, target = (host, there) if direction == "to_device" else (there, host)

        def call() -> Any:
            return target.copy_(source, non_blocking=True)

        timing = _timed_copies(device, call, size)
        return Work([], bytes=size, check=lambda: _same(device, call, source, target), timing=timing)

    return build


def _same(device: Device, call: Callable[[], Any], source: Any, target: Any) -> Check:
    """A check that a copy into a zeroed target is exact."""
    target.zero_()
    call()
    device.synchronize()
    return Check(float((source.cpu() != target.cpu()).sum()) / len(source), 0.0)


def _timed_copies(device: Device, call: Callable[[], Any], size: int) -> Timing:
    """Times copies on the host clock, because the host does part of the work for pageable memory."""
    each = max(1, min(50, 32 * MIB // size))
    samples = []
    for _ in range(12 if size < 512 * MIB else 5):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(each):
            call()
        device.synchronize()
        samples.append((time.perf_counter() - start) / each)
    return summary(samples[1:])
