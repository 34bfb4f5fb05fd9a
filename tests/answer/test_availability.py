"""What was sold out at its last reading: said on offers, options and quick answers, and decisive only in ties."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import workload
from advisor.answer.choice import Candidate, arrange
from advisor.inputs import take_snapshot
from advisor.workload import parse
from catalog.loading.load import append_availability
from catalog.models import Accelerator, Price
from tests.answer.test_rule import LEAST, SURE, one, options
from tests.as_json import recommend
from tests.clocks import TODAY


@given(options, st.data())
def test_availability_never_changes_the_order_outside_ties(some: list[Candidate], data: st.DataObject) -> None:
    some = [replace(c, seller=k) for k, c in enumerate(some)]
    gone = data.draw(st.lists(st.booleans(), min_size=len(some), max_size=len(some)))
    plain = arrange(some, LEAST, SURE)
    found = arrange([replace(c, sold_out=left) for c, left in zip(some, gone, strict=True)], LEAST, SURE)
    lead = 1 + len(plain.tied)  # those that cannot be told apart
    assert found.fails == plain.fails
    assert set(found.order[:lead]) == set(plain.order[:lead])
    assert found.order[lead:] == plain.order[lead:]
    if len({gone[k] for k in plain.order[:lead]}) == 1:
        assert found.order == plain.order


def test_of_tied_options_the_one_that_can_be_had_is_first_even_at_a_weaker_price() -> None:
    gone = one(100, 1, sold_out=True)
    assert arrange([gone, one(103, 2, weakness=1)], LEAST, SURE).order == (1, 0)
    assert arrange([gone, one(150, 2)], LEAST, SURE).order == (0, 1)


QUESTION = """
model: Qwen/Qwen3-8B
traffic: {input_tokens: 1000, output_tokens: 200, requests_per_s: 2}
slo: {ttft_ms_p95: 1500, tpot_ms_p95: 60}
constraints:
  accelerators: {allow: [h200-sxm]}
  providers: {allow: [one-cloud, other-cloud]}
  acquisition: [rent]
  formats: {allow: [fp8]}
  frameworks: {allow: [vllm]}
variants: "no"
"""


def priced(provider: str, usd: str) -> None:
    Price.objects.create(
        provider=provider, instance="h200.1", accelerator=Accelerator.objects.get(slug="h200-sxm"), accelerators=1,
        region="any", term="on_demand", usd_per_hour=usd, kind="vm", as_of=TODAY, source="s", origin="provider_api",
        smallest_unit_accelerators=1,
    )  # fmt: skip


def stated(provider: str, state: str, days_ago: int, region: str = "any") -> dict[str, Any]:
    return {
        "provider": provider, "instance": "h200.1", "accelerator": "h200-sxm", "region": region, "term": "on_demand",
        "availability": state, "as_of": TODAY - timedelta(days=days_ago), "source": "their API",
    }  # fmt: skip


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(("usd", "first"), [("3.02", "other-cloud"), ("3.30", "one-cloud")])
def test_a_seller_who_is_sold_out_gives_way_only_at_about_the_same_cost(usd: str, first: str) -> None:
    priced("one-cloud", "3.00")
    priced("other-cloud", usd)
    append_availability([stated("one-cloud", "sold_out", 1)])
    spec = parse(workload.load(QUESTION))
    option = recommend(spec, take_snapshot(spec))["recommendations"][0]
    day = (TODAY - timedelta(days=1)).isoformat()
    gives_way = first == "other-cloud"
    assert (option["provider"], option["sold_out_on"]) == (first, "" if gives_way else day)
    reason = f"at one-cloud, which costs about as much and was sold out on {day}"
    assert any(reason in line for line in option["reasons"]) == gives_way
    assert any(f"sold out at one-cloud on {day}" in line for line in option["warnings"]) == (not gives_way)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_the_newest_statement_of_an_offer_counts_for_a_month() -> None:
    priced("one-cloud", "3.00")
    spec = parse(workload.load(QUESTION))

    def gone() -> list[str]:
        return [p.get("sold_out_on", "") for p in take_snapshot(spec).prices if p["provider"] == "one-cloud"]

    assert append_availability([stated("one-cloud", "sold_out", 31)]) == 1
    assert gone() == [""]  # an old reading says nothing
    assert append_availability([stated("one-cloud", "sold_out", 3)]) == 1
    assert append_availability([stated("one-cloud", "sold_out", 2)]) == 0  # repeated within a week
    assert gone() == [(TODAY - timedelta(days=3)).isoformat()]
    assert append_availability([stated("one-cloud", "available", 2), stated("one-cloud", "sold_out", 4)]) == 1
    assert gone() == [""]
    assert append_availability([stated("one-cloud", "sold_out", 2)]) == 1  # of one day, the last
    assert gone() == [(TODAY - timedelta(days=2)).isoformat()]
