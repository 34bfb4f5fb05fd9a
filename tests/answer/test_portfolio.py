"""Several workloads on one fleet: batches in idle hours, each against alone, on every way in."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import advise, report
from advisor.answer import recommend
from advisor.answer.portfolios.shared_fleet import hours_of_week, stretches
from advisor.engine.fleet.milp import Limits
from advisor.engine.fleet.portfolio import Member, SharedFleet, periods_of, plan_shared_fleet, windows
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.terms.workloads.demand import week_of
from advisor.engine.terms.workloads.kinds import BATCH
from advisor.engine.terms.workloads.workload import Slo, Workload
from advisor.inputs import take_snapshot
from advisor.inputs.check import check_catalog
from advisor.result import Answer
from advisor.web import forms
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from tests.engine.catalog_sample import catalog, offer, question
from tests.pages import every_section

FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "shared-fleet.yaml"
RESERVED = catalog(offers=(offer("big", 4.0, term="reserved_1y"),))
TRAFFIC = {"input_tokens": {"mean": 1000, "p95": 2000}, "output_tokens": 200}
LIMITS = {"acquisition": ["own"], "accelerators": {"allow": ["h100-sxm"]}, "frameworks": {"allow": ["vllm"]}}
ASKED: dict[str, Any] = {
    "name": "both",
    "kind": "portfolio",
    "workloads": [
        {
            "name": "chat",
            "model": "Qwen/Qwen3-30B-A3B",
            "traffic": {**TRAFFIC, "requests_per_s": {"mean": 30, "peak": 90}, "load_curve": "office_hours"},
            "slo": {"ttft_ms_p95": 1000, "tpot_ms_p95": 40},
            "constraints": LIMITS,
        },
        {
            "name": "nightly",
            "kind": "batch",
            "model": "Qwen/Qwen3-30B-A3B",
            "traffic": TRAFFIC,
            "batch": {"requests": 1_000_000, "deadline_hours": 8, "every_hours": 24},
            "constraints": LIMITS,
        },
    ],
}


def batch(requests: float) -> Workload:
    rates = {"requests_per_s_mean": requests / 86400, "requests_per_s_peak": requests / 28800}
    return question(name="batch", kind=BATCH, slo=Slo(), deadline_s=28800.0, **rates)


def members(requests: float, week: tuple[float, ...]) -> list[Member]:
    chat = question(name="chat", requests_per_s_mean=15.0, requests_per_s_peak=50.0)
    asked = [(chat, week), (batch(requests), ())]
    return [
        Member(question=Question(w, RESERVED), answer=search(Question(w, RESERVED)), week=hours) for w, hours in asked
    ]


def fleet(requests: float, curve: str = "office_hours", limits: Limits = Limits()) -> tuple[list[Member], SharedFleet]:  # noqa: B008
    found = members(requests, week_of(curve))
    return found, plan_shared_fleet(found, limits)


def test_a_small_batch_costs_nothing_more_in_the_valley() -> None:
    both, found = fleet(400_000)
    assert found.usd_per_hour == both[0].alone_usd_per_hour < found.alone_usd_per_hour
    assert {r.machine.name for r in found.runs} == {"big-1"}


def test_batches_run_outside_office_hours_and_get_all_their_work_done() -> None:
    both, found = fleet(400_000)
    hours = windows(both)[1]
    assert len(hours) == 8 and not hours & set(range(8, 18))
    runs = [r for r in found.runs if r.member_index == 1]
    for day in range(7):
        done = sum(r.requests_per_s * 3600 for r in runs for h in r.hours if h // 24 == day)
        assert done >= 400_000 * 0.999
    assert all(h % 24 in hours for r in runs for h in r.hours)


def test_no_hour_needs_more_machines_than_there_are() -> None:
    _, found = fleet(2_000_000)
    count = sum(n for _, n in found.machines)
    for hour in range(168):
        assert sum(r.instances for r in found.runs if hour in r.hours) <= count + 1e-6


def test_what_is_planned_holds_in_simulation() -> None:
    both, found = fleet(2_000_000)
    for r in found.runs:
        assert r.verified.late_fraction <= 1
        if both[r.member_index].workload.kind.has_arrivals:
            assert r.verified.ttft_p95_s <= 1.0 and r.verified.tpot_p95_s <= 0.04


def test_a_flat_load_leaves_no_valley_and_says_so() -> None:
    _, found = fleet(2_000_000, "flat")
    assert found.machines == () and "each workload alone" in found.reason


def test_a_larger_batch_never_makes_a_cheaper_fleet() -> None:
    usd = [fleet(n)[1].usd_per_hour for n in (400_000, 2_000_000, 4_000_000)]
    assert usd == sorted(usd)


def test_the_inventory_of_the_fleet_is_kept_to() -> None:
    _, found = fleet(2_000_000, limits=Limits(inventory_chips={"big": 2}))
    assert sum(n for _, n in found.machines) <= 2


def test_periods_cover_the_week_once() -> None:
    both = members(400_000, week_of("office_hours"))
    periods, of_hour = periods_of(both, windows(both))
    assert sum(p.week_fraction for p in periods) == pytest.approx(1) and set(of_hour) == set(range(len(periods)))
    for day in {p.day_index for p in periods}:
        assert sum(p.duration_s for p in periods if p.day_index == day) == pytest.approx(86400)


def test_hours_are_told_in_words() -> None:
    assert stretches([0, 1, 2, 18, 23]) == "0-3, 18-19, 23-24"
    assert hours_of_week([d * 24 + h for d in range(5) for h in (9, 10)] + [5 * 24 + 3]) == "Mon-Fri 9-11; Sat 3-4"


# --- the ways in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workloads": []}, "workloads"),
        ({"workloads": [{**ASKED["workloads"][0], "traffic": None}]}, "workloads[0].traffic"),
        ({"workloads": [ASKED]}, "workloads[0].kind"),
        ({"kind": "serving", "model": "m", "traffic": {**TRAFFIC, "requests_per_s": 1}}, "workloads"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(change: dict[str, Any], field: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse({**ASKED, **change})
    assert field in [item["field"] for item in caught.value.errors]


def test_parsing_twice_changes_nothing() -> None:
    spec = parse(ASKED)
    assert parse(spec) == spec


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("part", "field", "says"),
    [
        ("chat.yaml", "workloads[0]", "file paths are not accepted here"),
        (
            {"kind": "training", "model": "no/model", "training": {"tokens": 1e9}},
            "workloads[0].model",
            "not in the catalog",
        ),
        ({**ASKED["workloads"][0], "model": "no-such"}, "workloads[0].model", "not in the catalog"),
    ],
)
def test_parts_that_cannot_share_are_refused(part: Any, field: str, says: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        check_catalog(parse({**ASKED, "workloads": [part]}))
    (found,) = caught.value.errors
    assert found["field"] == field and says in found["message"]


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_over_rest_and_on_the_pages(client: Client) -> None:
    body = {**ASKED, "slo": {"ttft_ms_p95": 9}}
    response = client.generic("POST", "/api/v1/advice", json.dumps(body), "application/json")
    assert response.status_code == 202, response.content
    pk = response.json()["id"]
    advise.run(pk)
    found = client.get(f"/api/v1/advice/{pk}/result").json()
    told = found["portfolio"]
    assert [a["name"] for a in told["alone"]] == ["chat", "nightly"]
    assert told["shared"]["usd_per_month"] < told["alone_usd_per_month"]
    totals_agree(told)
    assert [item["field"] for item in found["not_used"]] == ["slo"]
    text = every_section(client, f"/advice/{pk}")
    for words in (
        "Each workload alone",
        "One shared fleet",
        "Schedule",
        "Mon-Fri",
        "chat, nightly on one fleet",
    ):
        assert words in text, words
    assert "chat, nightly on one fleet" in client.get("/advice").content.decode()
    assert "nightly on" in client.get(f"/advice/{pk}/advice.md").content.decode()
    assert client.get(f"/advice/{pk}/options.csv").status_code == 200
    assert client.get(f"/?from={pk}", follow=True).status_code == 200
    for render in (report.table, report.markdown):
        assert "nightly on" in render(Answer.read(found))
    papers_agree(client, f"/advice/{pk}", told)


def totals_agree(told: dict[str, Any]) -> None:
    """The rows, each with its share of one team, are the total; what is saved is the difference of the totals."""
    rows = [a["option"]["usd_per_month"] for a in told["alone"]]
    assert told["alone_usd_per_month"] == pytest.approx(sum(rows), abs=1e-6)
    if told["shared"] is None:
        assert told["saving_usd_per_month"] is None and told["saving_fraction"] is None
        assert told["money"]["usd_per_month"] == pytest.approx(told["alone_usd_per_month"], abs=0.005)
        return
    saved = told["alone_usd_per_month"] - told["shared"]["usd_per_month"]
    assert told["saving_usd_per_month"] == pytest.approx(saved, abs=0.005)
    assert told["saving_fraction"] == pytest.approx(saved / told["alone_usd_per_month"], rel=1e-3)


def papers_agree(client: Client, base: str, told: dict[str, Any]) -> None:
    """The papers of a portfolio add up to its month and its cash is worth what the annuity is."""
    m = told["money"]
    assert m["usd_per_month"] == pytest.approx(told["shared"]["usd_per_month"], rel=1e-5)
    assert sum(round(p["usd_per_month"] * 100) for p in m["parts"]) == round(m["usd_per_month"] * 100)
    assert m["capital_usd"] > 0 and m["cash_flow"][0]["capital_usd"] == m["capital_usd"]
    rate = 1.08 ** (1 / 12)
    npv = sum(flow["total_usd"] / rate ** flow["month"] for flow in m["cash_flow"])
    assert npv == pytest.approx(m["npv_usd"], rel=1e-5)
    bom = list(csv.DictReader(io.StringIO(client.get(f"{base}/documents/costs.csv").content.decode())))
    once = sum(float(row["quantity"]) * float(row["unit_usd_once"] or 0) for row in bom)
    assert once == pytest.approx(m["capital_usd"], rel=1e-5)
    assert all(row["source"] for row in bom if not row["item"].startswith("rounding"))
    paid = sum(flow["total_usd"] for flow in m["cash_flow"])
    assert sum(float(row["usd"] or 0) for row in bom) == pytest.approx(paid, abs=0.1)
    servers = [row for row in bom if row["action"] == "buy" and row["provider"]]
    assert servers and all(float(row["unit_usd_once"]) in {i["list_usd_once"] for i in m["items"]} for row in servers)
    assert sum(float(row["usd"]) for row in servers) < m["capital_usd"]  # list prices, without network and spares
    by_item = {row["item"]: float(row["usd"]) for row in bom}
    for part in m["parts"]:
        if part["name"] in ("staff", "minimum team", "electricity", "colocation", "maintenance"):
            assert by_item[part["name"]] == pytest.approx(part["total_usd"], abs=0.01)
    page = client.get(f"{base}/documents/memo.html").content.decode()
    assert "one shared fleet" in page and "Before signing" in page and "chat alone" in page
    assert "Bill over 36 months" in page and "no list price" not in page
    assert client.get(f"{base}/documents/cash-flow.csv").content.decode().count("\n") == len(m["cash_flow"]) + 1
    assert "memo.html" in client.get(base).content.decode()


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(("terms", "curve"), [(["on_demand"], "flat"), (["reserved_1y"], "office_hours")])
def test_rented_machines_are_billed_by_paid_hours_at_list_prices(terms: list[str], curve: str) -> None:
    parts = []
    for part in ASKED["workloads"]:
        limits = {**part["constraints"], "acquisition": ["rent"], "terms": terms}
        traffic = {**part["traffic"], "load_curve": curve} if "load_curve" in part["traffic"] else part["traffic"]
        parts.append({**part, "traffic": traffic, "constraints": limits})
    spec = parse({**ASKED, "workloads": parts})
    found = recommend(spec, take_snapshot(spec, advise.default_organisation()))
    assert found.portfolio is not None and found.portfolio.money is not None
    totals_agree(found.to_json()["portfolio"])
    m, shared = found.portfolio.money, found.portfolio.shared
    assert {item.action for item in m.items} <= {"rent", "reserve"} and not m.capital_usd
    assert all(item.list_usd_per_hour and item.paid_hours for item in m.items)
    if shared is not None:
        assert m.usd_per_month == pytest.approx(shared.usd_per_month, rel=0.02)
    bom = list(csv.DictReader(io.StringIO(report.documents.costs_csv(found, 1))))
    paid = sum(flow.total_usd for flow in m.cash_flow)
    assert sum(float(row["usd"] or 0) for row in bom) == pytest.approx(paid, abs=0.1)
    head = report.text.head(found)
    assert "prices used from none" not in head and "prices used from 20" in head


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_the_command_line_reads_the_files_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parts = ASKED["workloads"]
    for part in parts:
        (tmp_path / f"{part['name']}.yaml").write_text(json.dumps(part))
    whole = {**ASKED, "workloads": [f"{part['name']}.yaml" for part in parts]}
    (tmp_path / "fleet.yaml").write_text(json.dumps(whole))
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(tmp_path / "fleet.yaml"), "--format", "json")
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)["portfolio"]
    assert {run["kind"] for run in told["shared"]["runs"]} == {"serving", "batch"}


@pytest.mark.soak
@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_the_case_of_the_tutorial_is_answered_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/tutorial/cases/shared-fleet.md: the batch fits into the nights of a fleet that is bought for the day."""
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(FILE), "--format", "json")
    told = json.loads(capsys.readouterr().out)["portfolio"]
    assert not ended.value.code
    assert 0.02 < told["saving_fraction"] < 0.6
    (nightly,) = {r["machine"] for r in told["shared"]["runs"] if r["kind"] == "batch"}
    assert nightly in {r["machine"] for r in told["shared"]["runs"] if r["kind"] == "serving"}


def test_the_preset_holds_its_workloads() -> None:
    spec = forms.preset("shared-fleet")
    assert spec is not None and [part["kind"] for part in spec["workloads"]] == ["serving", "batch"]
