"""Many estimates in one call: each equals the single one, a bad entry spoils no other, and the catalog is read once."""

import json
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.api import bulk_estimates

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ONE, MANY = "/api/v1/estimate", "/api/v1/estimates"
LLAMA = "meta-llama/Llama-3.1-8B"
BASE = {"model": LLAMA, "accelerator": "h100-sxm", "weights": "fp8", "isl": 1000, "osl": 200, "concurrency": 8}
STEP = {"kind": "training", "model": LLAMA, "accelerator": "h100-sxm", "count": 8, "sequence_length": 4096}


def post(path: str, body: Any, **headers: str) -> Any:
    return Client().post(path, body, content_type="application/json", headers=headers)


def document(answer: Any) -> Any:
    """The JSON of a streamed reply."""
    return json.loads(answer.getvalue())


def bulk(entries: list[Any], base: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    answer = post(MANY, {"estimates": entries} | ({"base": base} if base is not None else {}))
    assert answer.status_code == 200, answer.getvalue()
    found = document(answer)
    assert found["count"] == len(entries) and [each["index"] for each in found["results"]] == list(range(len(entries)))
    assert found["error_count"] == sum(each["problem"] is not None for each in found["results"])
    return list(found["results"])


def single(entry: Any) -> tuple[Any, Any]:
    """(estimate, problem)"""
    answer = post(ONE, entry)
    return (answer.json(), None) if answer.status_code == 200 else (None, answer.json())


changes = st.fixed_dictionaries(
    {},
    optional={
        "accelerator": st.sampled_from(["h100-sxm", "mi300x", "l40s", "t4", "nothing"]),
        "model": st.sampled_from([LLAMA, "Qwen/Qwen3-8B", "BAAI/bge-m3", "unknown/model"]),
        "weights": st.sampled_from(["fp8", "bf16", "int4"]),
        "tp": st.sampled_from([1, 2, 8, 0]),
        "concurrency": st.sampled_from([1, 64, "max", 10**7]),
        "client": st.sampled_from(["steady", "static", "burst:4"]),
        "isl": st.integers(1, 4000),
        "use_measurements": st.booleans(),
        "host_speed_ratio": st.sampled_from([0.5, 2.0]),
        "unknown": st.just(1),
    },
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(changes, min_size=1, max_size=5))
def test_each_result_is_that_of_a_single_call(entries: list[dict[str, Any]]) -> None:
    for entry, found in zip(entries, bulk(entries, BASE), strict=True):
        assert (found["estimate"], found["problem"]) == single({**BASE, **entry})


def test_an_entry_that_is_not_valid_spoils_no_other() -> None:
    entries = [BASE, {}, {**BASE, "tp": "many"}, {**STEP, "global_batch": 16}, {**BASE, "isl": 10**6, "osl": 10**5}]
    found = bulk(entries)
    assert [each["problem"] is None for each in found] == [True, False, False, True, False]
    assert found[2]["problem"]["errors"][0]["field"] == "tp" and found[2]["problem"]["status"] == 422
    assert found[3]["estimate"]["mfu"] > 0


def test_the_catalog_is_read_once_however_many_there_are() -> None:
    bulk([BASE])
    counts = []
    for many in (2, 12):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            bulk([{**BASE, "concurrency": n + 1} for n in range(many)])
        counts.append(len(queries))
    assert counts[1] - counts[0] <= 10 * 4, counts  # a few small ones for each, no table of the catalog


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"estimates": []},
        {"estimates": [BASE] * 10_001},
        {"estimates": [3]},
        {"estimates": BASE},
        {"estimates": [BASE], "bases": {}},
        {"estimates": [BASE], "axes": {"tp": [1]}},
        {"axes": {}},
        {"axes": {"tp": []}},
        {"axes": {"tp": 1}},
        {"axes": {"isl": list(range(1, 102)), "osl": list(range(1, 101))}},
        {"estimates": [BASE], "base": []},
        [BASE],
    ],
)
def test_a_body_of_another_form_is_refused_as_a_whole(body: Any) -> None:
    answer = post(MANY, body)
    assert answer.status_code in (400, 422) and answer["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"]


def test_more_bytes_than_a_call_may_have_are_refused() -> None:
    assert post(MANY, {"estimates": [{**BASE, "model": "x" * 4_100_000}]}).status_code == 413


def test_a_stream_has_one_result_in_each_line() -> None:
    answer = post(MANY, {"base": BASE, "estimates": [{}, {"tp": 0}, {"isl": 500}]}, Accept="application/x-ndjson")
    assert answer.status_code == 200 and answer["Content-Type"] == "application/x-ndjson" and answer.streaming
    lines = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    assert lines == bulk([{}, {"tp": 0}, {"isl": 500}], BASE)


FORMATS = pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])


def rows_of(answer: Any) -> list[dict[str, Any]]:
    text = answer.getvalue()
    if answer["Content-Type"] == "application/json":
        return list(json.loads(text)["results"])
    return list(map(json.loads, text.splitlines()))


@FORMATS
def test_rows_are_sent_while_the_others_are_not_computed(accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def rows(entries: list[Any], _: Any) -> Any:
        for index in range(len(entries)):
            taken.append(index)
            yield {"index": index, "estimate": None, "problem": None}

    monkeypatch.setattr(bulk_estimates, "results", rows)
    sent = iter(post(MANY, {"base": BASE, "estimates": [{}] * 50}, Accept=accept).streaming_content)
    assert taken == [0]
    for count in (1, 2, 3):
        assert f'"index":{count - 1}'.encode() in next(sent) and len(taken) == count


@FORMATS
def test_an_error_of_the_server_loses_no_row(accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = bulk_estimates.result_of

    def result_of(entry: Any, *more: Any) -> Any:
        if entry["isl"] == 13:
            raise ZeroDivisionError
        return computed(entry, *more)

    monkeypatch.setattr(bulk_estimates, "result_of", result_of)
    answer = post(MANY, {"base": BASE, "estimates": [{}, {"isl": 13}, {}]}, Accept=accept)
    found = rows_of(answer)
    assert [each["index"] for each in found] == [0, 1, 2]
    assert [(each["problem"] or {}).get("status") for each in found] == [None, 500, 500]
    assert found[0]["estimate"] == single(BASE)[0]


@pytest.mark.parametrize("query", ["format=0", "format=", "limit=5"])
def test_parameters_that_it_does_not_know_are_refused(query: str) -> None:
    answer = post(f"{MANY}?{query}", {"estimates": [BASE]})
    assert answer.status_code == 400 and answer.json()["errors"][0]["field"] == query.partition("=")[0]
    assert Client().delete(f"{MANY}?{query}").status_code == 405


def test_what_would_take_too_long_is_refused_and_the_rest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 1.0, bulk_estimates.MOST_S - 1, bulk_estimates.MOST_S + 1, bulk_estimates.MOST_S + 2])
    monkeypatch.setattr(bulk_estimates.time, "monotonic", lambda: next(ticks))
    found = bulk([BASE, BASE, BASE, BASE])
    assert [(each["problem"] or {}).get("status") for each in found] == [None, None, 503, 503]
    assert "smaller calls" in found[2]["problem"]["detail"]


def test_estimates_count_by_their_work(settings: Any) -> None:
    cache.clear()
    settings.ESTIMATES_PER_MINUTE = 3
    bad = [{}] * 41  # counted before they are looked at
    assert document(post(MANY, {"estimates": bad}))["error_count"] == 41  # three counts
    assert post(ONE, BASE).status_code == 429 and post(MANY, {"estimates": [BASE]}).status_code == 429
    too_many = post(MANY, {"estimates": [{}] * 61})
    assert too_many.status_code == 422 and "at most 60" in too_many.json()["errors"][0]["message"]
    cache.clear()
