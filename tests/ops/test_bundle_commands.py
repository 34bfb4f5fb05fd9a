"""Bundles as an operator uses them: a key, a bundle made elsewhere, applied here, undone."""

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from catalog.bundles import applied
from catalog.models import CatalogBundle
from catalog.pricing import sync
from catalog.pricing.sources import Download, named
from tests.conftest import FROZEN

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
MODEL = "meta-llama/llama-3.3-70b-instruct"
PRICES = {"prompt": "0.0000001", "completion": "0.0000003"}
FEED = json.dumps({"data": [{"id": MODEL, "name": "Llama", "context_length": 131072, "pricing": PRICES}]})


@pytest.fixture
def key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, str]:
    call_command("prices", "key", "--to", tmp_path / "key")
    return tmp_path / "key", capsys.readouterr().out.split("ASSAY_BUNDLE_KEYS=")[1].strip()


def made(folder: Path, key: Path, *more: str) -> Path:
    call_command("prices", "fetch", "--to", folder / "bundle", "--key", key, *more)
    return folder / "bundle"


def test_a_bundle_of_files_and_feeds_is_applied_and_undone(tmp_path, key, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        sync, "downloaded", lambda names: [(named(name), Download(texts={"all": FEED})) for name in names]
    )
    file, public = key
    bundle = made(tmp_path, file, "--from", "openrouter", "--catalog", str(FROZEN))
    before = dict(applied.rows())
    with override_settings(BUNDLE_KEYS=[public]):
        call_command("prices", "sync", "--bundle", bundle)
    (row,) = CatalogBundle.objects.all()
    assert [each["source"] for each in row.report["sources"]] == ["openrouter"]
    assert {change["table"] for change in row.changes} <= {"ApiPrice"}
    call_command("prices", "undo")
    assert dict(applied.rows()) == before
    assert "undone" in capsys.readouterr().out


def test_mistakes_change_nothing_and_say_what_to_do(tmp_path, key) -> None:
    file, public = key
    bundle = made(tmp_path, file, "--catalog", str(FROZEN))
    before = dict(applied.rows())
    with pytest.raises(CommandError, match="ASSAY_BUNDLE_KEYS"):
        call_command("prices", "sync", "--bundle", bundle)
    with override_settings(BUNDLE_KEYS=[public]):
        with pytest.raises(CommandError, match="leave out"):
            call_command("prices", "sync", "--bundle", bundle, "--from", "openrouter")
        with pytest.raises(CommandError, match="cannot be read"):
            call_command("prices", "sync", "--bundle", tmp_path / "none")
        bundle.write_bytes(bundle.read_bytes()[:-500])
        with pytest.raises(CommandError, match="nothing was changed"):
            call_command("prices", "sync", "--bundle", bundle)
    with pytest.raises(CommandError, match="exists"):
        call_command("prices", "key", "--to", file)
    with pytest.raises(CommandError, match="nothing to carry"):
        call_command("prices", "fetch", "--to", tmp_path / "b", "--key", file)
    with pytest.raises(CommandError, match="nothing to undo"):
        call_command("prices", "undo")
    assert dict(applied.rows()) == before


def test_a_source_that_cannot_be_read_ends_the_whole_bundle(tmp_path, key, monkeypatch) -> None:
    monkeypatch.setattr(
        sync, "downloaded", lambda names: [(named(name), Download(texts={"all": "no JSON"})) for name in names]
    )
    file, public = key
    bundle = made(tmp_path, file, "--from", "openrouter", "--catalog", str(FROZEN))
    before = dict(applied.rows())
    with override_settings(BUNDLE_KEYS=[public]), pytest.raises(CommandError, match="openrouter"):
        call_command("prices", "sync", "--bundle", bundle)
    assert dict(applied.rows()) == before and not CatalogBundle.objects.exists()
