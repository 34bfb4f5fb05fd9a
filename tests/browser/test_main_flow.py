"""Ask, watch, read, share: with scripts and without, by keyboard, on a phone, in the dark."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from playwright.sync_api import expect

from advisor.models import Advice
from catalog.models import ServedModel
from tests import sample_advice

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
PHONE = {"viewport": {"width": 320, "height": 640}}


@pytest.fixture(autouse=True)
def model(transactional_db: None) -> None:
    name = "meta-llama/Llama-3.3-70B-Instruct"
    ServedModel.objects.create(slug="llama", hf_id=name, shape={}, as_of=date(2026, 11, 1))


def finish() -> None:
    """What a worker does, without one."""
    Advice.objects.filter(state="queued").update(state="done", result=sample_advice.result(), progress_fraction=1)


def ask(page: Any) -> None:
    page.get_by_role("link", name="A support assistant").click()
    page.get_by_role("button", name="Find accelerators").click()
    page.wait_for_url("**/advice/*")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_from_question_to_shared_answer(open_page: Open, scripts: bool) -> None:
    page = open_page("/", java_script_enabled=scripts)
    ask(page)
    expect(page.locator("body")).to_contain_text("Waiting for a worker")
    finish()
    page.get_by_role("heading", name="Rent one server of 4 × H200 SXM").wait_for()
    page.get_by_role("link", name="Alternatives").click()
    page.get_by_role("link", name="4 x MI300X").first.click()
    page.wait_for_url("**/options/2")
    page.get_by_role("link", name="How to run it").click()
    expect(page.locator("body")).to_contain_text("serve.sh")
    page.get_by_role("link", name="support-chat").click()
    page.locator("summary", has_text="Share").click()
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_role("status").get_by_role("link")  # shown this once: only its hash is stored
    address = link.get_attribute("href")
    assert address == link.inner_text() and "/s/" in address
    link.click()
    page.wait_for_url(address)
    expect(page.get_by_role("heading", name="Rent one server of 4 × H200 SXM")).to_be_visible()
    expect(page.locator("form:not(.reader)")).to_have_count(0)  # but that of the language
    page.go_back()
    page.reload()
    page.locator("summary", has_text="Share").click()
    token = address.rsplit("/", 1)[1]
    expect(page.locator(".share-row code")).to_have_text(f"/s/{token[:6]}…")
    assert token not in page.content()


def test_only_what_the_kind_of_workload_needs_is_asked(open_page: Open) -> None:
    page = open_page("/", java_script_enabled=False)
    seen = {}
    for kind in ("serving", "batch", "embedding"):
        page.get_by_label("What it does").select_option(kind)
        shown = page.locator("[data-field]").evaluate_all(
            "all => all.filter(e => e.checkVisibility()).map(e => e.dataset.field)"
        )
        seen[kind] = set(shown)
    assert "traffic.requests_per_s.mean" in seen["serving"] and "batch.requests" not in seen["serving"]
    assert "traffic.requests_per_s.mean" not in seen["batch"] and "batch.requests" in seen["batch"]
    assert "traffic.output_tokens.mean" not in seen["embedding"] and "traffic.input_tokens.mean" in seen["embedding"]


def test_a_field_that_is_wrong_shows_whatever_the_kind(open_page: Open) -> None:
    page = open_page("/?preset=support-chat", java_script_enabled=False)
    page.get_by_label("What it does").select_option("batch")
    page.get_by_label("Batch: requests").fill("many")
    with page.expect_navigation():
        page.get_by_role("button", name="Find accelerators").click()
    page.get_by_label("What it does").select_option("serving")
    expect(page.get_by_label("Batch: requests")).to_be_visible()


def test_a_mistake_is_kept_and_can_be_mended(open_page: Open) -> None:
    page = open_page("/?preset=support-chat", java_script_enabled=False)
    page.get_by_label("Input tokens, mean").fill("lots")
    with page.expect_navigation():
        page.get_by_role("button", name="Find accelerators").click()
    field = page.get_by_label("Input tokens, mean")
    expect(field).to_have_value("lots")
    expect(field).to_have_attribute("aria-invalid", "true")
    described = field.get_attribute("aria-describedby").split()[-1]
    expect(page.locator(f'[id="{described}"]')).to_contain_text("must be a number")


def test_a_waiting_advice_can_be_cancelled(open_page: Open) -> None:
    page = open_page("/")
    ask(page)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("heading", name="Canceled").wait_for()


def paths() -> list[str]:
    done, none = sample_advice.advice().pk, sample_advice.advice(sample_advice.infeasible()).pk
    running = sample_advice.advice(state="running", stage="searching").pk
    failed = sample_advice.advice(state="failed", error="The calculation took longer than 540 s.").pk
    waiting = [f"/advice/{pk}" for pk in (none, running, failed)]
    return ["/", "/?preset=edge-chat", "/advice", f"/advice/{done}", f"/advice/{done}/options/1", *waiting]


def test_no_page_scrolls_sideways_on_a_phone(open_page: Open) -> None:
    for path in paths():
        page = open_page(path, **PHONE)
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


CONTRAST = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = rgb => { const [r, g, b] = rgb.map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = node => { for (; node; node = node.parentElement) {
    const c = parse(getComputedStyle(node).backgroundColor); if (c.length === 3 || c[3] > .99) return c.slice(0, 3); }
    return [255, 255, 255]; };
  const weak = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest("svg, option, datalist, noscript")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color).slice(0, 3)), light(behind(node))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) weak.push(`${node.className || node.tagName}: ${node.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return weak;
}"""  # noqa: E501


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])  # axe looks at both too
def test_text_stands_out_in_light_and_dark(open_page: Open, scheme: str) -> None:
    papers = set()
    for path in paths():
        page = open_page(path, color_scheme=scheme)
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert page.evaluate(CONTRAST) == [], path
        papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert papers == {"rgb(246, 247, 247)" if scheme == "light" else "rgb(17, 22, 26)"}


def test_the_keyboard_reaches_content_form_and_chart(open_page: Open) -> None:
    page = open_page(f"/advice/{sample_advice.advice().pk}")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.closest('svg, .chart-canvas')?.getAttribute('aria-label') || ''")
        )
    assert any(label.startswith("Price vs. speed") for label in reached)


def test_every_input_has_a_label(open_page: Open) -> None:
    page = open_page("/")
    unnamed = (
        "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')].filter(e => !e.labels.length)"
    )
    assert page.evaluate(f"{unnamed}.length") == 0


def test_the_first_load_is_small_and_from_here_alone(open_page: Open, live_server: Any) -> None:
    page = open_page("/")
    loads = page.evaluate("performance.getEntriesByType('resource').map(e => [e.name, e.encodedBodySize])")
    assert all(name.startswith(live_server.url) for name, _ in loads)
    assert sum(size for _, size in loads) < 150_000
