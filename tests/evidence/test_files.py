"""Imported figures leave an installation as catalog files or measured rows, and come back the same, also in bundles."""

import csv
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from advisor import evidence
from advisor.evidence import Source
from advisor.fidelity import COLUMNS
from catalog.bundles import apply, new_key, pack, undo, unpack
from catalog.loading import evidence as files
from catalog.loading.fixtures import FixtureError
from catalog.loading.load import load
from catalog.models import CatalogLoad, EvidenceImport, EvidenceRow, HeldEvidence
from tests.conftest import SHIPPED
from tests.evidence import samples
from tests.laboratory.measurements import read

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """A run with one held figure, exported to a folder."""
    path = samples.write(tmp_path / "r.json", samples.vllm(mean_itl_ms=9000.0))
    options = {"accelerator": "h200-sxm", "n_accelerators": "1", "framework": "vllm 0.19.0", "weights_dtype": "fp8"}
    source = Source(key="lab", name="A lab", place="example.org", client="vllm bench serve", licence="MIT")
    evidence.add(path, "", {"lab": source}, "lab", options, "alice")
    assert evidence.export(tmp_path / "out") == 9
    return tmp_path / "out"


def stored() -> list[Any]:
    names = [f.name for f in EvidenceRow._meta.concrete_fields if f.name not in ("id", "evidence_import")]
    return list(EvidenceRow.objects.order_by("key").values_list(*names))


def forget() -> None:
    for table in (EvidenceRow, HeldEvidence, EvidenceImport):
        table.objects.all().delete()


def test_exported_files_load_as_the_same_figures(imported: Path) -> None:
    before, held = stored(), HeldEvidence.objects.get().row
    forget()
    assert files.load(imported / "evidence") == (9, 0, 0)
    for old, new in zip(before, stored(), strict=True):  # the files have four digits
        assert [pytest.approx(each, rel=0.01) if isinstance(each, float) else each for each in old] == list(new)
    assert HeldEvidence.objects.get().row == held
    about = EvidenceImport.objects.get()
    assert (about.name, about.client, about.licence, about.file_format) == (
        "A lab",
        "vllm bench serve",
        "MIT",
        "catalog",
    )
    assert files.load(imported / "evidence") == (0, 0, 9)


def test_a_decision_stays_when_the_files_are_loaded_again(imported: Path) -> None:
    evidence.discard([HeldEvidence.objects.get().pk], "bob")
    files.load(imported / "evidence")
    assert HeldEvidence.objects.get().state == "discarded"


def test_a_folder_of_figures_alone_is_a_catalog_folder(imported: Path) -> None:
    forget()
    assert load(imported)["imported_figures"].created == 9
    assert CatalogLoad.objects.exists()
    forget()
    assert "imported_figures" not in load(imported, imported=False)


def test_a_bundle_carries_them_and_can_be_undone(imported: Path) -> None:
    forget()
    secret, public = new_key()
    given = {f"catalog/evidence/{path.name}": path.read_bytes() for path in (imported / "evidence").iterdir()}
    from catalog import clock

    bundle = unpack(pack(given, {}, clock.read(), secret), [public])
    applied = apply(bundle, "alice", lambda bundle: {"sources": []})
    assert applied.report["catalog"]["imported_figures"] == [9, 0, 0]
    assert (EvidenceRow.objects.count(), HeldEvidence.objects.count()) == (8, 1)
    assert undo("alice")[1] == []
    assert not EvidenceRow.objects.exists() and not EvidenceImport.objects.exists()


def test_fidelity_and_calibrate_read_the_measured_rows(imported: Path, tmp_path: Path) -> None:
    call_command("evidence", "export", "--rows", str(tmp_path / "rows.csv"))
    rows = read(tmp_path / "rows.csv")
    assert len(rows) == 8
    tpot = next(row for row in rows if row.metric == "tpot_ms_mean")
    assert (tpot.value, tpot.model_id, tpot.tp, tpot.source_key) == (9.0, samples.MODEL, "1", "lab")


def test_the_files_have_the_columns_of_measured_rows() -> None:
    assert files.MEASURED == COLUMNS


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("sources.csv", ("lab", "other"), "the source is not in sources.csv"),
        ("sources.csv", ("2026-01-29", "January"), "as_of must be a date"),
        ("lab.csv", ("measured", "seen"), "unknown key seen"),
        ("lab.csv", (",h200-sxm,", ",,"), "its run has no accelerator"),
    ],
)
def test_a_broken_file_is_refused(file: str, change: tuple[str, str], said: str, imported: Path) -> None:
    path = imported / "evidence" / file
    path.write_text(path.read_text().replace(*change, 1))
    forget()
    with pytest.raises(FixtureError, match=said):
        files.load(imported / "evidence")


# --- the shipped figures ------------------------------------------------------------------------------------------


def test_the_shipped_figures_name_their_source_and_credit_those_that_ask_for_it() -> None:
    with (SHIPPED / "evidence" / "sources.csv").open(encoding="utf-8") as stream:
        sources = {row["source_key"]: row for row in csv.DictReader(stream)}
    assert all(row["place"] and row["client"] and row["as_of"] for row in sources.values())
    spark = sources["spark_devreng"]
    assert spark["licence"] == "CC-BY-4.0" and "Django de Vreng" in spark["place"]
    assert not [key for key, row in sources.items() if "-SA" in row["licence"] or "-ND" in row["licence"]]


def test_the_guide_states_how_many_figures_are_shipped() -> None:
    paths = [path for path in (SHIPPED / "evidence").glob("*.csv") if path.name not in ("sources.csv", "held.csv")]
    passed = sum(sum(1 for _ in files.rows_of(path)) for path in paths)
    with (SHIPPED / "evidence" / "held.csv").open(encoding="utf-8") as stream:
        held = sum(1 for _ in csv.DictReader(stream))
    guide = (SHIPPED.parent / "docs" / "how-to" / "import-measurements.md").read_text()
    assert f"{passed:,} passed, {held} are held" in guide
