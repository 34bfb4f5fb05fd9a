"""Interactive charts in a browser: strict policy, keyboard, exports, dark mode, print, and the page without scripts."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests import sample_advice, sample_money

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
FRONTIER = "#chart-frontier"


def drawn(page: Any, chart: str) -> Any:
    """The figure, once the script has drawn it."""
    figure = page.locator(chart)
    figure.scroll_into_view_if_needed()
    expect(figure).to_have_attribute("data-drawn", "yes")
    return figure


def test_load_hover_and_click_break_no_content_policy(open_page: Open) -> None:
    """Chromium reports a violation as a console error, which fails every test of this folder."""
    advice = sample_advice.advice(sample_money.result())
    page = open_page(f"/advice/{advice.pk}")
    page.evaluate(
        "window.refused = [];"
        "document.addEventListener('securitypolicyviolation', (event) => refused.push(event.violatedDirective))"
    )
    figure = drawn(page, FRONTIER)
    box = figure.locator(".chart-canvas").bounding_box()
    for share in (0.2, 0.35, 0.5, 0.65, 0.8):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
    figure.locator(".chart-legend button").first.click()
    figure.get_by_label("90% ranges").click()
    canvas = figure.locator(".chart-canvas")  # its keys reach it, and its name tells them, also after a redraw
    assert canvas.get_attribute("role") == "application" and "Arrow keys" in canvas.get_attribute("aria-label")
    figure.get_by_label("Horizontal axis", exact=True).select_option("output_tokens_per_s_per_user")
    assert page.evaluate("window.refused") == []
    charts = (("cost", "#chart-waterfall"), ("cost", "#chart-cost-of-load"), ("performance", "#chart-memory"))
    for section, chart in charts:
        page.goto(f"/advice/{advice.pk}/options/1?section={section}")
        drawn(page, chart).locator(".chart-canvas").hover()


def test_a_point_shows_its_figures_where_the_pointer_is_inside_it(open_page: Open) -> None:
    advice = sample_advice.advice()
    page = open_page(f"/advice/{advice.pk}", java_script_enabled=False)
    hollow = page.locator("svg.pareto circle.dominated").first
    hollow.scroll_into_view_if_needed()
    box = hollow.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("svg.pareto g:hover > circle.dominated")).to_have_count(1)


def test_focus_on_a_point_of_the_servers_picture_stays_when_the_chart_is_drawn(open_page: Open) -> None:
    advice = sample_advice.advice()
    page = open_page(f"/advice/{advice.pk}", viewport={"width": 1280, "height": 300})
    held: list[Any] = []
    page.route("**/echarts*.js", lambda route: held.append(route))
    page.reload()
    point = page.locator("svg.pareto a[href$='/options/2']").first
    point.focus()
    expect(page.locator(FRONTIER)).to_have_attribute("data-drawn", "loading")
    for _ in range(50):
        if held:
            break
        page.wait_for_timeout(100)
    held[0].continue_()
    expect(page.locator(FRONTIER)).to_have_attribute("data-drawn", "yes")
    expect(page.locator(f"{FRONTIER} .chart-canvas")).to_be_focused()
    expect(page.locator(f"{FRONTIER} [aria-live]")).to_contain_text("MI300X")
    page.keyboard.press("Enter")
    page.wait_for_url("**/options/2")


def test_arrow_keys_reach_every_point_and_enter_opens_the_option(open_page: Open) -> None:
    advice = sample_advice.advice()
    page = open_page(f"/advice/{advice.pk}")
    figure = drawn(page, FRONTIER)
    data = json.loads(page.locator("#chart-frontier-data").text_content())
    canvas = figure.locator(".chart-canvas")
    assert page.locator(f"{FRONTIER} .chart-canvas [tabindex]").count() == 0, "the chart is one tab stop"
    canvas.focus()
    said = figure.locator("[aria-live]")
    page.keyboard.press("Home")
    heard = {said.text_content()}
    for _ in range(len(data["rows"])):
        page.keyboard.press("ArrowRight")
        heard.add(said.text_content())
    for row in data["rows"]:
        assert any(row["label"] in text for text in heard), row["label"]
    assert "TPOT p95" in said.text_content() and "USD per M output tokens" in said.text_content()
    page.keyboard.press("Home")
    for _ in range(len(data["rows"])):
        if "Enter opens it" in said.text_content():
            break
        page.keyboard.press("ArrowRight")
    rank = said.text_content().split(".")[0]
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/options/{rank}")


def test_the_frontier_follows_the_axes_and_the_direction_of_each_metric(open_page: Open) -> None:
    page = open_page(f"/advice/{sample_advice.advice().pk}")
    found = page.evaluate(
        """async () => {
          const { frontierOf, cheapestAt } = await import("/static/advisor/charts.js");
          const point = (x, y, state = "ranked") => ({ x, y, state });
          const points = [point(10, 9), point(20, 4), point(30, 6), point(5, 1, "estimate"), point(1, 1, "api")];
          const at = (x, y) => frontierOf(points, { better: x }, { better: y }).map((each) => [each.x, each.y]);
          const offers = [[30, 9, "ranked"], [40, 7, "owned"], [80, 12, "ranked"], [99, 1, "estimate"]]
            .map(([speed, cost, state]) => ({ speed, cost, state }));
          return {
            lowLow: at("low", "low"), highLow: at("high", "low"), highHigh: at("high", "high"),
            estimates: frontierOf(points.slice(3), { better: "low" }, { better: "low" }).length,
            cheapest: [30, 41, 81].map((speed) => cheapestAt(offers, speed)?.cost ?? null),
          };
        }"""
    )
    assert found["lowLow"] == [[10, 9], [20, 4]]
    assert found["highLow"] == [[20, 4], [30, 6]]
    assert found["highHigh"] == [[10, 9], [30, 6]]
    assert found["estimates"] == 1, "without a ranking the estimates count, but never a hosted API"
    assert found["cheapest"] == [7, 12, None]


def test_the_cheapest_option_at_a_speed_is_named_and_linked(open_page: Open) -> None:
    advice = sample_advice.advice()
    page = open_page(f"/advice/{advice.pk}")
    figure = drawn(page, FRONTIER)
    data = json.loads(page.locator("#chart-frontier-data").text_content())
    keys = [metric["key"] for metric in data["metrics"]]
    speed, cost = keys.index("output_tokens_per_s_per_user"), keys.index("usd_per_mtok_output")
    ranked = [row for row in data["rows"] if row["state"] == "ranked"]
    wanted = sorted(row["figures"][speed] for row in ranked)[1]
    best = min((row for row in ranked if row["figures"][speed] >= wanted), key=lambda row: row["figures"][cost])
    figure.get_by_label("Cheapest at").fill(str(wanted))
    expect(figure.locator("output a")).to_have_attribute("href", f"/advice/{advice.pk}/options/{best['rank']}")
    expect(figure.locator("output")).to_contain_text("not interpolated")
    figure.get_by_label("Cheapest at").fill("100000")
    expect(figure.locator("output")).to_contain_text("No ranked option reaches")


def test_exports_hold_the_picture_and_the_figures(open_page: Open) -> None:
    page = open_page(f"/advice/{sample_advice.advice().pk}", color_scheme="dark")
    figure = drawn(page, FRONTIER)
    saved = {}
    for kind in ("SVG", "PNG", "CSV"):
        with page.expect_download() as download:
            figure.get_by_role("button", name=f"as {kind}").click()
        assert download.value.suggested_filename == f"chart-frontier.{kind.lower()}"
        saved[kind] = Path(download.value.path()).read_bytes()
    assert saved["PNG"].startswith(b"\x89PNG")
    picture = saved["SVG"].decode()
    assert picture.startswith("<svg") and "var(" not in picture and "#fff" in picture and "Price vs. speed" in picture
    rows = list(csv.DictReader(io.StringIO(saved["CSV"].decode())))
    best = next(row for row in rows if row["rank"] == "1")
    option = sample_advice.result()["recommendations"][0]
    assert float(best["USD per M output tokens"]) == pytest.approx(option["usd_per_mtok_output"])


def test_the_colors_follow_the_scheme_while_the_page_is_open(open_page: Open) -> None:
    page = open_page(f"/advice/{sample_advice.advice().pk}", color_scheme="light")
    drawn(page, FRONTIER)
    fill = f"getComputedStyle(document.querySelector('{FRONTIER} .chart-canvas text')).fill"
    light = page.evaluate(fill)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(fill) != light
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(fill) == light
    expect(page.locator(f"{FRONTIER} .chart-canvas svg")).to_be_visible()
    expect(page.locator(f"{FRONTIER} .chart-tools")).to_be_hidden()


def test_without_scripts_every_chart_is_there_as_drawn_on_the_server(open_page: Open) -> None:
    advice = sample_advice.advice(sample_money.result())
    page = open_page(f"/advice/{advice.pk}", java_script_enabled=False)
    expect(page.locator("svg.pareto")).to_be_visible()
    page.goto(f"/advice/{advice.pk}/options/1?section=cost")
    pictures = page.locator("figure[data-chart] .picture > svg")
    assert pictures.count() == page.locator("figure[data-chart]").count() > 1
    page.locator("#chart-waterfall summary").click()
    expect(page.locator("#chart-waterfall table")).to_be_visible()


def test_the_library_is_loaded_only_when_a_chart_comes_near(open_page: Open) -> None:
    page = open_page(f"/advice/{sample_advice.advice().pk}", viewport={"width": 800, "height": 300})
    loaded = "performance.getEntriesByType('resource').filter(e => e.name.includes('vendor/echarts')).length"
    assert page.evaluate(loaded) == 0
    drawn(page, FRONTIER)
    assert page.evaluate(loaded) == 1
    page.goto("/advice")
    assert page.evaluate("performance.getEntriesByType('resource').filter(e => /charts/.test(e.name)).length") == 0
