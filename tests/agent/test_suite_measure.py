"""How a kernel is timed and checked, on a device small enough for a test: the CPU with a cache of 64 KiB."""

import math
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch

from probes.agent import facts
from probes.agent.measure import (
    Case,
    Check,
    Device,
    Skip,
    Work,
    finite,
    measure,
    quantile,
    relative_error,
    summary,
    time_work,
)


@pytest.fixture
def device() -> Device:
    return replace(facts.detect(1 << 28), l2_bytes=1 << 16)


def test_quantiles_lie_between_neighbours() -> None:
    assert [quantile([1.0, 2.0, 4.0], share) for share in (0.0, 0.25, 0.5, 1.0)] == [1.0, 1.5, 2.0, 4.0]


def test_a_summary_does_not_depend_on_the_order_of_its_samples() -> None:
    assert summary([3.0, 1.0, 2.0]) == summary([1.0, 2.0, 3.0])
    assert (summary([3.0, 1.0, 2.0]).median_s, summary([1.0]).n) == (2.0, 1)


def test_sets_of_buffers_exceed_the_caches(device: Device) -> None:
    for set_bytes in (1 << 10, 1 << 14, 1 << 16, 1 << 20):
        assert device.sets(set_bytes) * set_bytes >= 3 * device.l2_bytes


def test_sets_of_buffers_stay_under_the_limit_of_memory(device: Device) -> None:
    small = replace(device, l2_bytes=1 << 30, limit_bytes=1 << 24)
    assert small.sets(1 << 20) * (1 << 20) <= 1 << 24
    assert small.sets(1 << 30) == 1


def test_every_set_takes_its_turn(device: Device) -> None:
    seen: list[int] = []
    calls = [lambda at=at: seen.append(at) for at in range(3)]
    timing = time_work(device, Work(calls), window_s=0.002, warm_s=0.001)
    counts = Counter(seen)
    assert set(counts) == {0, 1, 2}
    assert max(counts.values()) - min(counts.values()) <= 3
    assert timing.p10_s <= timing.median_s <= timing.p90_s
    assert timing.n >= 3


def test_a_call_that_would_outlast_its_time_is_skipped_with_its_seconds(device: Device) -> None:
    with pytest.raises(Skip, match="one call took"):
        time_work(device, Work([lambda: time.sleep(0.02)]), 0.01, 0.0, stop_s=time.monotonic())


def test_nan_never_passes_a_check() -> None:
    assert not Check(math.nan, 1.0).ok
    assert not Check(math.inf, 1.0).ok
    assert Check(0.0, 0.0).ok


def test_an_output_with_unwritten_places_has_an_infinite_error(device: Device) -> None:
    out = device.poisoned(4, 4, dtype=torch.float32)
    out[:3] = 1.0
    assert not finite(torch, out)
    assert relative_error(torch, out, torch.ones(4, 4)) == math.inf
    assert relative_error(torch, torch.full((4,), 1.01), torch.ones(4)) == pytest.approx(0.01, rel=1e-4)


def test_random_values_are_normal_whatever_their_precision(device: Device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        values = device.random(1 << 16, dtype=dtype, scale=2.0).double()
        assert float(values.std()) == pytest.approx(2.0, rel=0.05)
        assert int((values == 0).sum()) < 10


def test_a_case_that_was_timed_elsewhere_keeps_its_times(device: Device) -> None:
    timing = summary([1.0, 2.0, 3.0])
    case = Case("launch", {}, lambda given: Work([], timing=timing, check=lambda: Check(0.0, 0.0)))
    assert measure(device, case, 0.01, 0.01, math.inf)[1:] == (timing, Check(0.0, 0.0))
