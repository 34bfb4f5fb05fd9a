"""What a memo says to the people who sign: budget, gate, cost of a miss, alternatives, approval."""

import datetime
from typing import Any

import pytest

from advisor.report import documents
from advisor.report.documents import subject
from advisor.result import Answer, Gate, HostedOffer, Option
from catalog.pricing.current import STALE_DAYS
from tests.clocks import TODAY
from tests.report import sample_plan
from tests.report.test_documents import answer, api_first, rows

GATE = Gate(
    metric="mean TPOT of one replica", value=20.9, unit="ms", better_than_value="sign option 1",
    worse_than_value="sign option 2", test="load-test one replica", test_usd=42.0, worth_usd_per_month=1_234.0,
    worth_usd=14_808.0, sign_today="the rent of month 1", said="Load-test one replica: sign option 2 above 20.9 ms.",
)  # fmt: skip


def decided(**changes: Any) -> Answer:
    found = answer()
    made = found.decide()
    assert made is not None
    return found.changed(decision=made.changed(**changes))


def part(found: Answer, title: str, rank: int = 1) -> Any:
    return next(each for each in documents.memo(found, rank).parts if each.title == title)


def figures(found: Answer, title: str, rank: int = 1) -> dict[str, str]:
    return {row[0]: row[1] for row in part(found, title, rank).rows[1:]}


def test_the_budget_stands_beside_the_expected_amount() -> None:
    shown = figures(decided(expected_usd_per_month=15_000.0, budget_usd_per_month=18_500.0), "Decision")
    assert shown["expected per month, resizing included"] == "$15,000"
    assert shown["budget per month: enough in 80% of the draws"] == "$18,500"
    assert "budget per month: enough in 80% of the draws" not in figures(answer(), "Decision")


@pytest.mark.parametrize(
    ("limit", "said"),
    [(20_000, "$20,000: the budget is within it"), (18_000, "$18,000: the budget exceeds it by $500")],
)
def test_a_stated_limit_is_met_by_the_budget_or_not(limit: float, said: str) -> None:
    found = decided(budget_usd_per_month=18_500.0)
    assert isinstance(found.workload, dict)
    asked = {**found.workload, "constraints": {**found.workload["constraints"], "max_usd_per_month": limit}}
    assert figures(found.changed(workload=asked), "Decision")["limit stated in the question, per month"] == said


def test_the_action_comes_first_and_the_gate_before_the_other_tests() -> None:
    found = decided(action="do_not_sign", gate=GATE)
    verdict = documents.memo(found).verdict
    assert verdict.startswith("Do not sign yet: rent ") and "Rent up to 3 x p5.48xlarge" in verdict
    items = part(found, "Before signing").items
    assert items[0] == "Load-test one replica: sign option 2 above 20.9 ms"
    assert items[1] == "the test costs about $42.00 and is worth $1,234 a month, $14,808 over the horizon"
    assert items[2] == "can be signed today: the rent of month 1" and items[3].startswith("load test one replica at")
    assert "Do not sign yet" not in documents.memo(found, 2).verdict  # the decision is about the first option


def test_the_cost_of_a_miss_is_what_one_more_machine_costs() -> None:
    shown = figures(decided(expected_usd_per_month=15_000.0), "If the limits are missed")
    assert shown["one more dgx"].startswith("$117,500 with its share of network and spares; delivery takes about 10 ")
    rented = next(text for name, text in shown.items() if name.endswith("rented"))
    assert rented.endswith(" per month")
    first = answer().recommendations[0]
    assert isinstance(first, Option)
    assert shown["expected cost of resizing, per month"] == f"${15_000 - first.usd_per_month:,.0f}"


def test_alternatives_have_their_present_value_and_probabilities() -> None:
    table = part(answer(), "Alternatives considered").rows
    assert table[0][:5] == ("option", "per month", "present value", "meets the limits", "costs least")
    options = [o for o in answer().recommendations if isinstance(o, Option)]
    for row, option in zip(table[1:], options, strict=False):
        assert row[0].startswith(f"option {option.rank}")
        assert row[2] == f"${option.money.npv_usd if option.money else option.tco_usd:,.0f}"
    assert table[1][4] == "60%"  # of the draws of this option
    hosted = part(api_first(), "Alternatives considered").rows
    assert hosted[1][3:5] == ("not verified", "not known")


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (0, f"{TODAY + datetime.timedelta(days=STALE_DAYS)}, {STALE_DAYS} days after the oldest price ({TODAY})"),
        (200, "needs a new quote: the oldest price is 200 days old"),
    ],
)
def test_the_approval_names_the_amount_and_ends_with_the_age_of_the_price(days: int, said: str) -> None:
    found = sample_plan.result()
    for step in found["recommendations"][0]["money"]["plan"]["steps"]:
        step["price_as_of"] = (TODAY - datetime.timedelta(days=days)).isoformat()
    shown = figures(Answer.read(found), "Approval")
    assert shown["valid until"].startswith(said)
    assert shown["amount"] == "$14,072 per month for 12 months; the purchases, less resale, are part of it"
    assert shown["purchases"] == "$117,500"
    names = [row[0] for row in part(Answer.read(found), "Approval").rows]
    assert names.count("date, signature") == 2 and {"requested by", "approved by"} <= set(names)
    assert figures(decided(budget_usd_per_month=18_500.0), "Approval")["amount"].startswith("$18,500 per month for 12")


def test_every_memo_can_be_approved() -> None:
    for found in (answer(), api_first(), decided(gate=GATE)):
        memo = documents.memo(found, documents.default_rank(found, "memo.md"))
        assert memo.parts[-1].title == "Approval"
        page = documents.memo_html(found, 1)
        assert page.count("<td></td>") >= 4  # lines to sign on


# --- bill of materials ------------------------------------------------------------------------------------------


def test_the_bill_of_materials_has_a_table_for_each_seller_and_no_prices() -> None:
    text = documents.order_text(answer(), 1)
    for said in (
        *("# Bill of materials: support-chat", "| delivery address |", "## For a server supplier", "## For aws"),
        *("| 1 | 1 | dgx |", " | 2 | p5.48xlarge |", "maintenance and support", "freight, insurance, customs and"),
    ):
        assert said in text, said
    for word in ("$", "resale", "staff", "None", "vllm", "own-site"):
        assert word not in text, word


def test_its_file_keeps_the_columns_and_the_purchases_add_up() -> None:
    lines = rows(documents.bill_of_materials(answer(), 1))
    assert [line["line"] for line in lines] == [str(n) for n in range(1, len(lines) + 1)]
    old = ("action", "quantity", "item", "provider", "region", "from_month", "unit_usd_once", "usd", "price_as_of")
    assert set(old) <= set(lines[0]) and {"specification", "seller", "when"} <= set(lines[0])
    first = answer().deployments[0]
    assert first.money is not None and first.money.plan is not None
    listed = sum(float(row["usd"]) for row in lines if row["seller"] == "server supplier" and row["usd"])
    beside = first.money.plan.capex_usd - 100_000.0
    assert listed == pytest.approx(100_000.0 + (beside if len(lines) > 5 else 0.0))
    assert not any(row["item"] in ("staff", "resale of the hardware") for row in lines)


def test_a_hosted_api_of_an_earlier_version_has_no_lines() -> None:
    found = api_first()
    assert isinstance(found.recommendations[0], HostedOffer)
    assert subject.TOTALS_ONLY in documents.order_text(found, 1)  # it has no payments by month
