"""Finalists with drafts or in two pools: proposed where they win, sized, simulated, priced, and started as such."""

import shlex
from dataclasses import replace

import pytest
import yaml

from advisor.engine.launch.command import Launch, launch
from advisor.engine.search import Question
from advisor.engine.search.run import SearchResult, search
from advisor.engine.search.simulated import Scored
from advisor.engine.search.variants.pools_and_drafts import grow_pool, pool_sizes
from advisor.engine.step.drafts.speculative import Acceptance
from advisor.engine.terms.software import Framework
from advisor.engine.terms.workloads.workload import Lengths, Slo, Workload
from tests.engine.catalog_sample import LLAMA_8B, SGLANG, VLLM, catalog, offer, question, software

NGRAM = Acceptance(method="ngram", task="summarisation", accepted_fraction=0.7, source="sample")
ABLE = replace(VLLM, features=(*VLLM.features, "prefix_caching", "disaggregation"), speculative=("ngram",))
ONE_FRAMEWORK = catalog(acceptances=(NGRAM,), frameworks=(ABLE,))
SUMMARIES = question(task="summarisation", slo=Slo(ttft_p95_s=1.0, tpot_p95_s=0.04))
EQUAL = Lengths(mean_tokens=4000, p95_tokens=4000)
BUSY = question(
    input_tokens=EQUAL, output_tokens=Lengths(mean_tokens=500, p95_tokens=500), requests_per_s_mean=60.0,
    requests_per_s_peak=120.0, slo=Slo(ttft_p95_s=3.0, tpot_p95_s=0.012),
)  # fmt: skip
POOLED = catalog(frameworks=(replace(ABLE, speculative=()),), offers=(offer("big", 4.0), offer("big", 30.0, 8)))


@pytest.fixture(scope="module")
def drafted() -> SearchResult:
    return search(Question(SUMMARIES, ONE_FRAMEWORK))


@pytest.fixture(scope="module")
def pooled() -> SearchResult:
    return search(Question(BUSY, POOLED))


def first(answer: SearchResult) -> Scored:
    return answer.variants[0][0]


def test_drafts_are_proposed_where_they_are_better_and_hold(drafted: SearchResult) -> None:
    plan, other = drafted.ranked[0], first(drafted)
    assert plan.lane.draft is None and other.lane.draft is not None and other.lane.draft.method == "ngram"
    assert other.verified.requests <= plan.verified.requests  # the plan's percentiles are reported from a longer run
    assert other.verified.tpot_p95_s < plan.verified.tpot_p95_s and other.usd_per_hour <= plan.usd_per_hour
    assert other.verified.ttft_p95_s <= 1.0 and other.meets_slo


@pytest.mark.parametrize(
    ("asked", "why"),
    [(replace(SUMMARIES, task="chat"), "no acceptance"), (replace(SUMMARIES, variants="no"), "not wanted")],
)
def test_nothing_is_proposed_without_a_published_figure_or_when_not_asked(asked: Workload, why: str) -> None:
    assert search(Question(asked, ONE_FRAMEWORK)).variants == {}, why


def test_drafts_are_ranked_among_all_and_only_where_they_are_better(drafted: SearchResult) -> None:
    answer = search(Question(replace(SUMMARIES, variants="adopt"), ONE_FRAMEWORK))
    assert answer.ranked[0].lane.draft is not None and answer.variants == {}
    plain = {s.lane.choice.accelerator.slug: s.usd_per_hour for s in drafted.ranked}
    for s in answer.ranked:  # at the same cost the plain deployment is the simpler one
        assert s.usd_per_hour < plain[s.lane.choice.accelerator.slug] or s.lane.draft is None
    costs = [s.usd_per_hour for s in answer.ranked]
    assert costs == sorted(costs) and costs[0] <= drafted.ranked[0].usd_per_hour


def test_two_pools_are_sized_to_the_peak_and_cost_less(pooled: SearchResult) -> None:
    plan, other = pooled.ranked[0], first(pooled)
    assert other.pools is not None and other.pools.transfer_s > 0
    assert other.pools.prefill_replicas + other.pools.decode_replicas == other.replicas < plan.replicas
    assert other.usd_per_hour < plan.usd_per_hour
    assert other.verified.ttft_p95_s <= 3.0 and other.verified.tpot_p95_s <= 0.012


def test_separate_pools_make_a_chip_feasible_that_other_designs_leave_over_a_limit() -> None:
    few = replace(BUSY.constraints, max_accelerators=20)
    asked = replace(BUSY, slo=Slo(ttft_p95_s=3.0, tpot_p95_s=0.009), constraints=few)
    assert search(Question(replace(asked, variants="no"), POOLED)).ranked == ()
    found = search(Question(replace(asked, variants="adopt"), POOLED))
    assert [s.pools is not None and s.meets_slo and s.chips <= 20 for s in found.ranked] == [True]
    slug = found.ranked[0].lane.choice.accelerator.slug
    assert slug not in {r.accelerator for r in found.rejections} and not found.near_misses
    assert search(Question(replace(asked, variants="adopt", apart=False), POOLED)).ranked == ()


def test_pools_grow_with_the_peak(pooled: SearchResult) -> None:
    s, built = pooled.ranked[0], pooled.built
    assert built is not None
    lane = replace(s.lane, max_running_requests=512)
    sizes = [
        pool_sizes(replace(BUSY, requests_per_s_peak=peak), built, s.row_index, lane) for peak in (60.0, 120.0, 240.0)
    ]
    assert all(sizes)
    totals = [sum(size[:2]) for size in sizes if size]
    assert totals == sorted(totals) and totals[2] >= 3 * totals[0]


def test_the_command_of_a_draft_names_it_in_one_quoted_word(drafted: SearchResult) -> None:
    words = shlex.split(launch("a/model", first(drafted), LLAMA_8B, SUMMARIES)["command"])
    config = yaml.safe_load(words[words.index("--speculative-config") + 1])
    draft = first(drafted).lane.draft
    assert draft is not None and config["num_speculative_tokens"] == draft.tokens and config["method"] == "ngram"


def test_sglang_and_tensorrt_llm_are_told_in_their_own_words(drafted: SearchResult) -> None:
    s = first(drafted)

    def under(framework: Framework) -> Launch:
        return launch("a/model", replace(s, lane=replace(s.lane, framework=framework)), LLAMA_8B, SUMMARIES)

    words = shlex.split(under(SGLANG)["command"])
    assert words[words.index("--speculative-algorithm") + 1] == "NGRAM"
    trtllm = replace(VLLM, slug="tensorrt-llm", **software("tensorrt-llm"))
    section = yaml.safe_load(under(trtllm)["files"]["trtllm-options.yaml"])["speculative_config"]
    assert s.lane.draft is not None and section["max_draft_len"] == s.lane.draft.tokens


def test_each_pool_has_a_script_of_its_own(pooled: SearchResult) -> None:
    files = launch("a/model", first(pooled), LLAMA_8B, BUSY)["files"]
    assert "kv_role" in files["serve.sh"] and "kv_role" in files["serve-prefill.sh"]
    pools = first(pooled).pools
    assert pools is not None and f"prefill pool: {pools.prefill_replicas} replicas" in files["serve-prefill.sh"]


def test_a_pool_of_thousands_grows_in_few_steps_and_a_small_one_by_one() -> None:
    assert [grow_pool(n) for n in (1, 2, 39)] == [2, 3, 40]
    steps, replicas = 0, 10_000
    while replicas < 20_000:
        steps, replicas = steps + 1, grow_pool(replicas)
    assert steps < 20
