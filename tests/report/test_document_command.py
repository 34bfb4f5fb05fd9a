"""`manage.py advise --document`: files, printed texts, and refusals that leave no file behind."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command

from advisor import inputs
from advisor.management.commands import advise
from advisor.result import Answer
from catalog.models import CatalogLoad
from tests import sample_advice
from tests.report import sample_plan

pytestmark = pytest.mark.django_db
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    tmp_path: Path, engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """The exit code, output and errors of a command on the sample answer, or on another."""
    CatalogLoad.objects.create(version="test")
    monkeypatch.setattr(inputs, "check_catalog", lambda spec, organisation, files=False: None)
    monkeypatch.chdir(tmp_path)
    Path("workload.yaml").write_text(sample_advice.SPEC)

    def call(*args: str, found: Any = sample_plan.result) -> tuple[int, str, str]:
        engine.recommend = lambda *given: Answer.read(found())
        with pytest.raises(SystemExit) as ended:
            call_command("advise", "workload.yaml", *args)
        output, errors = capsys.readouterr()
        return int(ended.value.code or 0), output, errors

    return call


@pytest.mark.parametrize(
    ("document", "file", "start"),
    [
        ("memo", "a.md", b"# Decision memo"), ("memo", "a.html", b"<!doctype html>"), ("bom", "a.csv", b"action,"),
        ("bom", "a.html", b"<!doctype html>"), ("bom", "a.md", b"# Bill of materials"), ("costs", "a.csv", b"action,"),
        ("assumptions", "a.csv", b"name,value"), ("cashflow", "a.csv", b"month,"), ("workbook", "a.xlsx", b"PK"),
    ],
)  # fmt: skip
def test_every_document_is_written_whole(run: Run, tmp_path: Path, document: str, file: str, start: bytes) -> None:
    (tmp_path / file).write_text("older")
    code, output, errors = run("--document", document, "--out", file)
    assert (code, errors) == (0, "") and output.startswith(f"{file}: {document} of ")
    assert (tmp_path / file).read_bytes().startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([file, "workload.yaml"])


def test_a_text_is_printed_without_anything_else(run: Run) -> None:
    code, output, _ = run("--document", "bom", "--out", "-")
    assert code == 0 and output.startswith("action,quantity,item") and not Path("-").exists()


def test_another_option_is_asked_for_by_its_rank(run: Run) -> None:
    assert "This is option 2 of the ranking." in run("--document", "memo", "--out", "-", "--option", "2")[1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--document", "memo"], "--out FILE"),
        (["--out", "a.md"], "--document"),
        (["--option", "2"], "--document"),
        (
            ["--document", "memo", "--out", "a.md", "--option", "99"],
            "no option of that rank. Options with documents: 1",
        ),
        (["--document", "memo", "--out", "a.md", "--option", "0"], "too small"),
        (["--document", "memo", "--out", "missing/a.md"], "no such folder"),
        (["--document", "memo", "--out", "."], "is a folder"),
        (["--document", "workbook", "--out", "-"], "cannot be printed"),
    ],
)
def test_a_refusal_says_what_to_do_and_writes_nothing(run: Run, tmp_path: Path, args: list[str], said: str) -> None:
    code, output, errors = run(*args)
    assert (code, output) == (2, "") and said in errors
    assert [path.name for path in tmp_path.iterdir()] == ["workload.yaml"]


def test_a_file_for_another_system_is_refused_with_the_reason_and_the_options_that_have_one(run: Run) -> None:
    code, output, errors = run("--document", "dynamo", "--out", "a.yaml", "--option", "2")
    assert (code, output) == (2, "") and not Path("a.yaml").exists()
    assert "Dynamo" in errors and "Options with documents: none." in errors


def test_nothing_feasible_ends_with_3_and_no_file(run: Run) -> None:
    code, output, errors = run("--document", "memo", "--out", "a.md", found=sample_advice.infeasible)
    assert (code, output) == (3, "") and "Nothing was written to a.md" in errors and not Path("a.md").exists()


def test_a_failed_write_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.md"
    file.write_text("older")

    def fail(self: Path, content: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(advise.BadFile, match="No space left"):
        advise.replace_file(file, b"newer")
    assert file.read_text() == "older" and [path.name for path in tmp_path.iterdir()] == ["a.md"]
