"""`?wait=` holds up at most a quarter of a server's threads; everybody else is served meanwhile."""

import json
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing

import pytest

from advisor.ops import supervise
from tests import services
from tests.world import ROOT, World

ASKED = 10


@pytest.fixture(params=[4, 8])
def served(request: pytest.FixtureRequest, world: World) -> Iterator[tuple[str, int]]:
    """(the URL of a server, how many of its threads may wait)."""
    port = supervise.free_port("127.0.0.1")
    env = world.env | {"ASSAY_WEB_THREADS": str(request.param)}
    command = supervise.web_command("127.0.0.1", port, 1)
    command[command.index("--threads") + 1] = str(request.param)
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    while not services.answers(port):
        assert process.poll() is None
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}/api/v1", request.param // 4
    process.terminate()
    process.wait()


def call(url: str) -> tuple[str, str | None]:
    """(the state that it tells, when to ask again)."""
    with urllib.request.urlopen(url, timeout=90) as response:
        return json.loads(response.read()).get("state", ""), response.headers["Retry-After"]


def test_many_want_to_wait_few_are_held_and_nobody_is_starved(served: tuple[str, int], world: World) -> None:
    (url, waiters), (pk,) = served, world.ask()
    with ThreadPoolExecutor(2 * ASKED) as pool:
        waiting = {pool.submit(call, f"{url}/advice/{pk}?wait=30") for _ in range(ASKED)}
        while len(waiting) > waiters:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            assert {each.result() for each in done} == {("queued", "1")}
        quick = [pool.submit(call, f"{url}/version") for _ in range(ASKED)]
        assert not wait(quick).not_done and [each.result() for each in quick] == [("", None)] * ASKED
        assert len(waiting) == waiters and not any(each.done() for each in waiting)
        with closing(sqlite3.connect(world.folder / "db")) as database, database:
            database.execute("update advisor_advice set state = 'cancelled'")
        assert [each.result() for each in waiting] == [("cancelled", None)] * waiters
