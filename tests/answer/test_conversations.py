"""Agents and chats: prompts that grow by turns, the KV cache between turns, structured output."""

import math
from typing import Any

import pytest

from advisor.answer.advice import recommend
from advisor.engine.terms import Lengths, Turns, over_turns
from advisor.inputs import take_snapshot, workload_of
from advisor.inputs.check import check_catalog
from advisor.result import Option
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload import WorkloadError, load
from advisor.workload.schema import parse

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ASKED: dict[str, Any] = {
    "name": "agent",
    "model": "Qwen/Qwen3-8B",
    "traffic": {
        "input_tokens": 4000,
        "output_tokens": 200,
        "requests_per_s": 1.5,
        "turns": {"count": 20, "added_tokens": 800, "wait_s": 4},
    },
    "slo": {"ttft_ms_p95": 5000},
    "constraints": {
        "accelerators": {"allow": ["h100-sxm"]},
        "frameworks": {"allow": ["vllm"]},
        "formats": {"allow": ["fp8"]},
        "kv_formats": {"allow": ["bf16"]},
        "acquisition": ["rent"],
        "max_accelerators": 1,
    },
    "variants": "no",
}


def asked(turns: dict[str, Any] | None = None, traffic: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    given = {**ASKED["traffic"], "turns": {**ASKED["traffic"]["turns"], **(turns or {})}, **(traffic or {})}
    return {**ASKED, "traffic": {k: v for k, v in given.items() if v is not None}, **rest}


def first(raw: dict[str, Any]) -> Option:
    spec = parse(raw)
    return recommend(spec, take_snapshot(spec)).recommendations[0]


def refused(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(WorkloadError) as caught:
        check_catalog(parse(raw))
    return {item["field"]: item["message"] for item in caught.value.errors}


def test_hits_and_prompts_follow_from_the_turns():
    """Counted turn by turn: turn t finds the prompt and the answer of the turn before it."""
    first = Lengths(mean_tokens=4000, p95_tokens=4000)
    asked = Turns(count=20, added_tokens=800, wait_s=4, first=first, answer_tokens=200, shared_tokens=2000)
    prompts = [4000 + t * 1000 for t in range(20)]
    hits = sum(prompt + 200 for prompt in prompts[:-1])
    lengths, total, turns = over_turns(asked)
    assert lengths.mean_tokens == sum(prompts) / 20 == turns.mean_prompt_tokens
    assert turns.repeated_hit_fraction == pytest.approx(hits / sum(prompts))
    assert total == pytest.approx((hits + 0.5 * 4000) / sum(prompts))
    assert turns.last_prompt_tokens == prompts[-1] and 20_000 < lengths.p95_tokens < 30_000


def test_a_rate_of_conversations_is_a_rate_of_turns_and_the_form_keeps_it():
    spec = parse(asked({"conversations_per_hour": 360}, {"requests_per_s": None}))
    assert spec["traffic"]["requests_per_s"] == {"mean": 2.0, "peak": 2.0}
    assert parse(spec) == spec == parse(load(as_file(spec)))
    form = WorkloadForm(from_spec(spec))
    assert form.is_valid() and form.spec == spec
    workload = workload_of(spec)
    assert workload.unit and workload.unit.per_request == 1 / 20


def test_conversations_that_wait_longer_than_the_cache_holds_them_are_computed_again():
    """At 1.5 turns/s and 60 s, 85 conversations of 13,300 tokens wait: twice the cache of one H100."""
    short, long = first(asked()), first(asked({"wait_s": 60}))
    kept, lost = short.conversation, long.conversation
    assert kept and lost and kept.hit_fraction == lost.hit_fraction == pytest.approx(250_800 / 270_000, abs=1e-5)
    assert kept.kept_fraction == 1 and kept.reached_hit_fraction == kept.hit_fraction
    assert lost.waiting_per_replica == pytest.approx(1.5 * 60 * 19 / 20)
    assert (lost.waiting_kv_gib or 0) == pytest.approx(85.5 * 13_200 * 2 * 36 * 8 * 128 * 2 / 2**30, rel=0.01)
    assert (lost.kept_fraction or 1) < 0.5 and (lost.reached_hit_fraction or 1) < 0.6
    assert (long.ttft_ms.mean or 0) > 2 * (short.ttft_ms.mean or math.inf)
    assert any("are computed again" in line for line in long.reasons)
    assert short.unit_cost and short.unit_cost.unit == "conversation"
    assert short.unit_cost.usd == pytest.approx(short.usd_per_hour / 3600 / 1.5 * 20, rel=1e-3)


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        (asked({"wait_s": None}), "traffic.turns.wait_s", "is required"),
        (asked({"conversations_per_hour": 10}), "traffic.turns.conversations_per_hour", "contradicts"),
        (asked(kind="batch", batch={"requests": 9, "deadline_hours": 1}, traffic={"requests_per_s": None}),
         "traffic.turns", "cannot be used with kind batch"),
        (asked({"count": 60}), "traffic.input_tokens", "63,200 tokens in turn 60"),
        (asked(kind="embedding", model="BAAI/bge-m3", structured_output="yes", traffic={"turns": None}),
         "structured_output", "generates no tokens"),
    ],
)  # fmt: skip
def test_contradictions_name_their_field(raw: dict[str, Any], field: str, says: str):
    assert says in refused(raw)[field]


def test_structured_output_costs_host_time_and_needs_a_framework_that_has_it():
    free, bound = first(asked({"wait_s": 1})), first(asked({"wait_s": 1}, structured_output="yes"))
    assert (bound.tpot_ms.mean or 0) >= (free.tpot_ms.mean or math.inf)
    assert any("50 us of host time per generated token" in line for line in bound.reasons)
    on_mlx = {"accelerators": {"allow": ["apple-m5-max"]}, "frameworks": {"allow": ["mlx"]}, "acquisition": ["own"]}
    spec = parse(asked(structured_output="yes", constraints=on_mlx))
    answer = recommend(spec, take_snapshot(spec))
    assert not answer.recommendations
    assert {r.accelerator: r for r in answer.rejected}["apple-m5-max"].reason == "unsupported"
