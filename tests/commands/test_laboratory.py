"""Commands whose code is in tests/laboratory: all of them are there, and say what they need where it is not."""

from pathlib import Path

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import CommandError

from advisor.management import laboratory

STUBS = Path(laboratory.__file__).parent / "commands"
NAMES = sorted(path.stem for path in (laboratory.FOLDER / "commands").glob("[a-z]*.py"))


def test_each_module_of_the_laboratory_is_a_command_and_each_stub_finds_its_module() -> None:
    stubs = {path.stem for path in STUBS.glob("*.py") if "laboratory import command" in path.read_text()}
    assert stubs == set(NAMES) <= set(get_commands())


@pytest.mark.parametrize("name", NAMES)
def test_a_checkout_has_the_command(name: str) -> None:
    found = load_command_class("advisor", name)
    assert type(found).__module__ == f"tests.laboratory.commands.{name}"


def test_an_installed_package_says_that_the_command_needs_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(laboratory, "FOLDER", tmp_path)
    absent = laboratory.command("fidelity")()
    with pytest.raises(CommandError, match="checkout") as refused:
        call_command(absent)
    assert refused.value.returncode == 2
    with pytest.raises(SystemExit) as ended:
        absent.run_from_argv(["manage.py", "fidelity", "--measurements", "rows.csv"])
    assert ended.value.code == 2 and "fidelity: Not installed" in capsys.readouterr().err
