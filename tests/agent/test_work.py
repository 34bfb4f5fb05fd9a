"""The loop against a server that cancels, forgets, restarts, cuts the line or answers nonsense."""

import functools
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from probes.agent import sandbox, spec
from probes.agent.server import client, signing, state, work
from tests.agent import stub_suite
from tests.agent.fake_server import JOB, KEY, NOTHING, TOKEN, FakeServer, Reply, Seen, key_fits

ALL = spec.KINDS
SIGNED = "v1=" + "0" * 64


def runner(*command: object) -> work.Runner:
    def run(given: dict[str, Any], deadline_s: float, progress: Any, cancel: threading.Event) -> sandbox.Outcome:
        request = {"ask": "run", "spec": given, "library": "torch"}
        child = stub_suite.command(*command)  # type: ignore[arg-type]
        return sandbox.run(request, sandbox.limits_for(60), progress=progress, cancel=cancel, command=child)

    return run


def loop(fake: FakeServer, folder: Path, behaviour: str = "good", allowed: tuple[str, ...] = ALL) -> work.Loop:
    lines: list[str] = []
    made = work.Loop(
        server=client.Server(fake.url, TOKEN, KEY),
        folder=folder,
        facts=stub_suite.FACTS,
        allowed=allowed,
        runner=runner(behaviour),
        stop=threading.Event(),
        say=lines.append,
        backoff=work.Backoff(first_s=0.01),
    )
    made.lines = lines  # type: ignore[attr-defined]
    return made


def said(made: work.Loop) -> str:
    return "\n".join(made.lines)  # type: ignore[attr-defined]


def job(**change: Any) -> Reply:
    return Reply(body={**JOB, **change})


def waiting(folder: Path) -> list[str]:
    return [result.path.name for result in state.waiting_results(folder)]


# --- the ordinary way -------------------------------------------------------------------------------------------


def test_a_job_is_leased_run_and_delivered_once(fake: FakeServer, tmp_path: Path) -> None:
    assert work.serve(loop(fake, tmp_path), once=True) == work.OK
    assert fake.counts()["lease"] == fake.counts()["result"] == 1
    (sent,) = fake.of("result")
    assert sent.path.endswith(f"/jobs/{JOB['job_id']}/attempts/1/result")
    assert (sent.body["schema"], sent.body["spec"]) == ("assay-probe/1", JOB["spec"])
    assert key_fits(sent)
    assert waiting(tmp_path) == []


def test_what_will_run_is_said_before_it_runs(fake: FakeServer, tmp_path: Path) -> None:
    made = loop(fake, tmp_path)
    seen_before: list[str] = []
    run = made.runner

    def watched(*given: Any) -> sandbox.Outcome:
        seen_before.append(said(made))
        return run(*given)

    made.runner = watched
    work.serve(made, once=True)
    assert "the quick suite (all kinds), at most 5 s" in seen_before[0]


def test_no_work_is_asked_for_again_until_there_is_some(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["lease"] = [NOTHING, NOTHING, job()]
    assert work.serve(loop(fake, tmp_path), once=True) == work.OK
    assert fake.counts()["lease"] == 3


def test_heartbeats_tell_the_stage(fake: FakeServer, tmp_path: Path) -> None:
    made = loop(fake, tmp_path, "hang")

    def heartbeat(seen: Seen) -> Reply:
        return Reply(body={"continue": seen.body["stage"] != "hanging"})

    fake.replies["heartbeat"] = [heartbeat]
    work.serve(made, once=True)
    assert [seen.body["stage"] for seen in fake.of("heartbeat")][-1] == "hanging"


# --- specs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"suite": "custom", "kinds": ["rm -rf /"]}, "unsupported"),
        ({"suite": "custom", "kinds": ["launch"]}, "unsupported"),
        ({"suite": "custom", "kinds": None}, "invalid_spec"),
        ({"suite": "custom", "kinds": []}, "invalid_spec"),
        ({"suite": "custom", "kinds": "gemm"}, "invalid_spec"),
        ({"suite": "custom", "kinds": [["gemm"]]}, "invalid_spec"),
        ({"suite": "everything"}, "invalid_spec"),
        ({"suite": ["quick"]}, "invalid_spec"),
        ({"suite": "quick", "max_s": 0}, "invalid_spec"),
        ({"suite": "quick", "max_s": 1e9}, "invalid_spec"),
        ({"suite": "quick", "max_s": True}, "invalid_spec"),
        ({"suite": "quick", "max_s": "60; reboot"}, "invalid_spec"),
        ({"suite": "quick", "max_bytes": -1}, "invalid_spec"),
        ({"suite": "quick", "command": "id"}, "invalid_spec"),
        ({}, "invalid_spec"),
        ("quick", "invalid_spec"),
        (None, "invalid_spec"),
    ],
)
def test_a_spec_that_is_not_plain_data_of_the_list_is_never_run(
    fake: FakeServer, tmp_path: Path, asked: Any, code: str
) -> None:
    fake.replies["lease"] = [job(spec=asked), NOTHING]
    made = loop(fake, tmp_path, allowed=("gemm",))
    made.runner = lambda *given: pytest.fail("it was run")
    assert work.serve(made, once=True) == work.OK
    assert [seen.body["code"] for seen in fake.of("fail")] == [code]
    assert fake.of("result") == []


def test_what_the_operator_bars_is_skipped_and_the_answer_is_to_the_spec_asked(
    fake: FakeServer, tmp_path: Path
) -> None:
    ran: list[Any] = []
    made = loop(fake, tmp_path, allowed=("gemm", "norm"))
    run = made.runner
    made.runner = lambda given, *more: (ran.append(given["kinds"]), run(given, *more))[1]
    work.serve(made, once=True)
    (sent,) = fake.of("result")
    assert ran == [["gemm", "norm"]]
    assert (sent.body["spec"], sent.body["spec_hash"]) == (JOB["spec"], spec.spec_hash(JOB["spec"]))
    assert {skip["kind"] for skip in sent.body["skipped"]} == set(ALL) - {"gemm", "norm"}


def test_the_lease_names_only_what_is_allowed(fake: FakeServer, tmp_path: Path) -> None:
    work.serve(loop(fake, tmp_path, allowed=("gemm",)), once=True)
    assert fake.of("lease")[0].body["capabilities"]["kinds"] == ["gemm"]


# --- children that fail -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [("killed", "crashed"), ("raises", "crashed"), ("garbage", "bad_output"), ("wrong_document", "bad_output")],
)
def test_a_child_that_fails_is_reported_with_its_log(
    fake: FakeServer, tmp_path: Path, behaviour: str, code: str
) -> None:
    assert work.serve(loop(fake, tmp_path, behaviour), once=True) == work.OK
    (told,) = fake.of("fail")
    assert (told.body["code"], told.body["retriable"]) == (code, True)
    assert len(told.body["log"]) <= client.LOG_BYTES
    assert fake.of("result") == []


def test_a_job_whose_failure_cannot_be_told_does_not_end_the_agent(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["fail"] = [Reply(500)]
    assert work.serve(loop(fake, tmp_path, "raises"), once=True) == work.OK
    assert fake.counts()["fail"] == work.FAIL_TRIES


# --- cancel, loss and revocation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "words"),
    [(Reply(body={"continue": False}), "canceled by the server"), (Reply(409, {}), "this agent no longer owns it")],
)
def test_a_run_that_the_server_gives_up_ends_at_once_and_sends_nothing(
    fake: FakeServer, tmp_path: Path, reply: Reply, words: str
) -> None:
    fake.replies["heartbeat"] = [Reply(body={"continue": True}), reply]
    made = loop(fake, tmp_path, "hang")
    assert work.serve(made, once=True) == work.OK
    assert words in said(made)
    assert (fake.of("result"), fake.of("fail"), waiting(tmp_path)) == ([], [], [])


@pytest.mark.parametrize("what", ["lease", "heartbeat", "result"])
def test_a_revoked_token_stops_the_agent_and_says_so(fake: FakeServer, tmp_path: Path, what: str) -> None:
    fake.replies[what] = [Reply(401, {"detail": "This token is unknown or revoked."})]
    if what == "heartbeat":
        fake.replies["lease"] = [job(), Reply(401)]
    made = loop(fake, tmp_path, "hang" if what == "heartbeat" else "good")
    assert work.serve(made) == work.REVOKED
    assert "does not accept this token" in said(made)
    assert fake.counts()["lease"] <= 2


def test_a_result_outlives_a_revoked_token(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["result"] = [Reply(401)]
    work.serve(loop(fake, tmp_path), once=True)
    assert len(waiting(tmp_path)) == 1


def test_an_old_agent_is_told_to_upgrade(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["lease"] = [Reply(426, {"detail": "This server speaks agent protocol 2."})]
    with pytest.raises(client.Refused, match="Update agent.pyz"):
        work.serve(loop(fake, tmp_path))


def test_heartbeats_that_get_no_answer_do_not_end_the_run(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["heartbeat"] = [Reply(503), Reply(cut=1)]
    assert work.serve(loop(fake, tmp_path), once=True) == work.OK
    assert fake.counts()["result"] == 1


def test_stopping_the_agent_ends_the_child_and_gives_the_job_back(fake: FakeServer, tmp_path: Path) -> None:
    made = loop(fake, tmp_path, "hang")

    def heartbeat(seen: Seen) -> Reply:
        made.stop.set()
        return Reply(body={"continue": True})

    fake.replies["heartbeat"] = [heartbeat]
    assert work.serve(made) == work.OK
    assert [seen.body["code"] for seen in fake.of("fail")] == ["stopped"]


# --- delivery ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(cut=20),
        Reply(500),
        Reply(502, raw=b"<html>bad gateway"),
        Reply(429, headers={"Retry-After": "0"}),
        Reply(503, headers={"Retry-After": "0"}),
        Reply(raw=b"not json"),
    ],
    ids=lambda reply: str(reply.cut or reply.raw or reply.status),
)
def test_a_result_is_sent_again_with_the_same_key_until_acknowledged(
    fake: FakeServer, tmp_path: Path, trouble: Reply
) -> None:
    fake.replies["result"] = [trouble, trouble, Reply(body={"state": "late"})]
    made = loop(fake, tmp_path)
    assert work.serve(made, once=True) == work.OK
    keys = [seen.headers["Idempotency-Key"] for seen in fake.of("result")]
    assert (len(keys), len(set(keys))) == (3, 1)
    assert "late" in said(made) and waiting(tmp_path) == []


def test_a_result_waits_for_a_server_that_restarts(fake: FakeServer, tmp_path: Path) -> None:
    made = loop(fake, tmp_path)
    run, down = made.runner, threading.Event()

    def run_then_stop_the_server(*given: Any) -> sandbox.Outcome:
        outcome = run(*given)
        fake.stop()
        down.set()
        return outcome

    made.runner = run_then_stop_the_server
    serving = threading.Thread(target=work.serve, args=(made,), kwargs={"once": True})
    serving.start()
    assert down.wait(60)
    assert fake.of("result") == []
    fake.start()
    serving.join(60)
    assert not serving.is_alive()
    assert fake.counts()["result"] == 1 and waiting(tmp_path) == []


def test_a_result_of_an_agent_that_was_killed_is_sent_at_its_next_start(fake: FakeServer, tmp_path: Path) -> None:
    state.keep_result(tmp_path, JOB["job_id"], 3, spec.canonical(stub_suite.DOCUMENT), SIGNED)
    fake.replies["lease"] = [Reply(401)]
    work.serve(loop(fake, tmp_path))
    (sent,) = fake.of("result")
    assert sent.path.endswith("/attempts/3/result") and key_fits(sent)
    assert fake.seen[0] is sent


def test_a_result_sent_twice_is_acknowledged_twice_and_dropped_once(fake: FakeServer, tmp_path: Path) -> None:
    """The line was cut after the server had it: it gives the same answer again."""
    answers: dict[str, Reply] = {}

    def result(seen: Seen) -> Reply:
        first = seen.headers["Idempotency-Key"] not in answers
        answers[seen.headers["Idempotency-Key"]] = Reply(body={"state": "accepted"})
        return Reply(500) if first else answers[seen.headers["Idempotency-Key"]]

    fake.replies["result"] = [result]
    assert work.serve(loop(fake, tmp_path), once=True) == work.OK
    assert (len(answers), fake.counts()["result"], waiting(tmp_path)) == (1, 2, [])


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422])
def test_a_result_that_the_server_refuses_is_set_aside_and_work_goes_on(
    fake: FakeServer, tmp_path: Path, status: int
) -> None:
    fake.replies["result"] = [Reply(status, {"detail": "not this one"})]
    made = loop(fake, tmp_path)
    assert work.serve(made, once=True) == work.OK
    assert waiting(tmp_path) == []
    (kept,) = (tmp_path / "outbox").iterdir()
    assert kept.suffix == ".refused" and "not this one" in said(made)


def test_one_result_that_the_server_cannot_take_does_not_end_all_work(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["lease"] = [job(job_id="poison"), job(job_id="good"), Reply(401)]

    def result(seen: Seen) -> Reply:
        return Reply(500) if "poison" in seen.path else Reply(body={"state": "accepted"})

    fake.replies["result"] = [result]
    assert work.serve(loop(fake, tmp_path)) == work.REVOKED
    assert [name.split(".")[0] for name in waiting(tmp_path)] == ["poison"]
    assert any("good" in seen.path for seen in fake.of("result"))


def test_the_agent_takes_no_more_work_than_it_can_deliver(fake: FakeServer, tmp_path: Path) -> None:
    for number in range(state.MAX_WAITING):
        state.keep_result(tmp_path, f"job-{number}", 1, b"{}", SIGNED)
    fake.replies["result"] = [Reply(500)]
    made = loop(fake, tmp_path)
    made.say = lambda line: made.stop.set()
    work.serve(made)
    assert fake.of("lease") == [] and len(waiting(tmp_path)) == state.MAX_WAITING


def test_a_server_that_asks_for_time_is_asked_nothing_else(fake: FakeServer, tmp_path: Path) -> None:
    state.keep_result(tmp_path, "job-1", 1, b"{}", SIGNED)
    fake.replies["result"] = [Reply(503, headers={"Retry-After": "3000"})]
    made = loop(fake, tmp_path)
    made.say = lambda line: made.stop.set()
    work.serve(made)
    assert fake.counts() == {"result": 1}


def test_pauses_double_within_bounds_and_are_never_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work.random, "uniform", lambda low, high: high)
    backoff = work.Backoff()
    assert [backoff.next_s() for _ in range(4)] == [1, 2, 4, 8]
    assert work.Backoff(failures=2000).next_s() == work.MAX_PAUSE_S
    assert 30 <= backoff.next_s(30.0) <= 31
    monkeypatch.undo()
    assert len({work.Backoff(failures=5).next_s() for _ in range(20)}) > 1


def test_agents_that_race_for_one_job_run_it_once(fake: FakeServer, tmp_path: Path) -> None:
    """The server leases to one; the others wait at its pace and run nothing."""
    fake.replies["lease"] = [job(), Reply(401)]
    agents = [loop(fake, tmp_path / str(number)) for number in range(4)]
    threads = [threading.Thread(target=functools.partial(work.serve, made)) for made in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert fake.counts()["result"] == 1
    assert sum("attempt 1" in said(made) for made in agents) == 1


def test_the_document_on_disk_is_what_is_sent(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["result"] = [Reply(401)]
    work.serve(loop(fake, tmp_path), once=True)
    (result,) = state.waiting_results(tmp_path)
    assert json.loads(result.body()) == fake.of("result")[0].body
    assert (result.path.stat().st_mode & 0o777, result.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


# --- signatures -------------------------------------------------------------------------------------------------


def test_a_result_is_signed_for_its_lease_its_device_and_its_bytes(fake: FakeServer, tmp_path: Path) -> None:
    work.serve(loop(fake, tmp_path), once=True)
    (sent,) = fake.of("result")
    body = spec.canonical(sent.body)
    assert sent.headers["Assay-Signature"] == signing.of_result(
        KEY,
        job_id=JOB["job_id"],
        attempt=1,
        nonce=str(JOB["nonce"]),
        spec_hash=spec.spec_hash(JOB["spec"]),  # type: ignore[arg-type]
        device=signing.device_identity(stub_suite.FACTS["device"]),
        body_hash=hashlib.sha256(body).hexdigest(),
    )


def test_a_result_that_an_agent_before_signatures_left_is_set_aside(fake: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox" / "job-1.1.json").write_bytes(b"{}")
    made = loop(fake, tmp_path)
    assert work.serve(made, once=True) == work.OK
    assert "it is not signed" in said(made) and fake.counts()["result"] == 1
    assert (tmp_path / "outbox" / "job-1.1.refused").exists()


def test_an_agent_without_a_key_fetches_it_before_it_asks_for_work(fake: FakeServer, tmp_path: Path) -> None:
    made = loop(fake, tmp_path)
    made.server = client.Server(fake.url, TOKEN)
    assert work.serve(made, once=True) == work.OK
    assert [seen.what for seen in fake.seen][:2] == ["rotate", "lease"] and state.load(tmp_path).key == KEY


def test_a_key_that_the_server_gives_no_more_ends_the_agent_with_what_to_do(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["rotate"] = [Reply(body={"token": "agt_next"})]
    made = loop(fake, tmp_path)
    made.server = client.Server(fake.url, TOKEN)
    with pytest.raises(client.Refused, match="Enroll it again"):
        work.serve(made)
    assert fake.of("lease") == [] and state.load(tmp_path).token == "agt_next"


# --- the life of a token ----------------------------------------------------------------------------------------


def test_the_token_is_renewed_when_the_server_says_so_and_kept_before_it_is_used(
    fake: FakeServer, tmp_path: Path
) -> None:
    fake.replies["lease"] = [Reply(body=JOB, headers={"Agent-Rotate": "1"}), NOTHING]
    made = loop(fake, tmp_path)
    assert work.serve(made, once=True) == work.OK
    assert state.load(tmp_path).token == made.server.token == "agt_next"
    assert {seen.headers["Authorization"] for seen in fake.of("result")} == {"Bearer agt_next"}
    assert (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o600


def test_a_token_that_could_not_be_renewed_is_used_further(fake: FakeServer, tmp_path: Path) -> None:
    fake.replies["lease"] = [Reply(body=JOB, headers={"Agent-Rotate": "1"}), NOTHING]
    fake.replies["rotate"] = [Reply(503)]
    assert work.serve(loop(fake, tmp_path), once=True) == work.OK
    assert {seen.headers["Authorization"] for seen in fake.of("result")} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("busy", ["lease", "result"])
def test_a_server_that_says_too_often_is_left_alone_for_as_long_as_it_says(
    fake: FakeServer, tmp_path: Path, busy: str
) -> None:
    made, waited = loop(fake, tmp_path), list[float]()
    real = made.stop.wait
    made.stop.wait = lambda seconds=None: waited.append(seconds or 0) or real(0)  # type: ignore[method-assign,func-returns-value]
    fake.replies[busy].insert(0, Reply(429, headers={"Retry-After": "37"}))
    assert work.serve(made, once=True) == work.OK
    assert any(37 <= seconds <= 38 for seconds in waited), waited
