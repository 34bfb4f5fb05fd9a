"""Another step budget than the framework's: adopted where it needs fewer machines at no smaller probability."""

import shlex
from dataclasses import replace

import pytest

from advisor.answer.options.tuning import step_budget
from advisor.engine.launch.command import launch
from advisor.engine.search import Question
from advisor.engine.search.run import SearchResult, search
from advisor.engine.search.simulated import Design, Simulations
from advisor.engine.search.variants.step_budgets import BUDGETS, other_budgets, starts, with_rows
from advisor.engine.terms.software import Framework
from advisor.engine.terms.workloads.workload import Lengths, Slo, Workload
from advisor.result import StepBudget
from tests.engine.catalog_sample import LLAMA_8B, VLLM, catalog, chip, lane, offer, question, software

ABLE = replace(VLLM, features=(*VLLM.features, "prefix_caching", "chunked_prefill"))
BIG = chip("big")
KNOWN = catalog(frameworks=(ABLE,), offers=(offer("big", 4.0),))
LONG = Lengths(mean_tokens=8000, p95_tokens=16000)
LONG_PROMPTS = question(
    input_tokens=LONG, output_tokens=Lengths(mean_tokens=100, p95_tokens=200), requests_per_s_mean=40.0,
    requests_per_s_peak=60.0, slo=Slo(ttft_p95_s=5.0, tpot_p95_s=0.025), variants="adopt",
)  # fmt: skip
SHORT_PROMPTS = replace(LONG_PROMPTS, input_tokens=Lengths(mean_tokens=500, p95_tokens=900), output_tokens=LONG)


@pytest.fixture(scope="module")
def found() -> SearchResult:
    return search(Question(LONG_PROMPTS, KNOWN))


def as_ranked(asked: Workload) -> SearchResult:
    return search(Question(replace(asked, variants="no"), KNOWN))


def test_a_smaller_budget_needs_fewer_machines_beside_long_prompts(found: SearchResult) -> None:
    plain, s = as_ranked(LONG_PROMPTS).ranked[0], found.ranked[0]
    assert plain.lane.max_batched_tokens == 8192 and s.lane.max_batched_tokens < 8192
    assert s.chips < plain.chips == s.chips_at_default_budget and s.usd_per_hour < plain.usd_per_hour
    assert s.meets_slo and (s.slo_probability or 1.0) >= (plain.slo_probability or 0.0)
    assert min(s.verified.requests, plain.verified.requests) >= 20_000


def test_the_answer_names_the_default_and_what_it_would_need(found: SearchResult) -> None:
    s, plain = found.ranked[0], as_ranked(LONG_PROMPTS).ranked[0]
    assert step_budget(s) == StepBudget(default_tokens=8192, default_accelerator_count=s.chips_at_default_budget)
    assert step_budget(plain) is None


def test_the_table_has_the_row_of_the_adopted_budget(found: SearchResult) -> None:
    s = found.ranked[0]
    assert found.table is not None and found.built is found.table.built
    assert found.table.lanes[s.row_index].max_batched_tokens == s.lane.max_batched_tokens
    assert found.table.plain_row[s.row_index] == s.row_index


def test_nothing_changes_where_no_budget_needs_fewer_machines() -> None:
    plain, s = as_ranked(SHORT_PROMPTS), search(Question(SHORT_PROMPTS, KNOWN))
    assert s.ranked[0].lane == plain.ranked[0].lane and s.ranked[0].chips_at_default_budget is None
    assert [len(r.table.lanes) for r in (plain, s) if r.table] == [len(plain.table.lanes if plain.table else ())] * 2
    assert s.ranked[0].usd_per_hour == plain.ranked[0].usd_per_hour


def test_a_budget_takes_memory_from_the_cache(found: SearchResult) -> None:
    plain = as_ranked(LONG_PROMPTS)
    assert plain.table is not None
    s = plain.ranked[0]
    both = with_rows(Simulations(Question(LONG_PROMPTS, KNOWN), plain.table), [s])
    assert both is not None
    table = both.simulations.table
    rows = sorted([s.row_index, *both.made_from], key=lambda row: table.lanes[row].max_batched_tokens)
    assert table.built is not None and {table.lanes[row].max_batched_tokens for row in rows} == set(BUDGETS)
    cache = [float(table.built.memory.kv_capacity_tokens[row]) for row in rows]
    assert cache == sorted(cache, reverse=True) and cache[0] > cache[-1]


FRAMEWORKS = [
    ("vllm", "--max-num-batched-tokens"),
    ("sglang", "--chunked-prefill-size"),
    ("tensorrt-llm", "--max_num_tokens"),
    ("lmdeploy", "--max-prefill-token-num"),
]


@pytest.mark.parametrize(("slug", "option"), FRAMEWORKS)
def test_the_command_and_every_file_that_starts_the_server_state_the_budget(
    found: SearchResult, slug: str, option: str
) -> None:
    s = found.ranked[0]
    own = replace(s.lane, framework=replace(ABLE, slug=slug, **software(slug)))
    other = next(x for x in other_budgets(replace(own, max_batched_tokens=8192)) if x.max_batched_tokens == 2048)
    started = launch("a/model", replace(s, lane=other), LLAMA_8B, LONG_PROMPTS)
    words = shlex.split(started["command"])
    assert words[words.index(option) + 1] == "2048"
    scripts = [text for text in started["files"].values() if option in text]
    assert len(scripts) >= 2 and all("2048" in text and "8192" not in text for text in scripts)


def under(**changes: object) -> Framework:
    return replace(ABLE, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("framework", "why"),
    [
        (under(features=()), "prompts are not split"),
        (under(launch=None), "no command"),
        (under(slug="tgi", **software("tgi")), "its command states the tokens of prompts together"),
    ],
)
def test_a_framework_that_does_not_state_its_budget_keeps_it(framework: Framework, why: str) -> None:
    assert not list(other_budgets(replace(lane(BIG), framework=framework))), why


def test_sglang_keeps_its_budget_with_attention_dp_which_would_divide_it() -> None:
    sglang = replace(lane(BIG), framework=under(slug="sglang", **software("sglang")))
    wide = replace(sglang, choice=replace(sglang.choice, dp=8))
    assert list(other_budgets(sglang)) and not list(other_budgets(wide))


def test_a_step_holds_a_token_of_every_running_request() -> None:
    known = as_ranked(LONG_PROMPTS)
    assert known.table is not None
    both = with_rows(Simulations(Question(LONG_PROMPTS, KNOWN), known.table), known.ranked[:1])
    assert both is not None
    row = next(r for r in both.made_from if both.simulations.table.lanes[r].max_batched_tokens == 512)
    assert starts(both.simulations, row, 512) and not starts(both.simulations, row, 513)
    assert both.simulations.lane(Design(row=row, column=0, replicas=1)).max_batched_tokens == 512
