"""The planner's cache formats bind the search, and drafts and pools can be switched off each by itself."""

from dataclasses import replace

from advisor.engine.network.release import Release
from advisor.engine.search import Question
from advisor.engine.search.candidates import admissible, enumerate_lanes
from advisor.engine.search.run import search
from advisor.engine.terms.workloads.workload import Constraints, Slo
from tests.engine.catalog_sample import BF16, FP8, LLAMA_8B, catalog, question, rules
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


def test_a_format_outside_the_quality_limit_says_so_and_names_no_framework():
    lossy = replace(FP8, slug="fp6", name="FP6", weights_dtype="fp6", bits_per_weight=6.0, quality="lossy")
    known = replace(catalog(), quantizations=(BF16, FP8, lossy))
    answer = search(Question(question(constraints=Constraints(formats_allow=("fp6",))), known))
    said = "FP6 is lossy, outside constraints.quality: near_lossless"
    assert not answer.ranked and any(r.detail.startswith(said) for r in answer.rejections)


def test_a_limit_on_the_count_names_the_memory_where_the_weights_need_more_than_one_chip():
    asked = question(constraints=Constraints(max_accelerators=1), slo=Slo())
    large = replace(catalog(), model=replace(LLAMA_8B, blocks=(replace(LLAMA_8B.blocks[0], count=700),)))
    found = {r.reason: r.detail for r in search(Question(asked, large)).rejections}
    assert "because the weights take" in found["too_many"] and "but the limit is 1" in found["too_many"]
    small = search(Question(replace(asked, requests_per_s_mean=500.0, requests_per_s_peak=500.0), catalog()))
    others = [r.detail for r in small.rejections if r.accelerator != "tiny"]  # which needs several for the weights
    assert others and all("weights take" not in detail for detail in others)


def test_scales_by_block_are_not_made_where_one_scale_per_tensor_runs():
    block = replace(FP8, slug="fp8-block", name="FP8 block", bits_per_weight=8.002, block_scaled=True)

    def formats(model, *quantizations, allow=()) -> set[str]:
        served = tuple(replace(f, weights=rules("bf16", "fp8", "fp8-block")) for f in catalog().frameworks)
        known = replace(catalog(), model=model, quantizations=(BF16, *quantizations), frameworks=served)
        asked = Question(question(constraints=Constraints(formats_allow=allow)), known)
        return {lane.choice.quantization.slug for lane in enumerate_lanes(asked, admissible(asked)[1])[0]}

    assert "fp8-block" not in formats(LLAMA_8B, FP8, block)
    assert "fp8-block" in formats(LLAMA_8B, FP8, block, allow=("fp8-block",))  # asked for by name
    assert "fp8-block" in formats(LLAMA_8B, block)  # as in a framework without the other
    made = replace(LLAMA_8B, conversions=(Release(hf_id="org/model-fp8-block", format="fp8-block"),))
    assert {"fp8", "fp8-block"} <= formats(made, FP8, block)
