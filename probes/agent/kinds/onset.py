"""What a chip does in the first moments after it was idle: before the power cap bites, clocks are at their highest.

The device rests, then one call follows the other with an event after each. A row's `from_idle_s` is the end of a span
since the first call began; its time is the median of the calls that ended in that span, over several rests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..measure import Case, Device, Skip, Work, kernel_name, summary

SPANS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
REST_S, TIMES = 1.0, 3
MOST_CALLS = 20_000


def cases(of: Case) -> Iterator[Case]:
    """One case for each span; the first measures for all of them."""
    setup_s = TIMES * (REST_S + SPANS_S[-1])
    for at, end_s in enumerate(SPANS_S):
        key = {**of.key, "from_idle_s": end_s}
        yield replace(of, key=key, build=_builder(of, end_s), setup_s=0.0 if at else setup_s)


def _builder(of: Case, end_s: float) -> Any:
    def build(device: Device) -> Work:
        name = ("onset", *of.key.items())
        if name not in device.kept:
            device.kept[name] = _measured(device, of.build(device))
        work, ended = device.kept[name]
        start_s = max((s for s in SPANS_S if s < end_s), default=0.0)
        times_s = [each for at, each in ended if start_s < at <= end_s]
        if end_s == SPANS_S[-1]:
            device.kept[name] = None  # Its buffers with it.
            device.kept.pop(name)
        if len(times_s) < 3:
            raise Skip(f"{len(times_s)} calls ended in this span")
        found: Work = replace(work, timing=summary(times_s))
        return found

    return build


def _measured(device: Device, work: Work) -> tuple[Work, list[tuple[float, float]]]:
    """The work, and of every call (seconds from the first call's begin to its end, its own seconds)."""
    if not device.streams:
        raise Skip("needs the device's own events")
    for call in work.calls:
        call()
    found = []
    for _ in range(TIMES):
        found += _after_rest(device, work)
    return replace(work, kernel=kernel_name(device, work.calls[0])), found


def _after_rest(device: Device, work: Work) -> list[tuple[float, float]]:
    cuda = device.torch.cuda
    device.synchronize()
    time.sleep(REST_S)
    start = time.perf_counter()
    marks = [cuda.Event(enable_timing=True)]
    marks[0].record()
    while time.perf_counter() - start < SPANS_S[-1] and len(marks) < MOST_CALLS:
        work.calls[len(marks) % len(work.calls)]()
        marks.append(cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) > 16:
            marks[-16].synchronize()  # The host stays a few calls ahead, and stops in time.
    device.synchronize()
    ends_s = [marks[0].elapsed_time(mark) / 1e3 for mark in marks]
    return [(end, end - before) for before, end in zip(ends_s[:-1], ends_s[1:], strict=True)]
