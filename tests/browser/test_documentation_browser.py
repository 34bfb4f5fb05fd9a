"""Terms show their definitions on hover, on focus and at a tap; the built documentation works under its policy."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests import sample_advice
from tests.browser import page_types

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]
Open = Callable[..., Any]


def answer() -> str:
    return f"/advice/{sample_advice.advice().pk}?section=performance"


def tip(page: Any) -> Any:
    return page.locator("#term-tip")


def test_a_definition_is_shown_on_hover_and_goes_with_escape(open_page: Open) -> None:
    page = open_page(answer())
    page.get_by_role("link", name="Time to first token", exact=True).first.hover()
    expect(tip(page)).to_be_visible()
    expect(tip(page)).to_contain_text("Time to first token")
    page.keyboard.press("Escape")
    expect(tip(page)).to_be_hidden()


def test_a_definition_is_shown_on_focus_and_read_with_the_link(open_page: Open) -> None:
    page = open_page(answer())
    link = page.get_by_role("link", name="Time to first token", exact=True).first
    link.focus()
    expect(tip(page)).to_be_visible()
    expect(link).to_have_attribute("aria-describedby", "term-tip")
    page.keyboard.press("Tab")
    expect(link).not_to_have_attribute("aria-describedby", "term-tip")


def test_a_first_tap_shows_the_definition_and_a_second_one_opens_the_glossary(open_page: Open, settings: Any) -> None:
    settings.DOCS_SITE = ROOT / "build" / "nothing"
    page = open_page(answer(), has_touch=True, viewport={"width": 360, "height": 700})
    link = page.get_by_role("link", name="Time to first token", exact=True).first
    link.tap()
    expect(tip(page)).to_be_visible()
    assert "/advice/" in page.url
    box = tip(page).bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    link.tap()
    page.wait_for_url(re.compile(r"/docs/glossary/#ttft$"))
    expect(page.locator("#ttft")).to_be_visible()


def test_without_scripts_a_term_is_a_link_with_its_definition(open_page: Open) -> None:
    page = open_page(answer(), java_script_enabled=False)
    link = page.get_by_role("link", name="Time to first token", exact=True).first
    assert link.get_attribute("href") == "/docs/glossary/#ttft"
    assert "Time to first token" in link.get_attribute("title")


def test_the_built_site_can_be_searched_and_read_under_its_policy(
    open_page: Open, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture fails on everything that the content policy blocks."""
    pytest.importorskip("material")
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "--site-dir", str(site)], cwd=ROOT, check=True)
    settings.DOCS_SITE = site
    page = open_page("/docs/")
    search = page.get_by_role("textbox", name="Search")
    search.press_sequentially("speculative decoding")  # the search listens to keys; fill() sends none
    page.locator(".md-search-result__item a").first.wait_for()
    page.goto("/docs/glossary/#ttft")
    expect(page.locator("#ttft")).to_be_visible()
    page.locator(".md-header label.md-icon[for^=__palette]:not([hidden])").first.click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    page.goto("/docs/reference/claims/")
    expect(page.locator("table").first).to_be_visible()
    page.goto("/docs/")
    assert list(page_types.violations(page, within="article")) == []  # around it is the theme, which is not ours
