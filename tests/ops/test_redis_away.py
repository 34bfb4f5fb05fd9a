"""Redis is stopped, or hangs, under a running web server: machines are told to come back, people go on."""

import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.ops.supervise import free_port, web_command
from probes.agent.spec import PROTOCOL
from tests import services
from tests.soak_agents import MAKE
from tests.world import ROOT, World

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed here"),
]
QUESTION = (ROOT / "fixtures/workloads/support-chat.yaml").read_bytes()


@dataclass
class Service:
    world: World
    redis: services.PrivateRedis
    port: int
    token: str

    def call(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, named)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def lease(self) -> tuple[int, Any, bytes]:
        own = {"Agent_Protocol": PROTOCOL, "Authorization": f"Bearer {self.token}", "Content_Type": "application/json"}
        return self.call("/api/agent/v1/lease", b"{}", **own)

    def checks(self) -> dict[str, bool]:
        return {name: check["ok"] for name, check in json.loads(self.call("/readyz")[2])["checks"].items()}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("redis-away")
    shutil.copy(migrated, folder / "db")
    redis = services.PrivateRedis(folder)
    redis.start()
    world = World(folder, f"sqlite:///{folder}/db", redis.url)
    world.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    try:
        world.python("manage.py", "load_catalog", "-v0", "--no-scores")
        token = world.python("-c", MAKE, "1").strip().partition(":")[0]
        port = free_port("127.0.0.1")
        with (folder / "log").open("ab") as log:
            command = [sys.executable, "-m", *web_command("127.0.0.1", port, 1)]
            process = subprocess.Popen(command, cwd=ROOT, env=world.env, stdout=log, stderr=log, start_new_session=True)
        world.processes.append(process)
        world.until(lambda: services.answers(port))
        yield Service(world, redis, port, token)
    finally:
        world.end()
        redis.stop()


@pytest.fixture(params=["stopped", pytest.param("hangs", marks=pytest.mark.soak)])
def without_redis(request: pytest.FixtureRequest, service: Service) -> Iterator[Service]:
    assert service.lease()[0] == 204
    if request.param == "stopped":
        service.redis.stop()
    else:
        service.redis.send(signal.SIGSTOP)
    yield service
    if request.param == "stopped":
        service.redis.start()
    else:
        service.redis.send(signal.SIGCONT)
    assert service.lease()[0] == 204
    assert service.checks()["broker"]


def test_machines_get_503_and_when_to_come_back(without_redis: Service) -> None:
    status, headers, body = without_redis.lease()
    assert (status, int(headers["Retry-After"]) > 0) == (503, True)
    assert headers["Content-Type"] == "application/problem+json"
    assert "Redis" in json.loads(body)["detail"]


def test_the_server_is_alive_and_not_ready(without_redis: Service) -> None:
    assert without_redis.call("/healthz", Host="10.0.0.7")[0] == 200
    status, headers, body = without_redis.call("/readyz", Host="10.0.0.7")
    assert status == 503 and int(headers["Retry-After"]) > 0
    found = json.loads(body)["checks"]
    assert [name for name, check in found.items() if check["required"] and not check["ok"]] == ["broker"]


def test_people_read_and_ask_and_the_question_waits(without_redis: Service) -> None:
    assert without_redis.call("/advice")[0] == without_redis.call("/")[0] == 200
    status, _, body = without_redis.call("/api/v1/advice", QUESTION, Content_Type="application/yaml")
    assert status == 202
    advice = json.loads(body)["id"]
    assert json.loads(without_redis.call(f"/api/v1/advice/{advice}")[2])["state"] == "queued"
