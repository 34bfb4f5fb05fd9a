"""Every section of an answer and of its first option is at most two screens long, with its charts drawn."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from advisor.models import Advice
from advisor.web.answers import sections
from advisor.web.answers.sections import Section
from tests import sample_training
from tests.browser import page_types
from tests.conftest import FROZEN, load_once

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
SCREEN = {"width": 1280, "height": 900}
MOST_PX = 1800
DRAWN = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += 400) {
    scrollTo(0, y);
    await new Promise(requestAnimationFrame);
  }
  scrollTo(0, 0);
}"""


def too_long(page: Any, advice: Advice, of_answer: Sequence[Section], of_option: Sequence[Section]) -> dict[str, int]:
    """The sections above the limit, with their height in pixels."""
    heights = {}
    for path in page_types.of_sections(advice, of_answer, of_option):
        page.goto(path)
        page.evaluate(DRAWN)
        expect(page.locator("figure[data-drawn=loading]")).to_have_count(0)
        heights[path] = page.evaluate("document.documentElement.scrollHeight")
    return {path: height for path, height in heights.items() if height > MOST_PX}


@pytest.mark.parametrize("name", ["support-chat", "nightly-batch"])
def test_no_section_of_a_serving_answer_is_longer_than_two_screens(open_page: Open, name: str, tmp_path: Path) -> None:
    load_once(FROZEN)
    page = open_page("/login", viewport=SCREEN)
    assert too_long(page, page_types.whole_answer(name, tmp_path), sections.SERVING, sections.OPTION) == {}


def test_no_section_of_a_training_answer_is_longer_than_two_screens(open_page: Open) -> None:
    load_once(FROZEN)
    page = open_page("/login", viewport=SCREEN)
    assert too_long(page, sample_training.advice("pretrain"), sections.TRAINING, sections.RUN) == {}


def test_on_a_phone_the_verdict_comes_first(open_page: Open, tmp_path: Path) -> None:
    page = open_page(
        f"/advice/{page_types.whole_answer('support-chat', tmp_path).pk}", viewport={"width": 390, "height": 844}
    )
    box = page.locator("#verdict-title").bounding_box()
    assert box["y"] + box["height"] < 844
