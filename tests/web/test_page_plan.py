"""The plan, the range of its cost and how certain the ranking is, on the option's and the answer's page."""

import html
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client

from advisor.result import Answer, ApiOption, CostRanges, Driver, FleetItem, PlanMonth, Portfolio, PortfolioMoney
from advisor.templatetags import finance
from advisor.web.answers import plan_page
from advisor.web.charts import plots as charts
from advisor.web.interactive import chart_data
from tests import sample_advice, sample_money
from tests.pages import every_section
from tests.report.test_documents import RANKED_API
from tests.web import sample_plan

NEW = ("plan", "ranges", "taxes")


def text_of(client: Client, path: str) -> str:
    """A page's text: cells and lines separated by a bar."""
    marked = re.sub(r"<title>.*?</title>|<desc>.*?</desc>", "", every_section(client, path))
    return re.sub(r"[ \n]+", " ", html.unescape(re.sub(r"<[^>]+>", "|", marked)))


def section(text: str, start: str, end: str) -> str:
    """From the last `start` to the next `end`; before it stands the list of contents."""
    return re.sub(r" *\|[| ]*", "|", text[text.rindex(f"|{start}|") : text.index(end, text.rindex(f"|{start}|"))])


@pytest.fixture
def page(client: Client, db: None) -> str:
    return text_of(client, f"/advice/{sample_plan.advice().pk}/options/1")


@pytest.fixture
def answer_page(client: Client, db: None) -> str:
    return text_of(client, f"/advice/{sample_plan.advice().pk}")


# --- the option's page ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        "|Buy|order 6 months ahead|2|hgx-h200-8x-server|own site|1 to 30|30|$315,000|once|2026-05-07|43,800|$512,346|",
        "|Reserve, 3 years|1|gpu-h200_8|nebius|eu-north1|1 to 30|36|6 months after the horizon|$19.60|per hour|",
        "|Rent by the hour|4|gpu-h200_8|nebius|eu-north1|7 to 30|30|$23.925|per hour|2026-11-01|8,760|$209,583|",
        "|Keep|1|gpu-h200_8|own site|1 to 12|12|–|",
    ],
)
def test_each_step_says_what_to_sign(page: str, row: str) -> None:
    plan = section(page, "Plan", "|Key figures|")
    assert "|Buy 2, reserve 1 and rent up to 4 of them.|" in plan
    assert row in plan


def test_the_steps_add_up_to_the_plan(page: str) -> None:
    assert (
        "|Costs of the plan as a whole, such as the minimum team and provider services|-$869,097|Total|$367,920|"
        in (section(page, "Plan", "|Key figures|"))
    )
    even = sample_plan.result()
    even["recommendations"][0]["money"]["usd_over_horizon"] = sum(step["usd"] for step in sample_plan.STEPS) + 0.3
    found = plan_page.of_option(Answer.read(even).recommendations[0])
    assert found is not None and found["beside_usd"] == 0


@pytest.mark.parametrize(
    "row",
    [
        "|Monthly equivalent|$45,678|$36,542–$68,517|The equal monthly payment with the same present value",
        "|Total over 30 months|$367,920|",
        "|Purchases (capex)|$740,250|",
        "|Resale|$151,515|",
        "|Liability after the horizon|$117,600|",
        "The longest commitment runs 6 months longer than the horizon.|",
        "|Most expensive month, purchases spread over their service|$61,234|",
        "|Largest cash payment of a month|$10,220 (today)|Purchases and running costs in the month that they are paid",
        "|Price of leaving after 12 months|$98,765|",
        "|Rent by the hour, per month|$70,707|",
        "|Payback|month 17|",
        "|Internal rate of return|41.5% per year|",
    ],
)
def test_each_key_figure_has_its_meaning(page: str, row: str) -> None:
    assert row in section(page, "Key figures", "|Low, median and high cost|")


def test_the_present_value_says_its_discount_rate(page: str) -> None:
    figures = section(page, "Key figures", "|Low, median and high cost|")
    assert "$337,260|Present value of all payments less resale, at a discount rate of 8% per year.|" in figures


def test_the_range_is_shown_by_month_and_in_total(page: str) -> None:
    shown = section(page, "Key figures", "|Strategies|")
    assert "|Per month|$36,542|$45,678|$68,517|" in shown and "|$1,096,272|$1,370,340|$2,055,510|" in shown
    said = (
        "this option costs least among the ranked options, hosted APIs included, is 62%; options within 1% of each "
        "other count as equal and share the win. The probability that a month, with purchases spread over their "
        "service, exceeds the budget is < 1%."
    )
    assert said in shown.replace("\u00a0", " ")


def test_the_chosen_strategy_is_marked_among_all(page: str) -> None:
    shown = section(page, "Strategies", "|Taxes|")
    for name in ("Buy now", "Extend later", "Rent", "Reserve", "Rent, then buy", "Mix"):
        assert f"|{name}|" in shown
    assert shown.count("✓ this plan") == 1 and "|Mix|✓ this plan|How to mixed|$45,678|" in shown


def test_taxes_are_told(page: str) -> None:
    shown = section(page, "Taxes", "|Month by month")
    assert "|25%|" in shown and "|7.5%, $43,210 over the horizon|" in shown and "|$987,654|" in shown


def test_months_are_a_table_and_a_picture(client: Client, db: None) -> None:
    advice = sample_plan.advice()
    path = f"/advice/{advice.pk}/options/1"
    raw = every_section(client, path)
    assert '<svg class="chart plan-months"' in raw and "style=" not in raw
    shown = section(text_of(client, path), "Month by month: traffic, replicas and instances", "|Payment options for")
    assert "|30|×2.00|8|5|1|2|" in shown


def test_the_cash_flow_has_its_parts_and_the_book_value(page: str) -> None:
    shown = section(page, "Cash flow by month", "|Rent, energy and staff")
    assert (
        "|Purchases|Rent|Energy|Staff|Operating, all|Residual value (resale)|Total|Present value|Book value|" in shown
    )
    assert "|$1,111.00|$222.00|$333.00|" in shown and "|$4,444.00|" in shown and "$-0.00" not in shown


def test_an_option_that_buys_nothing_has_no_return_on_it(client: Client, db: None) -> None:
    shown = text_of(client, f"/advice/{sample_plan.advice().pk}/options/2")
    assert "Key figures" in shown and "Payback" not in shown and "Internal rate" not in shown
    assert "Month by month" not in shown and "|Taxes|" not in shown
    assert "Prices in USD of 2026-11-19." in shown


def test_a_purchase_that_does_not_pay_back_says_so() -> None:
    answer = sample_plan.result()
    answer["recommendations"][0]["money"]["plan"] |= {"payback_month": None, "irr_fraction_per_year": None}
    found = plan_page.of_option(Answer.read(answer).recommendations[0])
    assert found is not None
    values = {figure.label: figure.value for figure in found["figures"]}
    assert (values["Payback"], values["Internal rate of return"]) == ("not within the horizon", "none")
    answer["recommendations"][0]["money"]["plan"]["rent_usd_per_month"] = None
    found = plan_page.of_option(Answer.read(answer).recommendations[0])
    assert found is not None and "no rent to compare with" in [figure.value for figure in found["figures"]]


# --- the answer's page ------------------------------------------------------------------------------------------


def test_the_ranking_shows_the_plan(answer_page: str) -> None:
    ranking = section(answer_page, "Ranking", "|Near misses|")
    assert "|$10,220|$36,542–$68,517|$740,250 capex|$117,600 liability|" in ranking
    assert "|$11,480|$36,800–$69,000|$2.13|" in ranking  # nothing bought, nothing due
    assert "monthly equivalent of the option's plan" in ranking
    assert "switching to H200 after month 12 saves $5,000. The monthly equivalent is $44,444.|" in ranking


def test_how_certain_the_answer_is(answer_page: str) -> None:
    shown = section(answer_page, "How certain is this?", "|What would change the answer|").replace("\u00a0", " ")
    assert "$36,500 to $68,500 a month in 90% of 4,096 draws" in shown
    assert "|The probability that owning costs less than renting is 71%.|" in shown
    assert "|Load|×0.800|×1.25|$40,000|$55,000|61%|planning assumption|" in shown
    assert "|Staff cost|×0.750|×1.50|$45,678|$45,678|< 1%|" in shown


def test_every_option_has_its_range_and_its_scenarios(answer_page: str) -> None:
    shown = section(answer_page, "Cost of each option", "|Energy and carbon|").replace("\u00a0", " ")
    assert "|$45,678|$36,542–$68,517|62%|< 1%|" in shown and "|$1,370,340|$1,096,272–$2,055,510|" in shown
    assert "|$46,000|$36,800–$69,000|38%|–|" in shown and "|$1,380,000|$1,104,000–$2,070,000|" in shown
    assert "|Option|Low|Expected|boom|" in shown
    assert "|$41,000|$1,230,000 in total|$45,678|$1,370,340 in total|costs least|$81,000|" in shown
    assert "Low: load × 0.900, resale value × 1.40. boom: load × 2.00." in shown


def test_prices_are_dated_by_the_steps_of_the_plans(answer_page: str) -> None:
    grounds = section(answer_page, "Evidence and sources", "|Data sources")
    assert "|Prices used are from|2026-05-07|to|" in grounds
    assert "Newest price in the catalog" not in grounds
    assert "|EUR: 0.860 for 1 USD on 2026-11-02|" in grounds
    assert "|own|2026-05-07|" in grounds and "|nebius|2026-10-12|" in grounds


def test_the_option_dates_the_prices_of_its_own_plan(page: str) -> None:
    assert "Prices in USD of 2026-05-07 to 2026-11-01." in page


def test_a_portfolio_shows_the_range_and_the_dates_of_its_machines() -> None:
    ranges = CostRanges.read(sample_plan.ranges(1000.0, 1.0, 0.25))
    items = [FleetItem.model_construct(price_as_of=day) for day in ("2026-09-01", "2026-11-03", "2026-10-01")]
    money = PortfolioMoney.model_construct(
        of="one shared fleet", horizon_months=30, items=items, ranges=ranges, parts=[]
    )
    portfolio = Portfolio.model_construct(alone=[], shared=None, packed=None, money=money)
    answer = Answer.read(sample_advice.infeasible())
    assert plan_page.price_days_of(answer) is None
    answer = answer.changed(portfolio=portfolio)
    assert plan_page.price_days_of(answer) == ("2026-09-01", "2026-11-03")
    text = render_to_string("advisor/_portfolio_cost.html", {"result": answer})
    assert "One shared fleet: $1,000 per month (90%: $800–$1,500), $30,000 over 30 months" in text
    assert "with purchases spread over their service, exceeds the budget is 25%" in text


# --- answers of earlier versions --------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [sample_advice.result(), sample_money.result()], ids=["no money", "no plan"])
@pytest.mark.django_db
def test_an_old_answer_shows_nothing_of_plans(client: Client, stored: dict[str, Any]) -> None:
    advice = sample_advice.advice(stored)
    answer, option = (text_of(client, f"/advice/{advice.pk}{path}") for path in ("", "/options/1"))
    assert "How certain is this?" not in answer and "capex" not in answer and "monthly equivalent" not in answer
    assert "Key figures" not in option and "Book value" not in option and "|Plan|" not in option
    assert "4 x H200 SXM" in answer and "4 x H200 SXM" in option


@pytest.mark.parametrize("missing", ["uncertainty", "scenarios", "switch", "currency", *NEW])
@pytest.mark.django_db
def test_a_missing_part_leaves_the_rest_readable(client: Client, missing: str) -> None:
    answer = sample_plan.result()
    answer.pop(missing, None)
    for option in answer["recommendations"] if missing in NEW else ():
        option["money"].pop(missing, None)
    advice = sample_advice.advice(answer)
    assert "|4 x H200 SXM" in text_of(client, f"/advice/{advice.pk}")
    assert "|Cost breakdown|" in text_of(client, f"/advice/{advice.pk}/options/1")


@pytest.mark.django_db
def test_text_from_outside_is_escaped(client: Client) -> None:
    bad, answer = "<script>alert(1)</script>", sample_plan.result()
    money = answer["recommendations"][0]["money"]
    money["plan"] = sample_plan.plan(said=bad, steps=[sample_plan.step("rent", 1, 1, 2, instance=bad, provider=bad)])
    driver = sample_plan.UNCERTAINTY["drivers"][0] | {"name": bad, "source": bad}
    answer["uncertainty"] = sample_plan.UNCERTAINTY | {"said": bad, "drivers": [driver]}
    answer["scenarios"] = [{"name": bad, "ratios": {bad: 2.0}, "first_rank": 1, "costs": sample_plan.costs(1.0)}]
    answer["switch"] = sample_plan.SWITCH | {"said": bad}
    advice = sample_advice.advice(answer)
    for path in ("", "/options/1"):
        raw = every_section(client, f"/advice/{advice.pk}{path}")
        assert "<script>alert" not in raw and "&lt;script&gt;alert" in raw


@pytest.mark.django_db
def test_what_costs_least_is_compared_with_apis_only_where_they_are_allowed(client: Client) -> None:
    answer = sample_plan.result()
    advice = sample_advice.advice(answer)
    spec = advice.workload.spec
    advice.workload.spec = {**spec, "constraints": {**spec["constraints"], "acquisition": ["own"]}}
    advice.workload.save()
    shown = "".join(text_of(client, f"/advice/{advice.pk}{path}") for path in ("/options/1", ""))
    assert "among the ranked options is 62%" in shown and "APIs included" not in shown


@pytest.mark.django_db
def test_the_bill_has_the_totals_that_the_bill_of_materials_has(client: Client) -> None:
    answer = sample_plan.result()
    for part in answer["recommendations"][0]["money"]["parts"]:
        part["total_usd"] = 12_345.6
    advice = sample_advice.advice(answer)
    shown = text_of(client, f"/advice/{advice.pk}/options/1")
    assert "|USD over 30 months|" in shown.replace("| |", "|") and "|$12,345.60|" in shown
    assert "USD over 30 months" not in text_of(client, f"/advice/{advice.pk}/options/2")


@pytest.mark.django_db
def test_speculative_decoding_is_a_sentence(client: Client) -> None:
    answer = sample_plan.result()
    stated = {"method": "eagle", "draft": "an EAGLE head", "k": 3, "acceptance": 0.665, "tokens_shown_per_step": 2.4,
              "task": "chat", "source": "https://example.org/eagle"}  # fmt: skip
    answer["recommendations"][0]["speculative"] = stated
    said = {**stated, "said": ["speculative decoding with an EAGLE head", "every limit holds without drafts"]}
    answer["recommendations"][1]["speculative"] = said
    advice = sample_advice.advice(answer)
    first, second = (text_of(client, f"/advice/{advice.pk}/options/{rank}") for rank in (1, 2))
    assert "an EAGLE head drafts 3 tokens per step; 66.5% of them are accepted, as published for chat." in first
    assert "Speculative decoding with an EAGLE head; every limit holds without drafts." in second
    assert "acceptance 0.665" not in first


@pytest.mark.django_db
def test_the_documents_of_an_api_name_the_deployment_that_has_the_others(client: Client) -> None:
    nulls = {name: None for name, field in ApiOption.model_fields.items() if field.annotation is type(None)}
    api = {**nulls, **RANKED_API, "how_to_call": "curl", "provider_name": "Some Host"}
    found = sample_plan.result()
    found["recommendations"] = [api] + [{**r, "rank": r["rank"] + 1} for r in found["recommendations"]]
    advice = sample_advice.advice(found)
    raw = every_section(client, f"/advice/{advice.pk}")
    assert "of the best deployment: " in raw and "memo.html?rank=2" in raw
    memo = text_of(client, f"/advice/{advice.pk}/documents/memo.html")
    assert "use the API of Some Host" in memo
    assert client.get(f"/advice/{advice.pk}/documents/workbook.xlsx").status_code == 200


# --- pictures and figures ---------------------------------------------------------------------------------------


def months(*counts: tuple[int, int, int], traffic: float = 1.0) -> list[PlanMonth]:
    names = ("own_instances", "committed_instances", "hourly_instances")
    return [
        PlanMonth.read({"month": n, "traffic_ratio": traffic, "replicas": 1, **dict(zip(names, row, strict=True))})
        for n, row in enumerate(counts, 1)
    ]


def test_the_plan_is_drawn_as_stacked_steps() -> None:
    root = ElementTree.fromstring(charts.plan_months(months((2, 0, 0), (2, 0, 2))))
    shapes = {node.get("class"): node.get("points", "").split() for node in root.iter("polygon")}
    assert set(shapes) == {"plan-own", "plan-hourly"}  # nothing is reserved
    heights = [float(point.split(",")[1]) for point in shapes["plan-own"]]
    floor, top = charts.PLAN_HEIGHT - charts.PLAN_BOTTOM, charts.PLAN_TOP
    assert set(heights) == {floor, (floor + top) / 2}
    assert min(float(point.split(",")[1]) for point in shapes["plan-hourly"]) == top
    assert root.get("aria-label") and root.findtext("desc")


@pytest.mark.parametrize("shown", [[], months((0, 0, 0))])
def test_nothing_in_service_is_no_picture(shown: list[PlanMonth]) -> None:
    assert charts.plan_months(shown) == ""


def test_a_service_that_has_ended_is_drawn_without_traffic() -> None:
    assert "plan-traffic" not in charts.plan_months(months((1, 0, 0), traffic=0.0))


@pytest.mark.parametrize("count", [1, 12, 36, 60, 240])
def test_months_have_readable_ticks(count: int) -> None:
    root = ElementTree.fromstring(charts.plan_months(months(*[(1000, 0, n) for n in range(count)])))
    ticks = [node for node in root.iter("text") if node.get("class") == "tick" and node.get("text-anchor") == "middle"]
    assert 1 <= len(ticks) <= 13


def test_drivers_are_bars_from_low_to_high() -> None:
    found = [Driver.read(each) for each in sample_plan.UNCERTAINTY["drivers"]]
    svg = chart_data.drivers(found).svg
    assert "$40,000 to $55,000" in svg and "stays $45,678" in svg and svg.count("<rect") == 2
    still = found[1].changed(variance_fraction=1e-9)
    assert (
        chart_data.drivers([found[0], still]).svg.count("<rect") == 1
        and chart_data.drivers([still]).svg == "" == chart_data.drivers([]).svg
    )


@pytest.mark.parametrize(
    ("value", "chance", "rate"),
    [(0.714, "71%", "71.4%"), (0.12, "12%", "12%"), (0, "0%", "0%"), (1, "100%", "100%"), (0.001, "<\u00a01%", "0.1%"),
     (0.999, ">\u00a099%", "99.9%"), (None, "–", "–"), (-0.0, "0%", "0%")],
)  # fmt: skip
def test_percent_is_written_as_people_do(value: float | None, chance: str, rate: str) -> None:
    assert (finance.chance(value), finance.rate(value)) == (chance, rate)


def test_ends_of_a_range() -> None:
    assert finance.low_to_high([1.0, 2.0, 3.0]) == "$1.00–$3.00"
    assert [finance.low_to_high(value) for value in (None, "ab", [1.0], [None, 2.0])] == ["", "", "", ""]
