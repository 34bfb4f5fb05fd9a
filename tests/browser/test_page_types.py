"""Every type of page: axe finds nothing, in light and dark, and a picture of each is in build/screenshots."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core import mail

from advisor.web.answers import sections
from tests import sample_training
from tests.browser import page_types
from tests.conftest import FROZEN, load_once
from tests.people import member

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
FOLDER = Path(__file__).resolve().parents[2] / "build" / "screenshots"
WIDE = {"width": 1280, "height": 800}
OPEN_DETAILS = "document.querySelectorAll('details').forEach(e => { e.removeAttribute('name'); e.open = true; })"
OF_ANSWERS = {"answer": "", "option": "/options/1"}
PHONE = {"width": 390, "height": 844}


def pictures(page: Any, paths: dict[str, str]) -> list[str]:
    """Saves three pictures of each page, and returns what axe finds on it in light and dark."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    for name, path in paths.items():
        page.goto(path)
        page.screenshot(path=FOLDER / f"{name}-light.png", full_page=True)
        page.set_viewport_size(PHONE)
        page.screenshot(path=FOLDER / f"{name}-phone.png", full_page=True)
        is_too_wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        found += [f"{name} is wider than a phone"] if is_too_wide else []
        page.set_viewport_size(WIDE)
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=FOLDER / f"{name}-dark.png", full_page=True)
        if name == "api-docs":  # Swagger UI's own markup and colors, which a slow machine has not drawn by now
            page.emulate_media(color_scheme="light")
            continue
        page.evaluate(OPEN_DETAILS)
        found += [f"{name}, dark: {each}" for each in page_types.violations(page, only_colors=True)]
        page.emulate_media(color_scheme="light")
        found += [f"{name}, light: {each}" for each in page_types.violations(page)]
    return found


def test_axe_finds_nothing_on_the_pages_of_the_catalog(open_page: Open) -> None:
    page_types.make_rows()
    found = pictures(open_page("/login", viewport=WIDE), page_types.CATALOG)
    assert not found, "\n".join(found)


def test_axe_finds_nothing_on_the_other_pages(open_page: Open) -> None:
    advice = page_types.make_rows()
    found = pictures(open_page("/login", viewport=WIDE), page_types.OTHERS | page_types.of_advice(advice))
    assert not found, "\n".join(found)


def of_accounts(page: Any) -> list[str]:
    """What axe finds on the pages that only an account has, as their admin sees them."""
    member("ada", "admin", password="a long enough word", email="ada@acme.example")
    page.goto("/login?next=/members")
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill("a long enough word")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("E-mail address").fill("bob@acme.example")
    page.get_by_role("button", name="Send invitation").click()
    page.get_by_role("heading", name="Invitation for bob@acme.example").wait_for()
    link = re.search(r"https?://[^/]+(/join/\S+)", str(mail.outbox[-1].body))
    assert link is not None
    return pictures(page, {"members": "/members", "account": "/account", "audit-of-members": "/audit", "join": link[1]})


def test_axe_finds_nothing_on_the_pages_of_accounts(open_page: Open, transactional_db: None) -> None:
    found = of_accounts(open_page("/login", viewport=WIDE))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", ["serving", pytest.param("training", marks=pytest.mark.soak)])
def test_axe_finds_nothing_in_any_section(open_page: Open, kind: str, tmp_path: Path) -> None:
    load_once(FROZEN)
    if kind == "serving":
        advice, parts = page_types.whole_answer("support-chat", tmp_path), (sections.SERVING, sections.OPTION)
    else:
        advice, parts = sample_training.advice("pretrain"), (sections.TRAINING, sections.RUN)
    page = open_page("/login", viewport=WIDE)
    found = []
    for path in page_types.of_sections(advice, *parts):
        page.goto(path)
        page.evaluate(OPEN_DETAILS)
        found += [f"{path}: {each}" for each in page_types.violations(page)]
    first = {f"{kind}-{name}": f"/advice/{advice.pk}{path}" for name, path in OF_ANSWERS.items()}
    found += pictures(page, first)
    assert not found, "\n".join(found)


def test_axe_finds_nothing_on_a_question_and_an_answer_in_german(open_page: Open) -> None:
    advice = page_types.make_rows()
    page = open_page("/", viewport=PHONE, locale="de-DE")
    found = list(page_types.violations(page))
    assert page.locator("html").get_attribute("lang") == "de"
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    page.goto(f"/advice/{advice.pk}?currency=EUR")
    assert page.locator("html").get_attribute("lang") == "en" and "€" in page.locator(".decision").inner_text()
    found += page_types.violations(page)
    page.locator("form.reader select").first.select_option("zh-hans")
    page.locator("form.reader button").click()
    page.goto("/login")
    assert page.locator("html").get_attribute("lang") == "zh-hans"
    assert not found, "\n".join(found)
