"""What a fixed deployment serves: from its own keys, a trace or a workload, and what contradicts itself."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.workload import WorkloadError
from advisor.workload.fixed.deployment import Deployment, fixed, parse_deployment, parse_section
from tests.workload.test_deployment import ASKED, CAPABLE, EXPERTS, KNOWN, built, refused

TRACE = {"csv": "arrival_s,input_tokens,output_tokens\n5,100,10\n6,300,20\n9,200,60\n"}
WORKLOAD = {
    "model": "llama",
    "traffic": {
        "input_tokens": {"mean": 900, "p95": 2700},
        "output_tokens": 150,
        "requests_per_s": {"mean": 2, "peak": 5},
        "burstiness": 2.5,
        "prefixes": [{"share": 0.5, "tokens": 400, "count": 8}],
    },
    "adapters": {"count": 4},
}
SERVER = {"accelerator": "h100", "weights": "bf16"}


def stated(**changes: Any) -> Deployment:
    return parse_deployment({**SERVER, "workload": WORKLOAD} | changes)


def errors(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(WorkloadError) as caught:
        parse_deployment(raw)
    return {item["field"]: item["message"] for item in caught.value.errors}


def test_the_server_is_stated_key_by_key() -> None:
    case = built(seats=64, max_batched_tokens=2048, memory_fraction=0.8, enforce_eager=True, http=False).case
    assert (case.max_batch, case.max_batched_tokens, case.memory_fraction, case.eager) == (64, 2048, 0.8, True)
    assert not case.client.http and built().case.client.http and not built().case.eager


def test_lengths_are_drawn_where_a_p95_is_stated() -> None:
    case = built(isl_p95=3000, osl_p95=500).case
    assert (case.inputs.p95_tokens, case.outputs.p95_tokens) == (3000, 500)
    assert (built().case.inputs.p95_tokens, built().case.input_p95) == (1000, None)


@pytest.mark.parametrize(("changes", "field"), [
    ({"isl_p95": 999}, "isl_p95"), ({"isl_p95": 3900}, "isl_p95"), ({"osl_p95": 800}, "osl_p95"),
    ({"isl_p95": 2000, "length_spread": "0.8:1.0"}, "length_spread"),
    ({"model": "t5", "isl": 100, "isl_p95": 200}, "isl_p95"),
    ({"rate": 2, "client": "poisson:2"}, "rate"), ({"rate": 2, "users": {"active": 5, "think_s": 1}}, "users"),
    ({"burstiness": 3}, "burstiness"), ({"burstiness": 3, "users": {"active": 5, "think_s": 1}}, "burstiness"),
    ({"prefixes": [{"share": 0.6, "tokens": 10}, {"share": 0.5, "tokens": 20}]}, "prefixes"),
    ({"prefixes": [{"share": 0.6, "tokens": 10}], "prefix_cache_hit_rate": 0.1}, "prefix_cache_hit_rate"),
    ({"adapters": {"count": 2, "active": 3}}, "adapters.active"), ({"adapters": 2}, "adapters"),
    ({"speculative": {"method": "mtp", "k": 1, "acceptance": 0.8}}, "speculative.method"),
    ({"prefill_pool": {"tp": 2}, "decode_pool": {"tp": 2}, "seats": 8}, "seats"),
    ({"prefill_pool": {"tp": 2}, "decode_pool": {"tp": 2}, "osl_p95": 300}, "osl_p95"),
])  # fmt: skip
def test_what_cannot_be_is_refused_at_its_field(changes: dict[str, Any], field: str) -> None:
    message, allowed = refused(**changes)[field]
    assert message and allowed


@pytest.mark.parametrize(("changes", "field"), [
    ({"seats": 0}, "seats"), ({"memory_fraction": 1.2}, "memory_fraction"), ({"rate": 0}, "rate"),
    ({"speculative": {"method": "guess", "k": 3}}, "speculative.method"), ({"enforce_eager": "maybe"}, "enforce_eager"),
    ({"prefixes": [{"share": 2, "tokens": 10}]}, "prefixes[0].share"), ({"trace": {"csv": "a,b\n1,2\n"}}, "isl"),
    ({"isl": None, "trace": {"csv": "a,b\n1,2\n"}}, "trace"), ({"isl": None, "trace": "file.csv"}, "trace"),
])  # fmt: skip
def test_values_out_of_range_name_their_field(changes: dict[str, Any], field: str) -> None:
    raw = {**ASKED, **changes}
    if "trace" in changes:
        del raw["osl"]
    assert field in errors(raw)


def test_a_rate_comes_with_its_burstiness() -> None:
    client = built(rate=12, burstiness=3).case.client
    assert (client.kind, client.rate_per_s, client.arrival_cv) == ("poisson", 12, 3)
    assert built(client="poisson:12").case.client.arrival_cv == 1


def test_a_trace_is_replayed_with_its_own_lengths() -> None:
    raw = {key: value for key, value in ASKED.items() if key not in ("isl", "osl")}
    d = parse_deployment({**raw, "trace": TRACE})
    assert (d.isl, d.osl) == (200, 30)
    client = built(**{"isl": None, "osl": None, "trace": TRACE}).case.client
    assert client.kind == "trace" and client.trace is not None
    assert client.trace.arrival_s == (0, 1, 4) and client.trace.output_tokens == (10, 20, 60)
    assert "contradicts trace" in errors({**ASKED, "trace": TRACE})["isl"]


def test_a_workload_gives_model_lengths_arrivals_and_prefixes() -> None:
    d = stated()
    assert (d.model, d.isl, d.isl_p95, d.osl, d.osl_p95) == ("llama", 900, 2700, 150, None)
    assert (d.rate, d.burstiness, d.adapters and d.adapters.count) == (5, 2.5, 4)
    assert [(p.share, p.tokens, p.count) for p in d.prefixes] == [(0.5, 400, 8)]


def test_keys_beside_the_workload_replace_its_values() -> None:
    assert (stated(rate=7).rate, stated(rate=7).burstiness, stated(osl=60).osl) == (7, None, 60)
    closed = stated(concurrency=32)
    assert (closed.rate, closed.burstiness, closed.concurrency, closed.isl_p95) == (None, None, 32, 2700)
    replayed = stated(trace=TRACE)
    assert (replayed.isl, replayed.rate, replayed.isl_p95) == (200, None, None)


def test_users_and_traces_of_a_workload_stay_what_they_are() -> None:
    lengths = {"input_tokens": 900, "output_tokens": 150}
    people = {"model": "llama", "traffic": {**lengths, "users": {"active": 50, "think_s": 20}}}
    d = stated(workload=people)
    assert d.users is not None and (d.users.active, d.users.think_s, d.rate) == (50, 20, None)
    recorded = stated(workload={"model": "llama", "traffic": {"trace": TRACE}})
    assert (recorded.isl, recorded.osl, recorded.trace is not None) == (200, 30, True)


@pytest.mark.parametrize(("workload", "field"), [
    ("file.yaml", "workload"), ({"model": "llama"}, "workload.traffic"),
    ({**WORKLOAD, "structured_output": "yes"}, "workload.structured_output"),
    ({"model": "llama", "traffic": {"trace": "file.csv"}}, "workload.traffic"),
    ({**WORKLOAD, "traffic": {**WORKLOAD["traffic"], "requests_per_s": -1}}, "workload.traffic.requests_per_s.mean"),
    ({"kind": "finetuning", "model": "llama", "finetuning": {"tokens": 1e6}}, "workload.kind"),
])  # fmt: skip
def test_a_workload_that_is_not_timed_says_why(workload: Any, field: str) -> None:
    assert field in errors({**SERVER, "workload": workload})


def test_without_a_prefix_cache_nothing_is_shared_and_the_answer_says_so() -> None:
    shared = ASKED | {"prefixes": [{"share": 1.0, "tokens": 500, "count": 2}]}
    caching = replace(CAPABLE, features=(*CAPABLE.features, "prefix_caching"))
    known = replace(KNOWN, frameworks=(caching,))
    assert fixed(parse_deployment(shared), known).case.hit_fraction == 0.5
    for off in (
        fixed(parse_deployment(shared | {"prefix_caching": False}), known),
        fixed(parse_deployment(shared), KNOWN),
    ):
        assert off.case.hit_fraction == 0 and any("no prefix cache" in doubt for doubt in off.doubts)


def test_sections_of_the_command_line() -> None:
    assert parse_section("adapters", "8") == {"count": "8"}
    assert parse_section("speculative", "method=ngram;k=3") == {"method": "ngram", "k": "3"}
    with pytest.raises(WorkloadError):
        parse_section("users", "active")
    assert parse_deployment({**ASKED, "adapters": {"count": "8"}}).adapters is not None
    assert KNOWN.models["experts"] is EXPERTS  # adapters of one deployment are not those of the catalog
