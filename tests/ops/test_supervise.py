"""A supervisor restarts what dies and leaves nothing behind."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.ops import supervise
from advisor.ops.supervise import Child, Supervisor


def sleeper() -> Child:
    return Child("sleeper", ["timeit", "-n1", "-r1", "import time; time.sleep(600)"])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_child_that_dies_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    child = sleeper()
    supervisor = Supervisor([child])
    try:
        supervisor.tick(0)
        first = child.process
        assert first
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        supervisor.tick(0)
        assert child.process is None and child.failures == 1
        child.start_after = 0
        supervisor.tick(0)
        assert child.running() and child.process and child.process.pid != first.pid
    finally:
        supervisor.stop()


def test_a_child_that_keeps_dying_waits_longer_each_time_up_to_half_a_minute() -> None:
    assert [supervise.backoff_s(deaths) for deaths in (1, 2, 3, 20)] == [1, 2, 4, 30]
    child = Child("broken", ["no_such_module"])
    for deaths in (1, 2, 3):
        child.start_after = 0
        child.watch()
        assert child.process
        child.process.wait()
        child.watch()
        assert (child.process, child.failures) == (None, deaths)


def test_a_stop_ends_every_process_group() -> None:
    supervisor = Supervisor([sleeper(), sleeper()])
    supervisor.tick(0)
    pids = [child.process.pid for child in supervisor.children if child.process]
    supervisor.stop()
    assert len(pids) == 2 and not any(map(alive, pids))


GRANDCHILD = """
import signal, time, pathlib
signal.signal(signal.SIGTERM, lambda *given: pathlib.Path("grandchild-was-told").touch())
pathlib.Path("grandchild").touch()
while True: time.sleep(0.1)
"""
POOL = """
import os, pathlib, signal, subprocess, sys, time
os.chdir(FOLDER)
def finish(*given):
    time.sleep(0.5)
    pathlib.Path("finished").touch()
    os._exit(0)
signal.signal(signal.SIGTERM, finish)
subprocess.Popen([sys.executable, "-c", GRANDCHILD])
while True: time.sleep(0.1)
"""


def test_a_stop_tells_the_main_process_alone_and_waits_for_it(tmp_path: Path) -> None:
    """A pool's processes are told by their main process, when their jobs have ended."""
    code = f"FOLDER, GRANDCHILD = {str(tmp_path)!r}, {GRANDCHILD!r}\n{POOL}"
    supervisor = Supervisor([Child("pool", ["timeit", "-n1", "-r1", f"exec({code!r}, {{}})"])])
    supervisor.tick(0)
    while not (tmp_path / "grandchild").exists():
        supervisor.tick(0.02)
    supervisor.stop()
    assert (tmp_path / "finished").exists()
    assert not (tmp_path / "grandchild-was-told").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_children_of_a_killed_supervisor_die_with_it(tmp_path: Path) -> None:
    code = (
        "import django, time; django.setup()\n"
        "from tests.ops.test_supervise import sleeper, Supervisor\n"
        "s = Supervisor([sleeper()]); s.tick(0); print(s.children[0].process.pid, flush=True); time.sleep(600)"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "advisor.settings", "ASSAY_VAR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    descriptor = os.pidfd_open(child) if alive(child) else None
    if descriptor is not None:
        assert select.select([descriptor], [], [], 30)[0], "the child outlived its supervisor"


def test_a_taken_port_is_said_plainly() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(supervise.PortTaken, match=f"127.0.0.1:{port} .*--port"):
            supervise.require_free("127.0.0.1", port)
