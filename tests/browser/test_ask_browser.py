"""Asking in a minute: five inputs by keyboard, pickers, closed groups, errors first, entries that are not lost."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from playwright.sync_api import expect

from advisor.models import Advice
from catalog.models import ServedModel

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
MOST_TAB_STOPS = 19  # from the load of the page to the submit button, with every link before it
MODEL, OTHER = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
TYPED = {
    "model": MODEL,
    "traffic.requests_per_s.mean": "4",
    "traffic.input_tokens.mean": "2000",
    "traffic.output_tokens.mean": "300",
}
OFFERED = "#id_model-names [role=option]"
DRAFTS = "Object.values(sessionStorage).filter(text => text.includes('1234')).length"
FOCUSED = "document.activeElement.name || document.activeElement.type || ''"


@pytest.fixture(autouse=True)
def models(transactional_db: None) -> None:
    for slug, name in (("l8", MODEL), ("l70", OTHER)):
        ServedModel.objects.create(slug=slug, hf_id=name, shape={}, as_of=date(2026, 11, 1))


def submit(page: Any) -> None:
    with page.expect_navigation():
        page.get_by_role("button", name="Find accelerators").click()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_five_inputs_by_keyboard_reach_an_answer(open_page: Open, scripts: bool) -> None:
    page = open_page("/", java_script_enabled=scripts)
    stops = []
    while "submit" not in stops and len(stops) < 40:
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED))
        if stops[-1] in TYPED:
            page.keyboard.type(TYPED[stops[-1]])
    assert len(stops) <= MOST_TAB_STOPS, stops
    asked = {"kind", "name", "traffic.requests_per_s.peak", "constraints.max_usd_per_month"}
    assert TYPED.keys() | asked | {"form.traffic", "form.latency", "constraints.regions.allow"} <= set(stops)
    page.keyboard.press("Enter")
    page.wait_for_url("**/advice/*")
    spec = Advice.objects.get().workload.spec
    assert (spec["model"], spec["slo"]["ttft_ms_p95"], spec["slo"]["tpot_ms_p95"]) == (MODEL, 1000, 40)
    assert spec["traffic"]["requests_per_s"]["mean"] == 4 and spec["traffic"]["input_tokens"]["mean"] == 2000


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_at_first_only_the_question_itself_is_visible_and_on_one_screen(open_page: Open, scripts: bool) -> None:
    page = open_page("/", java_script_enabled=scripts, viewport={"width": 1280, "height": 800})
    shown = "all => all.filter(e => e.checkVisibility()).map(e => e.dataset.field)"
    first = [
        "model", "kind", "name", "form.traffic", "traffic.requests_per_s.mean", "traffic.requests_per_s.peak",
        "traffic.input_tokens.mean", "traffic.output_tokens.mean", "form.latency", "constraints.regions.allow",
        "constraints.max_usd_per_month",
    ]  # fmt: skip
    assert page.locator("[data-field]").evaluate_all(shown) == first
    below = "all => all.filter(e => e.checkVisibility() && e.getBoundingClientRect().bottom > 800).length"
    assert page.locator("[data-field]").evaluate_all(below) == 0
    page.get_by_role("radio", name="active users").check()
    page.get_by_label("Latency limits").select_option("own")
    seen = set(page.locator("[data-field]").evaluate_all(shown))
    assert {"traffic.users.active", "traffic.users.think_s", "slo.ttft_ms_p95", "slo.tpot_ms_p95"} <= seen
    assert "traffic.requests_per_s.mean" not in seen
    page.get_by_label("What it does").select_option("training")
    assert page.locator("[data-field]").evaluate_all(shown) == [
        "model", "kind", "name", "constraints.regions.allow", "constraints.max_usd_per_month", "training.tokens",
        "training.budget_usd", "training.sequence_length", "training.deadline_days",
    ]  # fmt: skip


def test_a_picker_takes_several_names_by_keyboard_and_by_pointer(open_page: Open) -> None:
    page = open_page("/?preset=support-chat")
    box = page.get_by_role("combobox", name="Model", exact=True)
    box.fill("")
    box.press_sequentially("LLAMA-3.1-7")
    expect(box).to_have_attribute("aria-expanded", "true")
    expect(page.locator(OFFERED)).to_have_text([OTHER])
    box.press("ArrowDown")
    option = page.locator(f'[id="{box.get_attribute("aria-activedescendant")}"]')
    expect(option).to_have_attribute("aria-selected", "true")
    box.press("Enter")
    expect(box).to_have_value(OTHER)
    expect(box).to_have_attribute("aria-expanded", "false")
    box.press_sequentially(", ")
    expect(page.locator(OFFERED)).to_have_text([MODEL])  # what was chosen is not offered again
    box.press("Escape")
    expect(page.locator("#id_model-names")).to_be_hidden()
    box.press("ArrowDown")
    page.locator(OFFERED, has_text=MODEL).click()
    expect(box).to_have_value(f"{OTHER}, {MODEL}")
    submit(page)
    assert {advice.workload.spec["model"] for advice in Advice.objects.all()} == {MODEL, OTHER}
    expect(page.locator("body")).to_contain_text("2 requests were queued")


def test_a_closed_group_says_what_is_set_as_it_is_typed(open_page: Open) -> None:
    page = open_page("/")
    group = page.locator("details.more", has_text="Buying")
    usual = "Rent, buy or hosted API; no capex limit"
    expect(group.locator(".said")).to_have_text(usual)
    group.locator("summary").click()
    page.get_by_label("Capex limit, USD").fill("$5k")
    page.get_by_role("checkbox", name="rent", exact=True).uncheck()
    said = "Capex limit, USD: $5k · Rent, buy or hosted API: buy, hosted API (pay per token)"
    expect(group.locator(".said")).to_have_text(said)
    page.get_by_label("Capex limit, USD").fill("")
    page.get_by_role("checkbox", name="rent", exact=True).check()
    expect(group.locator(".said")).to_have_text(usual)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_portfolio_is_asked_by_rows(open_page: Open, scripts: bool) -> None:
    page = open_page("/portfolio", java_script_enabled=scripts)
    page.get_by_role("button", name="Add a workload").click()
    expect(page.locator(".job")).to_have_count(3)
    page.get_by_role("button", name="Remove").nth(1).click()
    expect(page.locator(".job")).to_have_count(2)
    for number, load in ((1, "4"), (3, "2k")):
        typed = {**TYPED, "traffic.requests_per_s.mean": load}
        for path, text in typed.items():
            page.locator(f'[id="id_row{number}-{path}"]').fill(text)
    page.locator('[id="id_row3-kind"]').select_option("training")
    expect(page.locator('[id="id_row3-training.tokens"]')).to_be_visible()
    expect(page.locator('[id="id_row3-slo.ttft_ms_p95"]')).to_be_hidden()
    page.locator('[id="id_row3-training.tokens"]').fill("2 zillion")
    page.get_by_role("button", name="Find accelerators").click()
    expect(page.locator("#errors li")).to_have_count(1)
    page.locator('[id="id_row3-training.tokens"]').fill("2T")
    page.get_by_role("button", name="Find accelerators").click()
    page.wait_for_url("**/advice/*")
    chat, run = Advice.objects.get().workload.spec["workloads"]
    assert chat["traffic"]["requests_per_s"]["mean"] == 4 and run["training"]["tokens"] == 2e12


def test_rows_of_a_portfolio_survive_a_reload(open_page: Open) -> None:
    page = open_page("/portfolio")
    page.get_by_role("button", name="Add a workload").click()
    page.locator('[id="id_row3-name"]').fill("third")
    page.wait_for_timeout(400)
    page.reload()
    expect(page.locator('[id="id_row3-name"]')).to_have_value("third")


def test_errors_come_first_have_the_focus_and_lead_to_their_fields(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_label("Input tokens, mean").fill("lots")
    page.locator("summary", has_text="Finance").click()
    page.get_by_label("Discount rate").fill("high")
    submit(page)
    expect(page.locator("#errors")).to_be_focused()
    expect(page.locator("main > :first-child")).to_have_id("errors")
    said = page.locator("#errors li").all_inner_texts()
    told = 'Discount rate: must be a number, not "high" (allowed: 40% or 0.4)'
    assert "Model: is required" in said and told in said
    assert not [text for text in said if "." in text.partition(":")[0] or "_" in text]
    group = page.locator("details.more", has_text="Finance")
    group.locator("summary").click()
    expect(page.get_by_label("Discount rate")).to_be_hidden()
    page.locator("#errors").get_by_role("link", name="Discount rate").click()
    expect(page.get_by_label("Discount rate")).to_be_focused()
    expect(page.get_by_label("Input tokens, mean")).to_have_value("lots")


def test_entries_survive_reload_back_and_other_pages_until_they_are_cleared(open_page: Open) -> None:
    page = open_page("/")
    length = page.get_by_label("Input tokens, mean")

    def typed() -> None:
        length.fill("1234")
        page.get_by_role("radio", name="active users").check()

    typed()
    page.reload()
    expect(length).to_have_value("1234")
    expect(page.get_by_role("radio", name="active users")).to_be_checked()
    page.goto("/advice")
    page.goto("/")
    expect(length).to_have_value("1234")
    page.get_by_role("button", name="Clear them").click()
    expect(length).to_have_value("")
    page.reload()
    expect(length).to_have_value("")


def test_entries_are_there_after_back_and_gone_in_a_new_question(open_page: Open) -> None:
    page = open_page("/?preset=support-chat")
    page.get_by_role("combobox", name="Model", exact=True).fill(MODEL)
    page.get_by_label("Input tokens, mean").fill("1234")
    submit(page)
    page.go_back()
    expect(page.get_by_label("Input tokens, mean")).to_have_value("1234")
    page.goto("/?preset=support-chat")
    expect(page.get_by_label("Input tokens, mean")).to_have_value("2000")


def test_a_page_that_asks_for_a_password_forgets_entries(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_label("Input tokens, mean").fill("1234")
    page.goto("/advice")
    assert page.evaluate(DRAFTS) == 1
    page.goto("/login")
    expect(page.locator("input[type=password]")).to_be_visible()
    assert page.evaluate(DRAFTS) == 0


def test_on_a_phone_the_submit_button_is_in_reach_from_the_start(open_page: Open) -> None:
    page = open_page("/", viewport={"width": 390, "height": 700})
    expect(page.get_by_role("button", name="Find accelerators")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_an_estimate_needs_is_said_as_it_is_typed(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_label("Input tokens, mean").press_sequentially("2000")
    expect(page.locator("#quick-estimate")).to_contain_text("model, mean output tokens")
