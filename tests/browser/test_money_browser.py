"""The money of an option in a browser: readable on a phone and in the dark; the memo prints on one page."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests import sample_advice, sample_money

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
LOOKS: dict[str, Any] = {
    "desktop": {},
    "phone in the dark": {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"},
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_way_from_the_chip_to_the_token_is_seen(open_page: Open, look: str) -> None:
    advice = sample_advice.advice(sample_money.result())
    page = open_page(f"/advice/{advice.pk}/options/1?section=cost", **LOOKS[look])
    page.get_by_role("heading", name="Cost breakdown").wait_for()
    expect(page.locator("svg.waterfall rect")).to_have_count(3)
    page.goto(f"/advice/{advice.pk}/options/1?section=plan")
    page.wait_for_load_state("networkidle")  # a chart drawn later moves the summary away from under the click
    page.get_by_text("Cash flow by month").first.click()
    expect(page.get_by_role("rowheader", name="36", exact=True)).to_be_visible(timeout=15_000)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_memo_is_reached_and_prints_on_one_page(open_page: Open) -> None:
    advice = sample_advice.advice(sample_money.result())
    page = open_page(f"/advice/{advice.pk}")
    page.locator("summary", has_text="Export").click()
    page.get_by_role("link", name="memo", exact=True).click()
    page.get_by_role("heading", name="Before signing").wait_for()
    page.wait_for_load_state()
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 1
