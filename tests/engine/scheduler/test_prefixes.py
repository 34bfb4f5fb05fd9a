"""Classes of requests that share prefixes: computed once, kept once, and read from memory once in a decode step."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.scheduler.sampling import arriving, drawing, shared_prefixes
from advisor.engine.scheduler.simulation import Simulation, simulate
from advisor.engine.step.step_time import POISSON, POLICIES, STEADY, USERS, Client, Scheduler, StepTimes
from advisor.engine.terms import Lengths, PrefixClass
from tests.engine.scheduler.test_simulate_jumps import both_ways
from tests.engine.serving_cases import lane

STEP_S, TOKEN_S, READ_S = 0.01, 1e-5, 1e-6
IN, OUT = Lengths(mean_tokens=90, p95_tokens=300), Lengths(mean_tokens=60, p95_tokens=150)


def reading(**changes: float) -> StepTimes:
    """A lane whose cache makes repeated reads free."""
    return lane(**({"decode_s_per_context_token": READ_S, "cache_tokens": 1e6} | changes))


def together(times: StepTimes, prompts: tuple[int, ...], outputs: int, *classes: PrefixClass) -> Simulation:
    """Requests that arrive at once."""
    client = Client(
        kind="trace",
        arrival_s=[0.0] * len(prompts),
        input_tokens=prompts,
        output_tokens=[outputs] * len(prompts),
        prefix_classes=classes,
    )
    return simulate(times, 0, Scheduler(), client, OUT, OUT)


def of(shared: float, fraction: float = 1.0, prefixes: int = 1) -> PrefixClass:
    return PrefixClass(fraction=fraction, shared_tokens=shared, prefixes=prefixes)


@pytest.mark.parametrize(("shared", "found"), [(0, 0), (15, 0), (16, 16), (40, 32), (99, 96), (100, 96), (500, 96)])
def test_whole_blocks_of_the_prefix_are_found_and_a_token_is_always_computed(shared: int, found: int) -> None:
    assert together(reading(), (100,), 1, of(shared)).ttft_s[0] == pytest.approx(STEP_S + (100 - found) * TOKEN_S)
    whole = together(reading(), (96,), 1, of(shared)).ttft_s[0]
    assert whole == pytest.approx(STEP_S + (96 - min(found, 80)) * TOKEN_S)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_decode_step_reads_a_prefix_from_memory_once(count: int) -> None:
    decode_s = STEP_S + count * TOKEN_S + (count * 101 - (count - 1) * 32) * READ_S
    assert together(reading(), (100,) * count, 2, of(40)).tpot_s == pytest.approx([decode_s] * count)


@pytest.mark.parametrize(
    ("changes", "free"), [({}, 1.0), ({"repeat_s_per_context_token": READ_S / 4}, 0.75), ({"cache_tokens": 16}, 0.5)]
)
def test_repeated_reads_take_the_time_of_the_cache_if_it_holds_them(changes: dict[str, float], free: float) -> None:
    decode_s = STEP_S + 2 * TOKEN_S + (202 - free * 32) * READ_S
    assert together(reading(**changes), (100, 100), 2, of(40)).tpot_s == pytest.approx([decode_s] * 2)


def test_requests_with_different_prefixes_read_their_own() -> None:
    alone = together(reading(), (100, 100), 2, of(40, prefixes=2)).tpot_s
    assert alone == pytest.approx([STEP_S + 2 * TOKEN_S + 202 * READ_S] * 2)


def test_a_prefix_takes_memory_once_and_is_freed_with_its_last_request() -> None:
    assert together(reading(), (100,) * 10, 2, of(64)).kv_used_max_tokens == 64 + 10 * 48
    assert together(reading(), (100,) * 10, 2).kv_used_max_tokens == 10 * 112
    tight = reading(kv_capacity_tokens=64 + 10 * 48)
    run = together(tight, (100,) * 50, 2, of(64, prefixes=2))
    assert run.kv_used_max_tokens <= 64 + 10 * 48 and np.isfinite(run.e2e_s).all()


def test_a_request_is_rejected_only_if_the_cache_cannot_hold_it_with_its_prefix() -> None:
    times = reading(kv_capacity_tokens=160)
    assert together(times, (150, 31), 10, of(144)).rejected_requests == 1  # 25 of its own tokens beside 144 shared
    assert together(times, (150, 17), 10, of(144)).rejected_requests == 0


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("kind", [POISSON, STEADY, USERS])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("capacity", [1e6, 1600])
def test_jumps_change_no_bit_of_shared_prefixes(
    capacity: float, policy: str, kind: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = reading(
        kv_capacity_tokens=capacity, repeat_s_per_context_token=READ_S / 3, cache_tokens=70, prefill_s_per_pair=1e-7
    )
    scheduler = Scheduler(
        policy=policy, max_batched_tokens=40, reserve_full=policy == "mixed", asynchronous=asynchronous,
        max_running_requests=12,
    )  # fmt: skip
    classes = (of(64, 0.5, 3), of(100, 0.3))
    client = Client(kind=kind, rate_per_s=4.0, users=20, think_s=2.0, prefix_classes=classes)
    jumped, stepped = both_ways(monkeypatch, times, 0, scheduler, client, IN, OUT, concurrency=12, requests=300, seed=7)
    for field in [name for name in Simulation.__slots__ if name != "work"]:
        np.testing.assert_array_equal(getattr(jumped, field), getattr(stepped, field), err_msg=field)
    assert jumped.work < stepped.work


@settings(max_examples=40, deadline=None)
@given(
    fractions=st.lists(st.floats(0.0, 0.4), max_size=2), prefixes=st.integers(1, 9), count=st.integers(0, 400),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_classes_and_their_prefixes_are_as_frequent_as_stated(
    fractions: list[float], prefixes: int, count: int, seed: int
) -> None:
    classes = [of(10.0 * (k + 1), fraction, prefixes) for k, fraction in enumerate(fractions)]
    prefix, shared = shared_prefixes(classes, count, np.random.default_rng(seed))
    for k, each in enumerate(classes):
        members = (prefix >= k * prefixes) & (prefix < (k + 1) * prefixes)
        assert abs(members.sum() - each.fraction * count) <= 2
        assert np.all(shared[members] == each.shared_tokens)
        uses = np.bincount(prefix[members] - k * prefixes, minlength=prefixes)
        assert uses.max() - uses.min() <= 1
    assert np.all(shared[prefix < 0] == 0)


def test_classes_are_not_clumped() -> None:
    prefix, _ = shared_prefixes([of(16, 0.5)], 4000, np.random.default_rng(3))
    repeats = np.mean(prefix[1:] == prefix[:-1])
    assert repeats == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("policy", POLICIES)
def test_more_sharing_never_makes_decoding_slower(policy: str) -> None:
    def tpot_s(*classes: PrefixClass) -> float:
        client = Client(kind=POISSON, rate_per_s=6.0, prefix_classes=classes)
        times = reading(repeat_s_per_context_token=READ_S / 2)
        lengths = Lengths(mean_tokens=500, p95_tokens=500), OUT
        return simulate(times, 0, Scheduler(policy=policy), client, *lengths, requests=1000).percentile("tpot_s", 95)

    found = [tpot_s(), tpot_s(of(256, prefixes=64)), tpot_s(of(256, prefixes=4)), tpot_s(of(256)), tpot_s(of(496))]
    assert all(after <= before * 1.02 for before, after in zip(found, found[1:], strict=False))
    assert found[-1] < found[0]


def test_millions_of_prefixes_take_no_more_memory_than_the_requests() -> None:
    classes = [PrefixClass(fraction=0.5, shared_tokens=32, prefixes=10**7) for _ in range(2)]
    client = Client(kind=POISSON, rate_per_s=1.0, prefix_classes=tuple(classes))
    sent, _ = arriving(drawing(client, IN, OUT, math.inf), (20, 100, 80), 1)
    assert set(sent.prefix.tolist()) == set(range(100)), "fifty of each class, as many as the largest part has"
