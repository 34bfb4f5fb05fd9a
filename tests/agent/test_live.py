"""The agent as it is, against the server as it is: enrolled, leased, measured in a child, delivered, counted once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from probes.agent import cli
from probes.agent.server import state
from probes.machines import agents, jobs
from probes.models import Agent, Result

pytestmark = pytest.mark.django_db(transaction=True)


def enrolled(capsys: pytest.CaptureFixture[str]) -> str:
    call_command("enrol", "--label", "site=here")
    return capsys.readouterr().out.strip()


def test_an_enrolled_machine_measures_what_was_queued(
    live_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = jobs.request({"suite": "custom", "kinds": ["known_answer", "launch"], "max_s": 30}, {"site": "here"})
    given = ["run", "--server", live_server.url, "--state", str(tmp_path), "--token", enrolled(capsys), "--once"]
    assert cli.main([*given, "--name", "node-1"]) == cli.OK
    job.refresh_from_db()
    agent, result = Agent.objects.get(), Result.objects.get()
    assert (agent.name, agent.labels) == ("node-1", {"site": "here"})
    assert job.state == jobs.State.DONE
    # A busy machine's launches may spread too far to count; every other examination must have passed.
    assert result.state in (Result.State.ACCEPTED, Result.State.QUARANTINED)
    assert all("spread" in reason for reason in result.reasons), result.reasons
    assert set(result.measurements.values_list("kind", flat=True)) == {"known_answer", "launch"}
    assert list(state.waiting_results(tmp_path)) == []


def test_a_revoked_machine_stops(live_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--server", live_server.url, "--state", str(tmp_path)]
    assert cli.main(["register", *given, "--token", enrolled(capsys)]) == cli.OK
    agents.revoke(Agent.objects.get())
    assert cli.main(["run", *given, "--once"]) == 3
    assert "revoked" in capsys.readouterr().err


def test_a_machine_without_a_network_signs_its_file_and_the_server_knows_it(
    live_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = str(tmp_path / "state"), tmp_path / "r.json"
    given = ["--server", live_server.url, "--state", folder, "--token", enrolled(capsys)]
    assert cli.main(["register", *given, "--name", "node-1"]) == cli.OK
    asked = ["probe", "--kinds", "known_answer,launch", "--max-seconds", "20", "--out", str(out), "--state", folder]
    assert cli.main(asked) == cli.OK
    call_command("import_probe", str(out))
    result = Result.objects.get()
    assert result.agent == Agent.objects.get(name="node-1")
    assert not any("sign" in reason for reason in result.reasons), result.reasons


def test_a_machine_that_registers_again_stays_the_same(
    live_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["register", "--server", live_server.url, "--state", str(tmp_path), "--token"]
    assert cli.main([*given, enrolled(capsys)]) == cli.OK
    agents.record_contact(Agent.objects.get(), state.load(tmp_path).token)
    assert cli.main([*given, enrolled(capsys)]) == cli.OK
    assert Agent.objects.count() == 1
    state.save(tmp_path, replace(state.load(tmp_path), key="0" * 64))
    assert cli.main([*given, enrolled(capsys)]) == cli.BAD_INPUT
    assert "does not prove that it is the same" in capsys.readouterr().err
