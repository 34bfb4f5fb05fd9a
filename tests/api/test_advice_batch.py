"""Many workloads in one call: each is queued as if it were alone, and one that is refused spoils no other."""

from typing import Any

import pytest
from django.test import Client

from advisor.models import Advice
from catalog.accounts import quotas
from catalog.models import default_organisation

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
URL = "/api/v1/advice/batch"
GOOD = {
    "name": "batch",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 1},
}


def post(workloads: Any, key: str = "") -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return Client().post(URL, {"workloads": workloads}, content_type="application/json", headers=headers)


def test_each_workload_has_its_own_answer_or_problem() -> None:
    bad: list[Any] = [{}, {**GOOD, "model": "unknown/model"}, {**GOOD, "unknown": 1}]
    found = post([GOOD, *bad, {**GOOD, "name": "second"}]).json()
    assert (found["count"], found["error_count"]) == (5, 3)
    assert [each["problem"] and each["problem"]["status"] for each in found["results"]] == [None, 422, 422, 422, None]
    for each, raw in zip(found["results"][1:4], bad, strict=True):
        alone = Client().post("/api/v1/advice", raw, content_type="application/json").json()
        assert each["problem"]["errors"] == alone["errors"] and each["id"] is each["location"] is None
    names = {str(a.pk): a.workload.name for a in Advice.objects.all()}
    assert [names[found["results"][i]["id"]] for i in (0, 4)] == ["batch", "second"]
    assert Client().get(found["results"][0]["location"]).json()["state"] == found["results"][0]["state"]


def test_the_same_key_gives_the_same_answers_and_refuses_others() -> None:
    first = post([GOOD, GOOD], "k").json()["results"]
    assert first[0]["id"] != first[1]["id"] and post([GOOD, GOOD], "k").json()["results"] == first
    again = post([GOOD, {**GOOD, "name": "other"}], "k").json()["results"]
    assert again[0] == first[0] and again[1]["problem"]["status"] == 409
    assert Advice.objects.count() == 2


def test_a_quota_stops_those_beyond_it() -> None:
    quotas.change(default_organisation(), {"max_answers_per_day": 2}, "test")
    found = post([GOOD] * 4).json()
    assert [each["problem"] and each["problem"]["status"] for each in found["results"]] == [None, None, 429, 429]


@pytest.mark.parametrize("workloads", [None, [], {}, [3], [GOOD] * 101, "x"])
def test_a_body_of_another_form_is_refused_as_a_whole(workloads: Any) -> None:
    assert post(workloads).status_code in (400, 422) and not Advice.objects.exists()
