"""One rule says which prices are current: lists, REST and advice agree, in any order of loading."""

import datetime
import json
import random
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command
from django.db.models import Q
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor import workload
from advisor.engine.terms import ANYWHERE
from advisor.inputs import check_catalog
from advisor.inputs.prices import offers
from advisor.workload import WorkloadError
from catalog.models import Accelerator, Organisation, Price
from catalog.pricing import derived
from catalog.pricing.current import EXPIRED_DAYS, REPLACED_DAYS, has_expired, standing
from tests.clocks import TODAY

COMMITTED = ("reserved_1y", "reserved_3y")
TERMS = ("on_demand", *COMMITTED, "spot", "capacity_block", "purchase")
INSTANCES = ("one", "eight", "one (per GPU)", "HGX")


@dataclass(frozen=True)
class Row:
    provider: str
    instance: str
    region: str
    accelerator_id: int
    accelerators: int
    term: str
    kind: str
    origin: str
    unit: str
    as_of: datetime.date
    usd: int
    organisation_id: int | None = None

    @property
    def usd_per_hour(self) -> int | None:
        return None if self.term == "purchase" else self.usd

    @property
    def purchase_usd(self) -> int | None:
        return self.usd if self.term == "purchase" else None

    @property
    def each(self) -> float:
        return self.usd / self.accelerators


ROWS = st.builds(
    Row,
    provider=st.sampled_from(("sun", "moon")),
    instance=st.sampled_from(INSTANCES),
    region=st.sampled_from(("any", "north", "south")),
    accelerator_id=st.sampled_from((1, 2)),
    accelerators=st.sampled_from((1, 8)),
    term=st.sampled_from(TERMS),
    kind=st.sampled_from(("vm", "vm", "bare_metal", "marketplace", "serverless")),
    origin=st.sampled_from(("official_list", "provider_api", "reseller", "index")),
    unit=st.sampled_from(("instance", "chip")),
    as_of=st.integers(0, 500).map(lambda days: TODAY - datetime.timedelta(days)),
    usd=st.integers(1, 40),
    organisation_id=st.sampled_from((None, None, 7)),
)


def key(row: Row) -> tuple[object, ...]:
    return row.organisation_id, row.provider, row.instance, row.region, row.accelerator_id, row.term, row.as_of


TABLES = st.lists(ROWS, max_size=25, unique_by=key)
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(TABLES, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_changes_what_is_current(rows: list[Row], chance: random.Random) -> None:
    found = standing(rows, TODAY)
    shuffled = chance.sample(rows, len(rows))
    assert set(standing(shuffled, TODAY)) == set(found)
    assert standing(found, TODAY) == found
    assert [row for row in rows if row in set(found)] == found


@SETTINGS
@given(TABLES)
def test_on_demand_is_never_older_and_cheaper_than_a_commitment_of_the_seller(rows: list[Row]) -> None:
    found = standing(rows, TODAY)
    for old in (row for row in found if row.term == "on_demand" and not has_expired(row, TODAY)):
        for new in (row for row in found if row.term in COMMITTED and row.as_of > old.as_of):
            seller = ("organisation_id", "provider", "accelerator_id")
            together = {old.region, new.region} & set(ANYWHERE) or old.region == new.region
            apart = {old.kind, new.kind} & {"marketplace", "serverless"} or new.origin == "index"
            if together and not apart and all(getattr(old, name) == getattr(new, name) for name in seller):
                assert old.each >= new.each or has_expired(new, TODAY)


@SETTINGS
@given(TABLES)
def test_a_price_is_only_replaced_by_a_newer_one_of_the_same_seller_and_chip(rows: list[Row]) -> None:
    found = set(standing(rows, TODAY))
    for row in set(rows) - found:
        assert any(
            other.as_of > row.as_of
            and (other.organisation_id, other.provider, other.accelerator_id)
            == (row.organisation_id, row.provider, row.accelerator_id)
            for other in rows
        )


@SETTINGS
@given(TABLES, st.integers(0, 400))
def test_what_is_dated_later_does_not_change_an_earlier_day(rows: list[Row], days: int) -> None:
    day = TODAY - datetime.timedelta(days)
    assert standing(rows, day) == standing([row for row in rows if row.as_of <= day], day)


def test_an_older_rent_gives_way_to_a_newer_price_under_another_term_and_name() -> None:
    may = Row("sun", "MI350X", "any", 1, 1, "on_demand", "vm", "official_list", "chip", TODAY, 440)
    old = replace(may, as_of=TODAY - datetime.timedelta(186))
    committed = replace(may, instance="GPU Droplet (per GPU)", term="reserved_1y", usd=476)
    assert standing([old, committed], TODAY) == [committed]
    dearer = replace(old, as_of=TODAY - datetime.timedelta(REPLACED_DAYS), usd=500)
    assert standing([dearer, committed], TODAY) == [dearer, committed]
    cheaper = replace(dearer, usd=440)
    assert standing([cheaper, committed], TODAY) == [committed]
    level = replace(committed, origin="index", term="on_demand", instance="MI350X", usd=900)
    assert standing([old, level], TODAY) == [old, level]
    spot = replace(committed, term="spot", usd=100)
    assert standing([old, spot], TODAY) == [old, spot]
    community = replace(committed, kind="marketplace")
    assert standing([old, community], TODAY) == [old, community]
    own = replace(committed, organisation_id=3)
    assert standing([old, own], TODAY) == [old, own]


def filled(seed: int, org: Organisation) -> None:
    """Random prices of two chips, public and the organization's own."""
    chance = random.Random(seed)
    chips = [
        Accelerator.objects.create(
            slug=f"chip-{n}", name=f"chip-{n}", vendor="v", family="f", kind="gpu", memory_gib=80, memory_gb_per_s=1000,
            as_of=TODAY, form_factor="PCIe",
        )
        for n in (1, 2)
    ]  # fmt: skip
    made: dict[tuple[object, ...], Price] = {}
    for _ in range(60):
        term, usd = chance.choice(TERMS), Decimal(chance.randint(1, 40))
        kinds = ("server", "chip") if term == "purchase" else ("vm", "vm", "bare_metal", "marketplace", "serverless")
        p = Price(
            organisation=chance.choice((None, None, None, org)),
            provider=chance.choice(("sun", "moon")),
            instance=chance.choice(INSTANCES),
            region=chance.choice(("any", "north", "south")),
            accelerator=chance.choice(chips),
            accelerators=chance.choice((1, 8)),
            term=term,
            kind=chance.choice(kinds),
            origin=chance.choice(("official_list", "provider_api", "reseller", "index")),
            as_of=TODAY - datetime.timedelta(chance.randint(0, EXPIRED_DAYS + 100)),
            source="sample",
            **({"purchase_usd": usd} if term == "purchase" else {"usd_per_hour": usd}),
        )
        made[(p.organisation, p.provider, p.instance, p.region, p.accelerator, p.term, p.as_of)] = p
    Price.objects.bulk_create(made.values())


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(12))
def test_lists_rest_and_advice_agree_on_the_current_prices(seed: int, client: Client) -> None:
    filled(seed, Organisation.objects.create(name="acme", slug="acme"))
    advised = {
        p.pk
        for p in offers._wanted(Q(), None, TODAY)
        if not offers.is_stale({"term": p.term, "origin": p.origin, "as_of": p.as_of.isoformat()}, TODAY)
    }
    listed = set(derived.current_offers().exclude(origin="index").values_list("pk", flat=True))
    assert listed == advised and listed
    rest = client.get("/api/v1/prices?current=yes&limit=200").json()["results"]
    assert {row["id"] for row in rest if row["origin"] != "index"} == listed
    page = client.get("/catalog/prices?current=yes&format=csv").content.decode().splitlines()[1:]
    assert len(page) == len(rest)


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(4))
def test_the_public_prices_of_advice_do_not_depend_on_what_is_asked(seed: int) -> None:
    org = Organisation.objects.create(name="acme", slug="acme")
    filled(seed, org)
    every = {p.pk for p in offers._wanted(Q(), org, TODAY)}
    few = {p.pk for p in offers.current([], org, TODAY, ("on_demand",), ("vm",))}
    assert few <= every
    own = {p.pk for p in offers._wanted(Q(organisation=org), org, TODAY)}
    assert all(pk in every or Price.objects.get(pk=pk).organisation_id == org.pk for pk in own)


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
def test_a_day_before_the_first_price_is_refused_with_the_first_day(client: Client, tmp_path: Path) -> None:
    first = Price.objects.filter(organisation=None).earliest("as_of").as_of
    raw = {"model": "meta-llama/Llama-3.2-1B", "prices_as_of": str(first - datetime.timedelta(1)),
           "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2}}  # fmt: skip
    with pytest.raises(WorkloadError) as caught:
        check_catalog(workload.parse(raw))
    (error,) = caught.value.errors  # forms show it at the field
    assert error["field"] == "prices_as_of" and str(first) in error["allowed"]
    answer = client.post("/api/v1/advice", json.dumps(raw), content_type="application/json")
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "prices_as_of"
    path = tmp_path / "question.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(SystemExit) as stopped:
        call_command("advise", path)
    assert stopped.value.code == 2
    check_catalog(workload.parse(raw | {"prices_as_of": str(first)}))
