"""`manage.py study`: create, run, list, show, cancel, resume, export."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from advisor.management.commands import study as command
from advisor.models import Study
from advisor.studies import pieces
from catalog.management.errors import BadInput
from tests.studies import sample

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen", "messages")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A study file that refers to the files of two workloads."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**sample.WORKLOAD, "name": name}))
    path = tmp_path / "study.yaml"
    path.write_text("kind: workloads\nname: two\nworkloads: [a.yaml, b.yaml]\n")
    return path


def said(capsys: Any, *words: str) -> str:
    call_command("study", *words)
    return str(capsys.readouterr().out)


def test_create_show_cancel_resume_and_export(file: Path, quick: Any, capsys: Any) -> None:
    pk = said(capsys, "create", str(file)).split()[0]
    assert "2 rows" in said(capsys, "create", str(file))
    assert "queued" in said(capsys, "list") and "0 of 2 pieces" in said(capsys, "list")
    assert "two: canceled" in said(capsys, "cancel", pk)
    with pytest.raises(SystemExit) as refused:
        call_command("study", "cancel", pk)
    assert refused.value.code == 2
    assert "two: queued" in said(capsys, "resume", pk)
    assert "2 pieces computed" not in said(capsys, "work", pk)  # and the two that read the catalog
    assert "2 done" in said(capsys, "show", pk)
    out = file.parent / "rows.csv"
    assert "2 of 2 rows" in said(capsys, "export", pk, "--out", str(out))
    assert out.read_text().count("\n") == 3
    assert said(capsys, "export", pk, "--out", "-") == out.read_text()
    said(capsys, "export", pk, "--out", str(file.parent / "rows.parquet"))


def test_run_computes_here_and_writes_the_results(file: Path, quick: Any, capsys: Any, monkeypatch: Any) -> None:
    def here(self: command.Command, study: Study, workers: int) -> None:
        assert workers == 2
        pieces.drain(study.pk, pause_s=0)

    monkeypatch.setattr(command.Command, "compute", here)
    shown = said(capsys, "run", str(file), "--workers", "2", "--out", str(file.parent / "out.parquet"))
    assert "2 of 2 rows" in shown and (file.parent / "out.parquet").stat().st_size > 1000


def test_an_error_names_the_file_and_the_field(file: Path, capsys: Any) -> None:
    (file.parent / "b.yaml").write_text("model: [")
    with pytest.raises(SystemExit) as refused:
        call_command("study", "create", str(file))
    assert refused.value.code == 2 and "workloads[1] (b.yaml)" in capsys.readouterr().err
    (file.parent / "b.yaml").unlink()
    with pytest.raises(SystemExit):
        call_command("study", "create", str(file))
    assert "b.yaml: no such workload file" in capsys.readouterr().err
    assert not Study.objects.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "none"), "no such study"),
        (("run", "x.yaml", "--workers", "0"), "not a number from 1"),
        (("run", "x.yaml", "--out", "rows.xlsx"), "neither .csv nor .parquet"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call_command("study", *words)
