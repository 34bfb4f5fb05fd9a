"""What enterprises do not deploy on is left out unless asked for, and regions may be areas."""

import json
from dataclasses import replace
from typing import Any

import pytest

from advisor import workload
from advisor.engine.search import Question
from advisor.engine.search.candidates import admissible, allowed, excluded_marks, offers_for
from advisor.engine.terms import DOUBTFUL, NEVER_FIRST, OWNED, UNKNOWN_UNIT, Offer, Rejection
from advisor.inputs import catalog_of, check_catalog, take_snapshot, with_catalog_names, workload_of
from advisor.inputs.prices.offers import EVERY_SELLER
from advisor.workload import WorkloadError
from catalog.models import Accelerator, Price
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
SNAPSHOTS: dict[str, Any] = {}  # by what a snapshot depends on
TRAFFIC = {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 1}
SOLD: list[dict[str, Any]] = [
    {"provider": "by-quote", "origin": "quote"},
    # at what marketplaces of the T4 are far from: ten times its own, a tenth of all, ten times those of others
    {"provider": "bazaar", "kind": "marketplace", "origin": "marketplace"},
    {"provider": "bazaar", "instance": "listed", "usd_per_hour": 5},
    {"provider": "too-good", "usd_per_hour": 0.05},
    {"provider": "large-cloud", "usd_per_hour": 5},
    {"provider": "who-knows", "accelerator": "h200-sxm", "usd_per_hour": 4, "unit": "chip"},  # a chip of a board
    *({"provider": "aws", "region": f"eu-{where}"} for where in ("central-1", "north-1", "west-2", "west-3")),
    {"provider": "aws", "region": "ap-northeast-1"},
    {"provider": "gcp", "region": "asia-northeast1"},
]


@pytest.fixture(scope="module", autouse=True)
def sold(frozen: None, django_db_blocker: Any) -> None:
    """Offers of what the rules here are about, whatever the catalog has of it: a T4 at $0.50 if not said otherwise."""
    usual = {
        "instance": "one", "accelerator": "t4", "accelerators": 1, "region": "any", "term": "on_demand", "kind": "vm",
        "usd_per_hour": 0.5, "as_of": TODAY, "source": "sample",
    }  # fmt: skip
    with django_db_blocker.unblock():
        for row in SOLD:
            chip = Accelerator.objects.get(slug=row.get("accelerator", "t4"))
            Price.objects.create(**usual | row | {"accelerator": chip})


def asked(constraints: dict[str, Any], **given: Any) -> Question:
    spec, snapshot = snapshot_for(constraints, **given)
    return Question(workload_of(spec), catalog_of(spec, snapshot))


def snapshot_for(constraints: dict[str, Any], **given: Any) -> tuple[Any, Any]:
    """(validated workload, its snapshot)."""
    raw = {"name": "x", "model": "meta-llama/Llama-3.1-8B", "traffic": TRAFFIC, "constraints": constraints, **given}
    spec = with_catalog_names(workload.parse(raw))
    check_catalog(spec)
    read = {key: spec["constraints"][key] for key in ("exclude", "terms", "providers", "accelerators")}
    key = json.dumps([read, spec["owned"]])
    if key not in SNAPSHOTS:
        SNAPSHOTS[key] = take_snapshot(spec)
    return spec, SNAPSHOTS[key]


def offers(constraints: dict[str, Any], doubts: bool = False, **given: Any) -> list[Offer]:
    question = asked(constraints, **given)
    within = replace(question.workload.constraints, with_doubts=doubts)
    return offers_for(replace(question, workload=replace(question.workload, constraints=within)))


def rejected(constraints: dict[str, Any], slug: str) -> Rejection:
    (found,) = [r for r in admissible(asked(constraints))[0] if r.accelerator == slug]
    return found


def test_by_default_nothing_that_an_enterprise_would_not_use_is_offered() -> None:
    marks = {mark for o in offers({}) for mark in o.marks}
    everything = {mark for o in offers({"exclude": []}, doubts=True) for mark in o.marks}
    assert not marks - {"bookable", "weak_price", "no_server"}  # the last is ranked behind all that can be ordered
    assert {"consumer", "marketplace", "second_hand", "quote", "unconfirmed"} <= everything


def priced(o: Offer) -> tuple[Any, ...]:
    return o.provider, o.instance, o.region, o.accelerator, o.term, o.usd_per_hour, o.as_of


@pytest.mark.parametrize("mark", ["consumer", "marketplace", "second_hand", "quote", "unconfirmed", "weak_price"])
def test_each_exclusion_alone_removes_its_offers_and_no_others(mark: str) -> None:
    kept = offers({"exclude": [mark]}, doubts=True)
    before = offers({"exclude": "none"}, doubts=True)
    assert any(mark in o.marks for o in before)
    assert {priced(o) for o in before if mark not in o.marks} == {priced(o) for o in kept}
    assert all(mark not in o.marks for o in kept)


@pytest.mark.parametrize("exclude", [[], ["weak_price"], ["consumer", "marketplace"]])
def test_what_cannot_be_first_is_left_out_whatever_is_excluded_and_says_why(exclude: list[str]) -> None:
    question = asked({"exclude": exclude})
    catalog = question.catalog
    doubted = [o for o in catalog.offers if o.doubt]
    assert {mark for o in doubted for mark in o.marks} >= set(NEVER_FIRST)
    assert not set(doubted) & set(offers_for(question))
    unknown = [o for o in doubted if UNKNOWN_UNIT in o.marks]
    chips = {a.slug: a for a in catalog.accelerators}
    assert all(not chips[o.accelerator].chassis and o.unknown_unit_chips >= 4 for o in unknown)
    assert all("does not say how many are sold together" in o.doubt for o in unknown)
    for o in unknown[:3]:  # naming the seller does not make the unit known
        assert o not in offers({"exclude": exclude, "providers": {"allow": [o.provider]}})
    doubtful = [o for o in doubted if DOUBTFUL in o.marks]
    restored = []
    for o in doubtful:  # naming the seller, and the consumer card if it is one, accepts the price
        named = {"providers": {"allow": [o.provider]}, "accelerators": {"allow": [o.accelerator]}}
        restored.append(priced(o) in {priced(x) for x in offers({"exclude": exclude, **named})})
    assert restored == ["weak_price" not in {*exclude} & {*o.marks} for o in doubtful] and any(restored)


def test_a_listed_price_is_doubtful_far_from_its_own_marketplace_or_far_below_all() -> None:
    """One above twice the marketplaces of other sellers is expensive, not in doubt."""
    snapshot, catalog = snapshot_for({"exclude": []})[1], asked({"exclude": []}).catalog
    doubtful = {(o.provider, o.instance, o.region, o.accelerator) for o in catalog.offers if DOUBTFUL in o.marks}
    by_own, below_all, expensive = set(), set(), set()
    for p in snapshot.prices:
        if p["term"] != "on_demand" or "marketplace" in p.get("marks", ()):
            continue
        medians = {seller: of["median_usd"] for seller, of in snapshot.marketplace.get(p["accelerator"], {}).items()}
        each, key = p["usd_per_hour"] / p["accelerators"], (p["provider"], p["instance"], p["region"], p["accelerator"])
        if p["provider"] in medians:
            by_own |= {key} if not each / 2 <= medians[p["provider"]] <= each * 2 else set()
        below_all |= {key} if medians and medians[EVERY_SELLER] > each * 2 else set()
        expensive |= {key} if medians and medians[EVERY_SELLER] < each / 2 else set()
    assert doubtful == by_own | below_all
    assert by_own and expensive - by_own


def test_booked_capacity_is_left_out_only_if_asked() -> None:
    terms = {"terms": ["on_demand", "capacity_block"], "acquisition": ["rent"]}
    booked = [o for o in offers(terms) if "bookable" in o.marks]
    assert booked and {o.term for o in booked} == {"capacity_block"}
    assert not [o for o in offers({**terms, "exclude": ["bookable"]}) if o.term == "capacity_block"]


def test_a_rejection_cites_the_license_and_names_the_change() -> None:
    found = rejected({}, "rtx-5090")
    assert found.reason == "excluded"
    assert "GeForce driver license" in found.detail and "constraints.exclude" in found.detail
    (change,) = found.changes
    assert change.field == "constraints.exclude"
    assert "rtx-5090" in {o.accelerator for o in offers({"exclude": change.value})}


def test_hardware_asked_for_by_name_or_already_owned_passes() -> None:
    named = offers({"accelerators": {"allow": ["rtx-5090"]}})
    assert [o for o in named if o.accelerator == "rtx-5090" and "consumer" in o.marks]
    assert not [o for o in offers({"providers": {"allow": ["vast-ai"]}}) if o.provider == "vast-ai"]
    allowed_too = {"providers": {"allow": ["vast-ai"]}, "exclude": ["consumer"]}
    assert [o for o in offers(allowed_too) if o.provider == "vast-ai"]
    own = [o for o in offers({}, owned={"rtx-4090": 4}) if o.accelerator == "rtx-4090"]
    assert own and {o.term for o in own} == {OWNED}


@pytest.mark.parametrize(
    ("place", "inside", "outside"),
    [
        ("eu", {"eu-west-3", "eu-north-1"}, {"eu-west-2", "us-east-1", "ap-northeast-1"}),
        ("Germany", {"eu-central-1"}, {"eu-west-3", "us-east-1"}),
        ("DE", {"eu-central-1"}, {"eu-west-3", "us-east-1"}),
        ("US", {"us-east-1", "us-east-2", "us"}, {"eu-central-1", "eu-west-2"}),
        ("apac", {"ap-northeast-1", "asia-northeast1"}, {"us-east-1", "eu-central-1"}),
        ("gb", {"eu-west-2"}, {"eu-central-1"}),
    ],
)
def test_regions_may_be_countries_and_areas(place: str, inside: set[str], outside: set[str]) -> None:
    sold = {o.region for o in offers({"acquisition": ["rent"], "exclude": []})}
    kept = {o.region for o in offers({"acquisition": ["rent"], "exclude": [], "regions": {"allow": [place]}})}
    left = {o.region for o in offers({"acquisition": ["rent"], "exclude": [], "regions": {"deny": [place]}})}
    assert kept & inside == sold & inside and kept & inside
    assert not kept & outside and not left & inside and left & outside == sold & outside
    assert "any" not in kept  # unknown places are not inside


def test_an_unknown_place_is_an_error_that_suggests_one() -> None:
    with pytest.raises(WorkloadError) as caught:
        asked({"regions": {"allow": ["Germoney"]}})
    (item,) = caught.value.errors
    assert item["field"].startswith("constraints.regions.allow") and "germany" in item["allowed"].lower()
    with pytest.raises(WorkloadError) as caught:
        asked({"exclude": ["gamers"]})
    assert "consumer" in caught.value.errors[0]["allowed"]


def test_a_region_allowed_by_area_needs_no_change() -> None:
    question = asked({"regions": {"allow": ["eu"]}, "acquisition": ["rent"]})
    constraints = question.workload.constraints
    assert all(not excluded_marks(o, constraints) for o in question.catalog.offers if allowed(o, constraints))
