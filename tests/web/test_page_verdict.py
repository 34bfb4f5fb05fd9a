"""The verdict says what to do, what it costs, how sure that is and what would settle it, as the JSON of the answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from advisor.result import Answer, BridgeSetup, Settle
from advisor.result.decision import lasting, most_accelerators
from advisor.templatetags.finance import chance, low_to_high
from advisor.templatetags.units import dollars
from advisor.web.answers.verdict import headline, shown
from tests import sample_advice
from tests.pages import every_section
from tests.web import sample_plan

pytestmark = pytest.mark.django_db
SETTLE = {
    "kind": "quote", "input": "price of 4 x H200 SXM", "flips_fraction": 0.4, "winner_after": "4 x MI300X",
    "winner_after_rank": 2, "at_ratio": 1.12, "said": "Get a written quote for 4 x H200 SXM.",
}  # fmt: skip


def verdict_of(text: str) -> str:
    return text.split('<section class="decision"')[1].split("</section>")[0]


def decided() -> dict[str, Any]:
    """An answer with its decision, as it is stored."""
    answer = Answer.read(sample_plan.result())
    first = answer.recommendations[0].changed(
        first_probability=0.62, slo_probability=0.87, price_origin="official_list", price_weakness="45 days old"
    )
    answer = answer.changed(recommendations=[first, *answer.recommendations[1:]])
    return answer.changed(decision=answer.decide(Settle.read(SETTLE))).to_json()


def test_each_figure_of_the_decision_is_in_the_verdict(client: Client) -> None:
    answer = decided()
    advice = sample_advice.advice(answer)
    d = client.get(f"/advice/{advice.pk}/result.json").json()["decision"]
    shown = verdict_of(client.get(f"/advice/{advice.pk}").content.decode())
    for said in (
        dollars(d["usd_per_month"]),
        low_to_high(d["usd_per_month_range"]),
        dollars(d["usd_per_mtok_blended"]),
        f"input {dollars(d['usd_per_mtok_input'])}, output {dollars(d['usd_per_mtok_output'])}",
        chance(d["best_probability"]),
        chance(d["slo_probability"]),
        d["price_as_of"],
        "the seller&#x27;s price list",
        "The price is weak: 45 days old.",
        "The quote that would settle it:",
        d["settle"]["said"],
        d["label"],
    ):
        assert said in shown, said


def test_what_is_bought_is_on_the_first_screen(client: Client) -> None:
    answer = decided()
    bought = answer["recommendations"][0]["money"]["capital_usd"]
    text = verdict_of(client.get(f"/advice/{sample_advice.advice(answer).pk}").content.decode())
    assert (f"<dt>Purchases</dt><dd>{dollars(bought)}</dd>" in text) == (bought > 0)
    answer["recommendations"][0]["money"]["capital_usd"] = 245_080.0
    text = verdict_of(client.get(f"/advice/{sample_advice.advice(answer).pk}").content.decode())
    assert "<dt>Purchases</dt><dd>$245,080</dd>" in text


def test_verdict_card_ranking_and_json_state_one_figure(client: Client) -> None:
    answer = decided()
    advice = sample_advice.advice(answer)
    first, d = answer["recommendations"][0], answer["decision"]
    assert d["usd_per_month"] == first["usd_per_month"]
    text = every_section(client, f"/advice/{advice.pk}")
    card = text.split('<p class="big">')[1].split("</p>")[0]
    row = text.split("Ranked deployments")[1].split("</table>")[0]
    for part in (verdict_of(text), card, row):
        assert dollars(first["usd_per_month"]) in part


def test_machines_that_are_owned_have_no_price_of_unknown_origin() -> None:
    found = Answer.read(decided())
    made = found.decide()
    assert made is not None
    block = shown(found.changed(decision=made.changed(provider="owned", price_origin="")))
    assert block is not None and block["origin"] == "already owned"


def test_the_verdict_comes_before_everything_else_of_the_answer(client: Client) -> None:
    text = client.get(f"/advice/{sample_advice.advice(decided()).pk}").content.decode()
    assert text.index('class="decision"') < text.index('aria-label="Sections"') < text.index('class="cards rows"')


def test_an_answer_from_before_decisions_has_a_verdict_from_its_first_option(client: Client) -> None:
    answer = sample_advice.result()
    shown = verdict_of(client.get(f"/advice/{sample_advice.advice(answer).pk}").content.decode())
    assert "Rent 4 × H200 SXM at nebius" in shown and "$10,220" in shown and "would settle" not in shown


def test_rent_until_the_delivery_is_of_its_own_machines_and_not_of_those_that_are_bought() -> None:
    bridge = {"months": 2, "accelerator": "h100-sxm", "accelerators_per_replica": 2, "replicas": 3, "setup": "FP8, TP2"}
    bought = {"accelerator_name": "RTX PRO 6000", "accelerator_count": 20, "provider": "own", "ways": ["buy"]}
    made = Answer.read(decided()).decide()
    assert made is not None
    bridged = BridgeSetup.read(bridge)
    assert headline(made.changed(**bought)) == "Buy 20 × RTX PRO 6000"
    said = headline(made.changed(**bought, bridge=bridged.changed(accelerator_name="H100 SXM5 80GB")))
    assert said == "Buy 20 × RTX PRO 6000, and rent 6 × H100 SXM5 80GB until they arrive"
    assert "rent 6 × h100-sxm until" in headline(made.changed(**bought, bridge=bridged))  # stored before the name was
    steps = [step("rent", 1, 2, 9e5), step("buy", 3, 36, 2e5), step("rent", 3, 36, 1e4)]
    assert [s.action for s in lasting(steps, bridged)] == ["buy", "rent"]
    assert [s.action for s in lasting(steps, None)] == ["rent", "buy", "rent"]


def step(action: str, first: int, last: int, usd: float = 1.0, instances: int = 1, size: int = 1) -> Any:
    return SimpleNamespace(
        action=action, from_month=first, until_month=last, usd=usd, instances=instances, accelerators=size
    )


def test_the_headline_counts_whole_machines_and_says_how_many_are_used_and_how_many_come_later() -> None:
    """Nobody sells 5 of a server of 8, and the machines of today are not those of the last month."""
    assert most_accelerators([step("buy", 1, 36, instances=2, size=8)]) == 16
    assert most_accelerators([step("buy", 11, 36, size=8), step("buy", 20, 36, size=8), step("rent", 1, 10)]) == 16
    assert most_accelerators([step("rent", 1, 10, instances=9), step("buy", 11, 36, size=8)]) == 9
    made = Answer.read(decided()).decide()
    assert made is not None
    servers = made.changed(
        accelerator_name="B200", accelerator_count=5, provider="own", ways=["buy"], machine_accelerators=16, grows=False
    )
    assert headline(servers) == "Buy 16 × B200 (5 in use)"
    assert headline(servers.changed(grows=True, machine_accelerators=8)) == "Buy 5 × B200, up to 8 later"
    growing = servers.changed(grows=True, machine_accelerators=24, first_machine_accelerators=16)
    assert headline(growing) == "Buy 16 × B200 (5 in use), up to 24 later"
    assert headline(growing.changed(machine_accelerators=16)) == "Buy 16 × B200 (5 in use)"
    for used, first, most in ((u, f, m) for u in range(1, 5) for f in range(u, 6) for m in range(f, 7)):
        plan = {"accelerator_count": used, "machine_accelerators": most, "first_machine_accelerators": first}
        said = headline(growing.changed(**plan))
        assert said.startswith(f"Buy {first} × ")  # what is ordered now, whatever is used or comes later
        assert (f"({used} in use)" in said) is (used < first) and (f"up to {most} later" in said) is (first < most)
    assert headline(servers.changed(machine_accelerators=None)) == "Buy 5 × B200"


def test_carbon_is_shown_where_it_is_the_objective(client: Client) -> None:
    advice = sample_advice.advice()
    assert "Carbon per M" not in client.get(f"/advice/{advice.pk}").content.decode()
    advice = sample_advice.advice()  # another one, because pages of a finished answer are kept
    advice.workload.spec["objective"] = "carbon"
    advice.workload.save()
    text = client.get(f"/advice/{advice.pk}").content.decode()
    assert "0.120 kg CO₂e" in verdict_of(text) and text.count("Carbon per M output tokens") == 1 + text.count('"card"')
