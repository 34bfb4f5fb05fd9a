"""Which prices are ranked, and what an answer says of a weak or old one: why, and the first choice without it."""

import datetime
import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import workload
from advisor.answer import money as bill
from advisor.engine.search import Scored
from advisor.inputs import Snapshot
from advisor.inputs.from_catalog import take_snapshot
from advisor.inputs.prices import offers
from catalog.models import Accelerator, Price
from tests.as_json import recommend
from tests.clocks import TODAY

DAY = datetime.date(2026, 11, 23)
QUESTION = """
model: Qwen/Qwen3-8B
traffic: {input_tokens: 1000, output_tokens: 200, requests_per_s: 2}
slo: {ttft_ms_p95: 1500, tpot_ms_p95: 60}
constraints:
  accelerators: {allow: [h200-sxm]}
  acquisition: [rent]
  formats: {allow: [fp8]}
  frameworks: {allow: [vllm]}
variants: "no"
"""


def row(accelerator: str, as_of: str, term: str = "on_demand", origin: str = "official_list") -> dict[str, Any]:
    return {
        "provider": "p", "accelerator": accelerator, "accelerators": 1, "region": "any", "as_of": as_of, "term": term,
        "origin": origin,
    }  # fmt: skip


def test_an_old_price_is_used_only_where_there_is_no_current_one_of_its_acquisition() -> None:
    rows = [
        row("a", "2026-10-01"), row("a", "2024-10-01"), row("a", "2024-01-01", "purchase"),
        row("b", "2023-01-01", origin="reseller"), row("c", "2023-01-01"),
    ]  # fmt: skip
    kept = [(p["accelerator"], p["as_of"], p.get("stale", False)) for p in offers.used(rows, DAY)]
    # an official rent does not expire
    assert kept == [
        ("a", "2026-10-01", False), ("c", "2023-01-01", False), ("a", "2024-01-01", True), ("b", "2023-01-01", True),
    ]  # fmt: skip


def test_an_old_rent_gives_way_to_a_newer_one_of_the_same_country_in_instances_that_are_no_larger() -> None:
    new, old = "2026-10-01", "2026-05-01"

    def kept(*rows: dict[str, Any], named: tuple[str, ...] = ()) -> list[str]:
        return [p["provider"] for p in offers.used(rows, DAY, named) if p["as_of"] == old]

    before = row("a", old) | {"provider": "old"}
    assert kept(before, row("a", new)) == []
    assert kept(before, row("a", new), named=("old",)) == ["old"]
    assert kept(before, row("a", new) | {"accelerators": 8}) == ["old"]
    assert kept(before, row("a", new, "spot")) == ["old"]
    assert kept(before, row("a", new, origin="marketplace")) == ["old"]
    swedish = before | {"region": "north", "country": "SE"}
    assert kept(swedish, row("a", new) | {"region": "us-east-1", "country": "US"}) == ["old"]
    assert kept(swedish, row("a", new) | {"region": "south", "country": "SE"}) == []


def test_an_old_rent_gives_way_wherever_a_newer_one_holds_if_the_question_names_no_place() -> None:
    """Prices of 330, 187, 93 and 29 days: the older they are, the sooner they give way."""
    ages = (330, 187, 93, 29)
    rows = [
        row("a", str(DAY - datetime.timedelta(days=age))) | {"provider": str(age), "region": f"r{age}", "country": "SE"}
        for age in ages
    ]

    def kept(*given: int, by_place: bool = False, **changes: Any) -> list[str]:
        chosen = [
            p | (changes if p["provider"] == str(min(given)) else {}) for p in rows if int(p["provider"]) in given
        ]
        return [p["provider"] for p in offers.used(chosen, DAY, by_place=by_place)]

    assert kept(*ages) == ["29"]
    assert kept(330, 187, 93) == ["93"]  # none is current: the newest stands
    assert kept(330, 93, origin="reseller") == ["330", "93"]
    assert kept(330, 93, accelerators=8) == ["330", "93"]
    assert kept(330, 93, country="US") == ["93"] and kept(330, 93, country="US", by_place=True) == ["330", "93"]
    near = [row("a", str(DAY - datetime.timedelta(days=days))) for days in (110, 93)]
    assert len(offers.used(near, DAY, by_place=False)) == 2  # about as old
    assert kept(93, 29, country="US") == ["93", "29"]  # 93 days are too few to look elsewhere


@pytest.mark.parametrize("seed", range(20))
def test_the_order_and_copies_of_prices_do_not_matter(seed: int) -> None:
    drawn = random.Random(seed)
    rows = [
        row(drawn.choice("ab"), str(DAY - datetime.timedelta(days=drawn.randrange(500))))
        | {"provider": f"p{k}", "region": drawn.choice(["any", "r1", "r2"]), "accelerators": drawn.choice([1, 8])}
        for k in range(12)
    ]
    shuffled = drawn.sample(rows, len(rows))
    for by_place in (True, False):
        kept = {p["provider"] for p in offers.used(rows, DAY, by_place=by_place)}
        assert kept == {p["provider"] for p in offers.used([*shuffled, *shuffled[:3]], DAY, by_place=by_place)}
        assert {p["accelerator"] for p in rows} == {p["accelerator"] for p in rows if p["provider"] in kept}


def test_the_interval_of_a_price_widens_with_the_square_root_of_its_age() -> None:
    def ratio(as_of: str) -> float:
        paid = {"acquisition": "rent", "as_of": as_of, "rent_low_ratio": 1.0, "rent_high_ratio": 1.0}
        offer = type("Offer", (), paid)()
        scored: Scored = type("Scored", (), {"offer": offer})()
        rows = {f"{name}-swing-ratio": {"value": 1.0} for name in ("load", "rent-price")}
        rows["price-age-swing-ratio"] = {"value": 1.37}
        snapshot = Snapshot(assumptions=rows, asked_on="2026-11-23")
        question: Any = SimpleNamespace(spec={"tco": {}}, snapshot=snapshot)
        return bill.price_and_load_ranges(question, scored)["price"][1]

    assert ratio("2026-11-23") == 1.0
    assert ratio("2025-11-23") == pytest.approx(1.37, rel=1e-3)
    assert math.log(ratio("2022-11-23")) == pytest.approx(2 * math.log(1.37), rel=1e-3)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_winner_at_a_weak_price_is_named_with_the_choice_without_it_and_a_fresh_price_replaces_it() -> None:
    named = {"constraints.providers.allow": ["brand-new", "somecloud"]}  # an old price is used if its seller is named
    spec = workload.parse(workload.with_changes(workload.load(QUESTION), named))
    chip = Accelerator.objects.get(slug="h200-sxm")
    mark_down(chip, "official_list", DAY - datetime.timedelta(days=200))
    mark_down(chip, "official_list", TODAY, provider="somecloud", usd_per_hour=3.5)
    answer = recommend(spec, take_snapshot(spec))
    first, solid = answer["recommendations"][0], answer["without_weak_prices"]
    assert (first["provider"], first["price_origin"]) == ("brand-new", "official_list")
    assert "days old" in first["price_weakness"] and f"(dated {first['price_as_of']}" not in answer["verdict"]
    assert f"The price used is weak ({first['price_weakness']}; dated {first['price_as_of']})" in answer["verdict"]
    assert f"${solid['usd_per_month']:,.0f} a month" in answer["verdict"]
    assert solid["usd_per_month"] > first["usd_per_month"]
    assert solid["more_fraction"] == pytest.approx(solid["usd_per_month"] / first["usd_per_month"] - 1, rel=1e-3)
    assert any("check the seller's current price" in warning for warning in first["warnings"])

    mark_down(chip, "official_list", TODAY)
    fresh = recommend(spec, take_snapshot(spec))
    now = fresh["recommendations"][0]
    assert now["provider"] == "brand-new" and not now["price_weakness"] and fresh["without_weak_prices"] is None
    assert "The price used is weak" not in fresh["verdict"] and width(now) < width(first)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_what_a_buyer_cannot_sign_is_ranked_only_if_it_is_allowed() -> None:
    chip = Accelerator.objects.get(slug="h200-sxm")
    mark_down(chip, "estimate", TODAY)
    spec = workload.parse(QUESTION)
    assert recommend(spec, take_snapshot(spec))["recommendations"][0]["provider"] != "brand-new"
    allowed = workload.parse(workload.with_changes(workload.load(QUESTION), {"constraints.exclude": ["consumer"]}))
    answer = recommend(allowed, take_snapshot(allowed))
    assert answer["recommendations"][0]["provider"] == "brand-new"
    assert "The price used is weak (an estimate" in answer["verdict"]


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_an_average_is_never_an_offer_and_the_note_of_a_price_is_in_the_answer() -> None:
    chip = Accelerator.objects.get(slug="h200-sxm")
    mark_down(chip, "index", TODAY)
    spec = workload.parse(QUESTION)
    assert recommend(spec, take_snapshot(spec))["recommendations"][0]["provider"] != "brand-new"
    mark_down(chip, "provider_api", TODAY - datetime.timedelta(days=1), notes="needs a support plan")
    first = recommend(spec, take_snapshot(spec))["recommendations"][0]
    assert first["provider"] == "brand-new" and "price: needs a support plan" in first["reasons"]


def width(option: dict[str, Any]) -> float:
    low, high = option["interval"]["usd_per_month"]
    return float(math.log(high / low))


def mark_down(chip: Accelerator, origin: str, as_of: datetime.date, **changes: Any) -> None:
    """An offer that is cheaper than all others of the chip, by less than half of what marketplaces ask."""
    values: dict[str, Any] = {"provider": "brand-new", "usd_per_hour": 2.4} | changes
    Price.objects.create(
        instance="H200", region="any", accelerator=chip, term="on_demand", accelerators=1,
        kind="vm", as_of=as_of, source="list", origin=origin, **values,
    )  # fmt: skip
