"""A real web server that is killed while an agent works: the agent goes on with the one that comes after."""

import json
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from advisor.ops.supervise import free_port
from probes.agent.server import signing
from tests import services
from tests.probes import samples
from tests.soak_agents import MAKE, QUEUE
from tests.world import ROOT, World, kill


class Line:
    """An agent's connection to whatever answers at that port."""

    def __init__(self, port: int, token: str) -> None:
        self.base = f"http://127.0.0.1:{port}/api/agent/v1/"
        self.token, _, self.key = token.partition(":")
        self.given: dict[str, Any] = {}

    def send(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        text = json.dumps(body).encode()
        headers = {"Agent-Protocol": "2", "Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        headers |= {signing.HEADER: samples.signature(self.key, self.given, text)} if method == "PUT" else {}
        headers |= {"Idempotency-Key": samples.digest(text)}
        request = urllib.request.Request(self.base + path, text, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")


def web(world: World, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gunicorn", "advisor.wsgi:application", "--bind", f"127.0.0.1:{port}"]
    with (world.folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=world.env, stdout=log, stderr=log, start_new_session=True)
    world.processes.append(process)
    world.until(lambda: services.answers(port))
    return process


def end(world: World, process: subprocess.Popen[bytes], port: int) -> None:
    """Kills it; its workers hold the port a moment longer."""
    kill(process)
    world.until(lambda: not services.answers(port))


def test_a_server_killed_in_the_middle_of_a_job_loses_nothing(world: World) -> None:
    world.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    (token,) = world.python("-c", MAKE, "1").split()
    world.python("-c", QUEUE, "1")
    port = free_port("127.0.0.1")
    first, line = web(world, port), Line(port, token)
    status, given = line.send("POST", "lease", {"capabilities": {"device": samples.H200}})
    line.given = given
    assert status == 200
    end(world, first, port)
    job, attempt = f"jobs/{given['job_id']}", given["attempt"]
    with pytest.raises(OSError):
        line.send("POST", f"{job}/heartbeat", {"attempt": attempt})
    second = web(world, port)
    assert line.send("POST", f"{job}/heartbeat", {"attempt": attempt})[1]["continue"] is True
    document = samples.document(given["spec"], results=[samples.known(), *samples.memory()[:3]], duration_s=0.05)
    path = f"{job}/attempts/{attempt}/result"
    assert line.send("PUT", path, document) == (200, {"state": "accepted", "reasons": []})
    end(world, second, port)  # the answer may have been lost with it
    web(world, port)
    assert line.send("PUT", path, document) == (200, {"state": "accepted", "reasons": []})
    assert world.rows("select state, attempt from probes_job") == [("done", 1)]
    assert world.rows("select count(*) from probes_result") == [(1,)]
