"""The sections of an answer: each has its own address, and together they hold all that the answer shows."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests import sample_advice, sample_training
from tests.pages import NAVIGATION
from tests.web import sample_plan

pytestmark = pytest.mark.django_db
HEADING = re.compile(r"<h[23][^>]*>(.*?)</h[23]>", re.DOTALL)


def headings(client: Client, path: str) -> set[str]:
    text = client.get(path).content.decode()
    return {re.sub(r"<[^>]+>|\s+", "", found) for found in HEADING.findall(text)}


def infeasible() -> Any:
    return sample_advice.advice(sample_advice.infeasible())


MADE = [
    sample_advice.advice, sample_plan.advice, infeasible, lambda: sample_training.advice("pretrain"),
    lambda: sample_training.advice("late"),
]  # fmt: skip


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("made", MADE)
def test_no_section_of_an_answer_is_empty(client: Client, made: Callable[[], Any]) -> None:
    path = f"/advice/{made().pk}"
    sections = NAVIGATION.findall(client.get(path).text)
    parts = [headings(client, f"{path}?section={section}") for section in sections]
    common = set.intersection(*parts)
    assert len(sections) >= 2 and all(part - common for part in parts)
    for section in sections:
        part = client.get(f"{path}?section={section}").text.split(f'<div class="part" id="{section}">')[1]
        assert "Nothing is ranked" not in part.split("<footer")[0]


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("made", [MADE[0], MADE[1], MADE[3]])
@pytest.mark.parametrize("page", ["", "/options/1"])
def test_no_part_is_in_two_sections(client: Client, made: Callable[[], Any], page: str) -> None:
    path = f"/advice/{made().pk}{page}"
    parts = [headings(client, f"{path}?section={section}") for section in NAVIGATION.findall(client.get(path).text)]
    common, every = set.intersection(*parts), set().union(*parts)
    assert len(every) > 8 and sum(len(part - common) for part in parts) == len(every - common)


@pytest.mark.parametrize("page", ["", "/options/1"])
def test_the_address_of_everything_on_one_page_leads_to_the_answer(client: Client, page: str) -> None:
    path = f"/advice/{sample_advice.advice().pk}{page}"
    assert client.get(f"{path}?section=all")["Location"] == path
    assert client.get(f"{path}?section=all&currency=EUR")["Location"] == f"{path}?currency=EUR"
    assert "section=all" not in client.get(path).text


def test_the_navigation_marks_the_section_and_the_first_one_is_the_default(client: Client) -> None:
    path = f"/advice/{sample_advice.advice().pk}"
    for asked, section in (
        ("", "why"),
        ("?section=cost", "cost"),
        ("?section=nonsense", "why"),
    ):
        text = client.get(f"{path}{asked}").content.decode()
        (marked,) = re.findall(r'href="\?section=(\w+)#sections" aria-current="page"', text)
        assert marked == section


def test_a_sorted_ranking_is_among_the_alternatives(client: Client) -> None:
    text = client.get(f"/advice/{sample_advice.advice().pk}?sort=month").content.decode()
    assert "Ranked deployments" in text and 'href="?section=alternatives#sections" aria-current="page"' in text


def test_many_endpoints_are_shortened_until_all_are_asked_for(client: Client) -> None:
    answer = sample_advice.result()
    offer = {
        "provider": "", "name": "llama", "accelerator": None, "as_of": "2026-11-01", "source": "price list",
        "acquisition": "api", "basis": "published, not estimated", "usd_per_mtok_input": 0.1,
        "usd_per_mtok_cached_input": None, "usd_per_mtok_output": 0.2, "usd_per_mtok_blended": 0.15,
        "usd_per_month": 90000.0, "discount_fraction": 0, "max_input_tokens": None,
        "published_output_tokens_per_s": 40.0, "speed_source": "https://example.org/a/very/long/citation",
        "within_budget": True, "rank_by_cost": None, "break_even_tokens_per_month": None, "break_even_with": None,
        "break_even_within_capacity": None, "warnings": [],
    }  # fmt: skip
    answer["hosted"] = [{**offer, "provider": f"host-{k}"} for k in range(12)]
    path = f"/advice/{sample_advice.advice(answer).pk}?section=alternatives"
    few, every = (client.get(f"{path}{more}").content.decode() for more in ("", "&hosted=all"))
    assert "Show the other 4 endpoints" in few and '<th scope="row">host-11' not in few
    assert '<th scope="row">host-11' in every and "Show the other" not in every
    table = every.split("Hosted endpoints of this model")[1].split("</table>")[0]
    assert "citation" not in table and "citation" in every  # sources stand below: they would stretch the table
