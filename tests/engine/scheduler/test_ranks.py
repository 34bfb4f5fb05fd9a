"""Attention-DP ranks that step together wait for each other's prompts."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.scheduler.simulation import simulate
from advisor.engine.step.step_time import Client, Scheduler
from tests.engine.serving_cases import Case, case, fixed, lane, loop_errors

STEP_S, TOKEN_S = 0.01, 1e-5


def alone(ranks: float, output_tokens: int) -> tuple[float, float]:
    """(TTFT, TPOT) of one request of 100 tokens, seconds."""
    client = Client(kind="trace", arrival_s=(0.0,), input_tokens=(100,), output_tokens=(output_tokens,))
    run = simulate(lane(ranks=ranks), 0, Scheduler(), client, fixed(1), fixed(1))
    return run.mean("ttft_s"), run.mean("tpot_s")


def among(c: Case, ranks: int) -> Case:
    return replace(c, times=replace(c.times, ranks=np.array([float(ranks)])))


def test_a_decode_step_lasts_as_long_as_a_prompt_on_any_other_rank() -> None:
    """One step in three has a prompt; so has one of the two other ranks in 1 - (2/3)^2 = 5/9 of the other steps."""
    wait_s = 2 / 3 * 5 / 9 * 99 * TOKEN_S
    assert alone(3, 3)[1] == pytest.approx(STEP_S + TOKEN_S + wait_s)


@pytest.mark.parametrize("ranks", [0, 1])
def test_a_lane_by_itself_waits_for_nobody(ranks: int) -> None:
    assert alone(ranks, 3) == pytest.approx((STEP_S + 100 * TOKEN_S, STEP_S + TOKEN_S))


def test_ranks_that_only_take_prompts_have_nothing_to_wait_for() -> None:
    assert alone(8, 1)[0] == alone(1, 1)[0]


def test_a_static_batch_starts_on_all_ranks_at_once() -> None:
    def tpot_s(ranks: float) -> float:
        run = simulate(
            lane(ranks=ranks), 0, Scheduler(policy="static"), Client(kind="static"), fixed(100), fixed(9), concurrency=4
        )
        return run.mean("tpot_s")

    assert tpot_s(8) == tpot_s(1)


@pytest.mark.parametrize("policy", ["chunked", "prefill_first", "mixed"])
def test_closed_form_and_simulation_agree_on_four_ranks(policy: str) -> None:
    found = [loop_errors(among(case(policy, seed), 4), 0.8) for seed in range(12)]
    tokens_per_s, tpot, _ = np.median(np.abs([error for error in found if error]), axis=0)
    assert tokens_per_s < 0.08 and tpot < 0.08


def test_more_ranks_are_never_faster() -> None:
    def tpot_s(c: Case) -> float:
        client = Client(kind="steady", length_low_fraction=0.8)
        run = simulate(
            c.times, 0, c.scheduler, client, fixed(c.input_tokens), fixed(c.output_tokens), concurrency=16, requests=300
        )
        return run.mean("tpot_s")

    for seed in range(4):
        c = case("chunked", seed)
        assert tpot_s(c) <= tpot_s(among(c, 2)) * 1.02 <= tpot_s(among(c, 8)) * 1.04
