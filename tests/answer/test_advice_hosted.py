"""Buying the model by the token: published prices beside the chips, marked as such, with a break-even."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import report, workload
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import take_snapshot
from advisor.inputs.prices import hosted_apis
from advisor.result import Answer
from catalog.models import ApiPrice, Discount, Organisation, ServedModel
from tests import sample_advice
from tests.as_json import recommend
from tests.clocks import TODAY
from tests.conftest import FROZEN
from tests.pages import every_section

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"
CHIP = "constraints.accelerators.allow=[mi355x]"
ANY = "constraints.acquisition=[rent, own, api]"
FEW = ("h100-sxm", "mi355x")  # no allow list of chips, so APIs are ranked; the other chips are denied to be quick
OTHERS = sorted(path.stem for path in (FROZEN / "accelerators").glob("*.yaml") if path.stem not in FEW)
EVERY_CHIP = f"constraints.accelerators={{allow: [], deny: [{', '.join(OTHERS)}]}}"
HOSTING_MAKERS = EVERY_CHIP.replace(" cerebras-wse-3,", "").replace(" groq-lpu,", "")
TOKENS = "constraints.acquisition=[api]"


@pytest.fixture(autouse=True)
def endpoints() -> None:
    """Two endpoints of the model, one of them of a maker of chips; those of the catalog are put aside."""
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
    for change in (CHIP, "variants=no", *changes):
        raw = workload.set_path(raw, *change.split("=", 1))
    spec = workload.parse(raw)
    check_catalog(spec)
    return spec


def answered(*changes: str, organisation: Organisation | None = None) -> dict[str, Any]:
    spec = asked(*changes)
    return recommend(spec, take_snapshot(spec, organisation))


USUAL: list[dict[str, Any]] = []


def usual() -> dict[str, Any]:
    """The answer at the two endpoints of every test, computed once."""
    if not USUAL:
        USUAL.append(answered())
    return USUAL[0]


def test_the_bill_is_the_traffic_at_the_newest_price() -> None:
    found = usual()
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
    found = usual()
    rented = found["recommendations"][0]
    first = found["hosted"][0]
    requests = first["break_even_tokens_per_month"] / 2300
    assert requests * (2000 * 0.10 + 300 * 0.40) / 1e6 == pytest.approx(rented["usd_per_month"], rel=1e-4)
    assert first["break_even_with"] == rented["label"]
    capacity = rented["capacity_requests_per_s"] * 730 * 3600
    assert first["break_even_within_capacity"] == (requests <= capacity)


def test_hosted_apis_are_ranked_among_the_options_by_the_objective() -> None:
    assert {offer["rank"] for offer in usual()["hosted"]} == {None}  # not asked for
    found = answered(ANY, EVERY_CHIP, "slo.ttft_ms_p95=null", "slo.tpot_ms_p95=null")
    ranked = found["recommendations"]
    assert [r["rank"] for r in ranked] == list(range(1, len(ranked) + 1))
    costs = [r["usd_per_month"] for r in ranked]
    assert costs == sorted(costs) and {r["acquisition"] for r in ranked} > {"api"}
    first = ranked[0]
    assert (first["provider"], first["acquisition"], first["tp"], first["launch"]) == ("somehost", "api", None, None)
    assert first["meets_slo"] is True and first["slo_state"] == "no limit"
    assert found["views"]["cheapest"] == 1 and "A hosted API costs" in found["verdict"]
    by_rank = {r["rank"]: r for r in ranked}
    assert all(by_rank[offer["rank"]]["provider"] == offer["provider"] for offer in found["hosted"])
    beaten = next(r for r in ranked if r["acquisition"] != "api")["beats"]
    assert all(by_rank[each["rank"]]["acquisition"] != "api" for each in beaten)
    assert Answer.read(found).to_json() == found
    assert found["not_used"] == []


def test_ranks_by_cost_are_given_only_where_tokens_may_be_bought_and_cost_decides() -> None:
    assert {offer["rank_by_cost"] for offer in usual()["hosted"]} == {None}
    assert {offer["rank_by_cost"] for offer in answered(ANY, "objective=latency")["hosted"]} == {None}


def test_a_bill_names_each_kind_of_token_and_adds_up() -> None:
    offer = usual()["hosted"][1]
    assert [charge["name"] for charge in offer["bill"]] == ["input", "cached input", "output"]
    assert sum(charge["usd_per_month"] for charge in offer["bill"]) == pytest.approx(offer["usd_per_month"], rel=1e-5)
    assert offer["bill"][1]["usd_per_mtok"] == 0.2


def why_not(provider: str, *changes: str) -> dict[str, Any]:
    found = answered(TOKENS, *changes)
    assert provider not in [r["provider"] for r in found["recommendations"]]
    return next(offer for offer in found["hosted"] if offer["provider"] == provider)["rejection"]


NO_SPEED = "slo.tpot_ms_p95=null"


def test_each_limit_that_an_api_misses_names_the_smallest_change() -> None:
    ApiPrice.objects.update(max_input_tokens=8192)
    long = why_not("somehost", EVERY_CHIP, NO_SPEED, "traffic.input_tokens={mean: 2000, p95: 7600}")
    assert (long["reason"], long["limit"]) == ("does_not_fit", 8192) and long["reached"] == 7600 + 800
    slow = why_not("cerebras", EVERY_CHIP, NO_SPEED, "slo.tokens_per_s_per_user=500")
    assert slow["smallest_change"] == "tokens_per_s_per_user <= 450"
    assert slow["change"] == {"slo.tokens_per_s_per_user": 450}
    place = why_not("somehost", EVERY_CHIP, NO_SPEED, "constraints.regions.allow=[FR]")
    assert "location unknown" in place["detail"] and place["change"] == {"constraints.regions.allow": []}
    money = why_not("cerebras", EVERY_CHIP, NO_SPEED, "constraints.max_usd_per_month=5000")
    assert money["reason"] == "too_expensive" and money["change"]["constraints.max_usd_per_month"] > 5000
    chips = why_not("somehost", NO_SPEED)
    assert chips["change"] == {"constraints.accelerators.allow": []}
    power = why_not("somehost", EVERY_CHIP, NO_SPEED, "objective=energy")
    assert power["change"] == {"objective": "cost"}


def test_an_api_without_a_published_speed_is_listed_behind_what_meets_the_limits() -> None:
    ranked = answered(ANY, EVERY_CHIP, "slo.tokens_per_s_per_user=50")["recommendations"]
    api = next(r for r in ranked if r["provider"] == "somehost")
    assert api["slo_state"] == "not verified" and ranked[0]["acquisition"] != "api"
    assert api["usd_per_month"] < ranked[0]["usd_per_month"]


def test_weights_of_four_bits_need_a_quality_that_allows_them() -> None:
    ApiPrice.objects.filter(provider="somehost").update(quantization="fp4")
    assert why_not("somehost", EVERY_CHIP, NO_SPEED)["change"] == {"constraints.quality": "any"}


def test_a_price_far_from_the_others_is_marked() -> None:
    for provider in ("one", "two", "three"):
        listed(provider, 0.9, 1.3)
    by = {offer["provider"]: offer for offer in answered()["hosted"]}
    assert (
        "unusual price" in by["somehost"]["price_outlier"]
        and by["somehost"]["price_outlier"] in by["somehost"]["warnings"]
    )
    assert by["cerebras"]["price_outlier"] == ""


def test_an_api_with_a_disputed_speed_stands_behind_those_that_keep_the_limit() -> None:
    listed("quick", 2.0, 3.0, output_tokens_per_s=900, speed_kind="measured", speed_as_of=TODAY, speed_source="a")
    listed(
        "cerebras",
        0.85,
        1.2,
        days=9,
        output_tokens_per_s=800,
        speed_kind="measured",
        speed_as_of=TODAY,
        speed_source="b",
    )
    found = answered(
        "constraints.acquisition=[api]", EVERY_CHIP, NO_SPEED, "slo.ttft_ms_p95=null", "slo.tokens_per_s_per_user=500"
    )
    assert [(r["provider"], r["slo_state"], r["meets_slo"]) for r in found["recommendations"]] == [
        ("quick", "reached", None), ("somehost", "not verified", None), ("cerebras", "disputed", None),
    ]  # fmt: skip
    assert "reach 500 tokens/s per user at quick (900), Cerebras (800 and 450)" in found["verdict"]


def test_a_withdrawn_endpoint_is_not_offered() -> None:
    ApiPrice.objects.filter(provider="somehost").update(withdrawn=TODAY)
    assert [offer["provider"] for offer in answered()["hosted"]] == ["cerebras"]


def test_a_published_speed_is_told_and_held_against_the_service_level() -> None:
    somehost, cerebras = answered("slo.tokens_per_s_per_user=500", NO_SPEED)["hosted"]
    assert cerebras["published_output_tokens_per_s"] == 450 and cerebras["speed_source"] == "maker, 2024"
    assert (cerebras["slo_state"], somehost["slo_state"]) == ("missed", "not verified")
    assert somehost["published_output_tokens_per_s"] is None


def test_a_speed_outlives_a_newer_price_without_one() -> None:
    ApiPrice.objects.filter(provider="cerebras").update(as_of=TODAY - timedelta(5))
    listed("cerebras", 0.80, 1.10)
    row = next(
        r for r in hosted_apis.rows("meta-llama/Llama-3.3-70B-Instruct", None, TODAY) if r["provider"] == "cerebras"
    )
    assert (row["usd_per_mtok_input"], row["published_output_tokens_per_s"]) == (0.8, 450)


def test_the_hardware_that_a_provider_states_outlives_a_newer_price_and_is_told() -> None:
    ApiPrice.objects.filter(provider="somehost", as_of=TODAY - timedelta(50)).update(hardware="h200-sxm")
    listed("somehost", 0.11, 0.41)
    by = {
        row["provider"]: row["accelerator"]
        for row in hosted_apis.rows("meta-llama/Llama-3.3-70B-Instruct", None, TODAY)
    }
    assert by == {"somehost": "h200-sxm", "cerebras": "cerebras-wse-3"}  # the maker of a chip, and what is stated
    ranked = answered(ANY, EVERY_CHIP, NO_SPEED)["recommendations"]
    option = next(r for r in ranked if r["provider"] == "somehost")
    assert "runs on h200-sxm" in option["reasons"]


def test_a_chip_that_is_sold_as_a_service_says_what_its_maker_asks() -> None:
    why = {item["accelerator"]: item for item in answered(HOSTING_MAKERS)["rejected"]}
    assert "cerebras hosts this model ($0.85 input, $1.20 output" in why["cerebras-wse-3"]["detail"]
    assert why["cerebras-wse-3"]["smallest_change"]
    assert "hosts this model" not in why["groq-lpu"]["detail"]


def test_a_general_discount_of_the_provider_is_taken_off() -> None:
    ours = Organisation.objects.create(slug="ours", name="Ours")
    Discount.objects.create(
        organisation=ours, provider="somehost", discount_fraction=0.25, as_of=TODAY, source="contract"
    )
    mine, public = answered(organisation=ours)["hosted"][0], usual()["hosted"][0]
    assert mine["usd_per_month"] == pytest.approx(0.75 * public["usd_per_month"], rel=1e-5)
    assert mine["discount_fraction"] == 0.25


def test_providers_and_budget_of_the_planner_count() -> None:
    found = answered("constraints.providers.deny=[nebius]", "constraints.max_usd_per_month=4000")["hosted"]
    assert [offer["within_budget"] for offer in found] == [True, False]
    spec = {**asked(), "constraints": {**asked()["constraints"], "providers": {"allow": ["cerebras"], "deny": []}}}
    assert [offer["provider"] for offer in recommend(spec, take_snapshot(spec))["hosted"]] == ["cerebras"]


def test_prices_of_a_past_day_are_those_known_on_it() -> None:
    rows = hosted_apis.rows("meta-llama/Llama-3.3-70B-Instruct", None, TODAY - timedelta(10))
    assert [(row["provider"], row["usd_per_mtok_input"]) for row in rows] == [("gone", 0.01), ("somehost", 9.0)]


def test_tokens_alone_are_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = ("constraints.acquisition=[api]", EVERY_CHIP, NO_SPEED)
    found = answered(*tokens)
    assert [r["acquisition"] for r in found["recommendations"]] == ["api", "api"]
    assert found["verdict"].startswith("A hosted API costs $3,364 a month")
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(FILE), "--set", TOKENS, "--set", NO_SPEED, "--set", EVERY_CHIP)
    assert ended.value.code == 0
    ApiPrice.objects.all().delete()
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(FILE), "--set", TOKENS, "--set", EVERY_CHIP)
    assert ended.value.code == 3


def test_page_table_and_markdown_show_it(client: Client) -> None:
    found = answered(ANY, EVERY_CHIP, NO_SPEED, "slo.ttft_ms_p95=null")
    advice = sample_advice.advice(found)
    page = every_section(client, f"/advice/{advice.pk}")
    assert "Hosted API (pay per token)" in page and "450" in page and "Prices that providers publish" in page
    assert f'<a href="/advice/{advice.pk}/options/1">somehost API, llama</a>' in page
    own = every_section(client, f"/advice/{advice.pk}/options/1")
    assert "How to call it" in own and "not published" in own and "Cached input" in own
    memo = client.get(f"/advice/{advice.pk}/documents/memo.html").content.decode()
    assert "use the API of somehost" in memo and "The best deployment is option" in memo
    assert client.get(f"/advice/{advice.pk}/documents/memo.html?rank=1").content.decode() == memo
    assert client.get(f"/advice/{advice.pk}/documents/workbook.xlsx?rank=1").status_code == 200
    deployment = next(r["rank"] for r in found["recommendations"] if r["acquisition"] != "api")
    memo = client.get(f"/advice/{advice.pk}/documents/memo.html?rank={deployment}").content.decode()
    assert "somehost API, llama, pay per token" in memo and "your constraints allow costs less" in memo
    assert "somehost API, llama" in client.get(f"/advice/{advice.pk}/options.csv").content.decode()
    table, markdown = (render(Answer.read(found)) for render in (report.table, report.markdown))
    assert "hosted API (pay per token)" in table and "somehost llama" in table
    assert "## Hosted API (pay per token)" in markdown and "cerebras-wse-3" in markdown
    assert "## somehost API, llama" in markdown and "call #1 with:" in table
    alone = sample_advice.advice(answered("constraints.acquisition=[api]", NO_SPEED))
    page = every_section(client, f"/advice/{alone.pk}")
    assert "Hosted API (pay per token)" in page and "No feasible deployment" not in page
