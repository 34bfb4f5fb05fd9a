"""Memo, bill of materials and cash flow of a dated plan."""

import csv
import io
import math
from typing import Any

import pytest
from django.template.loader import get_template

from advisor import report
from advisor.report import documents
from advisor.report import text as report_text
from advisor.report.documents import subject, wording
from advisor.result import Answer, ApiOption
from tests import sample_advice, sample_money, stored_answers
from tests.report import sample_plan

API: dict[str, Any] = {
    "provider": "somehost", "name": "llama", "accelerator": None, "as_of": "2026-11-01", "acquisition": "api",
    "source": "https://example.org", "basis": "published", "usd_per_mtok_input": 0.1, "usd_per_mtok_output": 0.3,
    "usd_per_mtok_cached_input": None, "usd_per_mtok_blended": 0.15, "usd_per_month": 500.0, "discount_fraction": 0.0,
    "max_input_tokens": None, "published_output_tokens_per_s": None, "speed_source": "", "within_budget": True,
    "rank_by_cost": 1, "break_even_tokens_per_month": None, "break_even_with": None,
    "break_even_within_capacity": None, "warnings": [],
}  # fmt: skip
PLAN = "rent up to 3 x p5.48xlarge at aws, buy 1 x dgx and reserve 2 x p5.48xlarge at aws"
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
    assert title == f"support-chat: {PLAN}"


def api_first(**changes: Any) -> Answer:
    """An answer whose first option is an API; the deployments follow."""
    found = sample_plan.result()
    line = {"name": "input", "tokens_per_month": 5e9, "usd_per_mtok": 0.1, "usd_per_month": 500.0}
    api = {**RANKED_API, "bill": [line], "provider_name": "Some Host", "warnings": ["TTFT: no figure is published"]}
    options = [api] + [{**r, "rank": r["rank"] + 1} for r in found["recommendations"]]
    assumed = [
        *found["assumptions"],
        {"name": "load-swing-ratio", "value": 1.5, "unit": "ratio", "source": "x"},
        {"name": "rent-price-swing-ratio", "value": 1.2, "unit": "ratio", "source": "x"},
    ]
    hosted = [{**API, "rank": 1, "provider_name": "Some Host"}]
    return answer(**{"recommendations": options, "hosted": hosted, "assumptions": assumed, **changes})


def test_the_memo_of_a_hosted_api_that_is_first_describes_the_api() -> None:
    found = api_first()
    memo = documents.memo(found, documents.default_rank(found, "memo.md"))
    assert memo.title == "support-chat: use the API of Some Host"
    assert memo.verdict.startswith("Use the API of Some Host: $500 per month, paid per token")
    assert f"The best deployment is option 2: {PLAN} for $14,072 per month." in memo.verdict
    parts = {part.title: part for part in memo.parts}
    assert parts["What to sign"].rows[1][:3] == (
        "use llama, pay per token",
        "Some Host",
        "$0.10 input and $0.30 output per million tokens, as of 2026-11-01",
    )
    assert parts["Money"].rows[-1][:4] == ("total", "", "", "$500")
    others = parts["Alternatives considered"].rows
    assert others[1][:2] == ("option 1, this one: somehost API, llama, pay per token, latency not verified", "$500")
    assert others[2][0].startswith("option 2: ") and others[2][0].endswith(PLAN) and others[2][1] == "$14,072"
    assert parts["Risks"].items[0] == "TTFT: no figure is published" and "no term fixes" in parts["Risks"].items[1]
    text = documents.memo_text(found, 1)
    assert "p5.48xlarge (on demand)" not in text and "resale" not in text  # nothing of the deployment's plan


def test_the_range_of_an_api_is_that_of_its_traffic_and_its_price() -> None:
    part = next(part for part in documents.memo(api_first(scenarios=[]), 1).parts if part.title == "Range")
    factor = math.exp(math.hypot(math.log(1.5), math.log(1.2)))
    low, middle, high = (row[1] for row in part.rows[1:4])
    assert (low, middle, high) == (f"${500 / factor:,.0f}", "$500", f"${500 * factor:,.0f}")
    assert not any("Owning" in item for item in part.items)


def test_the_memo_of_a_deployment_keeps_its_own_decision_beside_an_api() -> None:
    found = api_first()
    assert documents.default_rank(found, "workbook.xlsx") == subject.first_rank(found) == 2
    memo = documents.memo(found, 2)
    assert memo.title == f"support-chat: {PLAN}" and "This is option 2 of the ranking." in memo.verdict
    assert "your constraints allow costs less: $500 per month at Some Host, but nobody" in memo.verdict
    assert documents.memo(found, 3).title == "support-chat: rent 1 x gpu-mi300x_8 (4 x MI300X in use) at nebius"


def test_an_api_is_a_note_where_the_constraints_exclude_it() -> None:
    spec = sample_plan.result()["workload"]
    owned = {**spec, "constraints": {**spec["constraints"], "acquisition": ["own"]}}
    memo = documents.memo(answer(hosted=[API], workload=owned))
    assert "API" not in memo.title and "API" not in memo.verdict
    others = next(part for part in memo.parts if part.title == "Alternatives considered")
    assert others.items[-1].startswith("hosted APIs, which constraints.acquisition excludes: the cheapest costs $500")
    ranges = next(part for part in memo.parts if part.title == "Range")
    assert any("costs least among the ranked options in 60%" in item for item in ranges.items)


def test_the_bill_of_an_api_is_that_of_a_mean_month_where_traffic_changes() -> None:
    spec = sample_plan.result()["workload"]
    growing = {**spec, "traffic": {**spec["traffic"], "growth_fraction_per_year": 0.5}}
    text = documents.memo_text(api_first(workload=growing), 1)
    for said in ("$500 in a mean month of the forecast", "| mean month of the forecast | $500 |",
                 "cost of a mean month of the forecast"):  # fmt: skip
        assert said in text, said
    assert "mean month" not in documents.memo_text(api_first(), 1)
    assert "mean month" in report.table(api_first(workload=growing)) and "mean month" not in report.table(api_first())


def test_where_apis_are_all_there_is_the_memo_has_their_bill() -> None:
    line = {"name": "input", "tokens_per_month": 2e9, "usd_per_mtok": 0.1, "usd_per_month": 200.0}
    alone = answer(recommendations=[{**RANKED_API, "bill": [line]}])
    text = documents.memo_text(alone, 1)
    assert text.startswith("# Decision memo: support-chat: use the API of somehost")
    assert "$0.10 | $200 |" in text and "measure the latency" in text and "Prices as of 2026-11-01" in text
    assert [documents.has_document(alone, name) for name in ("memo.md", "workbook.xlsx")] == [True, False]


def test_a_hosted_api_that_is_cheaper_is_one_sentence() -> None:
    memo = documents.memo(answer(hosted=[API]))
    assert "API" not in memo.title and memo.verdict.count("API") == 1
    assert "your limits are not verified" in memo.verdict


@pytest.mark.parametrize("change", [{"usd_per_month": 1e6}, {"slo_state": "missed"}])
def test_a_hosted_api_that_is_dearer_or_too_slow_is_not_the_decision(change: dict[str, Any]) -> None:
    memo = documents.memo(answer(hosted=[{**API, **change}]))
    assert "API" not in memo.title and "your constraints allow costs less" not in memo.verdict


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
        "$100,000 each, as of 2026-05-01", "| upfront purchase | none today; $117,500 in month 3 |",
        "$1.70 per hour x 35,040 h",
        "| most expensive month, purchases spread over their service | $60,000 |",
        "| largest cash payment of a month | $122,890 (month 3) |",
        "from month 33 on, resale counted", "in cash, it pays back in month 9",
        "| income tax saved on all expenses (25%) | -$41,394 |", "| all payments after taxes | $124,183 |",
        "hosted APIs included, in 60% of the draws; options within 1% of each other count as equal and share the win",
        "months 7 to 12, paid until month 30", "order today",
        "| payback | month 9 |", "21% per year", "present value after taxes",
        "price of leaving after 6 months", "in EUR (1 USD = 0.9 EUR, 2026-11-20)", "same machines, rent by the hour",
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
        and "| all | 2 x dgx | a supplier | no list price; $5.00 each with network, storage and spares |" in text
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
    assert page.count("<table") == page.count("</table>") == 7


@pytest.mark.parametrize("make", [sample_advice.result, sample_money.result])
def test_answers_of_earlier_versions_have_a_memo(make: Any) -> None:
    found = Answer.read(make())
    memo = documents.memo(found)
    assert memo.title.startswith("support-chat: ") and "None" not in documents.memo_text(found, 1)


# --- tables -----------------------------------------------------------------------------------------------------


def test_the_bill_has_list_prices_hours_and_the_sum_of_the_plan() -> None:
    found = rows(documents.costs_csv(answer(), 1))
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
    paid = sum(float(row["usd"]) for row in found if row["action"] != "tax")
    assert paid == pytest.approx(sample_plan.money()["usd_over_horizon"], abs=0.05)
    assert {row["currency"] for row in found} == {"USD"} and abs(by_item["rounding of months to cents"]) < 0.2


def test_the_bill_has_the_totals_by_part_where_the_answer_has_them() -> None:
    found = sample_plan.result()
    totals = {"staff": 5000.0, "minimum team": 15000.0, "electricity": 1300.0, "cooling": 500.0, "insurance": 3600.0}
    for part in found["recommendations"][0]["money"]["parts"]:
        part["total_usd"] = totals.get(part["name"], 0.0)
    by_item = {row["item"]: float(row["usd"]) for row in rows(documents.costs_csv(Answer.read(found), 1))}
    assert {name: by_item[name] for name in totals} == totals


def test_taxes_are_lines_of_the_bill_beyond_the_sum_before_taxes() -> None:
    found = sample_plan.result()
    m = found["recommendations"][0]["money"]
    m["taxes"] |= {"vat_fraction": 0.19, "vat_usd": 20_000.0}
    by_item = {row["item"]: row for row in rows(documents.costs_csv(Answer.read(found), 1))}
    assert float(by_item["VAT that cannot be recovered (19%)"]["usd"]) == 20_000
    saved = float(by_item["income tax saved on all expenses (25%)"]["usd"])
    assert saved == pytest.approx(-0.25 * (m["usd_over_horizon"] + 20_000), abs=0.01)
    text = documents.memo_text(Answer.read(found), 1)
    assert "| VAT that cannot be recovered (19%) | $20,000 |" in text


def test_amounts_are_also_in_the_planners_currency() -> None:
    bill, cash = documents.costs_csv(answer(), 1), documents.cash_flow_csv(answer(), 1)
    for row in rows(bill):
        assert float(row["eur"]) == pytest.approx(0.9 * float(row["usd"]), abs=0.01)
        assert (row["eur_per_usd"], row["rate_as_of"]) == ("0.9", "2026-11-20")
    for row in rows(cash):
        assert float(row["total_eur"]) == pytest.approx(0.9 * float(row["total_usd"]), abs=0.01)
    text = documents.memo_text(answer(), 1)
    for said in ("| $14,072 | EUR 12,665 |", "| $60,000 | EUR 54,000 |", "| $9,000 | $100,000 |  | EUR 8,100 |"):
        assert said in text, said
    plain = answer(currency=None)
    assert "EUR" not in documents.memo_text(plain, 1) and "eur" not in documents.costs_csv(plain, 1)
    assert "eur" not in documents.cash_flow_csv(plain, 1)


def fleet_item(**given: Any) -> dict[str, Any]:
    return {
        "for": "all", "quantity": 2, "item": "dgx", "provider": "own", "region": "", "term": "purchase",
        "unit_usd_once": 120_000.0, "unit_usd_per_month": 5_000.0, "price_as_of": "2026-04-01", "source": "x",
        "action": "buy", "from_month": 1, "until_month": 12, "paid_until_month": 12, "list_usd_once": 100_000.0,
        "list_usd_per_hour": None, "paid_hours": None, **given,
    }  # fmt: skip


def portfolio(items: list[dict[str, Any]], **more: Any) -> Answer:
    cost = sample_plan.money()
    names = ("currency", "prices_as_of", "horizon_months", "usd_per_month", "capital_usd", "discount_fraction_per_year",
             "npv_usd", "parts", "cash_flow", "ranges")  # fmt: skip
    unknown = dict.fromkeys(("alone_usd_per_month", "shared", "saving_usd_per_month", "saving_fraction", "packed"))
    money = {name: cost[name] for name in names} | {"of": "each workload alone", "items": items, **more}
    return answer(
        recommendations=[], portfolio={**unknown, "alone": [], "reason": "dearer", "said": "", "money": money}
    )


def test_a_portfolio_is_billed_at_list_prices_and_its_bill_sums_to_the_total() -> None:
    rented = fleet_item(item="p5", provider="aws", term="on_demand", unit_usd_once=None, action="rent",
                        list_usd_once=None, list_usd_per_hour=2.5, paid_hours=8760.0)  # fmt: skip
    found = portfolio([fleet_item(quantity=1), rented])
    lines = rows(documents.costs_csv(found, 1))
    bought, hourly = lines[:2]
    assert (bought["for"], bought["action"], bought["unit_usd_once"]) == ("all", "buy", "100000.00")
    assert (hourly["unit_usd_per_hour"], hourly["paid_hours"], hourly["usd"]) == ("2.5", "8760.0", "21900.00")
    assert {"staff", "minimum team", "electricity"} <= {row["item"] for row in lines}
    total = sum(flow["total_usd"] for flow in sample_plan.cash_flow())
    assert sum(float(row["usd"]) for row in lines) == pytest.approx(total, abs=0.05)
    text = documents.memo_text(found, 1)
    for said in ("| all | buy 1 x dgx | a supplier | $100,000 each, as of 2026-04-01 | months 1 to 12 |",
                 "$2.50 per hour x 8,760 h", "## Bill over 12 months", f"| total | ${total:,.0f} |"):  # fmt: skip
        assert said in text, said


def test_the_parts_of_a_workload_in_a_portfolio_are_its_own_lines() -> None:
    parts = [{**part, "name": f"chat: {part['name']}"} for part in sample_plan.money()["parts"]]
    lines = rows(documents.costs_csv(portfolio([fleet_item(), fleet_item(**{"for": "b"})], parts=parts), 1))
    staff = next(row for row in lines if row["item"] == "staff")
    assert staff["for"] == "chat" and float(staff["usd"]) == pytest.approx(7202.85, abs=0.05)


def test_a_portfolio_of_an_earlier_version_keeps_its_bill() -> None:
    new = (
        "action",
        "from_month",
        "until_month",
        "paid_until_month",
        "list_usd_once",
        "list_usd_per_hour",
        "paid_hours",
    )
    old = {name: value for name, value in fleet_item().items() if name not in new}
    (row,) = rows(documents.costs_csv(portfolio([old]), 1))
    assert (row["unit_usd_once"], row["unit_usd_per_month"]) == ("120000.0", "5000.0")
    assert "no list price; $120,000 each with network, storage and spares" in documents.memo_text(portfolio([old]), 1)


def test_the_largest_payment_leaves_out_what_is_due_after_the_horizon() -> None:
    option = answer().deployments[0]
    assert option.money is not None
    month, usd = report_text.largest_payment(option.money)
    assert month == 3 and usd == pytest.approx(117_500 + 2 * 730 * sample_plan.PRICE + 1666.66 + 300)
    flows = [f for f in option.money.cash_flow if f.month != 3]
    month, usd = report_text.largest_payment(option.money.changed(cash_flow=flows))
    assert usd < 10_000  # the last month's rent has 44,676 that are due later


@pytest.mark.parametrize(("spare", "instances", "warned"), [(1, 1, True), (1, 2, False), (0, 1, False)])
def test_spare_replicas_on_one_server_are_a_risk(spare: int, instances: int, warned: bool) -> None:
    found = sample_money.result()
    found["recommendations"][0] |= {"spare_replicas": spare, "instances": instances}
    warning = "a failure of the server still stops the service"
    memo = documents.memo_text(Answer.read(found), 1)
    assert (warning in memo) is warned


def test_lists_and_counts_are_written_as_people_do() -> None:
    assert wording.shortlist(["A", "B", "C", "D"], 3) == "A, B, C and 1 more"
    assert wording.shortlist(["A", "B"], 3) == "A and B" and wording.shortlist([], 3) == ""
    assert (wording.counted(1, "month"), wording.counted(1200, "hour")) == ("1 month", "1,200 hours")
    assert [report_text.replicas_text(n) for n in (1, 12, 4.36)] == [
        "1 replica", "12 replicas", "4.4 replicas on average",
    ]  # fmt: skip


def test_one_instance_for_part_of_the_time_is_not_up_to_one() -> None:
    plan = answer().deployments[0].money.plan  # type: ignore[union-attr]
    assert plan is not None
    one = plan.steps[0].changed(instances=1, paid_hours=100.0)
    assert wording.plan_text(plan.changed(steps=[one])) == "rent 1 x p5.48xlarge at aws at times"


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


def test_the_memo_of_the_first_choice_begins_with_what_the_first_screen_says() -> None:
    for name, found in stored_answers.answers().items():
        first = next(iter(found.recommendations), None)
        if first is None or first.rank is None or isinstance(first, ApiOption):
            continue
        said = report.screen_of(found).todo
        assert documents.memo(found, first.rank).verdict.startswith(said), name
        for other in found.recommendations[1:2]:
            assert not documents.memo(found, other.rank or 2).verdict.startswith(said), name
