"""The planner's cache formats bind the search, and drafts and pools can be switched off each by itself."""

from dataclasses import replace

from advisor.engine.search import Question
from advisor.engine.search.candidates import admissible, enumerate_lanes
from advisor.engine.search.run import search
from advisor.engine.terms.workloads.workload import Constraints
from tests.engine.catalog_sample import catalog, question
from tests.engine.search.test_variants import BUSY, ONE_FRAMEWORK, POOLED, SUMMARIES


def caches(**limits) -> set[str]:
    asked, known = question(constraints=Constraints(**limits)), catalog()
    return {
        lane.choice.kv_dtype
        for lane in enumerate_lanes(Question(asked, known), admissible(Question(asked, known))[1])[0]
    }


def test_caches_are_those_that_are_allowed_and_not_denied():
    assert caches() == {"bf16", "fp8"}
    assert caches(kv_formats_allow=("fp8",)) == {"fp8"}
    assert caches(kv_formats_deny=("fp8",)) == {"bf16"}


def test_without_an_allowed_cache_the_reason_is_said():
    answer = search(Question(question(constraints=Constraints(kv_formats_deny=("bf16", "fp16", "fp8"))), catalog()))
    assert answer.ranked == ()
    assert "none of the KV-cache formats you allow is supported on BIG" in {r.detail for r in answer.rejections}


def test_drafts_and_pools_are_switched_off_each_by_itself():
    assert search(Question(replace(SUMMARIES, apart=False), ONE_FRAMEWORK)).variants
    assert not search(Question(replace(SUMMARIES, drafts=False), ONE_FRAMEWORK)).variants
    assert search(Question(replace(BUSY, drafts=False), POOLED)).variants
    assert not search(Question(replace(BUSY, apart=False), POOLED)).variants
