"""Memo, bill of materials and cash flow of a dated plan."""

import csv
import io
from typing import Any

import pytest
from django.template.loader import get_template

from advisor.report import documents
from advisor.result import Answer
from tests import sample_advice, sample_money
from tests.report import sample_plan

API: dict[str, Any] = {
    "provider": "somehost", "name": "llama", "accelerator": None, "as_of": "2026-11-01", "acquisition": "api",
    "source": "https://example.org", "basis": "published", "usd_per_mtok_input": 0.1, "usd_per_mtok_output": 0.3,
    "usd_per_mtok_cached_input": None, "usd_per_mtok_blended": 0.15, "usd_per_month": 500.0, "discount_fraction": 0.0,
    "max_input_tokens": None, "published_output_tokens_per_s": None, "speed_source": "", "within_budget": True,
    "rank_by_cost": 1, "break_even_tokens_per_month": None, "break_even_with": None,
    "break_even_within_capacity": None, "warnings": [],
}  # fmt: skip
NOWHERE = dict.fromkeys(("mean", "p50", "p95", "p99"))
RANKED_API: dict[str, Any] = {
    **API, "rank": 1, "label": "somehost API, llama", "instance": "llama", "region": "unknown", "term": "per_token",
    "price_as_of": "2026-11-01", "price_source": "https://example.org", "ttft_ms": NOWHERE, "tpot_ms": NOWHERE,
    "usd_per_hour": 0.7, "tco_usd": 9000.0, "requests_per_s": 4.0, "output_tokens_per_s": 100.0, "meets_slo": None,
    "interval": {}, "reasons": [],
}  # fmt: skip


def answer(**changes: Any) -> Answer:
    return Answer.read({**sample_plan.result(), **changes})


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- memo -------------------------------------------------------------------------------------------------------


def test_the_title_is_the_plan() -> None:
    title = documents.memo(answer()).title
    assert title == "support-chat: rent up to 3 x p5.48xlarge at aws, buy 1 x dgx, reserve 2 x p5.48xlarge at aws"


def test_a_hosted_api_that_is_first_is_the_decision() -> None:
    found = sample_plan.result()
    options = [RANKED_API] + [{**r, "rank": r["rank"] + 1} for r in found["recommendations"]]
    api_first = answer(recommendations=options, hosted=[{**API, "rank": 1}])
    memo = documents.memo(api_first, documents.first_rank(api_first))
    assert memo.title == "support-chat: use the API of somehost"
    assert memo.verdict.startswith("Use the API of somehost: $500 per month, paid per token")
    assert "The best deployment is option 2: rent up to 3" in memo.verdict
    other = documents.memo(api_first, 3)
    assert other.title == "support-chat: the API of somehost costs less than every deployment"


def test_where_apis_are_all_there_is_the_memo_has_their_bill() -> None:
    line = {"name": "input", "tokens_per_month": 2e9, "usd_per_mtok": 0.1, "usd_per_month": 200.0}
    alone = answer(recommendations=[{**RANKED_API, "bill": [line]}])
    text = documents.memo_text(alone, 1)
    assert text.startswith("# Decision memo: support-chat: use the API of somehost")
    assert "$0.1 | $200 |" in text and "measure the latency" in text and "Prices as of 2026-11-01" in text
    assert [documents.has_document(alone, name) for name in ("memo.md", "workbook.xlsx")] == [True, False]


def test_a_hosted_api_that_is_cheaper_is_in_the_title() -> None:
    memo = documents.memo(answer(hosted=[API]))
    assert memo.title == "support-chat: the API of somehost costs less than every deployment"
    assert "your limits are not verified" in memo.verdict and "rent" not in memo.title


@pytest.mark.parametrize("change", [{"usd_per_month": 1e6}, {"slo_state": "missed"}])
def test_a_hosted_api_that_is_dearer_or_too_slow_is_not_the_decision(change: dict[str, Any]) -> None:
    assert "API" not in documents.memo(answer(hosted=[{**API, **change}])).title


def test_the_memo_shows_what_is_owed_what_it_can_cost_and_what_to_sign() -> None:
    found = answer()
    text = documents.memo_text(found, 1)
    plan = found.deployments[0].money.plan  # type: ignore[union-attr]
    assert plan is not None
    owed = f"${plan.liability_usd:,.0f}"
    assert text.index(owed) < text.index("## Decision") and text.count(owed) == 4
    for said in (
        "## Range", "| 5% of the draws are lower | $9,000 | $100,000 |  |", "| scenario high | $14,300 | $169,000 |",
        "Owning costs less than renting: 70% probability", "## What to sign", "$2.345 per hour x 9,855 h",
        "$100,000 each, as of 2026-05-01", "months 7 to 12, paid until month 30", "order today",
        "| payback against renting | month 9 |", "21% per year", "present value after taxes",
        "cost of leaving after month 6", "in EUR (1 USD = 0.9, 2026-11-20)", "same machines, rent by the hour",
        "takes about 10 months, and the plan needs it in month 4", "## Before signing",
        "Prices as of 2026-05-01 to 2026-10-01, USD",
    ):  # fmt: skip
        assert said in text, said
    assert "None" not in text


def test_the_memo_of_a_portfolio_has_its_range() -> None:
    cost = sample_plan.money()
    fleet = {
        name: cost[name] for name in ("currency", "prices_as_of", "horizon_months", "usd_per_month", "capital_usd")
    }
    fleet |= {name: cost[name] for name in ("discount_fraction_per_year", "npv_usd", "parts", "cash_flow", "ranges")}
    unknown = dict.fromkeys(("alone_usd_per_month", "shared", "saving_usd_per_month", "saving_fraction", "packed"))
    item = {
        "for": "all", "quantity": 2, "item": "dgx", "provider": "own", "region": "", "term": "purchase",
        "unit_usd_once": 5.0, "unit_usd_per_month": None, "price_as_of": "2026-04-01", "source": "x",
    }  # fmt: skip
    told: dict[str, Any] = {
        **unknown,
        "alone": [],
        "reason": "dearer",
        "said": "",
        "money": {**fleet, "of": "alone", "items": [item]},
    }
    found = answer(recommendations=[], portfolio=told)
    text = documents.memo_text(found, 1)
    assert (
        "| 95% of the draws are lower | $15,000 | $180,000 |" in text
        and "| all | 2 x dgx | a supplier | $5 each |" in text
    )
    assert "Prices as of 2026-04-01, USD" in text and documents.workbook(found, 1).startswith(b"PK")


def test_the_memo_fits_two_pages() -> None:
    text = documents.memo_text(answer(), 1)
    lines = sum(1 + len(line) // 110 for line in text.splitlines() if line)
    assert lines < 110


def test_the_page_has_every_section_of_the_memo() -> None:
    assert get_template("advisor/memo.html")
    page = documents.memo_html(answer(), 1)
    for part in documents.memo(answer()).parts:
        assert f"<h2>{part.title}</h2>" in page
    assert page.count("<table") == page.count("</table>") == 4


@pytest.mark.parametrize("make", [sample_advice.result, sample_money.result])
def test_answers_of_earlier_versions_have_a_memo(make: Any) -> None:
    found = Answer.read(make())
    memo = documents.memo(found)
    assert memo.title.startswith("support-chat: ") and "None" not in documents.memo_text(found, 1)


# --- tables -----------------------------------------------------------------------------------------------------


def test_the_bill_has_list_prices_hours_and_the_sum_of_the_plan() -> None:
    found = rows(documents.bill_of_materials(answer(), 1))
    rent, server, term = found[:3]
    assert (rent["action"], rent["unit_usd_per_hour"], rent["paid_hours"]) == ("rent", "2.345", "9855.0")
    assert (server["action"], server["unit_usd_once"], server["paid_hours"]) == ("buy", "100000.00", "")
    assert (term["from_month"], term["until_month"], term["paid_until_month"]) == ("7", "12", "30")
    for row in (rent, term):
        assert float(row["usd"]) == pytest.approx(float(row["unit_usd_per_hour"]) * float(row["paid_hours"]), abs=0.01)
    by_item = {row["item"]: float(row["usd"]) for row in found[3:]}
    assert by_item["share of network, storage and spares"] == pytest.approx(17_500)
    assert by_item["electricity"] == pytest.approx(9 * 200 * 0.7)
    assert by_item["resale of the hardware"] == -60_000
    assert sum(float(row["usd"]) for row in found) == pytest.approx(sample_plan.money()["usd_over_horizon"], abs=0.05)
    assert {row["currency"] for row in found} == {"USD"} and abs(by_item["rounding of months to cents"]) < 0.2


def test_the_cash_flow_has_its_parts_and_what_serves() -> None:
    found = rows(documents.cash_flow_csv(answer(), 1))
    assert len(found) == 13 and found[0]["replicas"] == ""
    assert [found[5][name] for name in ("replicas", "hourly_instances", "own_instances")] == ["4", "2", "1"]
    for row in found:
        parts = sum(float(row[name]) for name in ("rent_usd", "energy_usd", "staff_usd", "other_usd"))
        assert parts == pytest.approx(float(row["running_usd"]), abs=0.001)


def test_early_answers_keep_empty_cells_for_what_was_not_stored() -> None:
    found = rows(documents.cash_flow_csv(Answer.read(sample_money.result()), 1))
    assert found[1]["rent_usd"] == found[1]["replicas"] == "" and found[1]["running_usd"]


def test_an_assumption_has_its_age() -> None:
    dated = {"name": "pue", "value": 1.3, "unit": "ratio", "source": "x", "as_of": "2020-01-01"}
    undated = {**dated, "as_of": "2020"}
    first, second = rows(documents.assumptions_csv(answer(assumptions=[dated, undated]), 1))
    assert int(first["age_days"]) > 2000 and second["age_days"] == ""
