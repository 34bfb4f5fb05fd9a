"""A result that comes as a file, and what a person may do with one in quarantine."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from catalog.models import Accelerator
from probes.models import Agent, Result
from probes.received import results
from tests.probes import samples

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.json"
    path.write_bytes(samples.body(samples.document()))
    return path


def run(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    call_command(*map(str, args))
    return capsys.readouterr().out


def test_an_unsigned_file_is_shown_but_waits_for_a_person(
    h200: Accelerator, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "quarantined" in run(capsys, "import_probe", file)
    result = Result.objects.get()
    assert result.reasons == [results.UNSIGNED] and result.accelerator == h200 and result.measurements.exists()


def test_an_approved_file_counts_and_a_second_import_changes_nothing(
    h200: Accelerator, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "accepted" in run(capsys, "import_probe", file, "--approve")
    run(capsys, "import_probe", file, "--approve")
    result = Result.objects.get()
    assert (result.state, result.released_by) == ("accepted", "manage.py")


def test_a_file_can_be_approved_later(h200: Accelerator, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "import_probe", file)
    assert "accepted" in run(capsys, "import_probe", file, "--approve")


def test_approving_does_not_make_an_impossible_file_count(h200: Accelerator, file: Path) -> None:
    file.write_bytes(samples.body(samples.document(duration_s=0.01)))
    call_command("import_probe", str(file), "--approve")
    assert Result.objects.get().state == "quarantined"


def test_a_person_may_release_what_is_in_quarantine_once(h200: Accelerator, file: Path) -> None:
    call_command("import_probe", str(file))
    result = Result.objects.get()
    assert results.release(result, "ada") and not results.release(result, "ada")
    assert (result.state, result.released_by) == ("accepted", "ada")


def test_a_file_that_is_no_result_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"schema": "assay-probe/1"}')
    with pytest.raises(CommandError, match="duration_s: Field required"):
        call_command("import_probe", str(path))
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("import_probe", str(tmp_path / "none.json"))
    assert not Result.objects.exists()


def test_enrol_prints_a_token_that_registers_and_agents_lists_and_revokes(
    h200: Accelerator, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.probes.client import FakeAgent

    token = run(capsys, "enrol", "--label", "site=lab", "--accelerator", "h200-sxm").strip()
    assert FakeAgent(token="none").register(token).status_code == 201
    agent = Agent.objects.get()
    listed = run(capsys, "agents")
    assert "online" in listed and "site=lab" in listed and "accelerator=h200-sxm" in listed
    assert "revoked" in run(capsys, "agents", "--revoke", agent.pk)
    with pytest.raises(CommandError, match="no accelerator"):
        call_command("enrol", "--accelerator", "h900")


def test_doctor_and_sweep_mention_machines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("doctor")
    assert "0 online" in capsys.readouterr().out
    assert "probes_requeued 0" in run(capsys, "sweep")


REAL = Path(__file__).parents[2] / "fixtures" / "measurements" / "probes"


@pytest.mark.parametrize("name", ["one-gpu-torch", "two-gpus-torch", "one-gpu-jax", "two-gpus-jax"])
def test_what_real_machines_measured_is_doubted_only_for_coming_as_a_file(
    h200: Accelerator, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "import_probe", REAL / f"h200-sxm--{name}.json")
    result = Result.objects.get()
    assert result.accelerator == h200 and result.reasons == [results.UNSIGNED]
