"""A small model that drafts for a large one: its passes and its memory are computed from its own shape."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.network import DraftRelease
from advisor.engine.network.model import parameters
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.drafts.heads import drafting_choice
from advisor.engine.step.drafts.speculative import (
    Acceptance,
    drafts_of,
    published_draft,
    speculative_times,
    tokens_per_step,
)
from advisor.engine.step.lane import lanes
from advisor.engine.terms.workloads.demand import Trace, Users
from advisor.engine.terms.workloads.kinds import BATCH
from advisor.engine.terms.workloads.workload import Slo
from tests.engine.catalog_sample import LLAMA_70B, catalog, chip, dense, lane, offer, question
from tests.engine.search.test_variants import ABLE, NGRAM, ONE_FRAMEWORK, SUMMARIES

LARGE = replace(LLAMA_70B, draft_releases=(DraftRelease(method="draft", hf_id="meta-llama/Llama-3.2-1B"),))
SMALL = replace(dense(16, 2048, 32, 8, 64, 8192, 128256), slug="meta-llama-llama-3-2-1b")
DRAFTS = Acceptance(method="draft", task="chat", accepted_fraction=0.7, source="sample")
KNOWN = catalog(
    model=LARGE, draft_model=SMALL, acceptances=(DRAFTS,), frameworks=(replace(ABLE, speculative=("draft",)),),
    offers=(offer("big", 30.0, 8),), accelerators=catalog().accelerators[:1],
)  # fmt: skip
ASKED = question(task="chat", slo=Slo(ttft_p95_s=2.0, tpot_p95_s=0.04), requests_per_s_mean=0.5, requests_per_s_peak=1)


def draft(tokens: int = 3):
    return next(d for d in drafts_of(LARGE, DRAFTS, SMALL) if d.tokens == tokens)


def test_a_step_is_a_verification_and_a_pass_of_the_small_model_for_each_draft():
    own = lane(chip("h100"))
    large, small = lanes(LARGE, [own]).times, lanes(SMALL, [replace(own, choice=drafting_choice(own.choice))]).times
    both = speculative_times(large, 3, 0.7, draft_times=small)
    verified = np.interp(4.0, large.grid_tokens, large.linear_s[0])
    assert both.linear_s[0][0] == pytest.approx((verified + 3 * small.linear_s[0][0]) / tokens_per_step(0.7, 3))
    read = large.decode_s_per_context_token + 3 * small.decode_s_per_context_token
    assert both.decode_s_per_context_token == pytest.approx(read / tokens_per_step(0.7, 3))
    assert both.prefill_s_per_pair == pytest.approx(large.prefill_s_per_pair + small.prefill_s_per_pair)


def test_both_models_are_held_and_both_caches():
    plain = lane(chip("h100", memory_bytes=200e9))
    alone, beside = (lanes(LARGE, [own]).memory for own in (plain, replace(plain, draft=draft())))
    assert beside.weights_bytes[0] - alone.weights_bytes[0] == pytest.approx(2.0 * parameters(SMALL), rel=0.02)
    cache = 2 * 16 * 8 * 64 * 2 * plain.context_tokens  # keys and values, layers, heads, size of one, bytes
    assert beside.kv_bytes_per_sequence[0] - alone.kv_bytes_per_sequence[0] == pytest.approx(cache, rel=0.01)


def test_it_is_proposed_and_named():
    answer = search(Question(ASKED, KNOWN))
    found = answer.variants[0][0].lane.draft
    assert found is not None and found.model is SMALL
    assert published_draft(LARGE, "draft") == "meta-llama/Llama-3.2-1B"


@pytest.mark.parametrize("small", [None, replace(SMALL, vocab=32000)])
def test_not_without_a_small_model_of_the_same_vocabulary(small):
    assert search(Question(ASKED, replace(KNOWN, draft_model=small))).variants == {}


# n-grams that hold seldom do not pay for their search on the host in a batch
SURE = replace(ONE_FRAMEWORK, acceptances=(replace(NGRAM, accepted_fraction=0.9),))
BY_HAND = {"requests_per_s_mean": 2.0, "requests_per_s_peak": 4.0}


@pytest.mark.parametrize(
    "asked",
    [
        replace(SUMMARIES, kind=BATCH, slo=Slo(), deadline_s=8 * 3600.0, requests_per_s_mean=1.0),
        replace(SUMMARIES, users=Users(active_requests=60.0, think_s=15.0), **BY_HAND),
        replace(
            SUMMARIES,
            trace=Trace(
                arrival_s=tuple(i * 0.5 for i in range(200)), input_tokens=(1000,) * 200, output_tokens=(200,) * 200
            ),
            **BY_HAND,
        ),
    ],
    ids=["batch", "users", "trace"],
)
def test_drafts_are_tried_for_a_batch_for_users_and_for_a_trace(asked):
    answer = search(Question(asked, SURE))
    plan, other = answer.ranked[0], answer.variants[0][0]
    assert other.lane.draft is not None and other.meets_slo
    assert other.verified.tpot_p95_s < plan.verified.tpot_p95_s
    assert (other.verified.of_trace is None) == (asked.trace is None)
