"""The money of an answer: parts and cash agree to the cent, terms and knobs change it, documents contain it."""

import copy
import csv
import io
import json
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from advisor import report, workload
from advisor.advise import default_organisation
from advisor.inputs.from_catalog import take_snapshot
from advisor.models import Share
from advisor.report import documents
from advisor.report.documents.subject import first_rank
from advisor.result import Answer, Portfolio
from advisor.templatetags.units import dollars
from tests import sample_advice
from tests.as_json import recommend
from tests.pages import every_section

PAPERS = [name for name in documents.DOCUMENTS if name not in documents.EXPORTS]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"

FEW = {  # a small search
    "constraints.accelerators.allow": "[h100-sxm]",
    "constraints.frameworks.allow": "[vllm]",
    "constraints.formats.allow": "[fp8]",
    "variants": "no",
}


def answer(**changes: str) -> dict[str, Any]:
    spec = workload.load(FILE.read_bytes())
    for path, value in (FEW | changes).items():
        spec = workload.set_path(spec, path.replace("__", "."), value)
    parsed = workload.parse(spec)
    return recommend(parsed, take_snapshot(parsed, default_organisation()))


@lru_cache
def owning() -> dict[str, Any]:
    return answer(**{"constraints.acquisition": "[own]", "traffic.growth_fraction_per_year": "1.0"})


@lru_cache
def renting() -> dict[str, Any]:
    return answer(**{"constraints.acquisition": "[rent, api]"})


@pytest.fixture
def bought() -> dict[str, Any]:
    return copy.deepcopy(owning())


@pytest.fixture
def rented() -> dict[str, Any]:
    return copy.deepcopy(renting())


def cents(values: Any) -> int:
    return sum(round(value * 100) for value in values)


@pytest.mark.parametrize("kind", ["bought", "rented"])
def test_the_bill_its_cash_and_its_tokens_agree(kind: str, request: pytest.FixtureRequest) -> None:
    r = request.getfixturevalue(kind)["recommendations"][0]
    m = r["money"]
    assert cents(part["usd_per_month"] for part in m["parts"]) == round(m["usd_per_month"] * 100)
    assert m["usd_per_month"] == pytest.approx(r["usd_per_month"], rel=1e-5)
    assert m["npv_usd"] == pytest.approx(r["tco_usd"], rel=1e-5)
    assert sum(flow["present_usd"] for flow in m["cash_flow"]) == pytest.approx(m["npv_usd"], abs=0.5)
    assert sum(step["usd_per_mtok"] for step in m["waterfall"]) == pytest.approx(r["usd_per_mtok_blended"], rel=1e-4)
    for flow in m["cash_flow"]:
        total = flow["capital_usd"] + flow["running_usd"] - flow["value_left_usd"]
        assert flow["total_usd"] == pytest.approx(total, abs=0.011)
    energy = m["energy"]
    rates = 4 * 2000 * energy["joules_per_input_token"] + 4 * 300 * energy["joules_per_output_token"]
    assert rates == pytest.approx(r["watts"], rel=1e-4)


def test_owning_shows_what_it_pays_for_and_where_it_meets_renting(bought: dict[str, Any]) -> None:
    m = bought["recommendations"][0]["money"]
    names = [part["name"] for part in m["parts"]]
    assert names[:2] == ["accelerators", "host"] and {"colocation", "cooling", "staff", "spares"} <= set(names)
    assert {way["term"] for way in m["ways_to_pay"]} >= {"purchase", "on_demand", "spot", "reserved_1y"}
    met = next(b for b in m["break_even"] if b["between"] == ["own", "rent on_demand"])
    assert met["share_of_hours"] == pytest.approx(
        m["usd_per_month"] / next(w for w in m["ways_to_pay"] if w["term"] == "on_demand")["usd_per_month"], rel=1e-5
    )
    assert m["growth"]["npv_extending_usd"] <= m["growth"]["npv_all_now_usd"]
    assert m["growth"]["replicas_at_end"] > bought["recommendations"][0]["replicas"]


def test_a_bought_host_pays_for_the_power_that_it_draws() -> None:
    r = answer(**{"constraints.acquisition": "[own]"})["recommendations"][0]
    power = sum(p["usd_per_month"] for p in r["money"]["parts"] if p["name"] in ("electricity", "cooling"))
    assert power == pytest.approx(r["watts"] / 1000 * 730 * r["usd_per_kwh"], rel=1e-4)
    assert r["money"]["energy"]["watts_full"] > r["watts"]


def test_renting_meets_the_hosted_price_at_a_volume(rented: dict[str, Any]) -> None:
    m = rented["recommendations"][0]["money"]
    api = next((h for h in rented["hosted"] if h["rejection"] is None), rented["hosted"][0])
    met = next(b for b in m["break_even"] if b["between"][0] == "rent")
    assert met["tokens_per_month"] * api["usd_per_mtok_blended"] / 1e6 == pytest.approx(m["usd_per_month"], rel=1e-4)


def test_the_interval_of_a_token_holds_prices_load_and_performance(rented: dict[str, Any]) -> None:
    interval = rented["recommendations"][0]["interval"]
    r = rented["recommendations"][0]
    month, token = (interval[name][1] / r[name] for name in ("usd_per_month", "usd_per_mtok_output"))
    assert token > 1.18 and month > 1.18
    prices = {"tco.rent-change-per-year": "0", "tco.price-age-swing-ratio": "1"}
    sure = answer(**{"constraints.acquisition": "[rent, api]"}, **prices)["recommendations"][0]
    assert sure["interval"]["usd_per_month"][1] / sure["usd_per_month"] < month


BATCH = {
    "kind": "batch",
    "batch": "{requests: 200000, deadline_hours: 12}",
    "slo": "{}",
    "traffic": "{input_tokens: 2000, output_tokens: 300}",
}


@pytest.mark.parametrize(
    "changes",
    [
        {"traffic.load_curve": "office_hours", "constraints.acquisition": "[rent]"},
        {"slo.availability": "2n"},
        {"constraints.terms": "[on_demand, spot, reserved_1y]", "constraints.acquisition": "[rent]"},
        {"tco.electricity-usd-per-kwh": "0", "tco.operator-usd-per-year": "0", "constraints.acquisition": "[own]"},
        BATCH,
    ],
    ids=["hours of a week", "2n", "spot", "free power", "batch"],
)
def test_parts_and_tokens_agree_however_it_is_paid(changes: dict[str, str]) -> None:
    for r in answer(**changes)["recommendations"]:
        m = r["money"]
        assert cents(part["usd_per_month"] for part in m["parts"]) == round(m["usd_per_month"] * 100)
        assert m["usd_per_month"] == pytest.approx(r["usd_per_month"], rel=1e-5)
        steps = sum(step["usd_per_mtok"] for step in m["waterfall"])
        assert steps == pytest.approx(r["usd_per_mtok_blended"], rel=1e-4)
        assert m["npv_usd"] == pytest.approx(r["tco_usd"], rel=1e-5)
        own_way = "own" if r["acquisition"] == "own" else f"rent {r['term']}"
        assert not m["paths"] or own_way in {path["name"] for path in m["paths"]}, "the chart has the option's own way"


def test_spot_is_ranked_when_it_is_taken_and_carries_its_interruptions() -> None:
    found = answer(**{"constraints.acquisition": "[rent]", "constraints.terms": "[spot]"})["recommendations"][0]
    parts = {part["name"]: part["usd_per_hour"] for part in found["money"]["parts"]}
    assert found["term"] == "spot"
    assert parts["interruptions"] == pytest.approx(parts["instances"] * (1 / 0.9 - 1), rel=1e-4)


def test_a_power_cap_draws_less_and_computes_more_slowly(bought: dict[str, Any]) -> None:
    changes = {"constraints.acquisition": "[own]", "tco.power_cap_fraction": "0.6"}
    capped, free = answer(**changes)["recommendations"][0], bought["recommendations"][0]
    assert capped["money"]["energy"]["chip_watts"] == pytest.approx(0.6 * free["money"]["energy"]["chip_watts"])
    assert capped["accelerator_count"] >= free["accelerator_count"]
    if capped["accelerator_count"] == free["accelerator_count"]:  # then each chip has the same load
        assert capped["tpot_ms"]["mean"] > free["tpot_ms"]["mean"]


def test_egress_is_counted_where_the_planner_sets_its_price() -> None:
    dear = answer(**{"constraints.acquisition": "[rent]", "tco.egress-usd-per-gb": "0.5"})["recommendations"][0]
    assert any(part["name"] == "egress" for part in dear["money"]["parts"])


@pytest.mark.parametrize(
    ("key", "value"), [("spot-lost-fraction", "1.5"), ("pue", "0.5"), ("depreciation-years", "0"), ("pue", "-1")]
)
def test_an_assumption_that_cannot_be_is_refused_with_its_range(key: str, value: str) -> None:
    spec = workload.set_path(workload.load(FILE.read_bytes()), f"tco.{key}", value)
    with pytest.raises(workload.WorkloadError) as trouble:
        workload.parse(spec)
    assert trouble.value.errors[0]["field"] == f"tco.{key}" and trouble.value.errors[0]["allowed"]


# --- documents --------------------------------------------------------------------------------------------------


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_documents_of_a_purchase(bought: dict[str, Any]) -> None:
    memo = documents.memo_text(Answer.read(bought), 1)
    for said in (
        "Alternatives considered",
        "Before signing",
        "present value of costs",
        "What to sign",
        "load test one replica",
        "can be resold for",
        "get a supplier's written quote for",
    ):
        assert said in memo, said
    assert "90% interval" in memo and "first token within 1,000 ms" in memo
    assert not any(word in memo for word in ("ttft_ms_p95", "G tokens", "None"))
    flow = rows(documents.cash_flow_csv(Answer.read(bought), 1))
    assert len(flow) == 37 and {row["currency"] for row in flow} == {"USD"}
    assert float(flow[0]["capital_usd"]) == bought["recommendations"][0]["money"]["capital_usd"]
    bom = rows(documents.bill_of_materials(Answer.read(bought), 1))
    once = sum(int(row["quantity"]) * float(row["unit_usd_once"] or 0) for row in bom)
    assert once == pytest.approx(bought["recommendations"][0]["money"]["plan"]["capex_usd"])
    listed = {row["name"]: row for row in rows(documents.assumptions_csv(Answer.read(bought), 1))}
    assert listed["pue"]["source"] and listed["discount rate"]["value"] == "0.08"


def test_the_memo_says_where_tokens_are_cheaper_than_machines(rented: dict[str, Any]) -> None:
    first, least = rented["recommendations"][0], min(h["usd_per_month"] for h in rented["hosted"])
    verdict = documents.memo(Answer.read(rented)).verdict
    assert f"{dollars(least)} per month at" in verdict
    assert ("would be cheaper" in verdict or "allow costs less" in verdict) is (least < first["usd_per_month"])
    for h in rented["hosted"]:
        h["usd_per_month"] *= 1000
    assert "costs more" in documents.memo(Answer.read(rented)).verdict


@pytest.mark.parametrize("which", ["rented", "bought"])
def test_the_costs_add_up(request: pytest.FixtureRequest, which: str) -> None:
    found = request.getfixturevalue(which)
    bom = rows(documents.costs_csv(Answer.read(found), first_rank(Answer.read(found))))
    for row in bom:
        if row["action"] in ("rent", "reserve"):
            assert float(row["usd"]) == pytest.approx(float(row["unit_usd_per_hour"]) * float(row["paid_hours"]))
    money = Answer.read(found).deployments[0].money
    assert money is not None
    assert sum(float(row["usd"]) for row in bom) == pytest.approx(money.usd_over_horizon, abs=0.05)


def test_markdown_and_page_show_the_bill(client: Client, bought: dict[str, Any]) -> None:
    assert "| cost | USD per month |" in report.markdown(Answer.read(json.loads(json.dumps(bought))))
    advice = sample_advice.advice(bought)
    page = every_section(client, f"/advice/{advice.pk}/options/1")
    for said in (
        "chart waterfall",
        "Cost breakdown",
        "Payment options",
        "Cash flow by month",
        "on-demand rental",
        "W during prefill",
    ):
        assert said in page, said
    assert "cash-flow.csv" in every_section(client, f"/advice/{advice.pk}")


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("base", ["/advice", "/api/v1/advice"])
def test_every_document_has_an_address(client: Client, bought: dict[str, Any], name: str, base: str) -> None:
    advice = sample_advice.advice(bought)
    found = client.get(f"{base}/{advice.pk}/documents/{name}")
    assert found.status_code == 200 and found.content
    assert found.headers["Content-Type"].startswith(documents.DOCUMENTS[name][0])


def test_who_has_a_link_has_the_documents_until_it_ends(client: Client, bought: dict[str, Any]) -> None:
    advice = sample_advice.advice(bought)
    share = Share.objects.create(
        organisation=advice.organisation, advice=advice, expires_at=timezone.now() + timedelta(days=1)
    )
    client.logout()
    assert f"/s/{share.token}/documents/memo.html" in every_section(client, f"/s/{share.token}")
    for name in PAPERS:
        found = client.get(f"/s/{share.token}/documents/{name}")
        assert found.status_code == 200 and found["X-Robots-Tag"] == "noindex, nofollow"
    Share.objects.update(expires_at=timezone.now())
    assert client.get(f"/s/{share.token}/documents/memo.html").status_code == 404


@pytest.mark.parametrize("path", ["nothing.pdf", "memo.md?rank=99", "memo.md?rank=first"])
def test_a_document_that_does_not_exist_is_404(client: Client, bought: dict[str, Any], path: str) -> None:
    advice = sample_advice.advice(bought)
    for base in ("/advice", "/api/v1/advice"):
        assert client.get(f"{base}/{advice.pk}/documents/{path}").status_code == 404


NO_FLEET = {
    **dict.fromkeys(Portfolio.model_fields),
    **{"alone": [], "training": [], "reason": "one has no answer", "said": "No fleet"},
}


@pytest.mark.parametrize(
    ("extra", "said"), [({}, "there are no documents"), ({"portfolio": NO_FLEET}, "each workload by itself")]
)
def test_where_nothing_was_recommended_there_are_no_documents(client: Client, extra: dict[str, Any], said: str) -> None:
    advice = sample_advice.advice({**sample_advice.infeasible(), **extra})
    found = client.get(f"/api/v1/advice/{advice.pk}/documents/memo.md")
    assert found.status_code == 404 and said in found.content.decode()
