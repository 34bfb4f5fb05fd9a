"""Each document is sent to a client that accepts its media type; every refusal stays a problem document."""

from typing import Any

import pytest
from django.test import Client

from advisor.report import EXPORTS
from tests import sample_advice, sample_money

pytestmark = pytest.mark.django_db
KINDS = {
    "memo.html": "text/html",
    "memo.md": "text/markdown",
    "bill-of-materials.html": "text/html",
    "bill-of-materials.md": "text/markdown",
    "bill-of-materials.csv": "text/csv",
    "costs.csv": "text/csv",
    "assumptions.csv": "text/csv",
    "cash-flow.csv": "text/csv",
    "workbook.xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def get(name: str, accept: str, **given: Any) -> Any:
    advice = sample_advice.advice(**given)
    return Client().get(f"/api/v1/advice/{advice.pk}/documents/{name}", headers={"Accept": accept})


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
@pytest.mark.parametrize("accept", ["{}", "{}; charset=utf-8", "{}/*", "*/*", "application/json, {};q=0.5"])
def test_a_document_is_sent_to_whoever_accepts_its_media_type(name: str, kind: str, accept: str) -> None:
    accepted = accept.format(kind.partition("/")[0] if accept == "{}/*" else kind)
    answer = get(name, accepted, answer=sample_money.result())
    assert answer.status_code == 200 and answer["Content-Type"].partition(";")[0] == kind
    assert (answer["Content-Type"] == kind) is (name == "workbook.xlsx")  # a binary file has no charset


def test_the_description_lists_every_document(client: Client) -> None:
    schema = client.get("/api/schema/", headers={"Accept": "application/json"}).json()
    described = schema["paths"]["/api/v1/advice/{id}/documents/{name}"]["get"]
    names = next(each["schema"]["enum"] for each in described["parameters"] if each["name"] == "name")
    kinds = {"application/yaml", *KINDS.values()}
    assert set(names) == {*KINDS, *EXPORTS} and set(described["responses"]["200"]["content"]) == kinds


def test_a_media_type_that_it_does_not_have_is_refused_with_the_one_it_has() -> None:
    answer = get("cash-flow.csv", "application/pdf", answer=sample_money.result())
    assert answer.status_code == 406 and "send Accept: text/csv" in answer.json()["detail"]
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["cash-flow.csv", "nothing.csv"])
def test_a_document_that_is_not_there_is_a_problem_document_whatever_is_accepted(name: str) -> None:
    answer = get(name, "text/csv", state="queued")
    assert answer.status_code == 404 and answer["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"]


@pytest.mark.parametrize("kind", ["application/yaml", "application/vnd.oai.openapi", "application/json"])
def test_the_description_of_the_api_is_sent_in_the_formats_it_has(client: Client, kind: str) -> None:
    answer = client.get("/api/schema/", headers={"Accept": kind})
    assert answer.status_code == 200 and answer["Content-Type"].startswith(kind)
