"""A client that sends a byte now and then, or never closes, does not keep the others waiting."""

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from advisor.ops import supervise
from advisor.ops.web_worker import DeadlineSocket
from tests import services
from tests.world import ROOT

BEGUN = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"


@contextmanager
def server() -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """One process with one thread: a single client could hold it."""
    found = supervise.free_port("127.0.0.1")
    command = supervise.web_command("127.0.0.1", found, 1)
    command = ["tests.slow_app:application" if part == "advisor.wsgi:application" else part for part in command]
    command[command.index("--threads") + 1] = "1"
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stderr=subprocess.DEVNULL)
    while not services.answers(found):
        assert process.poll() is None
        time.sleep(0.02)
    try:
        yield found, process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with server() as (found, _):
        yield found


def answer(port: int, body: bytes = b"") -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=body, timeout=30) as response:
        return bytes(response.read())


@pytest.mark.parametrize(
    "begun",
    [pytest.param(BEGUN, marks=pytest.mark.soak, id="in its head"), pytest.param(BEGUN + b"\r\n", id="in its body")],
)
def test_a_request_that_drips_is_given_up(port: int, begun: bytes) -> None:
    slow, done = socket.create_connection(("127.0.0.1", port)), threading.Event()
    slow.sendall(begun)

    def drip() -> None:
        with suppress(OSError):
            while not done.wait(0.05):
                slow.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    assert answer(port, b"12345") == b"5"
    done.set()
    thread.join()
    slow.close()


def test_a_client_that_never_closes_holds_a_thread_and_not_the_loop(port: int) -> None:
    lazy = socket.create_connection(("127.0.0.1", port))
    lazy.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in lazy.recv(4096)
    assert answer(port) == b"0"
    lazy.close()


def test_a_large_body_at_an_ordinary_speed_is_read_whole(port: int) -> None:
    assert answer(port, b"x" * (4 << 20)) == str(4 << 20).encode()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def test_liveness_is_answered_while_every_thread_waits(port: int, tmp_path: Path) -> None:
    """As on a locked database: a request that waits holds the only thread."""
    file = tmp_path / "file"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(urllib.request.urlopen, f"http://127.0.0.1:{port}/?{file}", timeout=60)
        wait_for(tmp_path / "file.begun")
        probe = urllib.request.Request(f"http://127.0.0.1:{port}/healthz", headers={"Host": "10.244.3.17:8000"})
        with urllib.request.urlopen(probe, timeout=30) as alive:
            assert (alive.status, alive.read()) == (200, b'{"status": "ok"}')
        assert not waiting.done()
        file.touch()
        assert waiting.result().status == 200


def test_requests_in_flight_are_answered_after_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with server() as (found, process), ThreadPoolExecutor() as pool:
        waiting = pool.submit(urllib.request.urlopen, f"http://127.0.0.1:{found}/?{file}", timeout=60)
        wait_for(tmp_path / "file.begun")
        process.terminate()
        while services.answers(found):
            time.sleep(0.02)
        file.touch()
        assert waiting.result().read() == b"0"
        assert process.wait() == 0


def test_arriving_bytes_move_the_deadline_on_at_a_least_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("advisor.ops.web_worker.time.monotonic", lambda: now[0])
    ours, theirs = socket.socketpair()
    read = DeadlineSocket(fileno=ours.detach())
    read.setblocking(True)
    theirs.sendall(b"x" * 32 * 1024)
    now[0] += 9.9
    assert sum(len(read.recv(8192)) for _ in range(4)) == 32 * 1024
    now[0] += 2.0  # past the first ten seconds, within the two more that came with the bytes
    theirs.sendall(b"y")
    assert read.recv(8192) == b"y"
    now[0] += 1.0
    with pytest.raises(ConnectionResetError):
        read.recv(8192)
    read.close()
    theirs.close()
