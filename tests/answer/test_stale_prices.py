"""A price over a year old is used where a chip has no newer one: marked, with a wide interval, behind a fresh price."""

import datetime
import math
from typing import Any

import pytest

from advisor import workload
from advisor.answer import bill
from advisor.engine.search import Scored
from advisor.inputs import offers
from advisor.inputs.from_catalog import take_snapshot
from catalog.models import Accelerator, Price
from tests.as_json import recommend

DAY = datetime.date(2026, 11, 23)
QUESTION = """
model: Qwen/Qwen3-8B
traffic: {input_tokens: 1000, output_tokens: 200, requests_per_s: 2}
slo: {ttft_ms_p95: 1500, tpot_ms_p95: 60}
constraints: {accelerators: {allow: [tpu-v6e, h100-sxm]}, providers: {allow: [gcp, azure]}, acquisition: [rent]}
"""


def row(accelerator: str, as_of: str, term: str = "on_demand") -> dict[str, Any]:
    return {"accelerator": accelerator, "as_of": as_of, "term": term}


def test_an_old_price_is_used_only_where_there_is_no_current_one_of_its_acquisition() -> None:
    rows = [row("a", "2026-10-01"), row("a", "2024-10-01"), row("a", "2024-01-01", "purchase"), row("b", "2023-01-01")]
    kept = [(p["accelerator"], p["as_of"], p.get("stale", False)) for p in offers.used(rows, DAY)]
    assert kept == [("a", "2026-10-01", False), ("a", "2024-01-01", True), ("b", "2023-01-01", True)]


def test_the_interval_of_a_price_widens_with_the_square_root_of_its_age() -> None:
    def ratio(as_of: str) -> float:
        offer = type("Offer", (), {"acquisition": "rent", "as_of": as_of})()
        scored: Scored = type("Scored", (), {"offer": offer})()  # type: ignore[assignment]
        rows = {"rent-price-swing-ratio": {"value": 1.0}, "price-age-swing-ratio": {"value": 1.37}}
        return bill.price_and_load_ranges({"assumptions": rows, "asked_on": "2026-11-23"}, scored)["price"][1]

    assert ratio("2026-11-23") == 1.0
    assert ratio("2025-11-23") == pytest.approx(1.37, rel=1e-3)
    assert math.log(ratio("2022-11-23")) == pytest.approx(2 * math.log(1.37), rel=1e-3)


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
def test_a_winner_on_an_old_price_is_named_with_the_choice_without_it_and_a_fresh_price_replaces_it() -> None:
    spec = workload.parse(QUESTION)
    answer = recommend(spec, take_snapshot(spec))
    first, second = answer["recommendations"][0], next(r for r in answer["recommendations"] if not r["price_is_stale"])
    assert first["accelerator"] == "tpu-v6e" and first["price_is_stale"]
    assert f"Its price is from {first['price_as_of']}, over a year old" in answer["verdict"]
    assert f"Without it, the first choice is {second['label']}" in answer["verdict"]
    assert any("over a year old" in warning for warning in first["warnings"])

    def width(option: dict[str, Any]) -> float:
        low, high = option["interval"]["usd_per_month"]
        return float(math.log(high / low))

    chip = Accelerator.objects.get(slug="tpu-v6e")
    old = Price.objects.filter(accelerator=chip, term="on_demand").latest("as_of")
    Price.objects.create(
        provider=old.provider, instance=old.instance, region=old.region, accelerator=chip, term=old.term,
        accelerators=old.accelerators, kind=old.kind, usd_per_hour=old.usd_per_hour, as_of=datetime.date.today(),
        source="list",
    )  # fmt: skip
    fresh = recommend(spec, take_snapshot(spec))
    now = next(r for r in fresh["recommendations"] if r["accelerator"] == "tpu-v6e")
    assert not now["price_is_stale"] and width(now) < width(first) and "over a year old" not in fresh["verdict"]
