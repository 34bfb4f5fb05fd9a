"""The loop: deliver what is waiting, ask for a job, run it, keep its result until the server has it.

Durations are monotonic: a host whose clock is wrong behaves the same. A job is the agent's while its heartbeats are
answered; 409, or an answer to stop, ends the child at once. A result leaves the disk only when the server has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from probes.agent import client, sandbox, signing, state
from probes.agent import spec as specs

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
FAIL_TRIES: Final = 3
OK, REVOKED = 0, 3
Runner = Callable[[dict[str, Any], float, sandbox.Progress, threading.Event], sandbox.Outcome]
# Codes after which the same job may succeed on another try or another machine.
RETRIABLE: Final = frozenset({"timeout", "out_of_memory", "crashed", "bad_output", "stopped", "unsupported"})


@dataclass
class Backoff:
    """Pauses between tries that fail: doubling, each a random part of it, so that many agents do not come at once."""

    first_s: float = FIRST_PAUSE_S
    failures: int = 0

    def next_s(self, retry_after_s: float | None = None) -> float:
        """What the server asked for, and a little more; otherwise from half to the whole of the doubled pause."""
        self.failures += 1
        if retry_after_s is not None:
            return retry_after_s + random.uniform(0, min(1.0, 0.1 * retry_after_s))
        whole_s = min(self.first_s * 2.0 ** min(self.failures - 1, 20), LONGEST_PAUSE_S)
        return random.uniform(whole_s / 2, whole_s)

    def reset(self) -> None:
        self.failures = 0


@dataclass
class Loop:
    """What the loop holds: the server, its folder, what this machine is, and how it runs a suite."""

    server: client.Server
    folder: Path
    facts: dict[str, Any]
    allowed: tuple[str, ...]
    runner: Runner
    stop: threading.Event
    say: Callable[[str], None]
    backoff: Backoff = field(default_factory=Backoff)


def serve(loop: Loop, *, once: bool = False) -> int:
    """Until stopped, or with `once` until one job was run and its result delivered."""
    done = False
    while not loop.stop.is_set():
        try:
            late = deliver(loop)
            if not (once and done) and may_go_on(loop, late):
                done = turn(loop) or done
                late = late or deliver(loop)
            if late:
                raise late
            loop.backoff.reset()
            if once and done:
                return OK
        except client.Unreachable as error:
            pause(loop, error)
        except client.Unauthorised as error:
            loop.say(f"Stopped. {error}")
            return REVOKED
    waiting = sum(1 for _ in state.waiting_results(loop.folder))
    loop.say(f"Stopped. {waiting} results wait for the next start." if waiting else "Stopped.")
    return OK


def may_go_on(loop: Loop, late: client.Unreachable | None) -> bool:
    """A result that the server fails to take must not end all work, unless the server is away or asks for time."""
    if late and (late.retry_after_s is not None or not late.answered):
        return False
    return sum(1 for _ in state.waiting_results(loop.folder)) < state.MOST_WAITING


def pause(loop: Loop, error: client.Unreachable) -> None:
    pause_s = loop.backoff.next_s(error.retry_after_s)
    loop.say(f"{error} Next try in {pause_s:.0f} s.")
    loop.stop.wait(pause_s)


def turn(loop: Loop) -> bool:
    """Ask once; true when a job was run, otherwise wait as long as the server says."""
    if not loop.server.key:
        fetch_key(loop)
    capabilities = {"backend": loop.facts.get("backend"), "device": loop.facts.get("device") or {}}
    job, rotate = client.lease(loop.server, {**capabilities, "kinds": list(loop.allowed)})
    if rotate:
        renew(loop)
    if isinstance(job, client.Job):
        run_job(loop, job)
        return True
    loop.stop.wait(job * random.uniform(1.0, 1.2))
    return False


def renew(loop: Loop) -> None:
    """The next token, on disk before it is used; while nothing runs, so that no heartbeat holds the former one."""
    try:
        rotate(loop)
    except client.Unreachable as error:  # there is half of its life left to ask again
        return loop.say(f"The token was not renewed: {error}")
    loop.say("The token was renewed.")


def rotate(loop: Loop) -> None:
    token, key = client.rotate(loop.server)
    key = key or loop.server.key
    state.save(loop.folder, replace(state.load(loop.folder), token=token, key=key))
    loop.server = replace(loop.server, token=token, key=key)


def fetch_key(loop: Loop) -> None:
    """The key to sign with, for a machine that was registered by an agent before 1.1."""
    rotate(loop)
    if not loop.server.key:
        raise client.Refused(
            f"This machine has lost its signing key, and {loop.server.url} gives a key only once: enroll the machine "
            "again with a new token (manage.py enrol), or use the button Make a new token and key on its page."
        )
    loop.say("The server gave this machine a key to sign its results with.")


def run_job(loop: Loop, job: client.Job) -> None:
    """Run one leased job and keep its result, or tell the server why there is none."""
    try:
        spec = specs.checked(job.spec, allowed=loop.allowed)
    except specs.SpecError as error:
        loop.say(f"Job {job.job_id}: not run. {error}")
        return report_failure(loop, job, error.code, str(error))
    barred = [] if spec["kinds"] else [kind for kind in specs.KINDS if kind not in loop.allowed]
    narrowed = {**spec, "kinds": list(loop.allowed)} if barred else spec
    loop.say(f"Job {job.job_id}, attempt {job.attempt}: {specs.described(narrowed)}.")
    with beating(loop, job) as beat:
        outcome = loop.runner(narrowed, job.deadline_s, beat.told, beat.cancel)
    if beat.lost:
        return loop.say(f"Job {job.job_id}: ended, {beat.lost}.")
    if outcome.code == "ok":
        return keep(loop, job, spec, barred, outcome.answer)
    code = "stopped" if outcome.code == "cancelled" else outcome.code
    loop.say(f"Job {job.job_id}: {code}.")
    report_failure(loop, job, code, outcome.log)


def keep(loop: Loop, job: client.Job, spec: dict[str, Any], barred: list[str], document: Any) -> None:
    """Put the document on disk under its attempt; `deliver` takes it from there."""
    try:
        body = specs.canonical(answering(document, spec, barred))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return report_failure(loop, job, "bad_output", f"The suite's answer cannot be used: {error!r}")
    signature = signing.of_result(
        loop.server.key,
        job_id=job.job_id,
        attempt=job.attempt,
        nonce=job.nonce,
        spec_hash=specs.spec_hash(spec),
        device=signing.device_identity(loop.facts.get("device") or {}),
        body_hash=hashlib.sha256(body).hexdigest(),
    )
    state.keep_result(loop.folder, job.job_id, job.attempt, body, signature)


def answering(document: dict[str, Any], spec: dict[str, Any], barred: list[str]) -> dict[str, Any]:
    """The document as the answer to the spec that was leased: what the operator bars counts as skipped."""
    if document["schema"] != specs.SCHEMA or not isinstance(document["results"], list):
        raise ValueError(f"it is no {specs.SCHEMA} document")
    skipped = [{"kind": kind, "key": {}, "reason": "not allowed by this machine's operator"} for kind in barred]
    both = {"spec": spec, "spec_hash": specs.spec_hash(spec)} if barred else {}
    return {**document, **both, "skipped": [*document["skipped"], *skipped]}


def report_failure(loop: Loop, job: client.Job, code: str, log: str) -> None:
    """Best effort: when the server cannot be told, the lease runs out and says the same."""
    backoff = Backoff(loop.backoff.first_s)
    for left in reversed(range(FAIL_TRIES)):
        try:
            return client.fail(loop.server, job, code, code in RETRIABLE, log)
        except client.Unauthorised:
            raise
        except client.Refused as error:
            return loop.say(f"Job {job.job_id}: {error}")
        except client.Unreachable as error:
            if left and not loop.stop.is_set():
                loop.stop.wait(backoff.next_s(error.retry_after_s))


# --- results ----------------------------------------------------------------------------------------------------


def deliver(loop: Loop) -> client.Unreachable | None:
    """Try every waiting result once; what the server could not take stays on disk, and why is returned."""
    late = None
    for result in state.waiting_results(loop.folder):
        try:
            deliver_one(loop, result)
        except client.Unreachable as error:
            late = error
            if not error.answered:
                break
    return late


def deliver_one(loop: Loop, result: state.Waiting) -> None:
    if not signing.SIGNATURE.fullmatch(result.signature):
        kept = state.set_aside(result)
        return loop.say(
            f"Result of job {result.job_id}: it is not signed, so the server cannot use it. Kept as {kept}."
        )
    try:
        answer = client.put_result(loop.server, result.job_id, result.attempt, result.body(), result.signature)
    except client.Unauthorised:
        raise
    except client.Refused as error:
        kept = state.set_aside(result)
        return loop.say(f"Result of job {result.job_id}: {error} Kept as {kept}.")
    state.drop(result)
    reasons = "; ".join(map(str, answer.get("reasons") or []))
    loop.say(f"Result of job {result.job_id}: {answer.get('state')}{f' ({reasons})' if reasons else ''}.")


# --- heartbeats -------------------------------------------------------------------------------------------------


@dataclass
class Beat:
    """Shared with the heartbeat's thread: how far the child is, and why it must end."""

    cancel: threading.Event = field(default_factory=threading.Event)
    lost: str = ""
    stage: tuple[str, int, int] = ("starting", 0, 0)

    def told(self, stage: str, done: int, total: int) -> None:
        self.stage = (stage, max(done, 0), max(total, 0))

    def end(self, why: str) -> None:
        self.lost = self.lost or why
        self.cancel.set()


@contextlib.contextmanager
def beating(loop: Loop, job: client.Job) -> Iterator[Beat]:
    """Heartbeats from a thread while the block runs; the agent's own stop cancels the child as well."""
    beat, done = Beat(), threading.Event()
    threads = [
        threading.Thread(target=keep_beating, args=(loop, job, beat, done), daemon=True),
        threading.Thread(target=pass_stop_on, args=(loop.stop, beat, done), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield beat
    finally:
        done.set()
        for thread in threads:
            thread.join()


def pass_stop_on(stop: threading.Event, beat: Beat, done: threading.Event) -> None:
    while not done.wait(0.1):
        if stop.is_set():
            beat.cancel.set()


def keep_beating(loop: Loop, job: client.Job, beat: Beat, done: threading.Event) -> None:
    pause_s = 0.0
    while not done.wait(pause_s):
        pause_s = beat_once(loop, job, beat)
        if beat.lost:
            return


def beat_once(loop: Loop, job: client.Job, beat: Beat) -> float:
    """Seconds until the next heartbeat. A server that cannot be reached is no reason to end the child."""
    try:
        if not client.heartbeat(loop.server, job, *beat.stage):
            beat.end("cancelled by the server")
    except client.Gone:
        beat.end("it is no longer this agent's")
    except client.Unauthorised:
        beat.end("the token was revoked")
    except client.Refused as error:
        loop.say(f"Heartbeat: {error}")
    except client.Unreachable as error:
        return max(job.heartbeat_s, error.retry_after_s or 0.0)
    return job.heartbeat_s
