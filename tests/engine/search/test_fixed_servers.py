"""A layout, a step budget or seats that the planner gives: nothing else is tried, and what is impossible says why."""

from dataclasses import replace

import pytest

from advisor.engine.search import Question
from advisor.engine.search.candidates import layout_fault
from advisor.engine.search.run import SearchResult, search
from advisor.engine.terms import Constraints
from tests.engine.catalog_sample import LLAMA_8B, VLLM, catalog, chip, offer, question

ABLE = replace(VLLM, features=(*VLLM.features, "prefix_caching", "chunked_prefill"))
KNOWN = catalog(frameworks=(ABLE,), offers=(offer("big", 4.0), offer("big", 30.0, 8), offer("small", 0.7)))


def asked(variants: str = "no", **fixed: object) -> SearchResult:
    return search(Question(question(variants=variants, constraints=Constraints(**fixed)), KNOWN))  # type: ignore[arg-type]


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_only_the_asked_layout_is_tried(tp: int) -> None:
    found = asked(layout=(tp, 0, 0, 0))
    assert found.ranked and {s.lane.choice.tp for s in found.ranked} == {tp}
    assert found.table is not None and {lane.choice.tp for lane in found.table.lanes} == {tp}


def test_a_layout_that_the_search_would_not_try_is_tried_when_asked() -> None:
    """Stages of a pipeline within one host: valid, but no use to anyone who may choose."""
    assert all(s.lane.choice.pp == 1 for s in asked().ranked)
    assert {s.lane.choice.pp for s in asked(layout=(1, 2, 0, 0)).ranked} == {2}


@pytest.mark.parametrize("variants", ["no", "adopt"])
def test_step_budget_and_seats_are_those_given(variants: str) -> None:
    found = asked(variants, max_batched_tokens=1024, max_running_requests=40)
    assert found.ranked
    for s in found.ranked:
        assert (s.lane.max_batched_tokens, s.lane.max_running_requests) == (1024, 40)


def test_few_seats_need_more_replicas() -> None:
    few, many = asked(max_running_requests=2).ranked[0], asked(max_running_requests=256).ranked[0]
    assert few.chips > many.chips and few.meets_slo and many.meets_slo


@pytest.mark.parametrize(("layout", "says"), [
    ((3, 0, 0, 0), "heads cannot be split 3 ways"), ((0, 0, 2, 0), "no experts"),
    ((16, 0, 0, 0), "fast links connect"), ((0, 200, 0, 0), "layers for 200 pipeline stages"),
])  # fmt: skip
def test_an_impossible_layout_says_why_and_what_would_help(layout: tuple[int, int, int, int], says: str) -> None:
    found = asked(layout=layout)
    assert not found.ranked
    refused = next(r for r in found.rejections if r.accelerator == "big")
    assert says in refused.detail and not refused.dead_end
    assert [change.field for change in refused.changes] == ["constraints.layout"]


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (8, 1, 1, 1), (2, 4, 1, 1), (1, 1, 1, 8), (4, 1, 1, 2)])
def test_a_layout_without_fault_splits_everything_evenly(sizes: tuple[int, int, int, int]) -> None:
    assert layout_fault(LLAMA_8B, chip("big"), 8, sizes) == ""
    assert layout_fault(LLAMA_8B, chip("big"), sizes[0] * sizes[3] - 1, sizes) != "" or sizes[0] * sizes[3] == 1
