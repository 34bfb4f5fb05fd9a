"""The agent's loop: deliver stored results, lease a job, run it, store its result until the server has it.

Durations use the monotonic clock, so a wrong host clock does not matter. The agent owns a job while its heartbeats
succeed; 409 or a request to stop ends the child at once. A result is deleted only after the server acknowledged it.
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

from probes.agent import sandbox
from probes.agent import spec as specs
from probes.agent.server import client, signing, state

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 300.0
FAIL_TRIES: Final = 3
OK, REVOKED = 0, 3
Runner = Callable[[dict[str, Any], float, sandbox.Progress, threading.Event], sandbox.Outcome]
# Codes after which a retry, maybe on another machine, may succeed.
RETRIABLE: Final = frozenset({"timeout", "out_of_memory", "crashed", "bad_output", "stopped", "unsupported"})


@dataclass
class Backoff:
    """Exponential backoff with jitter, so that many agents do not retry at the same time."""

    first_s: float = FIRST_PAUSE_S
    failures: int = 0

    def next_s(self, retry_after_s: float | None = None) -> float:
        """The next pause in seconds: what the server asked for and a little more, or exponential with jitter."""
        self.failures += 1
        if retry_after_s is not None:
            return retry_after_s + random.uniform(0, min(1.0, 0.1 * retry_after_s))
        limit_s = min(self.first_s * 2.0 ** min(self.failures - 1, 20), MAX_PAUSE_S)
        return random.uniform(limit_s / 2, limit_s)

    def reset(self) -> None:
        self.failures = 0


@dataclass
class Loop:
    """The state of the loop: server, state folder, facts of this machine, and how it runs a suite."""

    server: client.Server
    folder: Path
    facts: dict[str, Any]
    allowed: tuple[str, ...]
    runner: Runner
    stop: threading.Event
    say: Callable[[str], None]
    backoff: Backoff = field(default_factory=Backoff)


def serve(loop: Loop, *, once: bool = False) -> int:
    """Runs until stopped, or with `once` until one job is done and delivered. Returns the exit code."""
    done = False
    while not loop.stop.is_set():
        try:
            late = deliver(loop)
            if not (once and done) and may_lease(loop, late):
                done = lease_once(loop) or done
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
    loop.say(f"Stopped. {waiting} results will be sent at the next start." if waiting else "Stopped.")
    return OK


def may_lease(loop: Loop, late: client.Unreachable | None) -> bool:
    """Whether to lease another job although a result could not be delivered.

    False if the server is unreachable or asked for a pause, or if too many results are stored.
    """
    if late and (late.retry_after_s is not None or not late.answered):
        return False
    return sum(1 for _ in state.waiting_results(loop.folder)) < state.MAX_WAITING


def pause(loop: Loop, error: client.Unreachable) -> None:
    pause_s = loop.backoff.next_s(error.retry_after_s)
    loop.say(f"{error} Next try in {pause_s:.0f} s.")
    loop.stop.wait(pause_s)


def lease_once(loop: Loop) -> bool:
    """Polls once. True if a job was run; otherwise waits for the polling interval."""
    if not loop.server.key:
        fetch_key(loop)
    capabilities = {"backend": loop.facts.get("backend"), "device": loop.facts.get("device") or {}}
    job, rotate = client.lease(loop.server, {**capabilities, "kinds": list(loop.allowed)})
    if rotate:
        rotate_token(loop)
    if isinstance(job, client.Job):
        run_job(loop, job)
        return True
    loop.stop.wait(job * random.uniform(1.0, 1.2))
    return False


def rotate_token(loop: Loop) -> None:
    """Gets the next token. Only between jobs, so that no heartbeat uses the old one."""
    try:
        rotate(loop)
    except client.Unreachable as error:  # half of its lifetime is left to try again
        return loop.say(f"The token was not rotated: {error}")
    loop.say("The token was rotated.")


def rotate(loop: Loop) -> None:
    """Gets the next token, and the key if there is none. Both are stored before they are used."""
    token, key = client.rotate(loop.server)
    key = key or loop.server.key
    state.save(loop.folder, replace(state.load(loop.folder), token=token, key=key))
    loop.server = replace(loop.server, token=token, key=key)


def fetch_key(loop: Loop) -> None:
    """Gets a signing key, for a machine that was registered by an agent before 1.1."""
    rotate(loop)
    if not loop.server.key:
        raise client.Refused(
            f"This machine has lost its signing key, which {loop.server.url} sends only once. Enroll it again with a "
            "new token (manage.py enrol), or use the button Create a new token and key on its page."
        )
    loop.say("Received a key from the server to sign results.")


def run_job(loop: Loop, job: client.Job) -> None:
    """Runs one leased job and stores its result, or reports the failure."""
    try:
        spec = specs.checked(job.spec, allowed=loop.allowed)
    except specs.SpecError as error:
        loop.say(f"Job {job.job_id}: not run. {error}")
        return report_failure(loop, job, error.code, str(error))
    forbidden = [] if spec["kinds"] else [kind for kind in specs.KINDS if kind not in loop.allowed]
    narrowed = {**spec, "kinds": list(loop.allowed)} if forbidden else spec
    loop.say(f"Job {job.job_id}, attempt {job.attempt}: {specs.summary(narrowed)}.")
    with heartbeats(loop, job) as beat:
        outcome = loop.runner(narrowed, job.deadline_s, beat.progress, beat.cancel)
    if beat.lost:
        return loop.say(f"Job {job.job_id}: stopped, {beat.lost}.")
    if outcome.code == "ok":
        return store(loop, job, spec, forbidden, outcome.answer)
    code = "stopped" if outcome.code == "cancelled" else outcome.code
    loop.say(f"Job {job.job_id}: {code}.")
    report_failure(loop, job, code, outcome.log)


def store(loop: Loop, job: client.Job, spec: dict[str, Any], forbidden: list[str], document: Any) -> None:
    """Stores the signed document for `deliver`."""
    try:
        body = specs.canonical(with_skipped(document, spec, forbidden))
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


def with_skipped(document: dict[str, Any], spec: dict[str, Any], forbidden: list[str]) -> dict[str, Any]:
    """The document with the leased spec; kinds that the operator does not allow are listed as skipped."""
    if document["schema"] != specs.SCHEMA or not isinstance(document["results"], list):
        raise ValueError(f"it is not a {specs.SCHEMA} document")
    skipped = [{"kind": kind, "key": {}, "reason": "not allowed by this machine's operator"} for kind in forbidden]
    leased = {"spec": spec, "spec_hash": specs.spec_hash(spec)} if forbidden else {}
    return {**document, **leased, "skipped": [*document["skipped"], *skipped]}


def report_failure(loop: Loop, job: client.Job, code: str, log: str) -> None:
    """Reports a failure, best effort: if it does not arrive, the lease expires with the same effect."""
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
    """Sends every stored result once. Results that fail stay stored; returns the last error."""
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
        path = state.set_aside(result)
        return loop.say(
            f"Result of job {result.job_id}: it is not signed, so the server cannot use it. Saved as {path}."
        )
    try:
        answer = client.put_result(loop.server, result.job_id, result.attempt, result.body(), result.signature)
    except client.Unauthorised:
        raise
    except client.Refused as error:
        path = state.set_aside(result)
        return loop.say(f"Result of job {result.job_id}: {error} Saved as {path}.")
    state.drop(result)
    reasons = "; ".join(map(str, answer.get("reasons") or []))
    loop.say(f"Result of job {result.job_id}: {answer.get('state')}{f' ({reasons})' if reasons else ''}.")


# --- heartbeats -------------------------------------------------------------------------------------------------


@dataclass
class Beat:
    """Shared with the heartbeat thread: the progress of the child, and why it must stop."""

    cancel: threading.Event = field(default_factory=threading.Event)
    lost: str = ""
    stage: tuple[str, int, int] = ("starting", 0, 0)

    def progress(self, stage: str, done: int, total: int) -> None:
        self.stage = (stage, max(done, 0), max(total, 0))

    def end(self, why: str) -> None:
        self.lost = self.lost or why
        self.cancel.set()


@contextlib.contextmanager
def heartbeats(loop: Loop, job: client.Job) -> Iterator[Beat]:
    """Sends heartbeats from a thread while the block runs. Stopping the agent also cancels the child."""
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
    """Sends one heartbeat and returns the seconds until the next. An unreachable server does not stop the child."""
    try:
        if not client.heartbeat(loop.server, job, *beat.stage):
            beat.end("canceled by the server")
    except client.Gone:
        beat.end("this agent no longer owns it")
    except client.Unauthorised:
        beat.end("the token was revoked")
    except client.Refused as error:
        loop.say(f"Heartbeat: {error}")
    except client.Unreachable as error:
        return max(job.heartbeat_s, error.retry_after_s or 0.0)
    return job.heartbeat_s
