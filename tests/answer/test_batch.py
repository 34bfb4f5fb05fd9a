"""Batches from the file to the page: a deadline instead of limits on latency, and paid by the hour that they run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import advise
from advisor.answer.options.option import batch_run
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.terms.workloads.kinds import BATCH
from advisor.engine.terms.workloads.workload import Slo
from advisor.web.forms import WorkloadForm, from_spec
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from tests.engine.catalog_sample import catalog, offer, question
from tests.pages import every_section

WORKLOAD = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "nightly-batch.yaml"
ASKED: dict[str, Any] = {
    "name": "nightly",
    "kind": "batch",
    "model": "Qwen/Qwen3-30B-A3B",
    "traffic": {"input_tokens": {"mean": 1050, "p95": 2600}, "output_tokens": {"mean": 200, "p95": 450}},
    "batch": {"requests": 86400, "deadline_hours": 8, "every_hours": 24},
}


def batch(deadline_s: float = 8 * 3600, every_s: float = 24 * 3600, requests: float = 400_000) -> Any:
    rates = {"requests_per_s_mean": requests / every_s, "requests_per_s_peak": requests / deadline_s}
    return question(kind=BATCH, slo=Slo(), deadline_s=deadline_s, **rates)


def test_the_rates_of_a_batch_follow_from_its_deadline() -> None:
    spec = parse(ASKED)
    assert spec["traffic"]["requests_per_s"] == {"mean": 1.0, "peak": 3.0}
    assert parse(spec) == spec


def test_a_batch_that_runs_once_is_paid_for_over_the_months_until_its_deadline() -> None:
    once = {**ASKED, "batch": {"requests": 86400, "deadline_hours": 800, "once": "yes"}}
    spec = parse(once)
    assert spec["tco"]["horizon_months"] == 2 and parse(spec) == spec
    assert spec["traffic"]["requests_per_s"]["mean"] == pytest.approx(86400 / (2 * 730 * 3600))
    with pytest.raises(WorkloadError) as caught:
        parse({**once, "tco": {"horizon_months": 12}})
    assert [item["field"] for item in caught.value.errors] == ["tco.horizon_months"]
    for every_s, said in ((730 * 3600, None), (24 * 3600, 24.0)):
        asked = Question(replace(batch(every_s=every_s), horizon_months=1), catalog())
        run = batch_run(asked, search(asked).ranked[0])
        assert run is not None and run.every_hours == said


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"batch": {"requests": 5, "deadline_hours": 8, "every_hours": 4}}, "batch.every_hours"),
        ({"traffic": {**ASKED["traffic"], "requests_per_s": 7}}, "traffic.requests_per_s"),
        ({"traffic": {**ASKED["traffic"], "users": {"active": 3, "think_s": 9}}}, "traffic.users"),
        ({"batch": {"requests": 5, "deadline_hours": 0}}, "batch.deadline_hours"),
        ({"batch": None}, "batch"),
        ({"batch": {"requests": 5, "deadline_hours": 8, "every_hours": 24, "once": "yes"}}, "batch.every_hours"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        parse({**ASKED, **change})
    assert field in [item["field"] for item in caught.value.errors]


def test_every_option_ends_in_time_as_simulated() -> None:
    workload = batch()
    found = search(Question(workload, catalog()))
    assert found.ranked
    for s in found.ranked:
        assert s.verified.late_fraction <= 1
        assert s.capacity_requests_per_s >= workload.requests_per_s_peak


def test_what_is_rented_by_the_hour_is_paid_while_it_runs_and_a_term_all_day() -> None:
    hourly, term = (
        search(Question(batch(), catalog(offers=(offer("big", 4.0, term=name),)))).ranked[0]
        for name in ("on_demand", "reserved_1y")
    )
    assert hourly.replicas == term.replicas
    assert hourly.usd_per_hour == pytest.approx(term.usd_per_hour * hourly.utilisation_fraction)
    assert term.usd_per_hour == 4.0 * term.instances


def test_half_the_time_takes_twice_the_machines_and_about_the_same_money() -> None:
    slow, fast = (search(Question(batch(deadline_s=h * 3600, requests=3_000_000), catalog())).ranked[0] for h in (8, 4))
    assert fast.chips > slow.chips
    assert fast.usd_per_hour == pytest.approx(slow.usd_per_hour, rel=0.05)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_night_of_a_billion_tokens_over_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/tutorial/cases/nightly-batch.md: one or a few chips, given back before the morning, for some dollars."""
    with pytest.raises(SystemExit) as ended:
        few = ["--set", "constraints.accelerators.allow=[h100-sxm, l40s, mi300x]", "--set", "variants=no"]
        call_command("advise", str(WORKLOAD), "--set", "slo={ttft_ms_p95: 100}", *few, "--format", "json")
    answer = json.loads(capsys.readouterr().out)
    assert not ended.value.code
    assert [item["field"] for item in answer["not_used"]] == ["slo.ttft_ms_p95"]
    for r in answer["recommendations"]:
        b = r["batch"]
        assert b["requests"] == 800_000 and 0 < b["run_hours"] <= b["deadline_hours"] == 8
        assert b["usd_per_run"] == pytest.approx(r["usd_per_hour"] * 24, rel=1e-4)
    first = answer["recommendations"][0]
    assert first["acquisition"] == "rent" and first["batch"]["given_back"] and first["accelerator_count"] <= 8
    instances = next(p["usd_per_month"] for p in first["money"]["parts"] if p["name"] == "instances")
    assert 1 < instances / (730 / 24) < 20  # the rest is the minimum team, which the verdict names
    assert "for the assumed minimum team (tco.minimum-engineers-rented)" in answer["verdict"]
    assert "per run ($" in answer["verdict"] and "a run takes" in answer["verdict"] and "TTFT" not in answer["verdict"]


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_over_rest_and_on_the_page(client: Client) -> None:
    body = {**ASKED, "constraints": {"accelerators": {"allow": ["l40s"]}}}
    response = client.generic("POST", "/api/v1/advice", json.dumps(body), "application/json")
    assert response.status_code == 202
    advise.run(response.json()["id"])
    text = every_section(client, f"/advice/{response.json()['id']}")
    assert "86,400 requests within 8 h, every 24 h" in text and "per run ($" in text and "a run takes" in text


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_the_form_asks_for_a_batch_and_shows_it_again() -> None:
    typed = {
        "model": ASKED["model"],
        "kind": "batch",
        "traffic.input_tokens.mean": "1050",
        "traffic.output_tokens.mean": "200",
        "batch.requests": "86,400",
        "batch.deadline_hours": "8",
    }
    form = WorkloadForm(typed)
    assert form.is_valid(), form.errors
    again = from_spec(form.spec)
    assert again["batch.requests"] == "86400" and not again.get("traffic.requests_per_s.mean")
