"""Demand, growth, what is there and the site: from the file, the form and REST to the answer and its page."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import advise, report
from advisor.answer.options import demand
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import take_snapshot
from advisor.result import Answer, Option, Users
from advisor.web.forms import WorkloadForm, from_spec
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from tests import sample_advice
from tests.as_json import recommend
from tests.pages import every_section

TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(
    f"{7 * k + 100},{500 + k % 50},{60 + k % 20}\n" for k in range(200)
)
ASKED: dict[str, Any] = {
    "name": "place",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {
        "input_tokens": {"mean": 1000, "p95": 3000},
        "output_tokens": {"mean": 200, "p95": 500},
        "requests_per_s": {"mean": 10, "peak": 30},
    },
    "slo": {"ttft_ms_p95": 1000, "tpot_ms_p95": 40},
    "variants": "no",
}


def asked(**changes: Any) -> dict[str, Any]:
    return parse({**ASKED, **changes})


def traffic(**changes: Any) -> dict[str, Any]:
    return {**ASKED["traffic"], **changes}


ANSWERS: dict[str, dict[str, Any]] = {}


def answer(**changes: Any) -> dict[str, Any]:
    """From the catalog, which no test here changes: the same question is answered once."""
    question = json.dumps(changes, sort_keys=True)
    if question not in ANSWERS:
        spec = asked(**changes)
        check_catalog(spec)
        ANSWERS[question] = recommend(spec, take_snapshot(spec))
    return ANSWERS[question]


# --- reading ----------------------------------------------------------------------------------------------------


def test_the_peak_of_a_curve_is_its_busiest_hour() -> None:
    curve = [1.0] * 84 + [3.0] * 84
    filled = parse({**ASKED, "traffic": traffic(requests_per_s=10, load_curve=curve)})
    assert filled["traffic"]["requests_per_s"] == {"mean": 10, "peak": pytest.approx(15.0)}
    assert parse(filled) == filled


def test_users_are_at_their_most_in_the_busiest_hour() -> None:
    rest = {key: value for key, value in ASKED["traffic"].items() if key != "requests_per_s"}
    users = {"active": 60, "think_s": 30}
    filled = parse({**ASKED, "traffic": {**rest, "users": users, "load_curve": [1.0] * 84 + [3.0] * 84}})
    assert filled["traffic"]["requests_per_s"] == {"mean": pytest.approx(4 / 3), "peak": 2.0}
    assert parse(filled) == filled


def test_a_trace_says_lengths_and_rates() -> None:
    filled = parse({**ASKED, "traffic": {"trace": {"csv": TRACE}}})
    found = filled["traffic"]
    assert found["input_tokens"] == {"mean": 524.5, "p95": 547.0}
    assert found["requests_per_s"] == {"mean": pytest.approx(1 / 7), "peak": pytest.approx(9 / 60)}
    assert parse(filled) == filled


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"requests_per_s": {"mean": 10, "peak": 11}, "load_curve": "office_hours"}, "requests_per_s.peak", "busiest"),
        ({"trace": {"csv": TRACE}}, "input_tokens", "contradicts traffic.trace"),
        ({"trace": {"csv": "a,b\n1,2\n"}}, "trace", "no column arrival_s"),
        ({"trace": {"csv": TRACE + "x,1,1\n"}}, "trace", "line 202"),
        ({"trace": {"csv": TRACE.splitlines()[0] + "\n5,1,1\n"}}, "trace", "only one arrival time"),
        ({"trace": {"csv": TRACE + "2000,1,1\n" * 20_000}}, "trace", "only one arrival time"),
        ({"load_curve": [0.0] * 168}, "load_curve", "zero"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words) as caught:
        parse({**ASKED, "traffic": traffic(**changes)})
    assert f"traffic.{field}" in [item["field"] for item in caught.value.errors]


def test_traffic_without_lengths_or_a_trace_names_what_is_missing() -> None:
    with pytest.raises(WorkloadError) as caught:
        parse({**ASKED, "traffic": {}})
    assert {"traffic.input_tokens", "traffic.output_tokens", "traffic.requests_per_s"} == {
        item["field"] for item in caught.value.errors
    }


@pytest.mark.django_db
def test_a_path_of_a_trace_is_for_the_command_line_alone() -> None:
    with pytest.raises(WorkloadError, match=r"traffic\.trace"):
        check_catalog(parse({**ASKED, "traffic": {"trace": "../secret.csv"}}))


# --- answering --------------------------------------------------------------------------------------------------

BUSY = {"requests_per_s": {"mean": 100, "peak": 300}}
FEW = {"frameworks": {"allow": ["vllm"]}, "formats": {"allow": ["fp8"]}}  # a small search
BIG = {"accelerators": {"allow": ["h100-sxm"]}, **FEW}


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
class TestAnswers:
    def test_office_hours_cost_less_by_the_hour_and_the_page_shows_the_week(self, client: Client) -> None:
        rent = {**BIG, "acquisition": ["rent"]}
        flat = answer(constraints=rent)
        week = answer(
            constraints=rent,
            traffic=traffic(**BUSY, load_curve="office_hours", growth_fraction_per_year=0.5),
            slo={**ASKED["slo"], "availability": "2n"},
        )
        assert week["not_used"] == []
        r = week["recommendations"][0]
        w, grown = r["week"], r["growth_schedule"]
        assert w["paid"] == "autoscaled" and w["autoscaled"]["usd_per_month"] == r["usd_per_month"]
        assert w["autoscaled"]["usd_per_month"] < w["fixed"]["usd_per_month"]
        assert w["autoscaled"]["utilisation"] == r["utilisation"] > w["fixed"]["utilisation"]
        assert len(w["replicas_by_hour"]) == 168 and max(w["replicas_by_hour"]) == r["replicas"]
        assert r["spare_replicas"] * 2 == r["replicas"] and all(n % 2 == 0 for n in w["replicas_by_hour"])
        assert grown["peak_requests_per_s_at_end"] == pytest.approx(300 * 1.5 ** (35 / 12))
        assert [s["replicas"] for s in grown["steps"]] == sorted(s["replicas"] for s in grown["steps"])
        assert grown["steps"][-1]["replicas"] == grown["replicas_at_end"]
        assert flat["recommendations"][0]["week"] is None
        page = every_section(client, f"/advice/{sample_advice.advice(result_of(week)).pk}/options/1")
        assert "Replicas by hour of the week" in page and "Autoscaled" in page and "Additions by month" in page
        assert "autoscaled between" in report.table(Answer.read(week))

    def test_a_bought_host_is_fixed(self) -> None:
        r = answer(
            constraints={**BIG, "acquisition": ["own"]}, traffic=traffic(**BUSY, load_curve="office_hours")
        )["recommendations"][0]  # fmt: skip
        assert r["week"]["paid"] == "fixed" and r["week"]["autoscaled"] is None and "bought" in r["week"]["why"]

    def test_owned_hosts_cost_what_they_take_to_run(self, client: Client) -> None:
        own = {**BIG, "acquisition": ["own"]}
        bought, there = answer(constraints=own), answer(constraints=own, owned={"h100-sxm": 16})
        r = there["recommendations"][0]
        assert r["term"] == "owned" and r["money"]["capital_usd"] == 0
        assert r["usd_per_month"] < 0.6 * bought["recommendations"][0]["usd_per_month"]
        assert {p["group"] for p in r["money"]["parts"]} == {"running"}
        assert "no delivery" in json.dumps(r["scores"]["lead_time"])
        assert "unknown" in json.dumps(bought["recommendations"][0]["scores"]["lead_time"])
        (said,) = there["owned"]
        assert said["keep"]["rank"] == 1 and said["resale_usd"] > 0
        assert "is enough" in said["said"] or "keeping them" in said["said"]
        page = every_section(client, f"/advice/{sample_advice.advice(result_of(there)).pk}")
        assert "Accelerators you own" in page

    def test_more_is_bought_beside_what_is_there(self) -> None:
        own = {**BIG, "acquisition": ["own"]}
        busy = traffic(**BUSY)
        bought, mixed = (
            answer(constraints=own, traffic=busy),
            answer(constraints=own, traffic=busy, owned={"h100-sxm": 8}),
        )
        first, r = bought["recommendations"][0], mixed["recommendations"][0]
        assert r["site"]["hosts_there_already"] == 1 and r["site"]["hosts_to_buy"] == r["instances"] - 1
        each = first["money"]["capital_usd"] / first["instances"]
        assert r["money"]["capital_usd"] == pytest.approx(each * (r["instances"] - 1), abs=0.05)
        assert mixed["owned"][0]["adds_hosts"] == r["instances"] - 1

    def test_chips_that_fill_no_host_are_told(self) -> None:
        (said,) = answer(constraints=BIG, owned={"h100-sxm": 12})["owned"]
        assert said["in_whole_hosts"] == 8 and "4 of 12" in said["said"]

    def test_an_embedding_under_a_trace_makes_one_vector_a_request(self) -> None:
        r = answer(
            kind="embedding", model="BAAI/bge-m3", traffic={"trace": {"csv": TRACE}}, slo={"e2e_ms_p95": 500},
            constraints={"accelerators": {"allow": ["l4"]}},
        )["recommendations"][0]  # fmt: skip
        assert r["recorded"]["tpot_ms"]["p95"] == 0 and 0 < r["recorded"]["e2e_ms_p95"] <= 500

    def test_a_host_above_the_rack_is_refused_with_the_figures(self) -> None:
        low = answer(constraints={**BIG, "acquisition": ["own"], "site": {"kw_per_rack": 5}})
        (why,) = [x for x in low["rejected"] if x["accelerator"] == "h100-sxm"]
        assert why["reason"] == "too_much_power" and why["limit"] == 5 and why["reached"] > 5
        passing = float(why["smallest_change"].rsplit(" ", 1)[1])
        high = answer(constraints={**BIG, "acquisition": ["own"], "site": {"kw_per_rack": passing}})
        r = high["recommendations"][0]
        assert r["site"]["hosts_per_rack"] == 1 and r["site"]["racks"] == r["instances"]

    def test_cooling_refuses_what_the_site_cannot_cool(self) -> None:
        asked_for = {"accelerators": {"allow": ["gb200"]}, "acquisition": ["own"]}
        air = answer(constraints={**asked_for, "site": {"cooling": "air"}})
        (why,) = [x for x in air["rejected"] if x["accelerator"] == "gb200"]
        assert why["reason"] == "cooling" and "liquid" in why["detail"] and not air["recommendations"]
        liquid = answer(constraints={**asked_for, "site": {"cooling": "liquid"}})
        assert liquid["recommendations"][0]["site"]["cooling"] == "liquid"

    def test_growth_beyond_the_inventory_is_refused(self) -> None:
        any_format = {"accelerators": BIG["accelerators"], "acquisition": ["rent"]}
        limits: dict[str, Any] = {"constraints": any_format, "inventory": {"h100-sxm": 4}}
        assert answer(**limits)["recommendations"][0]["accelerator_count"] <= 4
        grown = answer(**limits, traffic=traffic(growth_fraction_per_year=3.0))
        (why,) = (r for r in grown["rejected"] if r["accelerator"] == "h100-sxm")
        assert "as the traffic grows (today 1), but your inventory has 4" in why["detail"]
        enough = answer(
            **limits | {"inventory": why["change"] and {"h100-sxm": why["change"]["inventory.h100-sxm"]}},
            traffic=traffic(growth_fraction_per_year=3.0),
        )
        assert not grown["recommendations"] and enough["recommendations"]

    def test_users_over_the_command_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rest = {key: value for key, value in ASKED["traffic"].items() if key != "requests_per_s"}
        question = {**ASKED, "constraints": BIG, "traffic": {**rest, "users": {"active": 200, "think_s": 20}}}
        (tmp_path / "w.yaml").write_text(json.dumps(question))
        with pytest.raises(SystemExit):
            call_command("advise", str(tmp_path / "w.yaml"), "--format", "json")
        r = json.loads(capsys.readouterr().out)["recommendations"][0]
        u = r["users"]
        assert u["requests_per_s"] == pytest.approx(200 / (20 + u["e2e_ms_mean"] / 1e3), rel=0.035)
        assert r["requests_per_s"] == u["requests_per_s"] < 10

    def test_a_trace_beside_the_workload_and_the_form(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "w.yaml").write_text(
            json.dumps({**ASKED, "constraints": BIG, "traffic": {"trace": "t.csv"}, "slo": {"e2e_ms_p95": 9000}})
        )
        (tmp_path / "t.csv").write_text(TRACE)
        with pytest.raises(SystemExit):
            call_command("advise", str(tmp_path / "w.yaml"), "--format", "json")
        found = json.loads(capsys.readouterr().out)
        r = found["recommendations"][0]
        assert r["recorded"]["requests"] * (r["replicas"] - r["spare_replicas"]) >= 200
        assert r["recorded"]["e2e_ms_p95"] <= 9000 and r["e2e_ms"]["p95"] <= 9000

    def test_the_form_asks_and_shows_it_again(self) -> None:
        typed = {
            "model": ASKED["model"], "traffic.trace.csv": TRACE, "owned": "h100-sxm: 8, a100-80gb-sxm: 16",
            "inventory": "h100-sxm: 24",
        }  # fmt: skip
        form = WorkloadForm(typed)
        assert form.is_valid(), form.errors
        assert form.spec["owned"] == {"h100-sxm": 8, "a100-80gb-sxm": 16}
        again = from_spec(form.spec)
        assert again["owned"] == typed["owned"] and "traffic.input_tokens.mean" not in again
        second = WorkloadForm(again)
        assert second.is_valid() and second.spec == form.spec

    def test_a_count_that_is_none_is_told_beside_its_field(self) -> None:
        form = WorkloadForm({"model": ASKED["model"], "owned": "h100-sxm: many"})
        assert not form.is_valid() and "owned" in form.errors

    def test_over_rest(self, client: Client) -> None:
        body = {**ASKED, "constraints": BIG, "traffic": {"trace": {"csv": TRACE}}}
        response = client.generic("POST", "/api/v1/advice", json.dumps(body), "application/json")
        assert response.status_code == 202, response.content
        advise.run(response.json()["id"])
        found = client.get(f"/api/v1/advice/{response.json()['id']}").json()
        assert found["state"] == "done"
        refused = client.generic(
            "POST", "/api/v1/advice", json.dumps({**ASKED, "traffic": {"trace": "/etc/passwd"}}), "application/json"
        )
        assert refused.status_code in (400, 422) and "traffic.trace" in refused.content.decode()


def result_of(answered: dict[str, Any]) -> dict[str, Any]:
    return {**answered, "elapsed_s": 0.1}


def test_that_pools_are_not_tried_for_users_is_said_where_they_would_be_for_a_rate() -> None:
    option = Option.read({**sample_advice.result()["recommendations"][0], "replicas": 4, "spare_replicas": 0})
    users = Users(active=9.0, think_s=1.0, e2e_ms_mean=1.0, requests_per_s=1.0)

    def said(**changes: object) -> bool:
        sentences = demand.sentences(option.changed(**changes))
        return any("only tried for a plain request rate" in sentence for sentence in sentences)

    assert said(users=users) and not said() and not said(users=users, replicas=2)
