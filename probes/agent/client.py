"""The protocol agent/v1: every request that this agent can make, over urllib.

Requests go to one server, named by the operator. TLS is always verified; plain http is for this machine itself, or
for whom the operator allows it. A redirect is an error, an answer is read up to a bound, a number from the server
counts only within its range. Each function makes one request; who calls decides when to ask again.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ipaddress
import json
import math
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

from probes.agent import signing
from probes.agent.spec import AGENT_VERSION, PROTOCOL
from probes.agent.state import JOB_ID

ANSWER_BYTES: Final = 1 << 20
LOG_BYTES: Final = 16 * 1024
TIMEOUT_S: Final = 30.0
LONGEST_WAIT_S: Final = 3600.0


class Refused(Exception):
    """The server answered, and asking again the same would not help."""


class Unauthorised(Refused):
    """401: the token is unknown or revoked."""


class Gone(Refused):
    """404 or 409: the job is no longer this agent's."""


class Unreachable(Exception):
    """No answer, or one (`answered`) that says later; `retry_after_s` is None where the server named no time."""

    def __init__(self, message: str, retry_after_s: float | None = None, *, answered: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s, self.answered = retry_after_s, answered


@dataclass(frozen=True)
class Server:
    """Where to ask, and as whom."""

    url: str
    token: str = ""
    key: str = ""  # signs results


@dataclass(frozen=True)
class Answer:
    status: int
    retry_after_s: float | None
    body: dict[str, Any]
    rotate: bool = False


@dataclass(frozen=True)
class Registration:
    agent_id: str
    token: str
    key: str


@dataclass(frozen=True)
class Job:
    """A leased job; `deadline_s` is what the attempt may take in all, from now."""

    job_id: str
    attempt: int
    nonce: str  # part of what is signed: a result counts for this lease alone
    spec: Any
    heartbeat_s: float
    deadline_s: float


# --- one request ------------------------------------------------------------------------------------------------


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any) -> None:
        return None


def checked_url(url: str, *, allow_http: bool = False) -> str:
    """The server's address without a trailing slash; Refused when it is none or not safe."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise Refused(f"{url!r} is not a server's address: give https://host[:port].")
    if parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname)):
        raise Refused(f"{url} has no TLS: tokens would travel in the open. Give https://, or --allow-http.")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def opener(url: str) -> urllib.request.OpenerDirector:
    """The system's certificates, the environment's proxy (never for this machine itself), no redirects."""
    context = ssl.create_default_context()
    proxies = urllib.request.ProxyHandler({} if is_loopback(urlsplit(url).hostname or "") else None)
    return urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=context), NoRedirect)


def send(
    server: Server,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """One request; raises Refused or Unreachable for everything that is not a success."""
    request = urllib.request.Request(f"{server.url}/api/agent/v1/{path}", data=body, method=method)
    common = {"Agent-Protocol": PROTOCOL, "Content-Type": "application/json", "Accept": "application/json"}
    sender = {"User-Agent": f"assay-agent/{AGENT_VERSION}"}
    bearer = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    for name, value in {**common, **sender, **bearer, **(headers or {})}.items():
        request.add_unredirected_header(name, value)
    try:
        with opener(server.url).open(request, timeout=timeout_s) as response:
            return read(response)
    except urllib.error.HTTPError as error:
        with error:
            raise failure(server, read_error(error)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{server.url} does not answer ({getattr(error, 'reason', error)}).") from None


def read(response: Any) -> Answer:
    """The answer as an object; one that is too long, or no JSON, counts as none."""
    text = response.read(ANSWER_BYTES + 1)
    if len(text) > ANSWER_BYTES:
        raise Unreachable(f"The server's answer is longer than {ANSWER_BYTES} bytes.")
    try:
        body = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise Unreachable("The server's answer is no JSON: is this an Assay server?") from None
    if not isinstance(body, dict):
        raise Unreachable("The server's answer is no object: is this an Assay server?")
    rotate = response.headers.get("Agent-Rotate") == "1"
    return Answer(response.status, seconds(response.headers.get("Retry-After")), body, rotate)


def read_error(error: urllib.error.HTTPError) -> Answer:
    try:
        return read(error)
    except (Unreachable, OSError, http.client.HTTPException):  # a proxy's page, or cut short: the status says enough
        return Answer(error.code, seconds(error.headers.get("Retry-After")), {})


def seconds(text: str | None) -> float | None:
    """Retry-After in seconds. Its other form, a date, would need a clock that agrees with the server's."""
    with contextlib.suppress(TypeError, ValueError):
        return within(float(cast(str, text)), 0.0, LONGEST_WAIT_S)
    return None


def within(value: float, least: float, most: float) -> float:
    if not math.isfinite(value):
        raise ValueError("not finite")
    return min(max(value, least), most)


def failure(server: Server, answer: Answer) -> Exception:
    detail = str(answer.body.get("detail") or answer.body.get("title") or f"HTTP {answer.status}")[:500]
    if answer.status in (408, 425, 429) or answer.status >= 500:
        return Unreachable(f"{server.url} says later: {detail}.", answer.retry_after_s, answered=True)
    if answer.status == 401:
        return Unauthorised(f"{server.url} does not know this token, or it was revoked: {detail} Register again.")
    if answer.status == 426:
        return Refused(f"This agent ({AGENT_VERSION}) and {server.url} differ in protocol; fetch agent.pyz. {detail}")
    if 300 <= answer.status < 400:
        return Refused(f"{server.url} redirects elsewhere, which this agent does not follow: give the final address.")
    return (Gone if answer.status in (404, 409) else Refused)(f"{server.url} refuses: {detail}")


def post(server: Server, path: str, body: dict[str, Any], timeout_s: float = TIMEOUT_S) -> Answer:
    return send(server, "POST", path, json.dumps(body, allow_nan=False).encode(), timeout_s=timeout_s)


# --- the protocol -----------------------------------------------------------------------------------------------


def register(
    server: Server, enrolment: str, install_id: str, name: str, labels: dict[str, str], inventory: dict[str, Any]
) -> Registration:
    """Exchange the enrolment token for this machine's own token and key.

    A machine that has a key (of an earlier registration) proves it, and stays the machine that it was.
    """
    asked = {"enrolment_token": enrolment, "install_id": install_id, "agent_version": AGENT_VERSION}
    proof = {"proof": signing.of_registration(server.key, install_id, enrolment)} if server.key else {}
    about = {"name": name, "labels": labels, "inventory": inventory}
    answer = post(server, "register", {**asked, **proof, **about}).body
    key = key_in(answer)
    if not key:
        raise Refused("The server gave no signing key: is this an Assay server of this agent's version?")
    return Registration(str(answer.get("agent_id", "")), token_in(answer), key)


def key_in(answer: dict[str, Any]) -> str:
    """The signing key of an answer; empty when it holds none that can be used."""
    key = answer.get("signing_key")
    return key if isinstance(key, str) and signing.KEY.fullmatch(key) else ""


def token_in(answer: dict[str, Any]) -> str:
    token = answer.get("token")
    if not isinstance(token, str) or not token.startswith("agt_") or not token.isascii() or not token.isprintable():
        raise Refused("The server gave no agent token: is this an Assay server?")
    return token


def lease(server: Server, capabilities: dict[str, Any]) -> tuple[Job | float, bool]:
    """(a job, or the seconds until the server wants to be asked again; whether to renew the token before that)."""
    answer = post(server, "lease", {"capabilities": capabilities, "agent_version": AGENT_VERSION})
    if answer.status == 204 or not answer.body:
        return (10.0 if answer.retry_after_s is None else answer.retry_after_s), answer.rotate
    try:
        return job_in(answer.body), answer.rotate
    except (KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"The server's job cannot be read ({error!r}).") from None


def job_in(body: dict[str, Any]) -> Job:
    job_id = str(body["job_id"])
    if not JOB_ID.fullmatch(job_id):
        raise ValueError("job_id")
    nonce = str(body["nonce"])
    if not signing.NONCE.fullmatch(nonce):
        raise ValueError("nonce")
    return Job(
        job_id=job_id,
        attempt=int(within(body["attempt"], 0, 10**6)),
        nonce=nonce,
        spec=body["spec"],
        heartbeat_s=within(body.get("heartbeat_s") or body["lease_s"] / 3, 0.05, 60.0),
        deadline_s=within(body["deadline_s"], 1.0, 2 * LONGEST_WAIT_S),
    )


def heartbeat(server: Server, job: Job, stage: str, done: int, total: int) -> bool:
    """Whether to go on; Gone when another attempt has the job."""
    told = {"attempt": job.attempt, "stage": stage, "done": done, "total": total}
    return post(server, f"jobs/{job.job_id}/heartbeat", told, timeout_s=10.0).body.get("continue") is not False


def put_result(server: Server, job_id: str, attempt: int, body: bytes, signature: str) -> dict[str, Any]:
    """{state, reasons}. The same body has the same Idempotency-Key, so that sending it twice counts once."""
    headers = {"Idempotency-Key": hashlib.sha256(body).hexdigest(), signing.HEADER: signature}
    return send(server, "PUT", f"jobs/{job_id}/attempts/{attempt}/result", body, headers).body


def fail(server: Server, job: Job, code: str, retriable: bool, log: str) -> None:
    told = {"code": code, "retriable": retriable, "log": log[-LOG_BYTES:]}
    post(server, f"jobs/{job.job_id}/attempts/{job.attempt}/fail", told)


def rotate(server: Server) -> tuple[str, str]:
    """(this machine's next token, its key where it has none yet); the old token works a few minutes more."""
    answer = post(server, "token/rotate", {}).body
    return token_in(answer), key_in(answer)
