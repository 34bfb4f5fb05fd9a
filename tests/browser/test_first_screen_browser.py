"""What a reader sees of an answer at 1280 x 800 without a click or scroll: the verdict and the table, few figures."""

from collections.abc import Callable
from typing import Any

import pytest

from tests import stored_answers
from tests.conftest import FROZEN, load_once

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
SCREEN = {"width": 1280, "height": 800}
MOST_FIGURES, MOST_IN_BLOCK, MOST_WORDS = 45, 20, 120
VISIBLE = """selector => {
  const words = [], texts = document.createTreeWalker(document.querySelector(selector), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, element = text.parentElement;
    if (!element.checkVisibility() || element.closest('.unseen, .skip, script')) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const shown = [...range.getClientRects()].some(b => b.bottom > 0 && b.top < innerHeight && b.width > 1);
    if (shown) words.push(...text.data.split(/\\s+/).filter(Boolean));
  }
  return words;
}"""


def figures(words: list[str]) -> list[str]:
    return [word for word in words if any(character.isdigit() for character in word)]


@pytest.mark.parametrize(
    "name",
    [
        "support-chat",
        "startup-budget",
        "bank-owned",
        "nightly-batch",
        "pretrain-8b",
        "shared-fleet",
        "infeasible",
        "keep",
    ],
)
def test_the_verdict_and_the_table_are_on_the_screen_with_few_figures(open_page: Open, name: str) -> None:
    load_once(FROZEN)
    page = open_page(f"/advice/{stored_answers.advice(name).pk}", viewport=SCREEN)
    block, screen = page.evaluate(VISIBLE, ".decision"), page.evaluate(VISIBLE, "body")
    assert len(figures(block)) <= MOST_IN_BLOCK and len(block) <= MOST_WORDS, block
    assert len(figures(screen)) <= MOST_FIGURES, screen
    for part in (".decision", ".shortlist"):
        box = page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= SCREEN["height"], part
    assert page.locator(".decision details, .shortlist details").count() == 0
    for chart in page.locator(".glance").all():
        box = chart.bounding_box()
        assert box["y"] + box["height"] <= SCREEN["height"] and chart.locator("svg text").count() >= 6


def test_an_answer_with_several_ways_to_pay_has_its_chart_beside_the_verdict(open_page: Open) -> None:
    load_once(FROZEN)
    page = open_page(f"/advice/{stored_answers.advice('support-chat').pk}", viewport=SCREEN)
    chart, verdict = page.locator(".glance").bounding_box(), page.locator(".decision").bounding_box()
    assert chart["x"] >= verdict["x"] + verdict["width"] and chart["y"] + chart["height"] <= SCREEN["height"]
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator(".glance").bounding_box()["y"] >= verdict["y"]
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def test_on_a_phone_the_sentence_on_what_to_do_is_on_the_first_screen(open_page: Open) -> None:
    load_once(FROZEN)
    path = f"/advice/{stored_answers.advice('support-chat').pk}"
    page = open_page(path, viewport={"width": 390, "height": 844})
    box = page.locator("#verdict-title").bounding_box()
    assert box["y"] + box["height"] < 844
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def test_an_infeasible_answer_has_no_empty_sections(open_page: Open) -> None:
    load_once(FROZEN)
    page = open_page(f"/advice/{stored_answers.advice('infeasible').pk}", viewport=SCREEN)
    assert page.locator("nav.sections li:not(.apart)").all_inner_texts() == ["Why nothing fits", "Sources"]
    for link in ("alternatives", "confidence"):
        page.goto(page.url.split("?")[0] + f"?section={link}")
        assert len(page.locator(f"#{link}").inner_text()) > 100
