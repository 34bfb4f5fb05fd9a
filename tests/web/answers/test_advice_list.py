"""The list of advice: constraints, author, notes and lineage, with search, filters and sorting in the address."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from advisor.models import Advice, Comment
from advisor.web.answers.list_page import constraints
from advisor.workload.schema import parse
from tests import sample_advice

pytestmark = pytest.mark.django_db


@pytest.fixture
def three() -> list[Advice]:
    """Of ada, of bob (failed, another model, last week), and one that was changed from ada's."""
    first = sample_advice.advice(made_by="ada")
    second = sample_advice.advice(state="failed", error="x", made_by="bob")
    Advice.objects.filter(pk=second.pk).update(created_at=timezone.now() - timedelta(days=7))
    second.workload.spec |= {"model": "Qwen/Qwen3-8B", "kind": "batch"}
    second.workload.name = "nightly"
    second.workload.save()
    third = sample_advice.advice(made_by="ada", supersedes=first)
    third.workload.spec["constraints"]["max_usd_per_month"] = 9000.0
    third.workload.name = "cheaper"
    third.workload.save()
    Comment.objects.create(advice=first, text="Ask for a quote first.", made_by="bob")
    Comment.objects.create(advice=first, text="Done.", made_by="ada")
    return [first, second, third]


def listed(client: Client, query: str = "") -> tuple[list[str], str]:
    """The names in the order of the list, and the page's text."""
    text = client.get(f"/advice{query}").content.decode()
    return re.findall(r'<th scope="row"><a [^>]*>([^<]*)<', text), re.sub(r"\s+", " ", text)


def test_a_row_says_constraints_author_notes_and_lineage(client: Client, three: list[Advice]) -> None:
    names, text = listed(client)
    assert names == ["cheaper", "support-chat", "nightly"]
    assert "Constraints: at most $9,000 a month" in text
    assert "2 comments</a>" in text and "Ask for a quote first." in text and "Done." not in text
    changed = re.search(r"Changed from <a href=\"([^\"]*)\">support-chat</a>: ([^<]*)<", text)
    assert changed and changed[1] == f"/advice/{three[0].pk}"
    assert changed[2] == "Budget, USD per month: not set → 9,000"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?q=qwen", ["nightly"]),
        ("?q=bob", ["nightly"]),
        ("?q=support+llama", ["support-chat"]),
        ("?kind=batch", ["nightly"]),
        ("?state=done", ["cheaper", "support-chat"]),
        ("?author=ada&q=cheap", ["cheaper"]),
        ("?until={week_ago}", ["nightly"]),
        ("?since={week_ago}&sort=name", ["cheaper", "nightly", "support-chat"]),
        ("?sort=asked", ["nightly", "support-chat", "cheaper"]),
        ("?sort=-cost", ["cheaper", "support-chat", "nightly"]),
        ("?q=nothing-like-this", []),
    ],
)
def test_search_filters_and_sorting_are_in_the_address(
    client: Client, three: list[Advice], query: str, names: list[str]
) -> None:
    week_ago = (timezone.now() - timedelta(days=7)).date().isoformat()
    found, text = listed(client, query.format(week_ago=week_ago))
    assert found == names
    assert ("No matches. Remove a filter." in text) == (not names)


def test_a_wrong_filter_is_named_and_ignored(client: Client, three: list[Advice]) -> None:
    _, text = listed(client, "?since=yesterday")
    assert "Enter a date such as" in text


def test_constraints_in_words() -> None:
    spec = parse(
        sample_advice.SPEC
        + "constraints: {regions: {allow: [eu]}, vendors: {deny: [amd]}, acquisition: [rent], max_accelerators: 16}\n"
    )
    assert constraints(spec) == "at most 16 accelerators, not amd, only in eu, rent only"
    assert constraints(parse(sample_advice.SPEC)) == ""
    assert constraints({"traffic": {"growth_fraction_per_year": 0.4}}) == "traffic grows by 40% a year"


def test_the_page_of_an_answer_says_under_which_constraints_it_holds(client: Client) -> None:
    result = sample_advice.result()
    limits = {"regions": {"allow": ["eu"]}, "max_usd_per_month": 40000}
    spec = result["workload"]
    advice = sample_advice.advice(
        result | {"workload": parse(spec | {"constraints": {**spec.get("constraints", {}), **limits}})}
    )
    text = client.get(f"/advice/{advice.pk}").content.decode()
    assert "only EU" in text and "budget $40,000 a month" in text


def test_each_filter_is_offered_once(client: Client, three: list[Advice]) -> None:
    html = client.get("/advice").content.decode()
    for name in ("q", "kind", "state", "tag", "author"):
        assert html.count(f' name="{name}"') == 1, name
