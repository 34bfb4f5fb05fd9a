"""Each ablation step changes one switch of the step before, and the plain server matches `estimate`."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.optimisation.ablation import AblationStep, ablation_steps, estimate_steps
from advisor.engine.optimisation.plan import uncapped
from advisor.engine.scheduler.closed_form import closed_loop
from advisor.engine.scheduler.percentiles import scheduler_of
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.drafts.speculative import Draft
from advisor.engine.step.lane import Lane, lanes
from advisor.engine.step.step_time import Demand
from tests.engine.catalog_sample import BF16, FP8, LLAMA_8B, catalog, question
from tests.engine.optimisation.test_tuning import changed

USERS = 64
DEMAND = Demand(input_tokens=1024, output_tokens=256)
NGRAMS = Draft(
    method="ngram", name="n-grams", tokens=3, accepted_fraction=0.6, shown_tokens=2.176, pass_fraction=0.0,
    head_bytes=0.0, task="any", source="sample",
)  # fmt: skip


@pytest.fixture(scope="module")
def lane() -> Lane:
    found = search(Question(question(), catalog())).ranked[0].lane
    return uncapped(replace(found, choice=replace(found.choice, quantization=BF16, kv_dtype="bf16")))


def steps(lane: Lane, fp8: bool = True, drafts: bool = True) -> list[AblationStep]:
    return ablation_steps(lane, USERS, FP8 if fp8 else None, 0.5, NGRAMS if drafts else None)


def test_one_switch_a_step(lane: Lane) -> None:
    found = steps(lane)
    moved = [changed(a.setup, b.setup) for a, b in zip(found, found[1:], strict=False)]
    assert moved == [["batching"], ["graphs"], ["quantization"], ["kv_dtype"], ["cached_fraction"], ["draft"]]
    assert [s.max_running_requests for s in found] == [1, *[USERS] * 6]


def test_what_the_chip_has_not_is_left_out(lane: Lane) -> None:
    assert [s.name for s in steps(lane, fp8=False, drafts=False)] == [
        "eager, one request at a time", "eager", "graphs", "prefix caching, 50% of a prompt cached",
    ]  # fmt: skip


def test_the_plain_server_is_the_closed_loop_of_the_engine(lane: Lane) -> None:
    built, found = lanes(LLAMA_8B, [lane]), steps(lane)
    loop = closed_loop(built.times, np.array([float(USERS)]), DEMAND, scheduler_of(lane))
    plain = estimate_steps(LLAMA_8B, found, DEMAND, USERS)[2]
    assert found[2].name == "graphs"
    assert plain.output_tokens_per_s == pytest.approx(float(loop.output_tokens_per_s[0]))
    assert plain.tpot_mean_s == pytest.approx(float(loop.tpot_mean_s[0]))


def test_one_at_a_time_the_others_queue(lane: Lane) -> None:
    """64 users, each 256 tokens at the pace of one: whoever comes waits for the other 63."""
    alone = estimate_steps(LLAMA_8B, steps(lane), DEMAND, USERS)[0]
    each_s = DEMAND.output_tokens / alone.output_tokens_per_s
    assert alone.ttft_mean_s == pytest.approx((USERS - 1) * each_s, rel=0.05)
    assert alone.tpot_mean_s * (DEMAND.output_tokens - 1) < each_s


def test_no_switch_but_drafts_makes_it_slower_here(lane: Lane) -> None:
    """Drafts may: their search and the host that waits for each step cost more than they bring to a quick step."""
    rates = [r.output_tokens_per_s for r in estimate_steps(LLAMA_8B, steps(lane, drafts=False), DEMAND, USERS)]
    assert all(b >= a * 0.999 for a, b in zip(rates, rates[1:], strict=False)) and rates[1] > 5 * rates[0]
