"""Which prices become offers: neither stale nor superseded ones; a card that is sold alone gets a server of its own."""

import datetime

import pytest

from advisor.engine.cost.hourly import Assumptions, own_parts, total_usd_per_hour
from advisor.inputs.current import market
from advisor.inputs.from_catalog import _accelerator
from advisor.inputs.prices import offers
from advisor.inputs.to_engine import chip_of
from catalog.loading.fixtures import INDEX
from catalog.models import Accelerator, Price, Unit
from catalog.pricing.current import REPLACED_DAYS
from catalog.pricing.derived import has_expired
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]


def add(instance: str, slug: str, days: int, usd_per_hour: float, **changes: object) -> None:
    values = {"provider": "somecloud", "accelerators": 1, "region": "any", "term": "on_demand", "kind": "vm"} | changes
    Price.objects.create(
        instance=instance, accelerator=Accelerator.objects.get(slug=slug), as_of=TODAY - datetime.timedelta(days),
        usd_per_hour=usd_per_hour, source="sample", **values,
    )  # fmt: skip


def sold() -> set[str]:
    return {p.instance for p in offers.current([], None, TODAY) if p.provider == "somecloud"}


def test_an_old_price_list_is_superseded_under_another_name() -> None:
    add("AMD MI300X", "mi300x", 180, 1.99)
    assert sold() == {"AMD MI300X"}
    add("MI300X (big)", "mi300x", 60, 2.59)
    assert sold() == {"MI300X (big)"}
    add("MI300X (small)", "mi300x", 60 - 45, 2.39)
    assert sold() == {"MI300X (big)", "MI300X (small)"}


def test_other_counts_regions_terms_and_providers_are_lists_of_their_own() -> None:
    add("one", "mi300x", 180, 2, region="north")
    add("eight", "mi300x", 10, 16, accelerators=8, region="north")
    add("south", "mi300x", 10, 2, region="south")
    add("spot", "mi300x", 10, 2, term="spot", region="north")
    add("other", "mi300x", 10, 2, provider="othercloud", region="north")
    assert sold() == {"one", "eight", "south"}


def test_a_rate_per_gpu_for_every_region_supersedes_every_count_and_region() -> None:
    add("h200x1", "h200-sxm", 300, 3.5, region="north")
    add("h200x8", "h200-sxm", 300, 28, accelerators=8, region="south")
    add("HGX H200 (per GPU)", "h200-sxm", 60, 4.5)
    assert sold() == {"HGX H200 (per GPU)"}


def test_shipped_price_lists_that_were_replaced_are_no_offers() -> None:
    """No price of one chip stays beside one that its seller printed more than 45 days later for the same region."""
    printed = Price.objects.filter(kind__in=offers.COMPARABLE, term="on_demand", accelerators=1, usd_per_hour__gt=0)
    newest: dict[tuple[str, int, str], datetime.date] = {}
    for p in printed.exclude(origin=INDEX).order_by("as_of"):
        if not has_expired(p.as_of, TODAY, p.origin):
            newest[p.provider, p.accelerator_id, p.region] = p.as_of
    replaced = {
        p.pk
        for p in printed
        if (newest.get((p.provider, p.accelerator_id, p.region), p.as_of) - p.as_of).days > REPLACED_DAYS
    }
    assert replaced
    assert not replaced & {p.pk for p in offers.current([], None, TODAY)}


def owned(slug: str) -> dict[str, float]:
    chip = chip_of(_accelerator(Accelerator.objects.get(slug=slug)))
    found, _ = market(chip)
    return {o.instance: o.usd_per_hour for o in found if o.acquisition == "own"}


def sold_alone(slug: str, usd: float) -> Assumptions:
    Price.objects.filter(accelerator__slug=slug, term="purchase").delete()
    add("card", slug, 30, 0, provider="shop", term="purchase", kind="chip", purchase_usd=usd)
    return market(chip_of(_accelerator(Accelerator.objects.get(slug=slug))))[1]


def test_a_passively_cooled_card_is_bought_in_a_server_that_can_cool_it() -> None:
    assumed = sold_alone("l40s", 8500)
    # 8,500 USD and 350 W for each card; around them 17,900 USD and 400 W, and 4,640 USD and 181 W more for each card
    by_hand = {
        n: total_usd_per_hour(own_parts((8_500 + 4_640) * n + 17_900, n, (350.0 + 181) * n + 400, assumed, 8_500 * n))
        for n in (1, 2, 4, 8)
    }
    assert owned("l40s") == pytest.approx(
        {f"GPU server with {n} x L40S (server price estimated)": by_hand[n] for n in by_hand}
    )


def test_a_card_with_a_fan_is_bought_in_a_workstation() -> None:
    assumed = sold_alone("rtx-pro-6000-blackwell", 8500)
    # 8,500 USD and 600 W for each card; 4,500 USD and 400 W for the computer around them
    by_hand = {
        n: total_usd_per_hour(own_parts(8_500 * n + 4_500, n, 600.0 * n + 400, assumed, 8_500 * n)) for n in (1, 2, 4)
    }
    assert owned("rtx-pro-6000-blackwell") == pytest.approx(
        {
            f"workstation with {n} x RTX PRO 6000 Blackwell Workstation (computer price estimated)": by_hand[n]
            for n in by_hand
        }
    )


@pytest.mark.parametrize(("slug", "price"), [("b200", 41_500), ("mi300x", 17_500), ("xeon-6980p", 12_460)])
def test_modules_and_sockets_need_more_than_a_slot(slug: str, price: float) -> None:
    Price.objects.filter(accelerator__slug=slug, term="purchase").delete()
    Unit.objects.filter(accelerator__slug=slug).delete()
    add("card", slug, 30, 0, provider="shop", term="purchase", kind="chip", purchase_usd=price)
    assert owned(slug) == {}


@pytest.mark.parametrize("term", ["on_demand", "purchase"])
def test_every_offer_expires_after_twelve_months_here_as_in_the_lists(term: str) -> None:
    def stale(days: int) -> bool:
        as_of = TODAY - datetime.timedelta(days)
        found = offers.is_stale({"term": term, "as_of": as_of.isoformat()}, TODAY)
        assert found == has_expired(as_of)
        return found

    assert (stale(365), stale(366)) == (False, True)


@pytest.mark.parametrize(
    ("instance", "accelerators", "kind", "joined"),
    [
        ("hgx", 8, "vm", True), ("HGX (per GPU)", 1, "vm", True), ("hgx", 1, "vm", False),
        ("hgx", 8, "bare_metal", True), ("hgx", 8, "marketplace", False),
    ],
)  # fmt: skip
def test_a_provider_that_joins_all_hosts_of_a_chip_joins_whole_hosts_only(instance, accelerators, kind, joined):
    from types import SimpleNamespace

    from advisor.inputs.prices.offers import fabric_accelerators

    link = SimpleNamespace(bytes_per_s=50e9)
    chip = SimpleNamespace(slug="h100-sxm", chips_per_host=8, links=(link, link))
    row = {"provider": "p", "instance": instance, "accelerators": accelerators, "kind": kind, "source": ""}
    cluster = {"accelerator": "h100-sxm", "accelerators": 1024, "network_gb_per_s": 50.0, "kind": "cluster"}
    assert fabric_accelerators(row, chip, [cluster | {"sold_as": ["p *"]}]) == 1024 * joined
    assert fabric_accelerators(row, chip, [cluster | {"sold_as": ["q *"]}]) == 0
    assert fabric_accelerators(row, chip, [cluster | {"sold_as": ["p *"], "network_gb_per_s": 12.5}]) == 0
