"""How many chips are sold together is known with a source, or called unknown; every count consists of such units."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Q
from django.test import Client

from advisor import workload
from advisor.engine.search import Question
from advisor.engine.search.candidates import offers_for
from advisor.engine.terms import UNKNOWN_UNIT
from advisor.inputs import catalog_of, take_snapshot, workload_of
from advisor.inputs.prices import offers as priced
from catalog.loading import fixtures, load
from catalog.models import Accelerator, Price, SmallestUnit
from catalog.pricing.current import is_per_chip
from tests.as_json import recommend
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
QUESTION = """
model: meta-llama/Llama-3.2-1B
traffic: {{input_tokens: 500, output_tokens: 100, requests_per_s: 2}}
constraints: {{acquisition: [rent], accelerators: {{allow: [{chip}]}}, providers: {{allow: [{seller}]}}}}
tco: {{operator-usd-per-year: 0}}
variants: no
"""


def asked(chip: str, seller: str) -> dict[str, Any]:
    spec = workload.parse(QUESTION.format(chip=chip, seller=seller))
    return recommend(spec, take_snapshot(spec))


def row(provider: str, slug: str, **changes: str) -> dict[str, Any]:
    given = dict.fromkeys(fixtures.PRICE_COLUMNS, "") | {
        "provider": provider, "instance": "X (per GPU)", "accelerator": slug, "accelerators": "1", "region": "any",
        "term": "on_demand", "usd_per_hour": "4", "kind": "vm", "as_of": "2026-11-20", "source": "price list",
    }  # fmt: skip
    return fixtures.price("here", given | changes)


def test_every_offer_of_the_catalog_is_a_multiple_of_what_its_seller_sells() -> None:
    for p in priced._wanted(~Q(term="purchase"), None, TODAY):
        found, unit = priced._price(p, None, {}), p.smallest_unit_accelerators
        each = float(p.usd_per_hour or 0) / p.accelerators
        assert found["accelerators"] % (unit or 1) == 0 and found["accelerators"] % p.accelerators == 0
        assert found["usd_per_hour"] == pytest.approx(each * found["accelerators"])
        assert found.get("unit_unknown", False) is (is_per_chip(p) and unit is None)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_unit_is_no_bill_is_for_less(seed: int) -> None:
    chance = random.Random(seed)
    chip = chance.choice(("h100-sxm", "l40s", "mi300x", "h200-sxm"))
    unit = chance.choice((1, 2, 4, 8))
    load.append_prices([row("newcloud", chip, smallest_unit_accelerators=str(unit))])
    first = asked(chip, "newcloud")["recommendations"][0]
    assert first["usd_per_hour"] == pytest.approx(first["instances"] * unit * 4.0, rel=1e-5)  # as printed
    assert first["instances"] * unit >= first["accelerator_count"]


def test_scaleway_sells_b300_by_the_node_and_h100_singly() -> None:
    node = asked("b300", "scaleway")["recommendations"][0]
    row = Price.objects.filter(provider="scaleway", accelerator__slug="b300").latest("as_of")
    assert node["usd_per_hour"] == pytest.approx(8 * float(row.usd_per_hour or 0) * node["instances"], rel=1e-5)
    single = asked("h100-pcie", "scaleway")["recommendations"][0]
    assert single["instances"] == single["accelerator_count"]


def test_of_an_unknown_unit_both_prices_are_shown_and_a_board_is_never_first() -> None:
    rows = [row("dark", slug, smallest_unit_accelerators="unknown") for slug in ("b300", "gb300", "l40s")]
    load.append_prices([r | {"usd_per_hour": Decimal(1)} for r in rows])
    for slug, whole in (("b300", 8), ("gb300", 72)):
        answer = asked(slug, "dark")
        (rejected,) = [r for r in answer["rejected"] if r["accelerator"] == slug]
        assert not answer["recommendations"]
        assert f"$1.00 an hour if you can rent one, ${whole:.2f} if only {whole} together" in rejected["detail"]
        assert f"usd_per_accelerator_hour.{slug}" in rejected["change"]
    spec = workload.parse(QUESTION.format(chip="b300", seller="dark"))
    catalog = catalog_of(spec, take_snapshot(spec))
    assert [o for o in catalog.offers if o.provider == "dark" and UNKNOWN_UNIT in o.marks]
    assert {o.accelerator for o in offers_for(Question(workload_of(spec), catalog))} == {"l40s"}  # a card of its own
    card = asked("l40s", "dark")["recommendations"][0]
    assert any("does not say how many accelerators it rents out together" in w for w in card["warnings"])


def test_a_price_per_chip_without_a_unit_is_refused_wherever_it_comes_from(client: Client, tmp_path: Any) -> None:
    with pytest.raises(fixtures.FixtureError, match="how many are sold together.*smallest_unit_accelerators"):
        load.append_prices([row("newcloud", "b200")])
    path = tmp_path / "newcloud.csv"
    names = fixtures.PRICE_COLUMNS
    path.write_text(",".join(names) + "\nnewcloud,B200 (per GPU),b200,1,any,,,on_demand,5,,vm,2026-11-20,price list,\n")
    with pytest.raises(CommandError, match="how many are sold together"):
        call_command("import_prices", path, "--from", "csv")
    own = {"provider": "newcloud", "instance": "B200", "accelerator": "b200", "accelerators": 1, "term": "on_demand",
           "as_of": "2026-11-20", "source": "contract", "usd_per_hour": 5, "unit": "chip"}  # fmt: skip
    answer = client.post("/api/v1/own-prices", json.dumps(own), content_type="application/json")
    assert answer.status_code in (400, 422) and "smallest_unit_accelerators" in answer.content.decode()
    assert not Price.objects.filter(provider="newcloud").exists()


@pytest.mark.parametrize("text", ["0", "-8", "8.5", "eight"])
def test_a_unit_that_is_no_number_of_chips_is_an_error(text: str) -> None:
    with pytest.raises(fixtures.FixtureError, match="expected a number of accelerators such as 8, or unknown"):
        row("newcloud", "b200", smallest_unit_accelerators=text)


def test_lists_and_rest_show_the_unit_and_its_source(client: Client) -> None:
    (found,) = [
        each
        for each in client.get("/api/v1/prices?accelerator=b300&provider=scaleway").json()["results"]
        if each["provider"] == "scaleway"
    ]
    assert found["smallest_unit_accelerators"] == 8 and "B300-SXM-8-288G" in found["smallest_unit_source"]
    text = client.get("/catalog/prices?accelerator=b300&provider=scaleway&format=csv").content.decode()
    assert "B300-SXM-8-288G" in text


def test_a_later_record_of_the_unit_reaches_stored_prices_at_the_next_load() -> None:
    chip = Accelerator.objects.get(slug="b200")
    SmallestUnit.objects.create(provider="newcloud", accelerator=chip, source="not stated", as_of=TODAY)
    load.append_prices([row("newcloud", "b200")])
    assert Price.objects.get(provider="newcloud").smallest_unit_accelerators is None
    SmallestUnit.objects.filter(provider="newcloud").update(accelerators=8, source="its docs")
    assert load.append_prices([row("newcloud", "b200")]).changed == 1
    assert Price.objects.get(provider="newcloud").smallest_unit_accelerators == 8
    assert load.append_prices([row("newcloud", "b200")]).unchanged == 1


def test_the_name_of_a_unit_of_several_says_how_many_it_has() -> None:
    """Three units of two GPUs must not read as three GPUs on an order."""
    pair = asked("h100-sxm", "scaleway")["recommendations"][0]
    assert pair["accelerator_count"] <= 2 * pair["instances"] and pair["instance"].endswith("(2 GPUs)")
    assert f"{pair['instances']} x {pair['instance']}" in pair["money"]["plan"]["said"]
    spec = workload.parse(QUESTION.format(chip="b300", seller="scaleway"))
    for offer in catalog_of(spec, take_snapshot(spec)).offers:
        several = offer.acquisition == "rent" and offer.accelerators > 1 and UNKNOWN_UNIT not in offer.marks
        assert not (several and "(per GPU)" in offer.instance), offer
