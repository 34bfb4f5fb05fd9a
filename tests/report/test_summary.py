"""The summary of an answer: at most 4 kB for every answer, with the sentence of its first screen."""

from typing import Any

import pytest
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.report import screen_of, summary_of
from advisor.report.summary import MAX_BYTES
from advisor.result import Answer, SummaryLinks
from tests import sample_advice
from tests.stored_answers import advice, answers, stored

ID = "0" * 36
BASE = f"https://assay.example.com/api/v1/advice/{ID}"
LINKS = SummaryLinks(html=BASE, result=f"{BASE}/result", workload=f"{BASE}/workload.yaml")
UNUSED = ("rejected", "near_misses", "hosted", "owned", "sources", "mix", "bookable", "uncertainty")
HOSTILE = {"label", "provider", "region", "metric", "unit", "test"}


@pytest.mark.django_db
@pytest.mark.parametrize("name", stored())
def test_the_summary_of_every_stored_answer_is_short_and_says_what_its_first_screen_says(
    name: str, client: Client
) -> None:
    row = advice(name)
    row.save()
    response = client.get(f"/api/v1/advice/{row.pk}/summary")
    assert response.status_code == 200 and len(response.content) <= MAX_BYTES
    found, answer = response.json(), answers()[name]
    screen = screen_of(answer)
    assert found["said"] == screen.todo and found["title"] == screen.title
    assert [each["text"] for each in found["facts"]] == [each.text for each in screen.facts]
    first = answer.recommendations[0] if answer.recommendations else None
    assert (found["first"] or {}).get("usd_per_month") == (first and first.usd_per_month)
    decision = answer.decision or answer.decide()
    assert (found["cost"] or {}).get("usd_per_month") == (decision and decision.usd_per_month)
    assert (found["runner_up"] is None) == (len(answer.recommendations) < 2)
    assert found["links"]["result"].endswith(f"/api/v1/advice/{row.pk}/result")


def lengthened(value: Any, text: str) -> Any:
    """An answer whose names are of any length."""
    if isinstance(value, dict):
        return {
            key: each + text if key in HOSTILE and isinstance(each, str) else lengthened(each, text)
            for key, each in value.items()
        }
    return [lengthened(each, text) for each in value] if isinstance(value, list) else value


@settings(max_examples=15)
@given(text=st.text(max_size=40), times=st.integers(1, 100), name=st.text(max_size=120))
def test_names_of_any_length_keep_it_short(text: str, times: int, name: str) -> None:
    text, name = (each.encode(errors="replace").decode() for each in (text, name))
    rest = {key: each for key, each in stored()["support-chat"]["answer"].items() if key not in UNUSED}
    rest |= {"recommendations": rest["recommendations"][:2], "rejected": [], "near_misses": [], "sources": []}
    answer = Answer.read(lengthened(rest, text * times))
    found = summary_of(answer, ID, name, LINKS)
    assert len(found.model_dump_json(by_alias=True).encode()) <= MAX_BYTES
    assert found.first and found.cost and found.said


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["queued", "running", "cancelled"])
def test_an_advice_without_an_answer_has_no_summary(state: str, client: Client) -> None:
    row = sample_advice.advice(state=state)
    response = client.get(f"/api/v1/advice/{row.pk}/summary")
    assert response.status_code == 409 and state in response.json()["detail"]
    assert client.get(f"/api/v1/advice/{row.pk}").json()["links"]["summary"] is None


@pytest.mark.django_db
def test_an_answer_that_this_version_cannot_read_says_so(client: Client) -> None:
    row = sample_advice.advice({"recommendations": []})
    response = client.get(f"/api/v1/advice/{row.pk}/summary")
    assert response.status_code == 409 and "Re-run it" in response.json()["detail"]
