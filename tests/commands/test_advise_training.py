"""`manage.py advise` on training questions: exit codes, formats and documents."""

import json
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ASKED = {
    "name": "tune",
    "kind": "finetuning",
    "model": "meta-llama/Llama-3.1-8B",
    "finetuning": {"method": "lora", "tokens": 5e7},
    "constraints": {"accelerators": {"allow": ["h200-sxm"]}},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "question.yaml"
    path.write_text(yaml.safe_dump(ASKED))
    return path


def advise(capsys: pytest.CaptureFixture[str], file: Path, *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(file), *args)
    output, errors = capsys.readouterr()
    return int(ended.value.code or 0), output, errors


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_every_format_has_the_run(form: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = advise(capsys, file, "--format", form, "--full")
    assert code == 0 and "H200" in output
    if form == "json":
        assert json.loads(output)["recommendations"][0]["usd_per_run"] > 0
    else:
        assert "Tune LoRA adapters on" in output and "tok/s" in output


@pytest.mark.parametrize("document", ["memo", "bom", "assumptions", "cashflow", "workbook"])
def test_every_document_is_written(
    document: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = {"memo": "md", "workbook": "xlsx"}.get(document, "csv")
    out = tmp_path / f"document.{ending}"
    assert advise(capsys, file, "--document", document, "--out", str(out))[0] == 0
    assert out.stat().st_size > 100


def test_a_run_that_is_not_possible_ends_with_3_and_the_nearest_miss(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output, _ = advise(capsys, file, "--set", "finetuning.deadline_days=0.001")
    assert code == 3 and "Nothing meets this: the nearest" in output and len(output.splitlines()) <= 25
    code, output, _ = advise(capsys, file, "--set", "finetuning.deadline_days=0.001", "--full")
    assert code == 3 and "No run ends within 0.001 days. The fastest is" in output
    assert "Raise finetuning.deadline_days to 1" in output


def test_bad_input_ends_with_2_and_the_field(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = advise(capsys, file, "--set", "finetuning.tokens=-1")
    assert code == 2 and errors.strip() == "finetuning.tokens: must be greater than 0 (allowed: > 0)"
