"""What an organisation alone pays: private offers, discounts and licences, added and never changed."""

from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from catalog.models import Accelerator, Discount, Organisation, Price, SupportLicence

pytestmark = pytest.mark.django_db
OFFERS = (
    "provider,instance,accelerator,accelerators,region,vcpus,host_memory_gib,term,usd_per_hour,purchase_usd,kind,"
    "as_of,source,notes\nacme,big,chip,8,,,,on_demand,16.00,,vm,2026-01-01,our contract,\n"
)
DISCOUNTS = "provider,accelerator,term,discount_fraction,as_of,source\nacme,,,0.15,2026-01-01,our contract\n"
LICENCES = "name,vendor,usd_per_accelerator_per_year,as_of,source\nEnterprise,nvidia,4500,2026-01-01,our contract\n"


@pytest.fixture(autouse=True)
def ours(db):
    Accelerator.objects.create(
        slug="chip", name="Chip", vendor="v", family="f", kind="gpu",
        memory_gib=1, memory_gb_per_s=1, as_of="2026-01-01",
    )  # fmt: skip
    return Organisation.objects.create(slug="ours", name="Ours")


def add(tmp_path, form, text, organisation="ours"):
    path = tmp_path / f"{form}.csv"
    path.write_text(text)
    options = ["--organisation", organisation] if organisation else []
    call_command("import_prices", path, "--from", form, *options, stdout=StringIO())


def test_private_offers_belong_to_the_organisation(tmp_path, client, ours):
    add(tmp_path, "csv", OFFERS)
    assert Price.objects.get().organisation == ours
    assert client.get("/api/v1/prices").json()["count"] == 0


def test_a_private_offer_may_stand_beside_the_public_one(tmp_path):
    add(tmp_path, "csv", OFFERS, organisation=None)
    add(tmp_path, "csv", OFFERS.replace("16.00", "12.00"))
    assert sorted(Price.objects.values_list("usd_per_hour", flat=True)) == [Decimal(12), Decimal(16)]


def test_discounts_and_licences_are_added(tmp_path, ours):
    add(tmp_path, "discounts", DISCOUNTS)
    add(tmp_path, "licences", LICENCES)
    assert (Discount.objects.get().discount_fraction, Discount.objects.get().accelerator) == (0.15, None)
    assert SupportLicence.objects.get().usd_per_accelerator_per_year == 4500


def test_a_changed_figure_needs_a_newer_date(tmp_path):
    add(tmp_path, "discounts", DISCOUNTS)
    with pytest.raises(CommandError, match="append-only"):
        add(tmp_path, "discounts", DISCOUNTS.replace("0.15", "0.25"))
    add(tmp_path, "discounts", DISCOUNTS.replace("0.15,2026-01-01", "0.25,2026-06-01"))
    assert sorted(Discount.objects.values_list("discount_fraction", flat=True)) == [0.15, 0.25]


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("discounts", DISCOUNTS.replace("0.15", "15"), "must be below 1"),
        ("discounts", DISCOUNTS.replace("acme,,", "acme,none,"), "no accelerator 'none'"),
        ("licences", LICENCES.replace("4500", "much"), "licences.csv:2"),
        ("csv", OFFERS.replace("16.00", "-1"), "csv.csv:2"),
    ],
)
def test_a_bad_row_refuses_the_file_with_its_line(tmp_path, form, text, words):
    with pytest.raises(CommandError, match=words):
        add(tmp_path, form, text)
    assert not (Price.objects.exists() or Discount.objects.exists() or SupportLicence.objects.exists())


def test_discounts_without_an_organisation_are_refused(tmp_path):
    with pytest.raises(CommandError, match="give --organization"):
        add(tmp_path, "discounts", DISCOUNTS, organisation=None)
    with pytest.raises(CommandError, match="choose one of default, ours"):
        add(tmp_path, "discounts", DISCOUNTS, organisation="nobody")


@pytest.mark.parametrize("page", ["price", "discount", "supportlicence", "benchmark"])
def test_the_admin_adds_and_never_changes(admin_client, tmp_path, page):
    add(tmp_path, "csv", OFFERS)
    add(tmp_path, "discounts", DISCOUNTS)
    assert admin_client.get(f"/admin/catalog/{page}/").status_code == 200
    assert admin_client.get(f"/admin/catalog/{page}/add/").status_code == 200
    if page in ("price", "discount"):
        row = (Price if page == "price" else Discount).objects.get()
        assert admin_client.post(f"/admin/catalog/{page}/{row.pk}/change/", {"source": "x"}).status_code == 403
        assert admin_client.post(f"/admin/catalog/{page}/{row.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_licence_may_be_of_one_framework(tmp_path):
    text = LICENCES.replace("vendor,", "vendor,framework,").replace("nvidia,", ",vllm,")
    add(tmp_path, "licences", text)
    add(tmp_path, "licences", LICENCES)
    found = SupportLicence.objects.order_by("framework").values_list("vendor", "framework")
    assert list(found) == [("nvidia", ""), ("", "vllm")]


def test_every_private_row_keeps_when_it_was_recorded(tmp_path):
    add(tmp_path, "csv", OFFERS)
    add(tmp_path, "discounts", DISCOUNTS)
    add(tmp_path, "licences", LICENCES)
    rows = [kind.objects.get() for kind in (Price, Discount, SupportLicence)]
    assert all((timezone.now() - row.recorded_at).total_seconds() < 3600 for row in rows)
