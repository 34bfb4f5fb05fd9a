"""The page of an answer begins with its first screen: the sentences, figures and rows of `advise` and Markdown."""

import itertools
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from advisor import report
from advisor.report import screen_of
from advisor.report.screen.machines import machines_of, signed
from advisor.result import Answer, BridgeSetup, Option, Settle
from advisor.result.decision import lasting, most_accelerators
from tests import sample_advice
from tests.pages import every_section
from tests.web import sample_plan

pytestmark = pytest.mark.django_db
SETTLE = {
    "kind": "quote", "input": "price of 4 x H200 SXM", "flips_fraction": 0.4, "winner_after": "4 x MI300X",
    "winner_after_rank": 2, "at_ratio": 1.12, "said": "Get a written quote for 4 x H200 SXM.",
}  # fmt: skip


def decided() -> dict[str, Any]:
    """An answer with its decision, as it is stored."""
    answer = Answer.read(sample_plan.result())
    first = answer.recommendations[0].changed(
        first_probability=0.62, slo_probability=0.87, price_origin="official_list", price_weakness="45 days old"
    )
    answer = answer.changed(recommendations=[first, *answer.recommendations[1:]])
    return answer.changed(decision=answer.decide(Settle.read(SETTLE))).to_json()


def page_of(client: Client, answer: dict[str, Any], query: str = "") -> str:
    return unescape(client.get(f"/advice/{sample_advice.advice(answer).pk}{query}").content.decode())


@pytest.mark.parametrize("make", [decided, sample_advice.result, sample_advice.infeasible])
def test_the_page_says_what_the_first_screen_says(client: Client, make: Any) -> None:
    text = page_of(client, make())
    screen = screen_of(Answer.read(make()))
    cells = [text for cells in (screen.table.head(), *(row for _, row in screen.table.body())) for text, _ in cells]
    for said in (screen.title, screen.todo, *(fact.text for fact in screen.facts), *cells):
        assert said in text, said


def test_the_first_screen_comes_before_everything_else_of_the_answer(client: Client) -> None:
    text = page_of(client, decided())
    places = [text.index(each) for each in ('class="decision"', "shortlist", 'aria-label="Sections"', 'id="why"')]
    assert places == sorted(places)


def test_each_other_section_begins_with_the_sentence_on_what_to_do(client: Client) -> None:
    text = page_of(client, decided(), "?section=cost")
    assert f'<p class="verdict-line"><a href="?">{screen_of(Answer.read(decided())).todo}</a></p>' in text
    assert 'class="decision"' not in text


def test_what_is_gone_from_the_page(client: Client) -> None:
    text = every_section(client, f"/advice/{sample_advice.advice(decided()).pk}")
    for gone in ("Probability of being the best", 'class="cards', "Ecosystem"):
        assert gone not in text


def test_a_variant_has_no_row_of_its_own_in_the_ranking(client: Client) -> None:
    answer = decided()
    first, second = answer["recommendations"][:2]
    again = {**second, "rank": 3, "label": f"{first['label']}, again"}
    again |= {key: first[key] for key in ("accelerator", "accelerator_name", "provider", "acquisition")}
    again["term"] = first.get("term", "on_demand")
    answer["recommendations"] = [first, second, again]
    text = page_of(client, answer, "?section=alternatives")
    assert again["label"] not in text and second["label"] in text


def test_the_cost_section_and_the_full_text_show_what_each_margin_costs(client: Client) -> None:
    answer = decided()
    step = {"name": "one_host_lost", "included": True, "replicas": 3, "accelerators": 6, "usd_per_month": 15_609.7}
    step |= {"switch": "slo.availability", "said": "6 x H200 SXM, $15,610 a month: and one host may fail"}
    answer["decision"]["ladder"] = [step]
    text = page_of(client, answer, "?section=cost")
    assert "the loss of one host" in text and "$15,610" in text and "slo.availability" in text
    assert f"margin: {step['said']}" in report.table(Answer.read(answer))


# --- what is signed ---------------------------------------------------------------------------------------------


def option(steps: list[Any], months: list[Any] | None = None, bridge: BridgeSetup | None = None, **given: Any) -> Any:
    """A first choice with this plan."""
    plan = SimpleNamespace(steps=steps, months=months or [], bridge=bridge)
    values = {
        "instance": "hgx-b200", "instances": 1, "accelerator_name": "B200 (HGX/DGX)", "accelerator_count": 8,
        "provider": "own", "acquisition": "own", "term": "purchase", "money": SimpleNamespace(plan=plan),
    }  # fmt: skip
    return Option.model_construct(**(values | given))


def step(action: str, first: int, last: int, **given: Any) -> Any:
    values = {
        "instances": 1, "accelerators": 8, "instance": "hgx-b200", "provider": "own", "term": "purchase", "usd": 1.0,
        "unit_usd_once": None, "order_months_before": 0.0,
    }  # fmt: skip
    return SimpleNamespace(action=action, from_month=first, until_month=last, **(values | given))


def test_a_purchase_names_servers_price_later_servers_and_delivery() -> None:
    bought = {"unit_usd_once": 505_000.0, "order_months_before": 10.0}
    steps = [step("buy", 1, 36, **bought), step("buy", 18, 36, **bought)]
    assert signed(option(steps)) == (
        "buy one server of 8 × B200 now ($505,000, delivery takes ten months), a second in month 18"
    )


def test_whole_machines_are_counted_and_what_is_used_of_them_is_said() -> None:
    """Nobody sells 5 of a server of 8."""
    steps = [step("buy", 1, 36, instances=2)]
    assert signed(option(steps, instances=2, accelerator_count=12)) == "buy two servers of 8 × B200 (12 in use) now"
    assert most_accelerators([step("buy", 1, 36, instances=2)]) == 16
    assert most_accelerators([step("buy", 11, 36), step("buy", 20, 36), step("rent", 1, 10, accelerators=1)]) == 16


def test_rent_by_the_hour_grows_with_its_months() -> None:
    rented = {"accelerators": 1, "provider": "nebius", "term": "on_demand", "instances": 7}
    months = [SimpleNamespace(hourly_instances=n) for n in (3, 3, 4, 7, 7)]
    found = option([step("rent", 1, 5, **rented)], months, instances=3, accelerator_count=3, acquisition="rent")
    assert signed(found) == "rent 3 × B200 at nebius by the hour, four more by month 4"


def test_terms_and_owned_machines_have_their_words() -> None:
    reserved = {"provider": "aws", "term": "reserved_1y", "usd": 412_000.0}
    assert signed(option([step("reserve", 1, 12, **reserved)])) == (
        "rent one server of 8 × B200 at aws for one year ($412,000 committed)"
    )
    assert signed(option([step("keep", 1, 36, term="owned")], provider="owned")) == "keep one server of 8 × B200"


def test_rent_until_the_delivery_is_of_its_own_machines_and_not_of_those_that_are_bought() -> None:
    values = {"months": 2, "accelerator": "h100-sxm", "accelerators_per_replica": 2, "replicas": 3, "setup": "FP8, TP2"}
    bridge = BridgeSetup.read(values | {"accelerator_name": "H100 SXM5 80GB"})
    steps = [
        step("rent", 1, 2, usd=9e5, instance="h100", provider="nebius", term="on_demand"),
        step("buy", 3, 36, usd=2e5),
        step("rent", 3, 36, usd=1e4),
    ]
    assert signed(option([steps[0], steps[1]], bridge=bridge)) == (
        "buy one server of 8 × B200 from month 3 and rent 6 × H100 SXM until delivery"
    )
    assert [s.action for s in lasting(steps, bridge)] == ["buy", "rent"]
    assert [s.action for s in lasting(steps, None)] == ["rent", "buy", "rent"]


def test_the_table_counts_the_machines_that_the_sentence_counts() -> None:
    """A plan may buy more at once than the load of the first day needs."""
    for instances, bought in itertools.product((1, 2, 5), (1, 2, 3, 8)):
        found = option([step("buy", 2, 36, instances=bought)], instances=instances, accelerator_count=8 * instances)
        assert machines_of(found).count == max(instances, bought)
        assert signed(found).startswith(f"buy {machines_of(found).counted(bought)}")


def test_later_parts_of_a_plan_have_the_same_machines_and_the_bridge_stands_where_it_ends() -> None:
    values = {"months": 10, "accelerator": "b200", "accelerators_per_replica": 1, "replicas": 10, "setup": "FP8"}
    bridge = BridgeSetup.read(values | {"accelerator_name": "B200 (HGX/DGX)"})
    later = step("rent", 29, 36, instance="B200 (8 GPUs)", provider="hyperstack", term="on_demand")
    found = option([step("buy", 11, 36, order_months_before=10.0), later], bridge=bridge)
    first = "buy one server of 8 × B200 now (delivery takes ten months) and rent 10 × B200 until delivery"
    assert signed(found) == f"{first}; rent one server of 8 × B200 at hyperstack by the hour from month 29"
    assert signed(found, 1) == f"{first}; rent more later"


def test_a_purchase_is_named_however_short_the_sentence() -> None:
    """What is rented until the delivery costs less and comes first: it is no substitute for the purchase."""
    rent = step("rent", 1, 10, usd=2e5, provider="coreweave", term="on_demand")
    buy = step("buy", 11, 36, usd=9e5, unit_usd_once=430_000.0, order_months_before=10.0)
    found = option([rent, buy], [SimpleNamespace(hourly_instances=int(month < 10)) for month in range(36)])
    bought = "buy one server of 8 × B200 now ($430,000, delivery takes ten months)"
    assert signed(found) == f"rent one server of 8 × B200 at coreweave by the hour until month 10; {bought}"
    assert signed(found, 1) == f"{bought}; rent until then"
