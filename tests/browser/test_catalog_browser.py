"""The catalog in a browser: narrowed and compared without scripts, on a phone, in the dark; nothing is blocked."""

import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from playwright.sync_api import expect

from catalog.models import Accelerator

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
LOOKS: dict[str, Any] = {
    "phone in the dark": {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"},
    "without scripts": {"java_script_enabled": False},
}


@pytest.fixture(autouse=True)
def chips(transactional_db: None) -> None:
    for number, name in enumerate(("Alpha", "Beta", "Gamma"), start=1):
        Accelerator.objects.create(
            slug=name.lower(), name=name, vendor="acme", family="f", kind="gpu", memory_gib=16 * number,
            memory_gb_per_s=1000 * number, dense_tflops={"bf16": 100, "fp8": 200 * number}, tdp_watts=100,
            as_of=date(2026, 1, 1),
        )  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_chips_are_found_chosen_and_compared(open_page: Open, look: str) -> None:
    page = open_page("/catalog/accelerators", **LOOKS[look])
    page.get_by_label("Search").fill("acme")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**search=acme**")
    page.get_by_label("Compare Beta").check()
    page.get_by_label("Compare Gamma").check()
    page.get_by_role("button", name="Compare selected").click()
    page.wait_for_url("**/compare?a=**")
    expect(page.locator("table.comparison thead a")).to_have_count(2)
    assert sorted(page.locator("table.comparison thead a").all_inner_texts()) == ["Beta", "Gamma"]
    page.get_by_role("link", name="Gamma").first.click()
    page.get_by_role("heading", name="Roofline by dtype").wait_for()
    page.wait_for_load_state()
    if look == "without scripts":
        expect(page.get_by_role("img", name=re.compile("oofline")).locator("path.series")).to_have_count(2)
    else:
        expect(page.locator("#chart-roofline")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_columns_and_sort_are_in_the_address(open_page: Open) -> None:
    page = open_page("/catalog/accelerators", java_script_enabled=False)
    page.get_by_role("link", name="Bandwidth, GB/s").click()
    page.wait_for_url("**sort=memory_gb_per_s**")
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Family").check()
    page.get_by_role("button", name="Show these columns").click()
    page.wait_for_url("**columns=**family**")
    assert "sort=memory_gb_per_s" in page.url
    expect(page.locator("thead")).to_contain_text("Family")


def test_facets_are_chosen_and_removed_without_scripts(open_page: Open) -> None:
    page = open_page("/catalog/accelerators", java_script_enabled=False)
    page.locator("summary", has_text="Vendor").click()
    page.get_by_label("acme").check()
    page.get_by_role("button", name="Apply Vendor").click()
    page.wait_for_url("**/catalog/accelerators?vendor=acme")
    page.get_by_role("link", name="Remove the filter Vendor: acme").click()
    page.wait_for_url("**/catalog/accelerators?")
    expect(page.locator("tbody tr")).to_have_count(3)
