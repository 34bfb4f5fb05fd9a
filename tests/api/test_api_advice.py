"""Asking and reading over REST."""

import json
from datetime import date
from typing import Any

import pytest
from django.test import Client

from advisor.api import views
from advisor.models import Advice
from advisor.ops.private_answers import PRIVATE
from advisor.result import EXTRAS, short
from catalog.models import ServedModel
from tests import sample_advice

pytestmark = pytest.mark.django_db
WORKLOAD = {
    "name": "api",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2},
}


@pytest.fixture(autouse=True)
def model() -> None:
    ServedModel.objects.create(slug="l", hf_id="meta-llama/Llama-3.1-8B", shape={}, as_of=date(2026, 11, 1))


def post(client: Client, body: Any, kind: str = "application/json", **headers: str) -> Any:
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    return client.generic("POST", "/api/v1/advice", data, kind, headers=headers)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (WORKLOAD, "application/json"),
        ({"workload": WORKLOAD}, "application/json; charset=utf-8"),
        (
            "model: meta-llama/Llama-3.1-8B\ntraffic: {input_tokens: 5, output_tokens: 5, requests_per_s: 1}",
            "application/yaml",
        ),
    ],
)
def test_a_question_is_accepted_with_its_address(client: Client, body: Any, kind: str) -> None:
    response = post(client, body, kind)
    assert response.status_code == 202
    advice = Advice.objects.get()
    assert response["Location"] == f"http://testserver/api/v1/advice/{advice.pk}"
    assert (response.json()["state"], response.json()["links"]["result"]) == ("queued", None)
    assert client.get(response["Location"]).json()["id"] == str(advice.pk)


def test_the_same_key_gives_the_same_advice_and_another_question_a_conflict(client: Client) -> None:
    first, second = (post(client, WORKLOAD, Idempotency_Key="k1") for _ in range(2))
    assert first.json()["id"] == second.json()["id"] and Advice.objects.count() == 1
    other = post(client, {**WORKLOAD, "name": "other"}, Idempotency_Key="k1")
    assert other.status_code == 409 and other["Content-Type"] == "application/problem+json"


def test_a_done_advice_holds_its_result(client: Client) -> None:
    advice = sample_advice.advice()
    body = client.get(f"/api/v1/advice/{advice.pk}").json()
    assert (body["state"], body["progress_fraction"], body["result"]) == ("done", 1, short(advice.result))
    assert client.get(body["links"]["result"]).json() == short(advice.result)
    assert client.get(body["links"]["result"] + "?include=all").json() == advice.result
    refused = client.get(body["links"]["result"] + "?include=paretto")
    assert refused.status_code == 400 and "paretto; use pareto, options" in refused.content.decode()
    assert body["links"]["cancel"] is None


def test_an_open_advice_can_be_cancelled_and_a_done_one_not(client: Client) -> None:
    advice = sample_advice.advice(state="queued")
    assert client.post(f"/api/v1/advice/{advice.pk}/cancel").json()["state"] == "cancelled"
    assert client.post(f"/api/v1/advice/{advice.pk}/cancel").status_code == 200
    done = sample_advice.advice()
    assert client.post(f"/api/v1/advice/{done.pk}/cancel").status_code == 409


def test_an_unfinished_or_failed_advice_has_no_result(client: Client) -> None:
    waiting = client.get(f"/api/v1/advice/{sample_advice.advice(state='queued').pk}/result")
    failed = client.get(f"/api/v1/advice/{sample_advice.advice(state='failed', error='too slow').pk}/result")
    assert (waiting.status_code, failed.status_code) == (409, 409)
    assert "too slow" in failed.json()["detail"]


def test_the_list_is_paged_and_filtered_and_light(client: Client) -> None:
    for state in ("queued", "done", "done"):
        sample_advice.advice(state=state)
    body = client.get("/api/v1/advice?limit=1&state=done").json()
    assert (body["count"], len(body["results"])) == (2, 1) and "offset=1" in body["next"]
    assert "result" not in body["results"][0]
    assert client.get("/api/v1/advice?offset=99999999999999999999999").json()["results"] == []
    assert client.get("/api/v1/advice?limit=-1&offset=x").status_code == 400


def finish_while_asleep(monkeypatch: pytest.MonkeyPatch, looks: int) -> list[float]:
    """The worker finishes after so many looks; the seconds slept."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == looks:
            Advice.objects.update(state="done", result=sample_advice.result(), progress_fraction=1.0)

    monkeypatch.setattr(views.time, "sleep", sleep)
    return slept


def test_a_question_can_wait_for_its_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = finish_while_asleep(monkeypatch, 3)
    response = client.generic("POST", "/api/v1/advice?wait=30", json.dumps(WORKLOAD), "application/json")
    assert (response.status_code, response.json()["state"], len(slept)) == (200, "done", 3)
    assert response["Location"].endswith(response.json()["id"]) and "Retry-After" not in response


def test_reading_can_wait_too_and_nobody_waits_in_vain(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = finish_while_asleep(monkeypatch, 2)
    advice = sample_advice.advice(state="queued")
    assert client.get(f"/api/v1/advice/{advice.pk}?wait=5").json()["state"] == "done" and len(slept) == 2
    assert client.get(f"/api/v1/advice/{advice.pk}?wait=5").json()["state"] == "done" and len(slept) == 2


def test_only_some_requests_wait_and_the_others_are_told_to_come_back(client: Client) -> None:
    advice = sample_advice.advice(state="queued")
    held = [views.free.acquire(blocking=False) for _ in range(views.WAITERS)]
    try:
        response = client.get(f"/api/v1/advice/{advice.pk}?wait=30")
    finally:
        [views.free.release() for _ in held]
    assert all(held) and (response.json()["state"], response["Retry-After"]) == ("queued", "1")


@pytest.mark.parametrize("given", ["31", "-1", "x", "1.5", "9" * 5000, "٣"])
def test_a_wrong_wait_is_refused_before_anything_is_queued(client: Client, given: str) -> None:
    response = client.generic("POST", f"/api/v1/advice?wait={given}", json.dumps(WORKLOAD), "application/json")
    assert response.status_code == 400 and "0 to 30" in response.content.decode()
    assert not Advice.objects.exists()


@pytest.mark.parametrize("part", ["", "/result", "/result?include=all", "/summary"])
def test_an_answer_is_not_sent_twice(client: Client, part: str) -> None:
    advice = sample_advice.advice()
    url = f"/api/v1/advice/{advice.pk}{part}"
    first = client.get(url)
    assert first["Cache-Control"] == PRIVATE
    again = client.get(url, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    Advice.objects.filter(pk=advice.pk).update(result={**advice.result, "elapsed_s": 99.0})
    if "summary" not in part:
        assert client.get(url, headers={"If-None-Match": first["ETag"]}).status_code == 200


@pytest.mark.parametrize("part", ["", "/result"])
def test_each_choice_of_parts_has_an_etag_of_its_own(client: Client, part: str) -> None:
    """An ETag of one representation never answers for another: 304 only where the bodies are equal."""
    path = f"/api/v1/advice/{sample_advice.advice().pk}{part}"
    plain = set(client.get(path).json())
    choices = ["", *(f"include={name}" for name in (*EXTRAS, "all", "pareto,options"))]
    choices += [f"fields={name}" for name in sorted(plain)[:3]] + [f"include=all&fields={sorted(plain)[0]}"]
    found = {choice: client.get(f"{path}?{choice}") for choice in choices}
    assert {answer.status_code for answer in found.values()} == {200}
    for one, first in found.items():
        for other, second in found.items():
            again = client.get(f"{path}?{other}", headers={"If-None-Match": first["ETag"]})
            assert (again.status_code == 304) == (first.content == second.content), f"{one} then {other}"
    assert len({answer["ETag"] for answer in found.values()}) > 5
    for wrong, allowed in (("include=paretos", "pareto"), ("fields=paretos", sorted(plain)[0])):
        refused = client.get(f"{path}?{wrong}")
        assert refused.status_code == 400 and allowed in refused.content.decode()
