"""A training run in the browser: the form asks only what it needs, and the pages of the answer can be read by all."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from django.db import transaction
from playwright.sync_api import expect

from advisor.models import Advice
from catalog.models import ServedModel
from tests import sample_training
from tests.browser.test_main_flow import CONTRAST, PHONE
from tests.conftest import FROZEN, load_once

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
SHOWN = "all => all.filter(e => e.checkVisibility()).map(e => e.dataset.field)"


@pytest.fixture(scope="module")
def answers(django_db_setup: None, django_db_blocker: Any) -> None:
    """Answers from the frozen catalog, of which nothing stays in the database."""
    with django_db_blocker.unblock(), transaction.atomic():
        load_once(FROZEN)
        for name in ("pretrain", "late"):
            sample_training.result(name)
        transaction.set_rollback(True)


@pytest.fixture(autouse=True)
def model(answers: None, transactional_db: None) -> None:
    name = "meta-llama/Llama-3.1-8B"
    ServedModel.objects.create(slug="llama", hf_id=name, shape={"blocks": []}, as_of=date(2026, 11, 1))


def fields(page: Any) -> set[str]:
    return set(page.locator("[data-field]").evaluate_all(SHOWN))


def choose(page: Any, kind: str) -> set[str]:
    page.get_by_label("What it does").select_option(kind)
    page.locator("details.more").evaluate_all("all => all.forEach(one => one.open = true)")
    return fields(page)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_run_is_asked_for_what_it_needs_and_queued(open_page: Open, scripts: bool) -> None:
    page = open_page("/?preset=support-chat", java_script_enabled=scripts)
    serving, training, tuning = (choose(page, kind) for kind in ("serving", "training", "finetuning"))
    serves_only = ("traffic.", "slo.", "batch.", "adapters.", "structured_output", "variants")
    assert not [path for path in serving if path.startswith(("training.", "finetuning."))]
    assert not [path for path in training | tuning if path.startswith(serves_only)]
    assert {"training.tokens", "training.continued"} <= training and "finetuning.method" not in training
    assert {"finetuning.tokens", "finetuning.method"} <= tuning and "training.budget_usd" not in tuning

    page.get_by_label("Model", exact=True).fill("meta-llama/Llama-3.1-8B")
    page.get_by_label("What it does").select_option("training")
    page.get_by_label("Tokens to train on").locator("visible=true").fill("2 zillion")
    with page.expect_navigation():
        page.get_by_role("button", name="Find accelerators").click()
    tokens = page.get_by_label("Tokens to train on").locator("visible=true")
    assert tokens.input_value() == "2 zillion" and tokens.get_attribute("aria-invalid") == "true"
    tokens.fill("2T")
    page.get_by_label("Deadline, days").locator("visible=true").fill("60")
    page.get_by_role("button", name="Find accelerators").click()
    page.wait_for_url("**/advice/*")
    asked = Advice.objects.get().workload.spec
    assert asked["training"]["tokens"] == 2e12 and asked["training"]["deadline_days"] == 60
    assert asked["traffic"] is None


def test_a_wrong_field_of_a_run_shows_whatever_the_kind(open_page: Open) -> None:
    page = open_page("/?preset=support-chat", java_script_enabled=False)
    page.get_by_label("What it does").select_option("training")
    with page.expect_navigation():
        page.get_by_role("button", name="Find accelerators").click()
    assert "training.tokens" in choose(page, "serving")


def paths() -> list[str]:
    done, none = sample_training.advice("pretrain").pk, sample_training.advice("late").pk
    return ["/?preset=pretrain-8b", f"/advice/{done}", f"/advice/{done}/options/1", f"/advice/{none}"]


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.soak), "dark"])
def test_text_stands_out_and_nothing_scrolls_sideways(open_page: Open, scheme: str) -> None:
    for path in paths():
        page = open_page(path, color_scheme=scheme, **PHONE)
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        assert page.evaluate(CONTRAST) == [], path


def test_every_picture_is_named_and_the_keyboard_reaches_the_runs(open_page: Open) -> None:
    page = open_page(f"/advice/{sample_training.advice('pretrain').pk}")
    chart = page.locator(".chart-canvas").first
    expect(chart).to_be_visible()
    unnamed = "svg:not([aria-hidden=true]):not([aria-label]):not([aria-label] svg)"
    assert page.locator(unnamed).count() == 0
    chart.focus()
    page.keyboard.press("Home")
    expect(page.locator("p.unseen[aria-live]").first).to_contain_text("Enter opens it")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.get_by_role("link", name="Performance").click()
    expect(page.locator("main")).to_contain_text("Memory of an accelerator")
