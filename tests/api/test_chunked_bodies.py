"""A body sent in chunks is read like any other, through the web server that the service runs."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from advisor.ops import supervise
from advisor.ops.chunked_bodies import with_length
from advisor.ops.request_limits import MAX_BODY_BYTES, REFUSED
from tests import services
from tests.world import ROOT

TWICE = b'{"a": 1, "a": 2}'  # refused by its content
PATH = "/api/v1/advice"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Iterator[int]:
    """gunicorn with our worker and the whole application, on an empty database, which says who is asking."""
    found = supervise.free_port("127.0.0.1")
    folder = tmp_path_factory.mktemp("web")
    shutil.copy(migrated, folder / "assay.sqlite3")
    env = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL")} | {"ASSAY_VAR": str(folder)}
    command = [sys.executable, "-m", *supervise.web_command("127.0.0.1", found, 1)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    while not services.answers(found):
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    yield found
    process.terminate()
    process.wait()


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def send(port: int, body: bytes, coding: str = "chunked", path: str = PATH, extra: str = "") -> tuple[int, bytes]:
    """(status, body) of the answer to these bytes after the head."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{extra}Connection: close\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(f"{head}Transfer-Encoding: {coding}\r\n\r\n".encode())
        with suppress(OSError):  # refused before all of it was sent
            sock.sendall(body)
        answer = b""
        with suppress(ConnectionResetError):
            while part := sock.recv(65536):
                answer += part
    head_, _, found = answer.partition(b"\r\n\r\n")
    return int(head_.split()[1]), found


@pytest.mark.parametrize("parts", [(TWICE,), tuple(bytes([b]) for b in TWICE)], ids=["one chunk", "a chunk a byte"])
def test_a_chunked_body_is_read(port: int, parts: tuple[bytes, ...]) -> None:
    status, body = send(port, chunks(*parts))
    assert status == 400 and b"is set twice" in body


def test_a_chunked_body_beyond_the_limit_is_refused(port: int) -> None:
    status, body = send(port, chunks(*[b" " * 2**20] * 6))
    assert status == 413 and b"5 MiB" in body
    status, body = send(port, chunks(b" " * 1_000_001))
    assert status == 413 and b"1 MB" in body


@pytest.mark.parametrize("body", [b"zz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}XX0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n"])
def test_malformed_chunks_are_a_bad_request(port: int, body: bytes) -> None:
    status, answer = send(port, body)
    assert status == 400 and b"The chunks of the body are malformed." in answer


def test_a_coding_that_is_not_read_asks_for_a_length(port: int) -> None:
    status, answer = send(port, chunks(TWICE), "gzip, chunked")
    assert status == 411 and b"Content-Length" in answer


@pytest.mark.parametrize("extra", ["Content-Length: 5\r\n", "Content-Length: 0\r\n"])
def test_a_body_with_two_lengths_is_refused(port: int, extra: str) -> None:
    assert send(port, chunks(TWICE), extra=extra)[0] == 400


def test_the_next_request_on_the_connection_is_read_where_the_body_ends(port: int) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n".encode()
    first = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks(TWICE)
    second = head + b"Connection: close\r\nContent-Length: 1\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(first + second)
        answer = b""
        while part := sock.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1 400") == 2 and b"is set twice" in answer and b"Expecting property name" in answer


def test_a_server_that_does_not_decode_chunks_asks_for_a_length() -> None:
    seen: dict[str, Any] = {}
    application = with_length(lambda environ, start: seen.update(environ) or [])
    application({"HTTP_TRANSFER_ENCODING": "chunked", "PATH_INFO": PATH}, lambda *given: None)
    assert seen[REFUSED][0] == 411 and MAX_BODY_BYTES > 0


def test_every_path_reads_at_most_the_usual_limit() -> None:
    class Endless:
        def read(self, size: int) -> bytes:
            return b" " * size

    seen: dict[str, Any] = {}
    application = with_length(lambda environ, start: seen.update(environ) or [])
    for path in (PATH, "/api/v1/advice/x/options/1/load-tests"):
        environ = {"HTTP_TRANSFER_ENCODING": "Chunked", "PATH_INFO": path, "wsgi.input_terminated": True}
        application({**environ, "wsgi.input": Endless()}, lambda *given: None)
        assert int(seen["CONTENT_LENGTH"]) == MAX_BODY_BYTES + 1
