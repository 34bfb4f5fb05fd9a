"""Workers in a browser: enrolled, queued, cancelled, read and compared; on a phone, in the dark, without scripts."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from catalog.models import Accelerator
from probes.fitted import fitting
from probes.models import Job, Result
from probes.pages import result_figures
from probes.received import results
from tests.probes import samples
from tests.probes.client import FakeAgent
from tests.probes.conftest import make_h200
from tests.probes.test_pages import ran

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
LOOKS: dict[str, Any] = {
    "phone in the dark": {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"},
    "without scripts": {"java_script_enabled": False},
}
PHONE_OR_SOAK = ["phone in the dark", pytest.param("without scripts", marks=pytest.mark.soak)]


@pytest.fixture(autouse=True)
def chip(transactional_db: None, woken: list[str]) -> Accelerator:
    return make_h200()


@pytest.fixture
def three() -> list[Result]:
    """Two of one machine, the second a little slower with a newer driver; one of another."""
    one, other = FakeAgent("gpu-a", labels={"site": "lab"}), FakeAgent("gpu-b")
    slower = samples.document()["results"]
    for e in slower:
        e["time_s"] = {k: v * 1.25 if k != "n" and e["kind"] == "gemm" else v for k, v in e["time_s"].items()}
    first, second = ran(one), ran(one, device={"driver": "999.9"}, results=slower)
    found = [first, second, ran(other, started_at=samples.begun(30))]
    results.release(second)
    fitting.run(first.pk)
    return found


def fits(page: Any, look: str) -> bool:
    page.wait_for_load_state()
    width = "document.documentElement.scrollWidth <= window.innerWidth"
    return look == "without scripts" or bool(page.evaluate(width))


@pytest.mark.parametrize("look", LOOKS)
def test_a_suite_is_queued_on_chosen_workers_and_taken_back(open_page: Open, three: list[Result], look: str) -> None:
    page = open_page("/workers", **LOOKS[look])
    expect(page.get_by_role("row", name=re.compile("gpu-a")).first.get_by_text("online")).to_be_visible()
    page.get_by_role("checkbox", name="gpu-b").check()
    page.get_by_label("Suite").select_option("custom")
    page.get_by_text("Select measurement kinds", exact=True).click()
    page.get_by_label("gemm", exact=True).check()
    page.get_by_role("button", name="Start measurement").click()
    page.get_by_text("1 job queued").wait_for()
    job = Job.objects.get(state="queued")
    assert (job.wanted_agent.name, job.spec["kinds"]) == ("gpu-b", ["gemm"])
    assert fits(page, look)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Job canceled.").wait_for()
    assert not Job.objects.filter(state="queued").exists()


@pytest.mark.parametrize("look", PHONE_OR_SOAK)
def test_a_result_shows_points_under_the_roof_curves_and_every_figure(
    open_page: Open, three: list[Result], look: str
) -> None:
    # scripts replace the picture by a chart
    page = open_page(f"/workers/results/{three[0].pk}", **(LOOKS[look] | {"java_script_enabled": False}))
    roof = page.locator("figure", has=page.get_by_role("img", name=re.compile("datasheet rooflines"))).first
    points, lines = roof.locator("circle.dot"), roof.locator("path.series")
    entries = samples.document()["results"]
    placed = [e for e in entries if e["kind"] in result_figures.ROOF_KINDS and e["flops"] and e["bytes"]]
    expect(points).to_have_count(len(placed))
    expect(lines).to_have_count(2)
    top = min(line.bounding_box()["y"] for line in lines.all())
    assert all(box["y"] + box["height"] >= top for box in (p.bounding_box() for p in points.all()[::20]))
    expect(page.get_by_role("heading", name="Matrix multiplies by rows")).to_be_visible()
    expect(page.get_by_role("heading", name="Memory by size")).to_be_visible()
    page.get_by_text(re.compile(r"^\d+ measurements$")).click()
    expect(page.get_by_role("cell", name="gemm_kernel").first).to_be_visible()
    assert fits(page, look)


@pytest.mark.parametrize("look", PHONE_OR_SOAK)
def test_drift_and_two_drivers_side_by_side(open_page: Open, three: list[Result], look: str) -> None:
    page = open_page(f"/workers/{three[0].agent_id}", **LOOKS[look])
    expect(page.get_by_role("img", name=re.compile("Headline rates over time"))).to_be_visible()
    assert fits(page, look)
    page.goto(f"/workers/results/{three[0].pk}")
    page.get_by_role("link", name="Compare with another").click()
    page.get_by_label("Second").select_option(str(three[1].pk))
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_role("heading", name="Differences", exact=True).wait_for()
    page.wait_for_load_state()
    expect(page.get_by_role("row", name=re.compile("device driver")).get_by_text("999.9")).to_be_visible()
    kind = page.locator("table", has=page.get_by_text("Ratios by kind")).get_by_role("row", name=re.compile("^gemm"))
    expect(kind).to_contain_text("0.800")
    moved = (
        page.locator("table", has=page.get_by_text("Entries with the largest differences")).locator("tbody tr").all()
    )
    assert {row.locator("th").inner_text() for row in moved} == {"gemm"}  # what did not move comes after
    assert fits(page, look)


def test_two_machines_are_compared(open_page: Open, three: list[Result]) -> None:
    page = open_page(f"/workers/compare?a={three[0].pk}&b={three[2].pk}")
    expect(page.get_by_label("First").locator("option:checked")).to_contain_text("gpu-a")
    expect(page.get_by_label("Second").locator("option:checked")).to_contain_text("gpu-b")
    expect(page.get_by_role("heading", name="By kind")).to_be_visible()


def test_a_machine_is_enrolled_with_two_lines_that_can_be_copied(open_page: Open) -> None:
    page = open_page("/workers")
    page.get_by_role("link", name="Enroll").first.click()
    page.get_by_label("Labels").fill("site=lab")
    page.get_by_role("button", name="Create token").click()
    lines = page.get_by_label("Two lines for the machine").locator("code").inner_text().splitlines()
    assert lines[0].startswith("curl -fsSO http") and "sha256sum -c && python3 agent.pyz run" in lines[1]
    token = re.search(r"aet_[\w-]+", lines[1])
    assert token and FakeAgent(token="none").register(token.group()).status_code == 201
