"""The catalog's pages: every list and thing can be read, narrowed and sorted by its address."""

from datetime import date
from decimal import Decimal

import pytest

from catalog.details import evidence
from catalog.lists import tables
from catalog.models import Accelerator, Benchmark, Calibration, Framework, Organisation, Price, QuantizationMethod, Unit
from catalog.pages.lists import LISTS

pytestmark = pytest.mark.django_db


@pytest.fixture
def catalog(db):
    """Two chips, a public and a private offer."""
    source = {"memory": {"source": "a data sheet", "as_of": "2026-01-01", "basis": "read"}}
    common = {"as_of": "2026-01-01", "vendor": "acme", "family": "f", "kind": "gpu", "sources": source}
    small = Accelerator.objects.create(
        slug="small", name="Small One", memory_gib=16, memory_gb_per_s=300, dense_tflops={"fp16": 65}, **common
    )
    Accelerator.objects.create(
        slug="large", name="Large One", memory_gib=96, memory_gb_per_s=4000, dense_tflops={"bf16": 900, "fp8": 1800},
        **common,
    )  # fmt: skip
    offer = {
        "provider": "moon", "instance": "m1", "accelerator": small, "accelerators": 2, "term": "on_demand",
        "usd_per_hour": Decimal(3), "kind": "vm", "as_of": "2026-01-01", "source": "price list",
    }  # fmt: skip
    Price.objects.create(**offer)
    Price.objects.create(**{**offer, "instance": "secret"}, organisation=Organisation.objects.get(slug="default"))


def page(client, address):
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("name", LISTS)
def test_an_empty_catalog_says_what_to_do(client, name):
    assert "load_catalog" in page(client, f"/catalog/{name}")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_file_of_every_column_has_values_and_no_markup(client, catalog, name, form):
    columns = ",".join(LISTS[name].table.Meta.fields)
    text = page(client, f"/catalog/{name}?columns={columns}&format={form}")
    assert "<" not in text and "age-" not in text


def test_the_catalog_opens_on_the_accelerators(client):
    assert client.get("/catalog/").url == "/catalog/accelerators"


def test_a_list_is_narrowed_by_its_address(client, catalog):
    text = page(client, "/catalog/accelerators?dtype=fp8")
    assert "Large One" in text and "Small One" not in text
    assert "Large One" not in page(client, "/catalog/accelerators?memory_gib_min=100")


def test_a_list_is_sorted_by_its_address(client, catalog):
    text = page(client, "/catalog/accelerators?sort=-memory_gib")
    assert text.index("Large One") < text.index("Small One")
    assert 'aria-sort="descending"' in text


def test_a_sorted_list_stays_narrowed(client, catalog):
    assert "?vendor=acme&amp;sort=name" in page(client, "/catalog/accelerators?vendor=acme")


def test_a_filter_that_makes_no_sense_is_said_beside_its_field(client, catalog):
    text = page(client, "/catalog/accelerators?memory_gib_min=much")
    assert "Enter a number" in text


def test_a_page_beyond_the_last_is_the_last(client, catalog):
    assert "Small One" in page(client, "/catalog/accelerators?page=99")


def test_a_chip_shows_its_figures_their_source_and_its_offers(client, catalog):
    text = page(client, "/catalog/accelerators/small")
    assert "16 GiB" in text and "a data sheet (read, 2026-01-01)" in text
    assert "moon" in text and "$1.50" in text


def test_private_offers_stay_private(client, catalog):
    for address in ("/catalog/prices", "/catalog/accelerators/small", "/api/v1/prices"):
        assert "secret" not in page(client, address)


def test_an_unknown_thing_is_not_found(client, catalog):
    for address in ("/catalog/accelerators/none", "/catalog/models/none", "/catalog/frameworks/a/1", "/catalog/none"):
        assert client.get(address).status_code == 404


def test_a_framework_without_its_version_leads_to_it_or_to_all_of_them(client, catalog):
    for version in ("1", "2"):
        Framework.objects.create(slug="twin", version=version, name="Twin", settings={}, as_of=date(2026, 1, 1))
    Framework.objects.create(slug="twin-x", version="9", name="Other", settings={}, as_of=date(2026, 1, 1))
    assert client.get("/catalog/frameworks/twin-x")["Location"] == "/catalog/frameworks/twin-x/9"
    several = client.get("/catalog/frameworks/twin")["Location"]
    text = page(client, several)
    assert several == "/catalog/frameworks?slug=twin" and "Twin" in text and "Other" not in text
    assert client.get("/catalog/frameworks/none").status_code == 404


def test_search_wants_every_word_somewhere(client, catalog):
    assert "Large One" in page(client, "/catalog/accelerators?search=acme+large")
    assert "Small One" not in page(client, "/catalog/accelerators?search=acme+large")


def test_columns_are_chosen_by_the_address(client, catalog):
    text = page(client, "/catalog/accelerators?columns=family&columns=memory_type")
    head = text[text.index("<thead>") : text.index("</thead>")]
    assert "Family" in head and "Memory type" in head and "Vendor" not in head and "Name" in head


def test_a_sorted_list_stays_sorted_when_it_is_narrowed(client, catalog):
    assert '<input type="hidden" name="sort" value="-memory_gib">' in page(
        client, "/catalog/accelerators?sort=-memory_gib"
    )


def test_a_chip_shows_its_roofs_with_their_ridge_points(client, catalog):
    text = page(client, "/catalog/accelerators/large")
    assert "FP8: 1,800 TFLOP/s from 450 FLOP/byte" in text and "BF16: 900 TFLOP/s from 225 FLOP/byte" in text


def test_a_chip_shows_which_formats_are_native_and_which_emulated(client, catalog):
    def method(slug, stored, multiplied, **more):
        settings = {"applies_to": "weights", "weights_dtype": stored, "activations_dtype": multiplied, **more}
        QuantizationMethod.objects.create(slug=slug, name=slug.upper(), settings=settings, as_of="2026-01-01")

    method("fp8", "fp8", "fp8", bits_per_weight=8)
    method("int4", "int4", "fp16", bits_per_weight=4.25, weight_only=True)
    method("nvfp4", "nvfp4", "fp4", bits_per_weight=4.5)
    settings = {"stacks": ["cuda"], "vendors": ["acme"], "kinds": ["gpu"], "quantizations": ["fp8", "int4", "nvfp4"]}
    Framework.objects.create(slug="serve", name="Serve", version="1.2", settings=settings, as_of="2026-01-01")
    chip = Accelerator.objects.get(slug="large")
    chip.stacks = ["cuda"]
    chip.save()
    assert [(each.slug, each.support) for each in evidence.formats(chip)] == [("fp8", "native"), ("int4", "emulated")]
    (running,) = evidence.frameworks(chip)
    assert (running.native, running.emulated) == (["fp8"], ["int4"])
    assert "Serve" in page(client, "/catalog/accelerators/large")
    assert evidence.frameworks(Accelerator.objects.get(slug="small")) == []


def test_a_chip_shows_what_was_reached_beside_the_data_sheet(client, catalog):
    chip = Accelerator.objects.get(slug="large")
    seen = {"conditions": "8192 cubed", "as_of": "2026-01-01", "source": "our bench"}
    Benchmark.objects.create(accelerator=chip, what="matmul bf16", value=450, unit="TFLOP/s", **seen)
    fit = {"basis": "measured", "fitted_on": "12 rows", "engine_version": "0", "as_of": "2026-01-01"}
    Calibration.objects.create(name="default", values={"memory_fraction": 0.5}, **fit)
    Calibration.objects.create(name="accelerator:large", values={"memory_fraction": 0.75}, **fit)
    rows = {each.what: each for each in evidence.achieved(chip)}
    assert rows["matmul bf16"].share_percent == 50
    assert (rows["memory read"].achieved, rows["memory read"].basis) == (3000, "measured")
    assert "our bench" in page(client, "/catalog/accelerators/large")


def test_a_change_shows_before_and_after(client, catalog):
    chip = Accelerator.objects.get(slug="large")
    chip.dense_tflops = {"bf16": 900, "fp8": 1750}
    chip.tdp_watts = 700
    chip.save()
    found = [(each.what, each.before, each.after) for each in evidence.changes(chip)]
    assert found[:2] == [("dense tflops fp8", "1800", "1750"), ("tdp watts", "None", "700.0")]
    assert found[-1][0] == "first loaded"
    assert "1750" in page(client, "/catalog/accelerators/large")


def test_chips_are_compared_side_by_side(client, catalog):
    text = page(client, "/catalog/compare?a=large&a=small&a=none")
    assert text.index("Large One</a>") < text.index("Small One</a>")
    assert '<strong>4,000</strong> <span class="flag">★ best</span>' in text and "Not in the catalog: none" in text
    assert "Select up to 4" in page(client, "/catalog/compare")


def test_four_are_compared_at_most(client, catalog):
    chip = Accelerator.objects.get(slug="small")
    for number in range(5):
        chip.pk, chip.slug = None, f"small-{number}"
        chip.save()
    text = page(client, "/catalog/compare?" + "&".join(f"a=small-{number}" for number in range(5)))
    assert text.count('<th scope="col"><a') == 4 and "1 more not shown" in text


def test_a_unit_shows_what_it_needs(client, catalog):
    Unit.objects.create(
        slug="rack", name="Rack of 72", kind="rack", accelerator=Accelerator.objects.get(slug="large"), accelerators=72,
        watts=120_000, cooling="liquid", as_of="2026-01-01",
    )  # fmt: skip
    text = page(client, "/catalog/units/rack")
    assert "120,000 W" in text and "liquid" in text and "unknown" in text
    assert "Rack of 72" in page(client, "/catalog/accelerators/large")
    assert client.get("/api/v1/units/rack").json()["lead_time"] == "unknown"


def test_no_two_columns_of_a_list_have_the_same_heading():
    lists = [each for name, each in vars(tables).items() if name.endswith("Table")]
    assert len(lists) >= 8
    for each in lists:
        headings = [str(column.header) for column in each([]).columns if column.name != "compare"]
        assert len(set(headings)) == len(headings), headings
