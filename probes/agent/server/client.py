"""The protocol agent/v1: every request that this agent can make, with urllib.

Requests go only to the server that the operator named. TLS is always verified; plain http needs a loopback address or
the operator's permission. Redirects are errors, answers have a size limit, and numbers from the server are clamped.
Each function makes one request; retries are up to the caller.
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

from probes.agent.server import signing
from probes.agent.server.state import JOB_ID
from probes.agent.spec import AGENT_VERSION, PROTOCOL

ANSWER_BYTES: Final = 1 << 20
LOG_BYTES: Final = 16 * 1024
TIMEOUT_S: Final = 30.0
MAX_WAIT_S: Final = 3600.0


class Refused(Exception):
    """The server refused the request; a retry would not help."""


class Unauthorised(Refused):
    """401: the token is unknown or revoked."""


class Gone(Refused):
    """404 or 409: this agent no longer owns the job."""


class Unreachable(Exception):
    """No answer, or an answer (`answered`) to retry later, after `retry_after_s` if the server gave a time."""

    def __init__(self, message: str, retry_after_s: float | None = None, *, answered: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s, self.answered = retry_after_s, answered


@dataclass(frozen=True)
class Server:
    """The server, with this agent's token and key."""

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
    """A leased job. The attempt must finish within `deadline_s` seconds from now."""

    job_id: str
    attempt: int
    nonce: str  # part of the signature: a result counts only for this lease
    spec: Any
    heartbeat_s: float
    deadline_s: float


# --- one request ------------------------------------------------------------------------------------------------


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any) -> None:
        return None


def checked_url(url: str, *, allow_http: bool = False) -> str:
    """The server URL without a trailing slash. Refused: it is invalid or unsafe."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise Refused(f"{url!r} is not a server URL; give https://host[:port].")
    if parts.scheme == "http" and not (allow_http or is_loopback(parts.hostname)):
        raise Refused(f"{url} has no TLS, so tokens would be sent unencrypted. Use https:// or --allow-http.")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def opener(url: str) -> urllib.request.OpenerDirector:
    """An opener with the system's certificates, the environment's proxy (not for loopback) and no redirects."""
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
    """Sends one request. Refused or Unreachable: it did not succeed."""
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
    """The parsed answer. Unreachable: it is too long or not a JSON object."""
    text = response.read(ANSWER_BYTES + 1)
    if len(text) > ANSWER_BYTES:
        raise Unreachable(f"The server's answer is longer than {ANSWER_BYTES} bytes.")
    try:
        body = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise Unreachable("The server's answer is not JSON. Is this an Assay server?") from None
    if not isinstance(body, dict):
        raise Unreachable("The server's answer is not a JSON object. Is this an Assay server?")
    rotate = response.headers.get("Agent-Rotate") == "1"
    return Answer(response.status, seconds(response.headers.get("Retry-After")), body, rotate)


def read_error(error: urllib.error.HTTPError) -> Answer:
    try:
        return read(error)
    except (Unreachable, OSError, http.client.HTTPException):  # a proxy's page, or truncated: the status is enough
        return Answer(error.code, seconds(error.headers.get("Retry-After")), {})


def seconds(text: str | None) -> float | None:
    """Retry-After in seconds. Its date form is ignored, since it needs synchronized clocks."""
    with contextlib.suppress(TypeError, ValueError):
        return clamped(float(cast(str, text)), 0.0, MAX_WAIT_S)
    return None


def clamped(value: float, low: float, high: float) -> float:
    """`value` limited to a range. ValueError: not finite."""
    if not math.isfinite(value):
        raise ValueError("not finite")
    return min(max(value, low), high)


def failure(server: Server, answer: Answer) -> Exception:
    """The exception for an error status."""
    detail = str(answer.body.get("detail") or answer.body.get("title") or f"HTTP {answer.status}")[:500]
    if answer.status in (408, 425, 429) or answer.status >= 500:
        return Unreachable(f"{server.url} asks to retry later: {detail}.", answer.retry_after_s, answered=True)
    if answer.status == 401:
        return Unauthorised(f"{server.url} does not accept this token: {detail} Register again.")
    if answer.status == 426:
        return Refused(
            f"This agent ({AGENT_VERSION}) and {server.url} use different protocols. Update agent.pyz. {detail}"
        )
    if 300 <= answer.status < 400:
        return Refused(f"{server.url} redirects, which this agent does not follow. Give the final URL.")
    return (Gone if answer.status in (404, 409) else Refused)(f"{server.url} refused: {detail}")


def post(server: Server, path: str, body: dict[str, Any], timeout_s: float = TIMEOUT_S) -> Answer:
    return send(server, "POST", path, json.dumps(body, allow_nan=False).encode(), timeout_s=timeout_s)


# --- the protocol -----------------------------------------------------------------------------------------------


def register(
    server: Server, enrolment: str, install_id: str, name: str, labels: dict[str, str], inventory: dict[str, Any]
) -> Registration:
    """Exchanges the enrollment token for this machine's token and key.

    A machine with a key from an earlier registration proves that it is the same machine.
    """
    asked = {"enrolment_token": enrolment, "install_id": install_id, "agent_version": AGENT_VERSION}
    proof = {"proof": signing.of_registration(server.key, install_id, enrolment)} if server.key else {}
    facts = {"name": name, "labels": labels, "inventory": inventory}
    answer = post(server, "register", {**asked, **proof, **facts}).body
    key = key_in(answer)
    if not key:
        raise Refused("The server sent no signing key. Is it an Assay server of a current version?")
    return Registration(str(answer.get("agent_id", "")), token_in(answer), key)


def key_in(answer: dict[str, Any]) -> str:
    """The signing key in an answer; empty if there is no valid one."""
    key = answer.get("signing_key")
    return key if isinstance(key, str) and signing.KEY.fullmatch(key) else ""


def token_in(answer: dict[str, Any]) -> str:
    token = answer.get("token")
    if not isinstance(token, str) or not token.startswith("agt_") or not token.isascii() or not token.isprintable():
        raise Refused("The server sent no agent token. Is this an Assay server?")
    return token


def lease(server: Server, capabilities: dict[str, Any]) -> tuple[Job | float, bool]:
    """A job, or the seconds until the next poll; and whether to rotate the token first."""
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
        attempt=int(clamped(body["attempt"], 0, 10**6)),
        nonce=nonce,
        spec=body["spec"],
        heartbeat_s=clamped(body.get("heartbeat_s") or body["lease_s"] / 3, 0.05, 60.0),
        deadline_s=clamped(body["deadline_s"], 1.0, 2 * MAX_WAIT_S),
    )


def heartbeat(server: Server, job: Job, stage: str, done: int, total: int) -> bool:
    """Whether to continue. Gone: another attempt has the job."""
    body = {"attempt": job.attempt, "stage": stage, "done": done, "total": total}
    return post(server, f"jobs/{job.job_id}/heartbeat", body, timeout_s=10.0).body.get("continue") is not False


def put_result(server: Server, job_id: str, attempt: int, body: bytes, signature: str) -> dict[str, Any]:
    """Sends a result and returns {state, reasons}. The Idempotency-Key makes a retry count once."""
    headers = {"Idempotency-Key": hashlib.sha256(body).hexdigest(), signing.HEADER: signature}
    return send(server, "PUT", f"jobs/{job_id}/attempts/{attempt}/result", body, headers).body


def fail(server: Server, job: Job, code: str, retriable: bool, log: str) -> None:
    body = {"code": code, "retriable": retriable, "log": log[-LOG_BYTES:]}
    post(server, f"jobs/{job.job_id}/attempts/{job.attempt}/fail", body)


def rotate(server: Server) -> tuple[str, str]:
    """The next token, and a key if the machine has none. The old token works for a few more minutes."""
    answer = post(server, "token/rotate", {}).body
    return token_in(answer), key_in(answer)
