"""Times one kernel: on the device's clock, with cold caches, warmed-up clocks and many launches per sample.

A Work is a list of equal calls over different buffers. The buffers together exceed the last-level cache several
times, so that no call finds its data in cache. On CUDA and ROCm, rounds of the calls are captured in a graph, which
excludes host launch time. One sample is the time of one graph replay divided by its launches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

Scalar = str | int | float | bool
CACHES = 3  # the buffers together have this multiple of the last-level cache size
SAMPLE_S = 250e-6  # minimum duration of a sample, so that the two events around it cost under 1 %
TILE = 1_000_003
LAUNCHES = 512  # maximum nodes of a graph; instantiating one takes about 10 microseconds


class Skip(Exception):
    """The case cannot be measured here; the message is the reason in the result document."""


@dataclass(frozen=True)
class Check:
    """`error`: norm of the difference over norm of the reference."""

    error: float
    limit: float
    against: str = "float64"

    @property
    def ok(self) -> bool:
        return self.error <= self.limit  # False for NaN


@dataclass(frozen=True)
class Work:
    """Calls to time. `flops` and `bytes` are per call, as defined in docs/reference/probes.md."""

    calls: Sequence[Callable[[], Any]]
    flops: int | None = None
    bytes: int | None = None
    check: Callable[[], Check] | None = None
    path: str = "native"
    note: str | None = None
    capture: bool = True
    kernel: str | None = None
    timing: Timing | None = None  # set if it was already timed, because events around calls cannot
    peak_bytes: int | None = None  # of the allocator
    parts_s: Mapping[str, float] | None = None  # parts that were timed beside the call, by name


@dataclass(frozen=True)
class Case:
    """One measurement to make: its key, its cost, and how to build it on a device."""

    kind: str
    key: Mapping[str, Scalar]
    build: Callable[[Device], Work]
    flops: int = 0
    bytes: int = 0
    needs_bytes: int = 0
    window_s: float | None = None
    warm_s: float | None = None
    setup_s: float = 0.1


@dataclass(frozen=True)
class Timing:
    """The time of one call in seconds, over `n` samples, and the sensor readings."""

    median_s: float
    p10_s: float
    p90_s: float
    n: int
    sensors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """The device as the measurements need it, with the torch module."""

    backend: str  # cuda | rocm | mps | cpu
    torch: Any
    device: Any
    memory_bytes: int
    l2_bytes: int
    multiprocessors: int
    capability: tuple[int, int]
    limit_bytes: int
    count: int = 1
    sensors: Callable[[], Mapping[str, float]] | None = None
    kept: dict[Any, Any] = field(default_factory=dict, compare=False)  # shared between cases

    @property
    def gpu(self) -> bool:
        return self.backend != "cpu"

    @property
    def streams(self) -> bool:
        """Whether torch.cuda has events, graphs and streams (CUDA and ROCm)."""
        return self.backend in ("cuda", "rocm")

    @property
    def nvidia(self) -> bool:
        return self.backend == "cuda"

    @property
    def version(self) -> tuple[int, int]:
        major, minor = str(self.torch.__version__).split(".")[:2]
        return int(major), int(minor)

    def stream(self) -> AbstractContextManager[Any]:
        """The suite's own stream, on which work is built, captured and replayed. The default stream cannot be captured,
        and libraries allocate their workspace per stream before the first capture."""
        if not self.streams:
            return nullcontext()
        if "stream" not in self.kept:
            self.kept["stream"] = self.torch.cuda.Stream()
        stream: AbstractContextManager[Any] = self.torch.cuda.stream(self.kept["stream"])
        return stream

    def synchronize(self) -> None:
        if self.streams:
            self.torch.cuda.synchronize()
        elif self.backend == "mps":
            self.torch.mps.synchronize()

    def release(self) -> None:
        """Returns cached memory to the device, to avoid fragmentation."""
        if self.streams:
            self.torch.cuda.empty_cache()
        elif self.backend == "mps":
            self.torch.mps.empty_cache()

    def free_bytes(self) -> int:
        """Memory that a case may use now: 90 % of what is free, within the limit."""
        if not self.streams:
            return self.limit_bytes
        cuda = self.torch.cuda
        idle_bytes = cuda.memory_reserved() - cuda.memory_allocated()
        return min(int((cuda.mem_get_info()[0] + idle_bytes) * 0.9), self.limit_bytes)

    def sets(self, set_bytes: int, at_most: int = 512) -> int:
        """How many sets of buffers of this size keep the caches cold, within the memory limit."""
        wanted = math.ceil(CACHES * self.l2_bytes / max(set_bytes, 1)) + 1
        return max(1, min(wanted, at_most, int(self.limit_bytes * 0.8) // max(set_bytes, 1)))

    def random(self, *shape: int, dtype: Any = None, scale: float = 1.0) -> Any:
        """Normal values with this scale, generated in float32 slice by slice to save memory."""
        dtype = dtype or self.torch.float32
        if not self.gpu and math.prod(shape) > TILE:
            return self._tiled(*shape, dtype=dtype, scale=scale)
        if math.prod(shape) <= 1 << 26 or len(shape) < 2 or dtype.itemsize >= 4:
            return (self.torch.randn(*shape, device=self.device) * scale).to(dtype)
        out = self.torch.empty(*shape, device=self.device, dtype=dtype)
        rows = max(1, (1 << 26) // math.prod(shape[1:]))
        for start in range(0, shape[0], rows):
            part = out[start : start + rows]
            part.copy_(self.torch.randn(part.shape, device=self.device) * scale)
        return out

    def _tiled(self, *shape: int, dtype: Any, scale: float) -> Any:
        """For CPUs, where generating numbers is slow: repeats one draw of prime length, so that rows differ."""
        draw = (self.torch.randn(TILE) * scale).to(dtype)
        return draw.repeat(math.ceil(math.prod(shape) / TILE))[: math.prod(shape)].reshape(shape)

    def poisoned(self, *shape: int, dtype: Any) -> Any:
        """An output filled with NaN (or the lowest integer), to detect elements that are not written."""
        value = math.nan if dtype.is_floating_point else self.torch.iinfo(dtype).min
        return self.torch.full(shape, value, device=self.device, dtype=dtype)


def exact(values: Any) -> Any:
    """The values as float64; on the host for Metal, which has no float64."""
    return (values.cpu() if values.device.type == "mps" else values).double()


def relative_error(torch: Any, out: Any, reference: Any) -> float:
    """||out - reference|| / ||reference|| in float64; infinite if the output is not finite."""
    out, reference = exact(out), exact(reference)
    error = float(torch.linalg.vector_norm(out - reference) / torch.linalg.vector_norm(reference))
    return error if math.isfinite(error) else math.inf


def indexed(torch: Any, values: Any, at: Any) -> Any:
    """values[at] in float32. fp8 is indexed as bytes, because some torch versions cannot index it."""
    if values.dtype.is_floating_point and values.dtype.itemsize == 1:
        return values.view(torch.uint8)[at].view(values.dtype).float()
    return values[at].float()


def finite(torch: Any, out: Any) -> bool:
    return bool(torch.isfinite(out).all()) if out.dtype.is_floating_point else True


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of a sorted list, with linear interpolation."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(samples_s: Sequence[float], sensors: Mapping[str, float] | None = None) -> Timing:
    ordered = sorted(samples_s)
    at = [quantile(ordered, share) for share in (0.5, 0.1, 0.9)]
    return Timing(at[0], at[1], at[2], len(ordered), sensors or {})


def time_work(device: Device, work: Work, window_s: float, warm_s: float, stop_s: float = math.inf) -> Timing:
    """Times the calls for about `window_s` seconds after a warm-up of `warm_s`.

    Skip: three calls would not finish before `stop_s`, a time.monotonic() value.
    """
    first_s = _first_call_s(device, work)
    left_s = stop_s - time.monotonic()
    if first_s * 3 > left_s:
        raise Skip(f"one call took {first_s:.3g} s, {max(left_s, 0):.3g} s were left")
    window_s, warm_s = min(window_s, left_s / 2), min(warm_s, left_s / 4)
    if device.streams:
        return _time_stream(device, work, window_s, warm_s)
    return _time_wall(device, work, window_s, warm_s)


def _first_call_s(device: Device, work: Work) -> float:
    """Runs every call once, to compile and create handles; then times one call."""
    for call in work.calls:
        call()
    device.synchronize()
    start = time.perf_counter()
    work.calls[0]()
    device.synchronize()
    return time.perf_counter() - start


def _time_wall(device: Device, work: Work, window_s: float, warm_s: float) -> Timing:
    """Times on the host clock: CPU calls, which are synchronous, and Metal, synchronized per batch."""
    turn = _turns(work.calls)
    one_s = _batch_wall(device, turn, 1)
    launches = max(1, min(LAUNCHES, math.ceil((SAMPLE_S if device.gpu else 20e-6) / max(one_s, 1e-9))))
    until = time.perf_counter() + warm_s
    while time.perf_counter() < until:
        _batch_wall(device, turn, launches)
    samples: list[float] = []
    until = time.perf_counter() + window_s
    while len(samples) < 3 or (time.perf_counter() < until and len(samples) < 200):
        samples.append(_batch_wall(device, turn, launches))
    return summary(samples, device.sensors() if device.sensors else None)


def _turns(calls: Sequence[Callable[[], Any]]) -> Iterator[Callable[[], Any]]:
    while True:
        yield from calls


def _batch_wall(device: Device, turn: Iterator[Callable[[], Any]], launches: int) -> float:
    start = time.perf_counter()
    for _ in range(launches):
        next(turn)()
    device.synchronize()
    return (time.perf_counter() - start) / launches


def _time_stream(device: Device, work: Work, window_s: float, warm_s: float) -> Timing:
    calls, cuda = work.calls, device.torch.cuda
    once = _events(device, lambda: [call() for call in calls], 3)
    one_s = max(once[1] / len(calls), 1e-7)
    rounds = max(1, min(math.ceil(SAMPLE_S / (one_s * len(calls))), LAUNCHES // len(calls)))
    graph = captured(device, calls, rounds) if work.capture else None
    replay = graph.replay if graph else lambda: [call() for _ in range(rounds) for call in calls]
    launches = rounds * len(calls)
    sample_s = _events(device, replay, 2)[0]
    for _ in range(math.ceil(warm_s / sample_s)):
        replay()
    n = max(5 if sample_s < window_s else 3, min(200, math.ceil(window_s / sample_s)))
    marks = [cuda.Event(enable_timing=True) for _ in range(n + 1)]
    marks[0].record()
    for mark in marks[1:]:
        replay()
        mark.record()
    sensors = _watch(device, marks[n // 2], marks[-1])
    marks[-1].synchronize()
    samples = [a.elapsed_time(b) / 1e3 / launches for a, b in zip(marks[:-1], marks[1:], strict=True)]
    if graph:
        graph.reset()
    return summary(samples, sensors)


def _events(device: Device, call: Callable[[], Any], times: int) -> list[float]:
    """The times of a few calls in seconds, sorted."""
    marks = [device.torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    marks[-1].synchronize()
    return sorted(max(a.elapsed_time(b) / 1e3, 1e-7) for a, b in zip(marks[:-1], marks[1:], strict=True))


def captured(device: Device, calls: Sequence[Callable[[], Any]], rounds: int) -> Any:
    """A graph of the calls, repeated `rounds` times; None if a call cannot be captured."""
    cuda = device.torch.cuda
    graph = cuda.CUDAGraph()
    device.synchronize()
    try:
        # Not torch.cuda.graph, which first runs the garbage collector and empties the allocator (0.1 s).
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(rounds):
                for call in calls:
                    call()
        finally:
            graph.capture_end()
    except RuntimeError as error:
        if "out of memory" in str(error).lower():
            raise
        device.synchronize()
        return None
    return graph


def _watch(device: Device, middle: Any, last: Any) -> Mapping[str, float]:
    """Sensor readings while the device runs the second half of the samples."""
    if device.sensors is None:
        return {}
    while not middle.query():
        time.sleep(2e-4)
    readings = dict(device.sensors())
    while not last.query():
        time.sleep(5e-3)
        if not last.query():
            readings = dict(device.sensors())
    return readings


def kernel_name(device: Device, call: Callable[[], Any]) -> str | None:
    """The name of the longest kernel in one call, from the profiler; None without one."""
    if not device.streams:
        return None
    try:
        profiler = device.torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
            call()
            device.synchronize()
        events = profile.profiler.kineto_results.events()
        spans = [(e.duration_ns(), e.name()) for e in events if "CUDA" in str(e.device_type())]
        return str(max(spans)[1])[:200] if spans else None
    except (RuntimeError, AttributeError, ImportError):
        return None


def measure(
    device: Device, case: Case, window_s: float, warm_s: float, stop_s: float
) -> tuple[Work, Timing, Check | None]:
    """Builds, times and checks one case. Raises Skip or an error from torch."""
    with device.torch.no_grad(), device.stream():
        work = case.build(device)
        timing = work.timing or time_work(device, work, case.window_s or window_s, case.warm_s or warm_s, stop_s)
        check = work.check() if work.check else None
        if work.kernel is None and work.timing is None:
            work = replace(work, kernel=kernel_name(device, work.calls[0]))
    return work, timing, check
