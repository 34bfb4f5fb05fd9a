"""Whatever is wrong with a call, the answer is a problem document that says what and what is allowed."""

import json
from datetime import date
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from advisor.models import Advice
from catalog.accounts import access
from catalog.models import ServedModel

pytestmark = pytest.mark.django_db
TRAFFIC = {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2}


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body = json.loads(response.content)
    assert set(body) == {"type", "title", "status", "detail", "errors", "error_count"} and body["status"] == status
    assert "Traceback" not in response.content.decode()
    return body


def post(client: Client, body: Any, kind: str = "application/json", **headers: str) -> Any:
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.generic("POST", "/api/v1/advice", data, kind, headers=headers)


@pytest.mark.parametrize(
    "body",
    [
        "{",
        '{"a": 1, "a": 2}',
        b"\xff",
        "[" * 100_000,
        '{"a": ' + "1" * 5000 + "}",
    ],
)
def test_malformed_json(client: Client, body: Any) -> None:
    assert "Malformed JSON" in problem(post(client, body), 400)["detail"]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("address", ["advice", "estimate"])
def test_what_is_no_number_is_named_by_its_field(client: Client, word: str, address: str) -> None:
    text = '{"model": "m", "traffic": {"input_tokens": {"mean": ' + word + "}}}"
    errors = problem(client.generic("POST", f"/api/v1/{address}", text, "application/json"), 422)["errors"]
    assert ("traffic.input_tokens.mean", "is not a finite number") in {(e["field"], e["message"]) for e in errors}


def test_malformed_yaml(client: Client) -> None:
    assert "line 1" in problem(post(client, "a: {b", "application/yaml"), 400)["detail"]


@pytest.mark.parametrize("body", ["[]", "null", '"x"', "5", '{"workload": []}', "{}", ""])
def test_what_is_no_workload(client: Client, body: str) -> None:
    assert problem(post(client, body), 422)["errors"]


@pytest.mark.parametrize(
    ("changes", "field", "allowed"),
    [
        ({"model": "meta-llama/Nothing"}, "model", "catalog"),
        ({"traffic": {**TRAFFIC, "input_tokens": -4}}, "traffic.input_tokens.mean", ">= 1"),
        ({"traffic": {**TRAFFIC, "input_tokens": 1e400}}, "", ""),
        ({"kind": "training", "training": {}}, "training.tokens", ""),
        ({"nonsense": 1}, "nonsense", "model"),
        ({"model": {"config": "/etc/passwd"}}, "model.config", "contents"),
    ],
)
def test_an_unusable_workload_names_the_field(client: Client, changes: Any, field: str, allowed: str) -> None:
    body = {"model": "m", "traffic": TRAFFIC, **changes}
    text = json.dumps(body).replace("Infinity", "1e400")
    errors = problem(post(client, text), 422)["errors"]
    found = [error for error in errors if error["field"] == field or not field]
    assert found and allowed in found[0]["allowed"]
    assert not Advice.objects.exists()


def test_a_training_run_is_refused_at_its_field(client: Client) -> None:
    body = {"kind": "finetuning", "model": "m", "finetuning": {"method": "lora", "tokens": 0}}
    (error,) = problem(post(client, body), 422)["errors"]
    assert error["field"] == "finetuning.tokens" and "greater than 0" in error["message"]


def test_a_body_of_ten_megabytes(client: Client) -> None:
    assert "1 MB" in problem(post(client, b'{"name": "' + b"x" * 10_000_000 + b'"}'), 413)["detail"]


def test_a_content_type_that_nobody_reads(client: Client) -> None:
    problem(post(client, "<a/>", "text/xml"), 415)
    problem(post(client, "name=x", "application/x-www-form-urlencoded"), 415)


def test_an_answer_in_a_type_that_nobody_writes(client: Client) -> None:
    problem(client.get("/api/v1/advice", headers={"Accept": "text/csv"}), 406)


def test_methods_and_addresses_that_do_not_exist(client: Client) -> None:
    assert client.put("/api/v1/advice")["Allow"] == "GET, POST, HEAD, OPTIONS"
    problem(client.put("/api/v1/advice"), 405)
    problem(client.get("/api/v1/advice/" + "0" * 8), 404)
    gone = problem(client.get("/api/v1/advice/00000000-0000-0000-0000-000000000000"), 404)
    assert "may be wrong" in gone["detail"] and "query" not in gone["detail"]
    problem(client.get("/api/nowhere"), 404)


def test_a_filter_that_does_not_exist(client: Client) -> None:
    assert problem(client.get("/api/v1/advice?state=lost"), 400)["errors"][0]["field"] == "state"


@pytest.mark.parametrize("key", ["x" * 81, "a\tb"])
def test_a_key_that_cannot_be_kept(client: Client, key: str) -> None:
    problem(post(client, {"model": "m", "traffic": TRAFFIC}, Idempotency_Key=key), 400)


@pytest.mark.parametrize("limit", ["ADVICE_MAX_QUEUED", "ADVICE_MAX_QUEUED_PERSON"])
def test_a_full_queue_asks_to_come_back(client: Client, settings: Any, limit: str) -> None:
    ServedModel.objects.create(slug="m", hf_id="acme/m", shape={}, as_of=date(2026, 11, 1))
    setattr(settings, limit, 1)
    body, key = {"model": "acme/m", "traffic": TRAFFIC}, {"Idempotency_Key": "first"}
    first = post(client, body, **key)
    assert first.status_code == 202
    response = post(client, body)
    assert "limit is 1" in problem(response, 429)["detail"]
    assert int(response["Retry-After"]) > 0
    assert post(client, body, **key).json()["id"] == first.json()["id"]  # what waits already is no new request
    problem(post(client, {**body, "model": "acme/none"}), 422)  # a mistake would be one after the wait, too
    assert Advice.objects.count() == 1


def test_a_lost_database_is_temporary(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("the database is gone")

    monkeypatch.setattr(access, "default_organisation", away)
    response = client.get("/api/v1/advice")
    problem(response, 503)
    assert response["Retry-After"] == "5"


def test_what_nobody_foresaw_is_a_problem_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.raise_request_exception = False
    monkeypatch.setattr(access, "default_organisation", lambda: 1 / 0)
    assert problem(client.get("/api/v1/advice"), 500)["detail"]
