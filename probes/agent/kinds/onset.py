"""Performance just after idle, when clocks are at their maximum because the power cap does not limit them yet.

The device rests, then runs calls back to back with an event after each. `from_idle_s` in the key is the end of a time
span after the first call started; the time is the median of the calls that finished in that span, over several rests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..measure import Case, Device, Skip, Work, kernel_name, summary

SPANS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
REST_S, RESTS = 1.0, 3
MAX_CALLS = 20_000


def cases(base: Case) -> Iterator[Case]:
    """One case per span; the first measures all of them."""
    setup_s = RESTS * (REST_S + SPANS_S[-1])
    for at, end_s in enumerate(SPANS_S):
        key = {**base.key, "from_idle_s": end_s}
        yield replace(base, key=key, build=_builder(base, end_s), setup_s=0.0 if at else setup_s)


def _builder(base: Case, end_s: float) -> Any:
    def build(device: Device) -> Work:
        name = ("onset", *base.key.items())
        if name not in device.kept:
            device.kept[name] = _measured(device, base.build(device))
        work, ended = device.kept[name]
        start_s = max((s for s in SPANS_S if s < end_s), default=0.0)
        times_s = [each for at, each in ended if start_s < at <= end_s]
        if end_s == SPANS_S[-1]:
            device.kept[name] = None  # frees its buffers
            device.kept.pop(name)
        if len(times_s) < 3:
            raise Skip(f"only {len(times_s)} calls finished in this span")
        timed: Work = replace(work, timing=summary(times_s))
        return timed

    return build


def _measured(device: Device, work: Work) -> tuple[Work, list[tuple[float, float]]]:
    """The work, and for each call: seconds from the start of the first call to its end, and its duration."""
    if not device.streams:
        raise Skip("needs the device's own events")
    for call in work.calls:
        call()
    calls = []
    for _ in range(RESTS):
        calls += _after_rest(device, work)
    return replace(work, kernel=kernel_name(device, work.calls[0])), calls


def _after_rest(device: Device, work: Work) -> list[tuple[float, float]]:
    cuda = device.torch.cuda
    device.synchronize()
    time.sleep(REST_S)
    start = time.perf_counter()
    marks = [cuda.Event(enable_timing=True)]
    marks[0].record()
    while time.perf_counter() - start < SPANS_S[-1] and len(marks) < MAX_CALLS:
        work.calls[len(marks) % len(work.calls)]()
        marks.append(cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) > 16:
            marks[-16].synchronize()  # limits how far the host runs ahead
    device.synchronize()
    ends_s = [marks[0].elapsed_time(mark) / 1e3 for mark in marks]
    return [(end, end - before) for before, end in zip(ends_s[:-1], ends_s[1:], strict=True)]
