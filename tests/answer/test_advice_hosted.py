"""Buying the model by the token: published prices beside the chips, marked as such, with a break-even."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from advisor import report, workload
from advisor.inputs import hosted_apis
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import take_snapshot
from advisor.result import Answer
from catalog.models import ApiPrice, Discount, Organisation, ServedModel
from tests import sample_advice
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"
TODAY = timezone.localdate()
CHIP = "constraints.accelerators.allow=[mi355x]"
ANY = "constraints.acquisition=[rent, own, api]"


@pytest.fixture(autouse=True)
def endpoints() -> None:
    """Two endpoints of the model, one of them of a maker of chips; the shipped ones are put aside."""
    ApiPrice.objects.all().delete()
    listed("somehost", 0.10, 0.40, days=3)
    listed("somehost", 9.00, 9.00, days=50)
    listed("cerebras", 0.85, 1.20, usd_per_mtok_cached_input=0.2, output_tokens_per_s=450, speed_source="maker, 2024")
    listed("gone", 0.01, 0.01, days=366)


def listed(provider: str, usd_in: float, usd_out: float, days: int = 0, **changes: Any) -> None:
    ApiPrice.objects.create(
        provider=provider, name="llama", usd_per_mtok_input=usd_in, usd_per_mtok_output=usd_out,
        model=ServedModel.objects.get(hf_id="meta-llama/Llama-3.3-70B-Instruct"), as_of=TODAY - timedelta(days),
        source="price list", **changes,
    )  # fmt: skip


def asked(*changes: str) -> dict[str, Any]:
    raw = workload.load(FILE.read_bytes())
    for change in (CHIP, *changes):
        raw = workload.set_path(raw, *change.split("=", 1))
    spec = workload.parse(raw)
    check_catalog(spec)
    return spec


def answered(*changes: str, organisation: Organisation | None = None) -> dict[str, Any]:
    spec = asked(*changes)
    return recommend(spec, take_snapshot(spec, organisation))


def test_the_bill_is_the_traffic_at_the_newest_price() -> None:
    found = answered()
    first, second = found["hosted"]
    seconds = 730 * 3600
    # 4 requests/s of 2,000 prompt and 300 answer tokens; 30 % of the prompt is cached, at no price of its own
    assert first["usd_per_month"] == pytest.approx(4 * seconds * (2000 * 0.10 + 300 * 0.40) / 1e6, rel=1e-5)
    by_hand = 4 * seconds * (1400 * 0.85 + 600 * 0.2 + 300 * 1.2) / 1e6
    assert second["usd_per_month"] == pytest.approx(by_hand, rel=1e-5)
    assert [first["provider"], second["provider"]] == ["somehost", "cerebras"]
    assert {offer["basis"] for offer in found["hosted"]} == {"published, not estimated"}
    assert not {"tp", "ttft_ms", "replicas"} & set(first)


def test_the_break_even_is_where_both_bills_are_equal() -> None:
    found = answered()
    rented = found["recommendations"][0]
    first = found["hosted"][0]
    requests = first["break_even_tokens_per_month"] / 2300
    assert requests * (2000 * 0.10 + 300 * 0.40) / 1e6 == pytest.approx(rented["usd_per_month"], rel=1e-4)
    assert first["break_even_with"] == rented["label"]
    capacity = rented["capacity_requests_per_s"] * 730 * 3600
    assert first["break_even_within_capacity"] == (requests <= capacity)


def test_ranks_by_cost_are_given_only_where_tokens_may_be_bought_and_cost_decides() -> None:
    assert {offer["rank_by_cost"] for offer in answered()["hosted"]} == {None}
    assert {offer["rank_by_cost"] for offer in answered(ANY, "objective=latency")["hosted"]} == {None}
    found = answered(ANY)
    monthly = [r["usd_per_month"] for r in [*found["recommendations"], *found["hosted"]]]
    for offer in found["hosted"]:
        assert offer["rank_by_cost"] == 1 + sum(usd < offer["usd_per_month"] for usd in monthly)
    assert found["hosted"][0]["rank_by_cost"] == 1
    assert "A hosted API costs" in found["verdict"] and "not verified" in found["verdict"]
    assert all(r["acquisition"] != "api" for r in found["recommendations"])
    assert found["not_used"] == []


def test_a_published_speed_is_told_and_held_against_the_service_level() -> None:
    somehost, cerebras = answered("slo.tokens_per_s_per_user=500", "slo.tpot_ms_p95=null")["hosted"]
    assert cerebras["published_output_tokens_per_s"] == 450 and cerebras["speed_source"] == "maker, 2024"
    assert any("are below the 500 that you need per user" in warning for warning in cerebras["warnings"])
    assert (somehost["published_output_tokens_per_s"], somehost["warnings"]) == (None, [])


def test_a_speed_outlives_a_newer_price_without_one() -> None:
    ApiPrice.objects.filter(provider="cerebras").update(as_of=TODAY - timedelta(5))
    listed("cerebras", 0.80, 1.10)
    row = next(
        r for r in hosted_apis.rows("meta-llama/Llama-3.3-70B-Instruct", None, TODAY) if r["provider"] == "cerebras"
    )
    assert (row["usd_per_mtok_input"], row["published_output_tokens_per_s"]) == (0.8, 450)


def test_a_chip_that_is_sold_as_a_service_says_what_its_maker_asks() -> None:
    why = {item["accelerator"]: item for item in answered("constraints.accelerators={allow: []}")["rejected"]}
    assert "cerebras hosts this model ($0.85 input, $1.2 output" in why["cerebras-wse-3"]["detail"]
    assert why["cerebras-wse-3"]["smallest_change"]
    assert "hosts this model" not in why["groq-lpu"]["detail"]


def test_a_general_discount_of_the_provider_is_taken_off() -> None:
    ours = Organisation.objects.create(slug="ours", name="Ours")
    Discount.objects.create(
        organisation=ours, provider="somehost", discount_fraction=0.25, as_of=TODAY, source="contract"
    )
    mine, public = answered(organisation=ours)["hosted"][0], answered()["hosted"][0]
    assert mine["usd_per_month"] == pytest.approx(0.75 * public["usd_per_month"], rel=1e-5)
    assert mine["discount_fraction"] == 0.25


def test_providers_and_budget_of_the_planner_count() -> None:
    found = answered("constraints.providers.deny=[nebius]", "constraints.max_usd_per_month=4000")["hosted"]
    assert [offer["within_budget"] for offer in found] == [True, False]
    spec = {**asked(), "constraints": {**asked()["constraints"], "providers": {"allow": ["cerebras"], "deny": []}}}
    assert [offer.provider for offer in hosted_apis.hosted(spec, hosted_apis.rows(spec["model"], None, TODAY), [])] == [
        "cerebras"
    ]


def test_prices_of_a_past_day_are_those_known_on_it() -> None:
    rows = hosted_apis.rows("meta-llama/Llama-3.3-70B-Instruct", None, TODAY - timedelta(10))
    assert [(row["provider"], row["usd_per_mtok_input"]) for row in rows] == [("gone", 0.01), ("somehost", 9.0)]


def test_tokens_alone_are_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found = answered("constraints.acquisition=[api]")
    assert found["recommendations"] == [] and found["verdict"].startswith("A hosted API costs $3,364 a month")
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(FILE), "--set", "constraints.acquisition=[api]")
    assert ended.value.code == 0
    ApiPrice.objects.all().delete()
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(FILE), "--set", "constraints.acquisition=[api]")
    assert ended.value.code == 3


def test_page_table_and_markdown_show_it(client: Client) -> None:
    found = answered(ANY)
    advice = sample_advice.advice(found)
    page = client.get(f"/advice/{advice.pk}").content.decode()
    assert "Hosted API (pay per token)" in page and "450" in page and "Published provider prices" in page
    table, markdown = (render(Answer.read(found)) for render in (report.table, report.markdown))
    assert "hosted API (pay per token)" in table and "somehost llama" in table
    assert "## Hosted API (pay per token)" in markdown and "cerebras-wse-3" in markdown
    alone = sample_advice.advice(answered("constraints.acquisition=[api]"))
    page = client.get(f"/advice/{alone.pk}").content.decode()
    assert "Hosted API (pay per token)" in page and "No feasible deployment" not in page
