"""The command of each container starts as a process with its manifest's environment, passes its probes and ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.ops.supervise import free_port
from tests.deployment import manifests
from tests.deployment.manifests import Container
from tests.world import ROOT, World

ALL = manifests.pod_containers() + manifests.compose_containers()
CHEAP = ("base/web.yaml:Deployment/web/web", "compose/beat")
pytestmark = pytest.mark.redis


def environment(container: Container, world: World) -> dict[str, str]:
    """That of the manifest, with the database, the broker and the folder of this test."""
    hidden = ("ASSAY_", "DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DJANGO", "PYTEST", "COVERAGE")
    outside = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    given = {name: re.sub(r"\$\{\w+(:-(.*?)|:\?.*?)\}", r"\2", value) for name, value in container.env.items()}
    ours = {"DATABASE_URL": world.database_url, "REDIS_URL": world.redis_url, "ASSAY_REDIS_PREFIX": world.redis_prefix}
    folder = world.folder / "var"
    key = given.get("SECRET_KEY") or "of-a-test"
    warm = {"ASSAY_WARM": "false", "ASSAY_SWEEP_S": "1"}  # as in other tests
    return {**outside, **given, **ours, **warm, "ASSAY_VAR": str(folder), "SECRET_KEY": key}


def run(words: list[str], container: Container, world: World) -> subprocess.Popen[bytes]:
    """A command of the image, with the programs of this environment."""
    programs = {"assay": "advisor", "celery": "celery"}
    command = [sys.executable, "-m", programs[words[0]], *words[1:]]
    log = (world.folder / "log").open("ab")
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(container, world), stdout=log, stderr=log, start_new_session=True
    )
    world.processes.append(process)
    return process


def answers(port: int, path: str) -> Callable[[], bool]:
    def ask() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    return ask


def pings(queue: str, container: Container, world: World) -> Callable[[], bool]:
    """The probe of a worker, as its manifest states it."""
    probe = (
        container.spec.get("readinessProbe", {}).get("exec", {}).get("command") or container.spec["healthcheck"]["test"]
    )
    told = re.sub(r'"\S+@\S+"', f"{queue}@{socket.gethostname()}", probe[-1])
    assert f"{queue}@" in told
    return lambda: run(told.split(), container, world).wait() == 0


def lives(container: Container, world: World, is_prepared: bool) -> None:
    """Starts the container's command, waits until its probes pass, and ends it as the platform does."""
    words, port = list(container.command), free_port("127.0.0.1")
    if words[0] == "sh":  # waits for the migrations
        assert run(re.findall(r"until (.+?);", words[2])[0].split(), container, world).wait() == 0
        return
    if words[1] == "prepare":
        assert run(words, container, world).wait() == 0
        return
    process = run([*words, *(["--port", str(port)] if words[2] == "web" else [])], container, world)
    if words[2] == "web":
        world.until(answers(port, "/healthz"))
        world.until(answers(port, "/readyz") if is_prepared else lambda: True)
    elif words[2] == "worker":
        world.until(pings(words[3], container, world), limit_s=120)
    else:
        world.until(lambda: any((world.folder / "var").glob("beat*")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=container.pod.get("terminationGracePeriodSeconds", 35)) == 0
    world.processes.remove(process)


@pytest.mark.parametrize("world", ["sqlite redis"], indirect=True)
@pytest.mark.parametrize("container", [c for c in ALL if c.where in CHEAP], ids=lambda c: c.where)
def test_a_part_starts_answers_its_probes_and_ends(container: Container, world: World) -> None:
    lives(container, world, is_prepared=False)


@pytest.mark.soak
@pytest.mark.postgres
@pytest.mark.parametrize("world", ["postgres redis"], indirect=True)
@pytest.mark.parametrize("source", [manifests.pod_containers, manifests.compose_containers])
def test_every_container_works_on_postgresql(source: Callable[[], list[Container]], world: World) -> None:
    """In order: the preparation first."""
    for container in sorted(source(), key=lambda c: c.command[1] != "prepare"):
        lives(container, world, is_prepared=True)


def test_the_cheap_ones_exist() -> None:
    assert {c.where for c in ALL} >= set(CHEAP)


def test_paths_of_the_state_are_inside_the_writable_volume() -> None:
    for container in manifests.pod_containers():
        assert Path(container.env["ASSAY_VAR"]).is_relative_to("/var/lib/assay")
