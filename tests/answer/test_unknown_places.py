"""Where a region is required, sellers of any region are never ranked: they stand apart, with what is not known."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from advisor import report, workload
from advisor.advise import default_organisation
from advisor.answer import recommend
from advisor.engine.terms import ANYWHERE
from advisor.inputs import take_snapshot
from advisor.report import documents
from advisor.result import Answer, Option
from catalog.loading.places import areas_of, country_of_region, place_text
from catalog.models import Region
from tests import sample_advice
from tests.pages import every_section

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FILE = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"
FEW = {
    "constraints.frameworks.allow": "[vllm]", "constraints.formats.allow": "[fp8]", "variants": "no",
    "constraints.accelerators.allow": "[h100-sxm, h200-sxm, l40s, mi300x]",
}  # fmt: skip
QUESTIONS = [
    {"constraints.regions.allow": "[eu]", "constraints.acquisition": "[rent]"},
    {"constraints.regions.allow": "[eu]", "constraints.acquisition": "[rent, own]"},
    {
        "constraints.regions.allow": "[eu]",
        "constraints.acquisition": "[rent]",
        "traffic.growth_fraction_per_year": "0.4",
    },
    {"constraints.regions.allow": "[eu]", "constraints.terms": "[on_demand, reserved_1y, spot]"},
    {"constraints.regions.allow": "[france, germany]", "constraints.acquisition": "[rent]"},
    {"constraints.regions.allow": "[eu]", "slo.ttft_ms_p95": "400", "traffic.requests_per_s.peak": "30"},
]


@lru_cache
def answered(k: int) -> Answer:
    spec = workload.load(FILE.read_bytes())
    for path, value in (FEW | QUESTIONS[k]).items():
        spec = workload.set_path(spec, path, value)
    parsed = workload.parse(spec)
    return recommend(parsed, take_snapshot(parsed, default_organisation()))


def required(k: int) -> list[str]:
    return QUESTIONS[k]["constraints.regions.allow"].strip("[]").split(", ")


def is_there(provider: str, region: str, places: list[str]) -> bool:
    """By the catalog alone: whether a provider's region lies in one of the places."""
    named = areas_of(country_of_region(provider, region)) or regions_of(provider, region)
    return any(place in named for place in places)


def regions_of(provider: str, region: str) -> list[str]:
    row = Region.objects.filter(slug=f"{provider}-{region}").first()
    return areas_of(row.country) if row else []


@pytest.mark.parametrize("k", range(len(QUESTIONS)))
def test_no_seller_of_any_region_precedes_one_that_is_known_to_be_there(k: int) -> None:
    found, places = answered(k), required(k)
    for option in found.recommendations:
        assert isinstance(option, Option) and option.money is not None
        assert option.acquisition == "own" or is_there(option.provider, option.region, places)
        if option.acquisition == "rent" and option.money.plan:
            rents = [step for step in option.money.plan.steps if step.action in ("rent", "reserve")]
            assert all(is_there(step.provider, step.region, places) for step in rents)
        ways = option.money.ways_to_pay
        unknown = [bool(way.availability) for way in ways]
        assert not unknown[0] and unknown == sorted(unknown)
        for way in ways:
            if way.acquisition == "rent" and not way.availability:
                assert is_there(way.provider, way.region, places), (way.provider, way.region)
            elif way.availability:
                assert way.region in ANYWHERE


def test_sellers_of_any_region_stand_apart_and_say_what_is_not_known() -> None:
    found = answered(0)
    assert found.unknown_places and all(place.region in ANYWHERE for place in found.unknown_places)
    assert {place.availability for place in found.unknown_places} == {"EU availability unknown"}
    cost = [place.usd_per_month for place in found.unknown_places]
    assert cost == sorted(cost) and all(usd > 0 for usd in cost)
    ranked = {option.accelerator_name for option in found.deployments}
    assert all(any(name in place.label for name in ranked) for place in found.unknown_places)
    first = found.unknown_places[0]
    line = f"not ranked, EU availability unknown: {first.label} at {first.provider}"
    assert line in report.table(found) and line in documents.memo_text(found, 1)


def test_the_page_shows_them_apart(client: Any) -> None:
    found = answered(0)
    text = every_section(client, f"/advice/{sample_advice.advice(found.to_json()).pk}")
    assert "Sellers that do not name a region" in text and "EU availability unknown" in text


def test_without_a_required_region_nothing_is_unknown() -> None:
    spec = workload.load(FILE.read_bytes())
    for path, value in (FEW | {"constraints.accelerators.allow": "[h100-sxm]"}).items():
        spec = workload.set_path(spec, path, value)
    parsed = workload.parse(spec)
    found = recommend(parsed, take_snapshot(parsed, default_organisation()))
    assert found.unknown_places == [] and not any(
        way.availability for option in found.deployments if option.money for way in option.money.ways_to_pay
    )


def test_places_are_written_as_people_do() -> None:
    assert [place_text(place) for place in ("eu", "germany", "Germany", "eu-west-1", "us")] == [
        "EU", "Germany", "Germany", "eu-west-1", "US",
    ]  # fmt: skip
