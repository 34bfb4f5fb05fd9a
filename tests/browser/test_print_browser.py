"""An answer prints on at most two A4 pages, with what is needed to sign it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import sample_training
from tests.browser import page_types
from tests.conftest import FROZEN, load_once

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
FOLDER = Path(__file__).resolve().parents[2] / "build" / "print"
PAGE = re.compile(rb"/Type\s*/Page\b")
CLUTTER = "nav, form, button, .actions, #comments, footer, .what-if, [data-chart] .chart-tools"


@pytest.mark.parametrize("name", ["support-chat", "pretrain"])
def test_an_answer_prints_on_two_pages(open_page: Open, tmp_path: Path, name: str) -> None:
    load_once(FROZEN)
    advice = sample_training.advice(name) if name == "pretrain" else page_types.whole_answer(name, tmp_path)
    page = open_page(f"/advice/{advice.pk}")
    page.wait_for_load_state("networkidle")
    page.emulate_media(media="print")
    shown = f"[...document.querySelectorAll('{CLUTTER}')].filter(e => e.checkVisibility()).map(e => e.outerHTML)"
    assert page.evaluate(shown) == []
    paper = page.pdf(format="A4")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.pdf").write_bytes(paper)
    assert len(PAGE.findall(paper)) <= 2
    assert page.locator(".decision").is_visible() and page.locator("figure").first.is_visible()
