"""The command line: what it prints and writes, what it refuses, and that it keeps no secret where others can read."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes.agent import cli, spec
from probes.agent.server import client, signing, state
from tests.agent import stub_suite
from tests.agent.fake_server import JOB, KEY, NOTHING, TOKEN, FakeServer, Reply

GOOD = stub_suite.command("good")
DEVICE = {"name": "stub"}


@pytest.fixture(autouse=True)
def stub_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is the suite's; the stub's document has nothing for it."""
    monkeypatch.setattr("probes.agent.suite.table", lambda document, peaks: ["the table"])


def run_at(fake: FakeServer, folder: Path, *given: str) -> int:
    return cli.main(["run", "--server", fake.url, "--state", str(folder), "--once", *given], command=GOOD)


# --- probe ------------------------------------------------------------------------------------------------------


def test_probe_writes_the_document_and_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.json"
    assert cli.main(["probe", "--kinds", "gemm,norm", "--max-seconds", "9", "--out", str(out)], command=GOOD) == cli.OK
    written = json.loads(out.read_text())
    assert written["spec"] == {"suite": "quick", "kinds": ["gemm", "norm"], "max_s": 9.0, "max_bytes": None}
    printed = capsys.readouterr()
    assert printed.out == "the table\n"
    assert "Runs the quick suite (gemm, norm), at most 9 s with torch." in printed.err


def test_a_dry_run_lists_the_cases_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.json"
    assert cli.main(["probe", "--dry-run", "--out", str(out)], command=GOOD) == cli.OK
    assert "m=8 dtype=fp32" in capsys.readouterr().out and not out.exists()


@pytest.mark.parametrize("behaviour", ["raises", "garbage", "killed"])
def test_a_suite_that_fails_leaves_the_former_file(
    tmp_path: Path, behaviour: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    out.write_text("former")
    assert cli.main(["probe", "--out", str(out)], command=stub_suite.command(behaviour)) != cli.OK
    assert out.read_text() == "former" and [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert "Nothing was written." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--kinds", "gemm,rm"], "no kind rm"),
        (["--max-seconds", "0"], "max_s must be a number from 1 to 3600"),
        (["--max-seconds", "nan"], "max_s must be a number"),
        (["--out", "/nowhere/r.json"], "The folder /nowhere of --out does not exist"),
        (["--suite", "huge"], "invalid choice"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(["probe", *given], command=stub_suite.command("killed"))
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == cli.BAD_INPUT and words in capsys.readouterr().err


def test_a_registered_machine_signs_what_it_writes(fake: FakeServer, tmp_path: Path, capsys: object) -> None:
    folder, out = tmp_path / "state", tmp_path / "r.json"
    cli.main(["register", "--server", fake.url, "--token", "aet_x", "--state", str(folder)])
    assert cli.main(["probe", "--out", str(out), "--state", str(folder)], command=GOOD) == cli.OK
    written = json.loads(out.read_text())
    signature = written.pop("signature")
    assert signature["install_id"] == state.load(folder).install_id
    assert signature["value"] == signing.of_file(KEY, signature["install_id"], written)


def test_a_machine_that_is_not_registered_says_that_its_file_is_not_signed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "state", tmp_path / "r.json"
    assert cli.main(["probe", "--out", str(out), "--state", str(folder)], command=GOOD) == cli.OK
    assert "signature" not in json.loads(out.read_text()) and not folder.exists()
    assert "a person must approve" in capsys.readouterr().err


# --- register and run -------------------------------------------------------------------------------------------


def test_register_keeps_the_token_where_only_the_owner_reads_it(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "state"
    given = ["register", "--server", fake.url, "--token", "aet_once", "--name", "node-1", "--label", "site=a"]
    assert cli.main([*given, "--state", str(folder)]) == cli.OK
    file = folder / "agent.json"
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    kept = state.load(folder)
    assert (kept.token, kept.agent_id, kept.server) == (TOKEN, "7", fake.url)
    (sent,) = fake.of("register")
    assert (sent.body["name"], sent.body["labels"]) == ("node-1", {"site": "a"})
    assert sent.body["install_id"] == kept.install_id
    assert "aet_once" not in file.read_text() and TOKEN not in capsys.readouterr().err


def test_run_with_an_enrolment_token_registers_first(fake: FakeServer, tmp_path: Path) -> None:
    assert run_at(fake, tmp_path, "--token", "aet_once") == cli.OK
    assert fake.seen[0].what == "register" and fake.seen[0].body["inventory"] == DEVICE
    assert fake.of("lease")[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert fake.counts()["result"] == 1


def test_run_again_with_the_spent_enrolment_token_uses_the_kept_one(fake: FakeServer, tmp_path: Path) -> None:
    run_at(fake, tmp_path, "--token", "aet_once")
    fake.replies["lease"] = [Reply(body={**JOB, "attempt": 2}), NOTHING]
    assert run_at(fake, tmp_path, "--token", "aet_once") == run_at_without(fake, tmp_path) == cli.OK
    assert fake.counts()["register"] == 1


def run_at_without(fake: FakeServer, folder: Path) -> int:
    fake.replies["lease"] = [Reply(body={**JOB, "attempt": 3}), NOTHING]
    return run_at(fake, folder)


def test_another_enrolment_token_registers_the_same_installation_anew(fake: FakeServer, tmp_path: Path) -> None:
    run_at(fake, tmp_path, "--token", "aet_once")
    fake.replies["lease"] = [Reply(body=JOB), NOTHING]
    run_at(fake, tmp_path, "--token", "aet_second")
    first, second = fake.of("register")
    assert first.body["install_id"] == second.body["install_id"]


def test_registering_again_proves_the_key_to_the_same_server_alone(fake: FakeServer, tmp_path: Path) -> None:
    given = ["register", "--server", fake.url, "--state", str(tmp_path), "--token"]
    cli.main([*given, "aet_once"])
    cli.main([*given, "aet_second"])
    first, second = fake.of("register")
    install_id = state.load(tmp_path).install_id
    assert "proof" not in first.body
    assert second.body["proof"] == signing.of_registration(KEY, install_id, "aet_second")
    state.save(tmp_path, dataclasses.replace(state.load(tmp_path), server="https://another.example"))
    cli.main([*given, "aet_third"])
    assert "proof" not in fake.of("register")[-1].body


def test_an_identity_that_another_machine_has_is_one_clear_sentence(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.replies["register"] = [Reply(409, {"detail": "Another machine is registered with this install_id."})]
    assert run_at(fake, tmp_path, "--token", "aet_x") == cli.BAD_INPUT
    assert "Another machine is registered" in capsys.readouterr().err and not fake.of("lease")


def test_the_key_is_kept_where_only_the_owner_reads_it_and_never_printed(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_at(fake, tmp_path, "--token", "aet_once")
    assert state.load(tmp_path).key == KEY and (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o600
    assert KEY not in capsys.readouterr().err


def test_the_state_of_an_agent_before_there_were_keys_is_read_and_completed(fake: FakeServer, tmp_path: Path) -> None:
    kept = {"install_id": "an-install", "server": fake.url, "agent_id": "7", "token": TOKEN, "enrolment": ""}
    (tmp_path / "agent.json").write_text(json.dumps(kept))
    assert run_at(fake, tmp_path) == cli.OK
    now = state.load(tmp_path)
    assert (now.install_id, now.key, now.token) == ("an-install", KEY, "agt_next")


def test_run_takes_an_agent_token_and_a_token_from_a_file_or_the_environment(
    fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("agt_file\n")
    run_at(fake, tmp_path / "a", "--token-file", str(file))
    fake.replies["lease"] = [Reply(body=JOB), NOTHING]
    monkeypatch.setenv("ASSAY_TOKEN", "agt_environment")
    run_at(fake, tmp_path / "b")
    # Each fetches its key before it asks for work, and has another token from then on.
    used = [seen.headers["Authorization"] for seen in fake.of("rotate")]
    assert used == ["Bearer agt_file", "Bearer agt_environment"]
    assert [seen.headers["Authorization"] for seen in fake.of("lease")] == ["Bearer agt_next"] * 2


def test_a_dry_run_of_the_agent_sends_nothing(fake: FakeServer, tmp_path: Path) -> None:
    assert run_at(fake, tmp_path, "--token", "aet_once", "--dry-run") == cli.OK
    assert fake.seen == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "A token is needed"),
        (["--token", "hunter2"], "A token is needed"),
        (["--token-file", "/nowhere"], "No such file"),
        (["--label", "x"], "KEY=VALUE"),
        (["--allow-kinds", "shell"], "no kind shell"),
    ],
)
def test_run_says_what_it_needs(
    fake: FakeServer, tmp_path: Path, given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = run_at(fake, tmp_path, *given)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == cli.BAD_INPUT and words in capsys.readouterr().err
    assert fake.seen == []


def test_http_beyond_this_machine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["register", "--server", "http://assay.example", "--token", "aet_x", "--state", str(tmp_path)]
    assert cli.main(given) == cli.BAD_INPUT
    assert "no TLS" in capsys.readouterr().err


def test_a_refused_enrolment_is_one_clear_sentence(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.replies["register"] = [Reply(401, {"detail": "This enrolment token is unknown, used or older than an hour."})]
    assert run_at(fake, tmp_path, "--token", "aet_old") == cli.BAD_INPUT
    assert "unknown, used or older" in capsys.readouterr().err


def test_a_library_that_is_missing_is_said_before_the_server_is_asked(
    fake: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["run", "--server", fake.url, "--state", str(tmp_path), "--token", "aet_x"]
    assert cli.main(given, command=stub_suite.command("raises")) == cli.BAD_INPUT
    assert "torch cannot be used here" in capsys.readouterr().err and fake.seen == []


def test_rotate_replaces_the_token_and_keeps_the_registration(fake: FakeServer, tmp_path: Path) -> None:
    run_at(fake, tmp_path, "--token", "aet_once")
    assert cli.main(["rotate", "--state", str(tmp_path)]) == cli.OK
    assert state.load(tmp_path).token == "agt_next"
    fake.replies["lease"] = [Reply(body=JOB), NOTHING]
    run_at(fake, tmp_path, "--token", "aet_once")
    assert (fake.counts()["register"], fake.of("lease")[-1].headers["Authorization"]) == (1, "Bearer agt_next")


@pytest.mark.parametrize("body", ["", "{", "[]", '{"install_id": "x"}'])
def test_a_state_file_that_cannot_be_read_is_named(
    tmp_path: Path, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.json").write_text(body)
    assert cli.main(["rotate", "--state", str(tmp_path)]) == cli.BAD_INPUT
    assert f"{tmp_path / 'agent.json'} cannot be read" in capsys.readouterr().err


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("former")

    def fail(*given: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(state.os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        state.write_atomically(path, b"new")
    assert path.read_text() == "former" and list(tmp_path.iterdir()) == [path]


def test_sigterm_ends_the_agent_in_order(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["lease"] = [Reply(204, headers={"Retry-After": "3000"})]
    code = (
        "import sys\nfrom probes.agent import cli\n"
        f"sys.exit(cli.main({['run', '--server', fake.url, '--token', 'agt_x', '--state', str(tmp_path)]!r},"
        f" command={GOOD!r}))"
    )
    agent = subprocess.Popen([sys.executable, "-c", code], cwd=stub_suite.ROOT, stderr=subprocess.PIPE, text=True)
    fake.wait_for("lease")
    time.sleep(0.1)
    agent.terminate()
    assert agent.communicate(timeout=60)[1].endswith("Stopped.\n")
    assert agent.returncode == 0


def test_the_version_is_that_of_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert spec.AGENT_VERSION in capsys.readouterr().out
    assert client.AGENT_VERSION == spec.AGENT_VERSION
