"""What no single field of the workload file can know: batches, adapters, embeddings, ranges, what a kind needs."""

from typing import Any

import pytest

from advisor.workload.schema import missing, parse, within
from advisor.workload.text import WorkloadError
from tests.workload.test_workload_refused import GOOD, refused, with_traffic

BATCH: dict[str, Any] = {
    "kind": "batch",
    "model": "m",
    "traffic": {"input_tokens": 500, "output_tokens": 100},
    "batch": {"requests": 7200, "deadline_hours": 2, "every_hours": 8},
}


def batch(**changes: Any) -> dict[str, Any]:
    return {**BATCH, "batch": BATCH["batch"] | changes}


# --- batches ----------------------------------------------------------------------------------------------------


def test_a_batch_has_the_rate_that_ends_it_in_time_and_the_mean_over_all_hours():
    """7,200 requests in 2 of 8 hours: 1 a second while it runs, a quarter of that over the day."""
    assert parse(BATCH)["traffic"]["requests_per_s"] == {"mean": 0.25, "peak": 1}
    assert parse(batch(every_hours=None))["traffic"]["requests_per_s"] == {"mean": 1, "peak": 1}
    assert parse(parse(BATCH)) == parse(BATCH)


def test_the_next_batch_begins_after_the_deadline_of_the_one_before():
    found = refused(batch(every_hours=1.9))["batch.every_hours"]
    assert found["message"] == "is shorter than the deadline, so batches would overlap"
    assert found["allowed"] == ">= 2, the deadline"
    assert parse(batch(every_hours=2))["traffic"]["requests_per_s"] == {"mean": 1, "peak": 1}


def test_a_batch_has_no_users_and_no_rate_of_its_own():
    traffic = BATCH["traffic"]
    with pytest.raises(WorkloadError, match="traffic.users: cannot be used with kind batch"):
        parse({**BATCH, "traffic": traffic | {"users": {"active": 5, "think_s": 1}}})
    stated = {**BATCH, "traffic": traffic | {"requests_per_s": 3}}
    assert refused(stated)["traffic.requests_per_s"]["message"] == "contradicts batch.requests"
    agreed = {**BATCH, "traffic": traffic | {"requests_per_s": {"mean": 0.25, "peak": 1}}}
    assert parse(agreed) == parse(BATCH)


@pytest.mark.parametrize("section", ["batch", "training", "finetuning"])
def test_sections_of_another_kind_are_refused(section):
    sections = {
        "batch": BATCH["batch"],
        "training": {"tokens": 1e9, "sequence_length": 4096, "global_batch_tokens": 1e6},
        "finetuning": {"method": "lora", "tokens": 1e9, "sequence_length": 4096, "global_batch_tokens": 1e6},
    }
    found = refused({**GOOD, section: sections[section]})[section]
    assert found["message"] == "cannot be used with kind serving" and found["allowed"] == f"kind: {section}"


# --- adapters ---------------------------------------------------------------------------------------------------


def test_adapters_have_a_usual_rank_and_are_all_active_unless_stated():
    assert parse({**GOOD, "adapters": {"count": 8}})["adapters"] == {
        "count": 8, "rank": 16, "active": None, "targets": "all",
    }  # fmt: skip


def test_no_more_adapters_are_active_than_there_are():
    found = refused({**GOOD, "adapters": {"count": 8, "active": 9}})["adapters.active"]
    assert found["message"] == "exceeds adapters.count (8)" and found["allowed"] == "1 .. 8"
    assert parse({**GOOD, "adapters": {"count": 8, "active": 8}})["adapters"]["active"] == 8
    assert parse({**GOOD, "adapters": {"count": 0, "active": 9}})["adapters"]["count"] == 0  # none are served


def test_adapters_are_for_kinds_that_generate_tokens():
    assert parse({**BATCH, "adapters": {"count": 8}})["adapters"]["count"] == 8
    found = refused({**GOOD, "kind": "embedding", "adapters": {"count": 8}, "traffic": EMBEDDED})["adapters"]
    assert found["message"] == "are not supported for kind embedding"


# --- embeddings -------------------------------------------------------------------------------------------------

EMBEDDED = {"input_tokens": 500, "requests_per_s": 2}


@pytest.mark.parametrize("output", [None, 0, 0.0, 1, {"mean": 0}, {"mean": 0, "p95": 0}, {"mean": 1, "p95": 1}])
def test_an_embedding_makes_one_vector_however_that_is_written(output):
    spec = parse({"kind": "embedding", "model": "m", "traffic": EMBEDDED | {"output_tokens": output}})
    assert spec["traffic"]["output_tokens"] == {"mean": 1, "p95": 1}


@pytest.mark.parametrize("output", [2, {"mean": 1, "p95": 2}])
def test_an_embedding_generates_no_tokens(output):
    found = refused({"kind": "embedding", "model": "m", "traffic": EMBEDDED | {"output_tokens": output}})
    assert found["traffic.output_tokens"]["message"] == "embeddings generate no output tokens"


def test_no_output_is_an_error_for_what_is_served():
    assert "at least 1" in refused(with_traffic(output_tokens=0))["traffic.output_tokens.mean"]["message"]
    assert "traffic.output_tokens" in refused(with_traffic(output_tokens=None))
    assert (
        "must be a number"
        in refused({"kind": "embedding", "model": "m", "traffic": EMBEDDED | {"output_tokens": False}})[
            "traffic.output_tokens"
        ]["message"]
    )


# --- ranges -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "low", "high"), [
    ("pue", 1, 5), ("depreciation-years", 0.25, 30), ("spot-lost-fraction", 0, 0.95), ("spare-fraction", 0, 1),
    ("power-low-ratio", 0.01, 1), ("power-high-ratio", 1, 100), ("accelerators-per-operator", 1, 1e9),
    ("load-swing-ratio", 1, 100), ("rent-price-swing-ratio", 1, 100), ("purchase-price-swing-ratio", 1, 100),
    ("operator-usd-per-year", 0, 1e15),
])  # fmt: skip
def test_a_cost_assumption_has_a_range(key, low, high):
    for value in (low, high):
        assert parse({**GOOD, "tco": {key: value}})["tco"][key] == value
    assert refused({**GOOD, "tco": {key: high * 1.01}})
    if low:
        found = refused({**GOOD, "tco": {key: low * 0.99}})[f"tco.{key}"]
        assert found["message"].endswith("is out of range") and found["allowed"] == f"{low:g} .. {high:g}"


@pytest.mark.parametrize(("field", "least", "most"), [
    ("horizon_months", 1, 240), ("discount_rate", 0, 1), ("power_cap_fraction", 0.3, 1),
])  # fmt: skip
def test_the_horizon_the_discount_and_the_cap_have_limits(field, least, most):
    for value in (least, most):
        assert parse({**GOOD, "tco": {field: value}})["tco"][field] == value
    step = 1 if field == "horizon_months" else 0.01
    for value in (least - step, most + step):
        assert f"tco.{field}" in refused({**GOOD, "tco": {field: value}})


def test_a_name_that_is_allowed_and_denied_is_refused_in_every_choice():
    for key in ("accelerators", "vendors", "providers", "regions", "frameworks", "formats"):
        found = refused({**GOOD, "constraints": {key: {"allow": ["a", "b"], "deny": ["b"]}}})[f"constraints.{key}"]
        assert found["message"] == "b is both allowed and denied"
    both = {"allow": ["fp8"], "deny": ["fp8"]}
    assert "constraints.kv_formats" in refused({**GOOD, "constraints": {"kv_formats": both}})


def test_weights_and_curves_need_something_above_zero():
    assert parse({**GOOD, "weights": {"cost": 0, "latency": 0.1}})["weights"] == {"cost": 0, "latency": 0.1}
    assert parse(with_traffic(load_curve=[0] * 167 + [1]))["traffic"]["requests_per_s"]["peak"] == 336
    assert parse({**GOOD, "weights": {}})["weights"] == {}


# --- what a kind needs ------------------------------------------------------------------------------------------


def fields(data: dict[str, Any]) -> list[str]:
    return [error["field"] for error in missing(data)]


@pytest.mark.parametrize(("data", "expected"), [
    ({}, ["model", "traffic"]),
    ({"kind": "batch"}, ["model", "traffic", "batch"]),
    ({"kind": "portfolio"}, ["workloads"]),
    ({"kind": "training"}, ["model", "training"]),
    ({"kind": "finetuning", "model": "m", "finetuning": {}}, []),
    ({"kind": 7}, []),
    ({"kind": "serving", "model": "m", "traffic": {}},
     ["traffic.input_tokens", "traffic.output_tokens", "traffic.requests_per_s"]),
    ({"kind": "embedding", "model": "m", "traffic": {"input_tokens": 1, "output_tokens": 1}},
     ["traffic.requests_per_s"]),
    ({"kind": "batch", "model": "m", "batch": {}, "traffic": {"input_tokens": 1}}, ["traffic.output_tokens"]),
    ({"model": "m", "traffic": {"trace": "a.csv"}}, []),
    ({"model": "m", "traffic": {"input_tokens": 1, "output_tokens": 1, "users": {}}}, []),
    ({"model": "m", "traffic": "much"}, []),
])  # fmt: skip
def test_what_a_kind_needs_is_named_however_wrong_the_rest_is(data, expected):
    assert fields(data) == expected


def test_an_error_hides_those_of_the_sections_inside_it():
    assert within("a.b[3].c", {"a.b"}) and within("a.b", {"a.b"}) and within("a[0]", {"a"})
    assert not within("ab.c", {"a"}) and not within("a", {"a.b"})


def test_an_unusable_value_is_told_once_beside_what_is_missing():
    found = refused({"name": "a\x00", "modle": "x", "traffic": {"input_tokens": float("inf")}})
    assert set(found) == {
        "name",
        "modle",
        "traffic.input_tokens",
        "model",
        "traffic.output_tokens",
        "traffic.requests_per_s",
    }


def test_a_plain_problem_does_not_hide_what_is_missing():
    assert set(refused({"name": "a\x00"})) == {"name", "model", "traffic"}


def test_yes_and_no_may_be_truth_values():
    spec = parse(
        {**GOOD, "speculative": False, "disaggregated": True, "constraints": {"partitions": True}, "probe": False}
    )
    assert (spec["speculative"], spec["disaggregated"], spec["probe"]) == ("no", "yes", "no")
    assert spec["constraints"]["partitions"] == "yes"
    assert "probe" in refused({**GOOD, "probe": True})


def test_what_nobody_chose():
    spec = parse(GOOD)
    assert (spec["slo"]["availability"], spec["constraints"]["quality"], spec["constraints"]["terms"]) == (
        None, "near_lossless", None,
    )  # fmt: skip
    assert (spec["traffic"]["load_curve"], spec["traffic"]["prefix_cache_hit_rate"]) == ("flat", 0)
    assert spec["traffic"]["growth_fraction_per_year"] == 0
    assert (spec["owned"], spec["inventory"], spec["team"]) == ({}, {}, {})


@pytest.mark.parametrize("day", ["2026-13-01", "2026-1-5", "yesterday", "2999-01-01"])
def test_prices_are_of_a_real_day_that_has_been(day):
    assert "prices_as_of" in refused({**GOOD, "prices_as_of": day})
    assert parse({**GOOD, "prices_as_of": "2026-01-05"})["prices_as_of"] == "2026-01-05"


@pytest.mark.parametrize("kind", ["video_generation", "text_to_speech"])
def test_a_kind_that_is_not_modeled_says_what_is_missing(kind: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse({"kind": kind, "model": "m"})
    (found,) = caught.value.errors
    assert found["field"] == "kind" and "are missing; use kind serving" in found["message"]
