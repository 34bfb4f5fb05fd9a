"""A bundle brings a chip, a model, a framework version, prices and measurements that an older catalog lacks."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from catalog.models import Accelerator, Benchmark, Calibration, CatalogBundle, Framework, Price, ServedModel
from tests.answer.test_recipes import RECIPES, follow, listed
from tests.conftest import FROZEN

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ASKED = [
    *("--model", "acme/Acme-2B", "--accelerator", "acme-one", "--weights", "bf16", "--framework", "acme-serve"),
    *("--isl", "500", "--osl", "100", "--concurrency", "8", "--format", "json"),
]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog files of a newer version: those of the tests, and every example of CONTRIBUTING.md."""
    fixtures = Path(shutil.copytree(FROZEN, tmp_path_factory.mktemp("newer") / "fixtures"))
    for recipe in RECIPES:
        follow(recipe, fixtures)
    for key, entry in (("stacks", "acme-runtime"), ("vendors", "acme"), ("kinds", "npu")):
        listed(fixtures / "frameworks" / "vllm.yaml", key, entry)
    chips = fixtures / "measurements" / "chips.csv"
    line = chips.read_text().splitlines()[1]
    chips.write_text(chips.read_text() + line.replace(line.split(",")[0], "acme-one", 1) + "\n")
    return fixtures


def estimate(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        call_command("estimate", *ASKED)
    return dict(json.loads(capsys.readouterr().out))


def cannot_be_estimated() -> None:
    with pytest.raises(SystemExit, match="2"):
        call_command("estimate", *ASKED)


def test_an_answer_uses_what_a_bundle_brought_until_it_is_undone(
    newer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("prices", "key", "--to", tmp_path / "key")
    public = capsys.readouterr().out.split("ASSAY_BUNDLE_KEYS=")[1].strip()
    call_command("prices", "fetch", "--to", tmp_path / "bundle", "--key", tmp_path / "key", "--catalog", newer)
    cannot_be_estimated()
    with override_settings(BUNDLE_KEYS=[public]):
        call_command("prices", "sync", "--bundle", tmp_path / "bundle")
    said = capsys.readouterr().out
    for line in (
        "created Accelerator acme-one",
        "created ServedModel acme-acme-2b",
        "created Framework acme-serve 1.2",
    ):
        assert line in said
    found = estimate(capsys)
    assert (found["accelerator"], found["framework_version"]) == ("acme-one", "1.2") and found["usd_per_hour"] > 0
    chip = Accelerator.objects.get(slug="acme-one")
    assert Price.objects.filter(accelerator=chip).exists() and Benchmark.objects.filter(accelerator=chip).exists()
    assert Calibration.objects.filter(name__contains="acme").exists()
    changed = {change["table"] for change in CatalogBundle.objects.get().changes}
    assert changed >= {"Accelerator", "ServedModel", "Framework", "Price", "Benchmark", "Calibration"}
    call_command("prices", "undo")
    assert "not restored" not in capsys.readouterr().out
    cannot_be_estimated()
    for model, name in ((Accelerator, "acme-one"), (ServedModel, "acme-acme-2b"), (Framework, "acme-serve")):
        assert not model.objects.filter(slug=name).exists()
