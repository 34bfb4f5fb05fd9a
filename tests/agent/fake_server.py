"""A server of agent/v1 in a thread, whose answers a test writes down beforehand."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "agt_test"
KEY = "ab" * 32


@dataclass(frozen=True)
class Reply:
    """`cut` closes the connection after reading that many bytes of the body, without an answer."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    raw: bytes | None = None


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def what(self) -> str:
        return self.path.rsplit("/", 1)[-1]


JOB = {
    "job_id": "5f3a9c1e-0000",
    "attempt": 1,
    "nonce": "0f" * 16,
    "spec": {"suite": "quick", "kinds": None, "max_s": 5, "max_bytes": None},
}
JOB |= {"lease_s": 60, "heartbeat_s": 0.05, "deadline_s": 300}
NOTHING = Reply(204, headers={"Retry-After": "0"})


class FakeServer:
    """Replies per request name (lease, heartbeat, result, fail, register, rotate); the last one stays."""

    def __init__(self) -> None:
        self.replies: dict[str, list[Reply | Callable[[Seen], Reply]]] = {
            "register": [
                Reply(
                    201,
                    {"agent_id": 7, "token": TOKEN, "signing_key": KEY, "poll_s": 1, "heartbeat_s": 1, "lease_s": 3},
                )
            ],
            "lease": [Reply(body=JOB), NOTHING],
            "heartbeat": [Reply(body={"continue": True, "lease_s": 60})],
            "result": [Reply(body={"state": "accepted", "reasons": []})],
            "fail": [Reply(body={"state": "queued"})],
            "rotate": [Reply(body={"token": "agt_next", "signing_key": KEY})],
        }
        self.seen: list[Seen] = []
        self.changed = threading.Condition()
        self.server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.server = Server(("127.0.0.1", self.port), handler(self))
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        assert self.server
        self.server.shutdown()
        self.server.server_close()

    def reply_to(self, seen: Seen) -> Reply:
        with self.changed:
            self.seen.append(seen)
            self.changed.notify_all()
            planned = self.replies[seen.what]
            reply = planned.pop(0) if len(planned) > 1 else planned[0]
        return reply if isinstance(reply, Reply) else reply(seen)

    def of(self, what: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.what == what]

    def counts(self) -> Counter[str]:
        return Counter(seen.what for seen in self.seen)

    def wait_for(self, what: str, count: int = 1) -> None:
        """The bound only ends a test that would hang."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.of(what)) >= count, timeout=60), self.counts()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, address: Any) -> None:
        """A client that hangs up is part of the tests."""


def handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            planned = fake.replies.get(self.path.rsplit("/", 1)[-1], [Reply(404)])[0]
            if isinstance(planned, Reply) and planned.cut is not None:
                self.rfile.read(min(planned.cut, length))
                fake.reply_to(Seen(self.command, self.path, dict(self.headers), None))
                self.close_connection = True
                return
            body = self.rfile.read(length)
            self.write(fake.reply_to(Seen(self.command, self.path, dict(self.headers), json.loads(body or b"null"))))

        def write(self, reply: Reply) -> None:
            body = (
                reply.raw if reply.raw is not None else b"" if reply.body is None else json.dumps(reply.body).encode()
            )
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *given: Any) -> None:
            pass

    return Handler


@contextmanager
def running() -> Iterator[FakeServer]:
    fake = FakeServer()
    fake.start()
    try:
        yield fake
    finally:
        fake.stop()


def key_fits(seen: Seen) -> bool:
    """The Idempotency-Key is the hash of the canonical body, which is what was sent."""
    body = json.dumps(seen.body, sort_keys=True, separators=(",", ":")).encode()
    return seen.headers["Idempotency-Key"] == hashlib.sha256(body).hexdigest()
