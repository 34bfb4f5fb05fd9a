"""The accuracy page in a browser: narrowed without scripts, on a phone, in the dark; nothing is blocked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from advisor.engine.estimate.simulated import Estimate
from advisor.fidelity.scores import scoring
from catalog.loading import scored as files
from tests.laboratory import score_files
from tests.measured_samples import CATALOG, row

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
LOOKS: dict[str, Any] = {
    "phone in the dark": {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"},
    "without scripts": {"java_script_enabled": False},
}


@pytest.fixture(autouse=True)
def card(transactional_db: None, tmp_path: Path) -> None:
    rows = [
        row(id="a:tpot"),
        row(id="a:ttft", metric="ttft_ms_mean", value="200"),
        row(id="b:tpot", value="20", accelerator_slug="b200"),
    ]
    estimate = Estimate(fits=1.0, tpot_mean_s=0.012, ttft_mean_s=0.1)
    results = scoring.predict(rows, CATALOG, lambda cases: [estimate for _ in cases])
    score_files.write(results, {}, None, "abc", tmp_path)
    files.load(tmp_path)


@pytest.mark.parametrize("look", LOOKS)
def test_the_scorecard_is_reached_narrowed_and_sorted(open_page: Open, look: str) -> None:
    page = open_page("/", **LOOKS[look])
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Accuracy").click()
    page.get_by_role("heading", name="Targets").wait_for()
    card = page.get_by_role("search", name="Filter the scorecard")
    card.get_by_role("combobox", name="Chip", exact=True).select_option("b200")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**accelerator=b200**")
    expect(page.get_by_role("status")).to_have_text("1 of 3 rows")
    page.get_by_role("link", name="Median error").first.press("Enter")  # a tap can miss a link that still moves
    page.wait_for_url("**sort=-median_ape**")
    assert "accelerator=b200" in page.url
    expect(page.locator("svg.scatter .dot")).to_have_count(1)
    if look != "without scripts":
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
