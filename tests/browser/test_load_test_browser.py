"""A load test's result goes in by the page and stands there beside the prediction."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from advisor import load_tests
from tests import sample_advice
from tests.sample_load_results import vllm, written

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_result_is_uploaded_marked_and_read_on_a_phone(open_page: Callable[..., Any]) -> None:
    option = sample_advice.advice().options.get(rank=1)
    load_tests.record(option, written(vllm(rate=2)), "another load.json")
    page = open_page(f"/advice/{option.advice_id}/options/1?section=run", viewport={"width": 320, "height": 640})
    file = {"name": "run.json", "mimeType": "application/json", "buffer": written(vllm(tpot=30))}
    page.set_input_files("#load-result", file)
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Load test added.").wait_for()
    expect(page.get_by_text("outside", exact=True)).to_have_count(2)
    page.get_by_role("button", name="Use as calibration", exact=True).click()
    page.get_by_role("button", name="Do not use as calibration").wait_for()
    page.wait_for_load_state()
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
