"""The answer as text on the command line and in Markdown: the plan, its range and the chances, each named."""

from typing import Any

import pytest

from advisor import report
from advisor.report import text as report_text
from advisor.result import Answer, BreakEven, PortfolioMoney
from tests.report import sample_plan
from tests.report.test_documents import api_first, fleet_item, portfolio


def met(**given: Any) -> BreakEven:
    unknown = dict.fromkeys(("month", "share_of_hours", "tokens_per_month", "within_capacity"))
    return BreakEven.read({**unknown, "between": ["own", "rent on_demand"], "said": "", **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"month": 19}, "Buying costs less than on-demand rental from month 19 on, resale counted"),
        (
            {"month": 19, "share_of_hours": 0.63},
            "Buying costs less than on-demand rental from month 19 on, resale counted, and is cheaper if the machines "
            "are used more than 63% of the hours",
        ),
        ({}, "Buying is not cheaper than on-demand rental within the life of the hardware"),
        ({"share_of_hours": 1.2}, "Buying is never cheaper than on-demand rental"),
        (
            {"between": ["rent", "API of Some Host"], "tokens_per_month": 2e9},
            "Renting is cheaper than the API of Some Host from 2.00\u00a0billion tokens a month",
        ),
    ],
)
def test_a_break_even_says_what_it_counts(given: dict[str, Any], said: str) -> None:
    assert report_text.meeting(met(**given)) == said


@pytest.mark.parametrize(
    ("payback", "said"),
    [(29, "in cash, it pays back in month 29"), (None, "in cash, it does not pay back within the horizon")],
)
def test_the_payback_stands_beside_the_break_even(payback: int | None, said: str) -> None:
    money = Answer.read(sample_plan.result()).deployments[0].money
    assert money is not None and money.plan is not None
    plan = money.plan.changed(payback_month=payback)
    both = [met(month=19), met(between=["own", "API of Some Host"], month=3)]
    first, second = report.meetings(money.changed(plan=plan, break_even=both))
    assert first.endswith(f"from month 19 on, resale counted; {said}") and "in cash" not in second


def test_after_an_api_every_line_of_the_plan_names_its_option() -> None:
    lines = report_text.plan_lines(api_first())
    assert [line.split(": ")[0] for line in lines if line.startswith("plan")] == ["plan of #2"] * 3
    assert any(line.startswith("range of #2: $9,000 to $15,000 a month") for line in lines)
    assert any(line.startswith("purchases of #2 $117,500") for line in lines)
    assert not any(" of #" in line for line in report_text.plan_lines(Answer.read(sample_plan.result())))


def test_markdown_has_the_plan_the_range_and_the_chances() -> None:
    for found in (Answer.read(sample_plan.result()), api_first()):
        text = report.markdown(found)
        assert "## Plan, range and chances" in text and text.count("rent it.") == 1
        assert "$9,000 to $15,000 a month in 90% of the draws" in text
        assert "chance: owning costs less than renting: 70%" in text


def test_the_price_dates_of_a_portfolio_are_those_of_its_machines() -> None:
    items = [fleet_item(), fleet_item(price_as_of="2026-06-01")]
    assert "prices used from 2026-04-01 to 2026-06-01," in report.text.head(portfolio(items))
    found = portfolio(items).portfolio
    assert found is not None and isinstance(found.money, PortfolioMoney)
    nothing = Answer.read({**sample_plan.result(), "recommendations": []})
    assert "no prices used" in report.text.head(nothing) and "none" not in report.text.head(nothing)


def test_hosted_apis_have_the_names_that_the_pages_show() -> None:
    text = report.table(api_first())
    assert "Some Host llama" in text and "somehost llama" not in text


def test_a_fleet_says_which_replicas_are_a_mean() -> None:
    assert report_text.replicas_text(0.98) == "1 replica on average"
    assert report_text.replicas_text(None) == "- replicas"


@pytest.mark.parametrize(("apis", "said"), [(True, ", hosted APIs included,"), (False, "among the ranked options")])
def test_what_costs_least_says_what_it_is_compared_with(apis: bool, said: str) -> None:
    assert report_text.least_text(apis).endswith(said)
