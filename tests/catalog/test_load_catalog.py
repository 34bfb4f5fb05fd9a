"""Loading the catalog: strict, idempotent, one transaction; prices only grow."""

import re
import shutil
from datetime import date
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from catalog.models import (
    Accelerator,
    Calibration,
    CatalogLoad,
    Framework,
    Organisation,
    Price,
    QuantizationMethod,
    Region,
    ServedModel,
)

pytestmark = pytest.mark.django_db
REAL = Path(__file__).parents[2] / "fixtures"
OFFER = "acme,big,t4,4,moon,,,on_demand,4.00,,vm,2026-01-01,price list,\n"
COLUMNS = (
    "provider,instance,accelerator,accelerators,region,vcpus,host_memory_gib,term,usd_per_hour,purchase_usd,kind,"
    "as_of,source,notes\n"
)
CALIBRATION = """
name: engine
basis: measured
values: {memory_fraction: 0.9}
fitted_on: 12 rows
engine_version: 0.1.0
as_of: 2026-01-01
"""


def load(directory):
    out = StringIO()
    call_command("load_catalog", directory, stdout=out)
    return dict(line.split(": ", 1) for line in out.getvalue().splitlines())


def refused(directory, *words):
    with pytest.raises(CommandError) as error:
        load(directory)
    for word in words:
        assert word in str(error.value)


@pytest.fixture
def small(tmp_path):
    """A catalog of one chip, one model, one offer and one calibration."""
    for folder in ("accelerators", "models", "prices", "calibration"):
        (tmp_path / folder).mkdir()
    shutil.copy(REAL / "accelerators" / "t4.yaml", tmp_path / "accelerators")
    shutil.copy(REAL / "models" / "qwen-qwen3-8b.yaml", tmp_path / "models")
    shutil.copy(REAL / "overheads.yaml", tmp_path)
    (tmp_path / "prices" / "acme.csv").write_text(COLUMNS + OFFER)
    (tmp_path / "calibration" / "engine.yaml").write_text(CALIBRATION)
    return tmp_path


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_reference_data_loads_and_a_second_load_changes_nothing():
    first, second = load(REAL), load(REAL)
    assert (
        first["accelerators"] == f"{len(list((REAL / 'accelerators').glob('*.yaml')))} created, 0 changed, 0 unchanged"
    )
    assert all(counts.startswith("0 created, 0 changed") for counts in second.values())
    assert CatalogLoad.objects.count() == 1
    assert Framework.objects.exists() and QuantizationMethod.objects.exists() and Region.objects.exists()


def test_a_chip_keeps_its_figures_and_their_sources(small):
    load(small)
    chip = Accelerator.objects.get(slug="t4")
    assert (chip.memory_gib, chip.memory_gb_per_s, chip.tdp_watts) == (15, 320, 70)
    assert chip.dense_tflops == {"fp32": 8.1, "fp16": 65, "int8": 130, "int4": 260}
    assert set(chip.sources["memory"]) == {"source", "as_of", "basis"}


def test_a_changed_figure_is_counted_and_kept_in_the_history(small):
    load(small)
    edit(small / "accelerators" / "t4.yaml", "tdp_watts: 70", "tdp_watts: 75")
    assert load(small)["accelerators"] == "0 created, 1 changed, 0 unchanged"
    chip = Accelerator.objects.get()
    assert chip.tdp_watts == 75
    assert [past.tdp_watts for past in chip.history.order_by("history_id")] == [70, 75]
    assert CatalogLoad.objects.count() == 2


def test_a_figure_taken_out_of_a_file_leaves_the_row(small):
    load(small)
    edit(small / "accelerators" / "t4.yaml", "  clock_ghz: 1.59\n", "")
    load(small)
    assert Accelerator.objects.get().clock_ghz is None


def test_an_unknown_key_names_file_key_and_what_is_allowed(small):
    edit(small / "accelerators" / "t4.yaml", "release_year:", "relase_year:")
    refused(small, "t4.yaml", "relase_year", "release_year")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  gib: 15", "  gib: -15", ("memory.gib", "-15")),
        ("  gib: 15", "  gib: .nan", ("memory.gib",)),
        ("  fp16: 65", "  fp61: 65", ("fp61", "fp16")),
        ("kind: gpu", "kind: gpus", ("gpus", "tpu")),
        ("slug: t4", "slug: t5", ("t5", "the file name")),
        ("vendor: nvidia", "vendor: nvidia\nvendor: amd", ("vendor", "duplicate")),
        ("topology: host", "topology: star", ("star", "torus")),
    ],
)
def test_an_impossible_chip_is_refused(small, old, new, words):
    edit(small / "accelerators" / "t4.yaml", old, new)
    refused(small, "t4.yaml", *words)


@pytest.mark.parametrize("key", ["source", "as_of", "basis"])
def test_a_group_without_its_source_is_refused(small, key):
    path = small / "accelerators" / "t4.yaml"
    head, tail = path.read_text().split("power:", 1)
    lines = [line for line in tail.splitlines(keepends=True) if not line.startswith(f"  {key}:")]
    path.write_text(head + "power:" + "".join(lines))
    refused(small, "t4.yaml: power", key)


def test_a_day_that_no_calendar_has_is_refused(small):
    path = small / "accelerators" / "t4.yaml"
    path.write_text(re.sub(r"as_of: [\d-]+", "as_of: 2026-13-45", path.read_text(), count=1))
    refused(small, "t4.yaml", "month must be in 1..12")


def test_a_shape_that_no_network_has_is_refused(small):
    path = small / "models" / "qwen-qwen3-8b.yaml"
    path.write_text(re.sub(r"hidden: \d+", "hidden: -4096", path.read_text(), count=1))
    refused(small, "qwen-qwen3-8b.yaml", "hidden -4,096 cannot be right")


def test_a_shape_that_is_no_model_is_refused(small):
    edit(small / "models" / "qwen-qwen3-8b.yaml", "kv_heads: 8", "kv_haeds: 8")
    refused(small, "qwen-qwen3-8b.yaml", "kv_haeds", "kv_heads")


def test_a_second_row_of_the_same_name_is_refused(small):
    path = small / "overheads.yaml"
    path.write_text(path.read_text() + path.read_text()[path.read_text().index("- key: pue\n") :])
    refused(small, "assumption", "pue", "duplicate")


def test_a_model_that_stands_under_another_slug_is_told_with_both(small):
    ServedModel.objects.create(slug="own-qwen", hf_id="Qwen/Qwen3-8B", shape={}, as_of=date(2026, 11, 1))
    refused(small, "qwen-qwen3-8b", "Qwen/Qwen3-8B", "already in the catalog as own-qwen", "delete own-qwen first")


def test_nothing_is_kept_of_a_load_that_fails(small):
    (small / "prices" / "acme.csv").write_text(COLUMNS + OFFER.replace(",t4,", ",t5,"))
    refused(small, "t5", "acme")
    assert not Accelerator.objects.exists()
    assert not ServedModel.objects.exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("4.00", "", ("acme.csv:2", "price above zero")),
        ("4.00", "four", ("acme.csv:2: usd_per_hour", "USD", "four")),
        ("4.00", "nan", ("acme.csv:2: usd_per_hour", "USD", "nan")),
        ("4.00", "-4", ("acme.csv:2: usd_per_hour", "-4")),
        ("4.00", "1e30", ("acme.csv:2: usd_per_hour", "1e30")),
        ("4.00", "\xff", ("acme.csv", "UTF-8")),
        ("on_demand", "ondemand", ("ondemand", "on_demand")),
        ("2026-01-01", "2026", ("acme.csv:2", "2026")),
        ("price list", "", ("acme.csv:2", "source")),
    ],
)
def test_a_broken_offer_names_its_line(small, old, new, words):
    path = small / "prices" / "acme.csv"
    path.write_bytes(path.read_text().replace(old, new).encode("latin-1"))
    refused(small, *words)


def test_an_unknown_column_is_refused(small):
    edit(small / "prices" / "acme.csv", "usd_per_hour", "usd_per_minute")
    refused(small, "usd_per_minute", "usd_per_hour")


def test_a_price_of_the_same_day_is_never_changed(small):
    load(small)
    edit(small / "prices" / "acme.csv", "4.00", "3.00")
    refused(small, "acme big moon on_demand 2026-01-01", "usd_per_hour changed", "append-only")
    assert Price.objects.get().usd_per_hour == Decimal(4)


def test_a_newer_price_is_a_new_row(small):
    load(small)
    path = small / "prices" / "acme.csv"
    path.write_text(path.read_text() + OFFER.replace("4.00", "3.00").replace("2026-01-01", "2026-02-01"))
    assert load(small)["prices"] == "1 created, 0 changed, 1 unchanged"
    assert [price.usd_per_hour for price in Price.objects.order_by("as_of")] == [4, 3]


def test_the_words_of_an_offer_may_be_corrected(small):
    load(small)
    edit(small / "prices" / "acme.csv", "price list", "price list of the provider")
    assert load(small)["prices"] == "0 created, 1 changed, 0 unchanged"
    assert Price.objects.get().source == "price list of the provider"


def test_a_public_price_is_unique_in_the_database_too(small):
    load(small)
    price = Price.objects.get()
    price.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        price.save()
    price.organisation = Organisation.objects.get(slug="default")
    price.save()
    assert Price.objects.count() == 2


def test_a_calibration_is_added_only_when_it_says_something_new(small):
    load(small)
    assert load(small)["calibrations"] == "0 created, 0 changed, 1 unchanged"
    edit(small / "calibration" / "engine.yaml", "memory_fraction: 0.9", "memory_fraction: 0.91")
    assert load(small)["calibrations"] == "1 created, 0 changed, 0 unchanged"
    assert Calibration.objects.count() == 2
    assert Calibration.objects.first().values == {"memory_fraction": 0.91}
    assert Calibration.objects.first().as_of == date(2026, 1, 1)


def test_the_version_of_the_catalog_is_the_digest_of_its_files(small):
    load(small)
    first = CatalogLoad.objects.get().version
    edit(small / "prices" / "acme.csv", OFFER, OFFER + OFFER.replace("2026-01-01", "2026-03-01"))
    load(small)
    versions = set(CatalogLoad.objects.values_list("version", flat=True))
    assert len(versions) == 2 and first in versions


def test_a_missing_directory_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "no such directory")


def test_there_is_a_default_organisation():
    assert Organisation.objects.filter(slug="default").count() == 1
