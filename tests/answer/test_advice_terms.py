"""What an organisation alone pays, and where its hosts stand, is what its advice is priced by."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor import workload
from advisor.engine.cost.hourly import HOURS_PER_YEAR, own_parts, total_usd_per_hour
from advisor.inputs import Snapshot
from advisor.inputs.check import check_catalog
from advisor.inputs.current import market
from advisor.inputs.from_catalog import _accelerator, assumption, take_snapshot
from advisor.inputs.prices import offers
from advisor.inputs.prices.assumptions import assumptions_of
from advisor.inputs.to_engine import chip_of
from catalog.models import Accelerator, Assumption, Discount, Organisation, Price, Region, SupportLicence, Unit
from tests.as_json import recommend
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"
LISTED = 24.0  # USD per hour for 8 H200: the cheapest list price, and not so low that the marketplaces make it doubtful
NO_STAFF = "tco.operator-usd-per-year=0"  # the price alone


@pytest.fixture
def ours() -> Organisation:
    return Organisation.objects.create(slug="ours", name="Ours")


def asked(*changes: str) -> dict[str, Any]:
    raw = workload.load(FILE.read_bytes())
    for change in (
        "constraints.accelerators.allow=[h200-sxm]",
        "constraints.acquisition=[rent]",
        "constraints.frameworks.allow=[vllm]",
        "constraints.formats.allow=[fp8]",
        "variants=no",
        *changes,
    ):
        raw = workload.set_path(raw, *change.split("=", 1))
    spec = workload.parse(raw)
    check_catalog(spec)
    return spec


def first(organisation: Organisation | None, *changes: str) -> dict[str, Any]:
    spec = asked(*changes)
    result = recommend(spec, take_snapshot(spec, organisation))
    return result["recommendations"][0]


def offered(usd_per_hour: float, days: int = 0, **changes: Any) -> Price:
    values = {
        "provider": "somecloud", "instance": "big", "region": "any", "term": "on_demand", "kind": "vm",
        "accelerators": 8, "usd_per_hour": usd_per_hour, "as_of": TODAY - timedelta(days), "source": "list",
        "accelerator": Accelerator.objects.get(slug="h200-sxm"),
    } | changes  # fmt: skip
    return Price.objects.create(**values)


def paid(organisation: Organisation | None) -> dict[str, tuple[float, str]]:
    found = offers.prices([], organisation, TODAY)
    return {p["instance"]: (p["usd_per_hour"], p["notes"]) for p in found if p["provider"] == "somecloud"}


def less(organisation: Organisation, fraction: float, days: int = 0, **changes: Any) -> None:
    values = {"provider": "somecloud", "as_of": TODAY - timedelta(days), "source": "our contract"} | changes
    Discount.objects.create(organisation=organisation, discount_fraction=fraction, **values)


def test_a_private_price_wins_over_the_public_one_for_its_organisation_alone(ours: Organisation) -> None:
    offered(30, days=3)
    offered(20, days=60, organisation=ours)
    assert paid(ours) == {"big": (20.0, "your own price")}
    assert paid(None) == {"big": (30.0, "")}
    assert paid(Organisation.objects.create(slug="others", name="Others")) == {"big": (30.0, "")}


def test_a_private_price_of_more_than_a_year_ago_no_longer_wins(ours: Organisation) -> None:
    offered(20, days=366, organisation=ours)
    offered(30, days=3)
    assert paid(ours)["big"][0] == 30.0


def test_the_narrowest_discount_applies_and_then_the_newest(ours: Organisation) -> None:
    offered(100)
    less(ours, 0.10, days=9)
    assert paid(ours)["big"][0] == pytest.approx(90)
    less(ours, 0.20, days=2)
    assert paid(ours)["big"][0] == pytest.approx(80)
    less(ours, 0.05, days=20, accelerator=Accelerator.objects.get(slug="h200-sxm"))
    usd, words = paid(ours)["big"]
    assert usd == pytest.approx(95) and "5% below the list price of $100.00 an hour (our contract" in words
    assert paid(None)["big"][0] == 100


def test_a_discount_is_of_list_prices_not_of_private_ones(ours: Organisation) -> None:
    offered(50, organisation=ours)
    less(ours, 0.5)
    assert paid(ours)["big"][0] == 50


def test_an_advice_is_priced_by_the_organisation_and_says_so(ours: Organisation) -> None:
    offered(8.0, organisation=ours)
    best, public = first(ours, NO_STAFF), first(None)
    assert (best["provider"], best["instance"]) == ("somecloud", "big")
    assert best["usd_per_hour"] == pytest.approx(8.0 * best["instances"])
    assert "price: your own price" in best["reasons"]
    assert public["provider"] != "somecloud"


def test_a_licence_is_paid_for_every_chip_of_the_instances_and_told(ours: Organisation) -> None:
    offered(LISTED)
    SupportLicence.objects.create(
        organisation=ours, name="Enterprise", vendor="nvidia", usd_per_accelerator_per_year=4380, as_of=TODAY,
        source="our contract",
    )  # fmt: skip
    with_licence, without = first(ours, NO_STAFF), first(None, NO_STAFF)
    chips = with_licence["instances"] * 8
    assert with_licence["licence_usd_per_hour"] == pytest.approx(chips * 4380 / HOURS_PER_YEAR)
    assert with_licence["provider"] == without["provider"] == "somecloud"
    rent = with_licence["usd_per_hour"] - with_licence["licence_usd_per_hour"]
    assert without["licence_usd_per_hour"] == 0 and without["usd_per_hour"] == pytest.approx(
        LISTED * without["instances"]
    )
    assert rent == pytest.approx(without["usd_per_hour"])
    assert any(said.startswith("Enterprise: $4,380 a year for each of") for said in with_licence["reasons"])


def test_a_licence_of_a_framework_makes_the_other_one_win(ours: Organisation) -> None:
    every = "constraints.frameworks.allow=[]"
    free = first(None, every)["framework"]
    SupportLicence.objects.create(
        organisation=ours, name="Support", framework=free, usd_per_accelerator_per_year=90_000, as_of=TODAY, source="c"
    )
    best = first(ours, every)
    assert best["framework"] != free and best["licence_usd_per_hour"] == 0


def test_software_of_the_workload_is_a_licence() -> None:
    offered(LISTED)
    best = first(None, "tco.software-usd-per-accelerator-year=8760")
    assert (best["provider"], best["licence_usd_per_hour"]) == ("somecloud", best["instances"] * 8)
    assert any("software: $8,760 a year" in said for said in best["reasons"])


def test_an_instance_has_the_pue_and_grid_of_its_region() -> None:
    offered(LISTED, region="north")
    Region.objects.create(
        slug="somecloud-north", name="North", pue=1.05, grid_kgco2e_per_kwh=0.02, electricity_usd_per_kwh=0.03,
        as_of=TODAY,
    )  # fmt: skip
    best = first(None)
    assert (best["provider"], best["pue"], best["usd_per_kwh"]) == ("somecloud", 1.05, 0.03)
    assert best["kgco2e_per_mtok"] == pytest.approx(best["joules_per_output_token"] * 1e6 / 3.6e6 * 0.02, rel=1e-3)
    Region.objects.filter(slug="somecloud-north").update(pue=2.1)
    assert first(None)["watts"] == pytest.approx(2 * best["watts"], rel=1e-3)


def test_own_hosts_stand_where_the_planner_says() -> None:
    own = ("constraints.acquisition=[own]",)
    here = first(None, *own)
    Region.objects.create(
        slug="grid-test", name="Test", pue=1.1, electricity_usd_per_kwh=0.5, grid_kgco2e_per_kwh=0.01, as_of=TODAY
    )
    there = first(None, *own, "constraints.site.region=grid-test")
    assert (there["region"], there["pue"], there["usd_per_kwh"]) == ("grid-test", 1.1, 0.5)
    assert there["usd_per_hour"] > here["usd_per_hour"] and there["watts"] < here["watts"]
    assert any("site grid-test: $0.50 per kWh, PUE 1.1" in said for said in there["reasons"])
    mine = first(None, *own, "constraints.site.region=grid-test", "tco.pue=1.9")
    assert mine["pue"] == 1.9


def test_a_site_that_is_not_in_the_catalog_is_refused() -> None:
    with pytest.raises(workload.WorkloadError, match="constraints.site.region"):
        asked("constraints.site.region=atlantis")


def chip(slug: str) -> Any:
    return chip_of(_accelerator(Accelerator.objects.get(slug=slug)))


def own(slug: str) -> dict[int, tuple[float, float | None]]:
    found, _ = market(chip(slug))
    return {o.accelerators: (o.usd_per_hour, o.host_watts_per_accelerator) for o in found if o.acquisition == "own"}


def test_a_small_box_draws_what_its_unit_says() -> None:
    Price.objects.filter(accelerator__slug="gb10-dgx-spark").update(as_of=TODAY)
    usd, share = own("gb10-dgx-spark")[1]
    _, assumed = market(chip("gb10-dgx-spark"))
    assert share == 240 - 140
    assert usd == pytest.approx(total_usd_per_hour(own_parts(3999, 1, 240.0, assumed)))


def test_a_computer_around_one_chip_without_a_unit_has_no_share_of_a_server() -> None:
    Unit.objects.filter(accelerator__slug="gb10-dgx-spark").delete()
    Price.objects.filter(accelerator__slug="gb10-dgx-spark").update(as_of=TODAY)
    assert own("gb10-dgx-spark")[1][1] == 0


def test_a_server_draws_what_its_unit_says_and_a_chip_without_one_the_default() -> None:
    found, assumed = market(chip("mi300x"))
    assert {o.host_watts_per_accelerator for o in found} == {8500 / 8 - 750}
    unknown, _ = market(chip("mi325x"))
    assert {o.host_watts_per_accelerator for o in unknown} == {assumed.host_watts_per_accelerator} == {575}


def rented(slug: str, tco: Any = None) -> set[float | None]:
    spec = {"tco": tco or {}}
    rows = {a.key: assumption(a) for a in Assumption.objects.all()}
    found = {"accelerator": slug, "usd_per_hour": 1.0, "accelerators": 1, "term": "on_demand", "kind": "vm"}
    found |= {"provider": "somebody", "region": "", "instance": "one", "as_of": TODAY.isoformat()}
    found |= {"source": "test", "origin": ""}
    taken = Snapshot(prices=[found], assumptions=rows, asked_on=TODAY.isoformat())
    a = assumptions_of(spec, rows)
    return {o.host_watts_per_accelerator for o in offers.offers_of(taken, a, a, {slug: chip(slug)})}


def test_a_rented_card_has_a_card_s_share_of_a_host_and_a_processor_its_own() -> None:
    assert rented("rtx-5090") == rented("l4") == rented("a100-80gb-pcie") == {100.0}
    assert rented("h100-sxm") == {575.0} and rented("xeon-8480plus") == {150.0}
    assert rented("l4", {"card-host-watts": 60}) == {60.0} and rented("h100-sxm", {"card-host-watts": 60}) == {575.0}


def test_a_share_of_hosts_that_the_planner_names_holds_for_all_but_those_with_one_of_their_own() -> None:
    named = {"host-watts-per-accelerator": 300}
    assert rented("l4", named) == rented("h100-sxm", named) == rented("xeon-8480plus", named) == {300.0}
    assert rented("l4", named | {"card-host-watts": 60}) == {60.0}


def test_a_unit_with_a_price_can_be_owned_whole() -> None:
    _, assumed = market(chip("rtx-3090"))
    usd, share = own("rtx-3090")[4]
    assert share == 1600 / 4 - 350
    assert usd == pytest.approx(total_usd_per_hour(own_parts(4314, 4, 1600.0, assumed, superseded=True)))
    rack_usd, rack_share = own("gb200")[72]
    assert rack_share == pytest.approx(120_000 / 72 - chip("gb200").watts) and rack_usd > 100


def test_only_what_serves_is_a_framework_of_an_advice() -> None:
    spec = asked()
    names = {row["slug"] for row in take_snapshot(spec).frameworks}
    assert {"vllm", "tgi"} <= names and not names & {"deepspeed", "torchao"}
