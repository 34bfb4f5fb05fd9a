"""The previous version's processes work on the schema and catalog of this one, and both read each other's answers.

The previous version is the newest tag `v*` before this commit; until there is one, the commit before upgrades were
promised.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from advisor.ops.supervise import free_port
from tests import services
from tests.world import ROOT, World

FIRST = "66d1e702"
WEB = (
    "gunicorn advisor.wsgi:application --worker-class advisor.ops.web_worker.Worker --threads 4 --preload "
    "--bind 127.0.0.1:"
)
WORKER = "celery -A tests.slow_worker worker -P solo -n old@here --without-mingle --without-gossip"


def git(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True)


def previous() -> str:
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    return tag.stdout.decode().strip() if tag.returncode == 0 else FIRST


@pytest.fixture
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the previous version."""
    version = previous()
    if git("cat-file", "-e", f"{version}^{{commit}}").returncode:
        pytest.skip(f"the history does not reach back to {version}: a shallow clone, or no Git repository")
    folder = tmp_path_factory.mktemp("previous-version")
    subprocess.run(["tar", "x", "-C", str(folder)], input=git("archive", version).stdout, check=True)
    return folder


def start(world: World, folder: Path, command: str) -> subprocess.Popen[bytes]:
    with (world.folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command.split()],
            cwd=folder, env=world.env | {"PYTHONPATH": str(folder)}, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    world.processes.append(process)
    return process


def call(port: int, path: str, body: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/yaml"} if body else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return json.loads(text) if path.startswith("/api/") else text


def ask(world: World, port: int) -> str:
    question = (ROOT / "fixtures" / "workloads" / "support-chat.yaml").read_bytes()
    pk = str(call(port, "/api/v1/advice", question)["id"])
    world.until(lambda: call(port, f"/api/v1/advice/{pk}")["state"] == "done", limit_s=300)
    return pk


def read(port: int, pk: str) -> Any:
    assert pk in [row["id"] for row in call(port, "/api/v1/advice")["results"]]
    assert "<h1" in call(port, f"/advice/{pk}")
    return call(port, f"/api/v1/advice/{pk}")["result"]["recommendations"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "world", ["sqlite files", pytest.param("postgres redis", marks=[pytest.mark.postgres, pytest.mark.redis])],
    indirect=True,
)  # fmt: skip
def test_the_previous_version_works_on_this_schema(world: World, old: Path) -> None:
    world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings"}
    world.python("manage.py", "migrate", "-v0")
    world.python("manage.py", "load_catalog", "--no-scores", "-v0")
    world.let_go()
    old_port, new_port = free_port("127.0.0.1"), free_port("127.0.0.1")
    start(world, old, f"{WEB}{old_port}")
    worker = start(world, old, WORKER)
    world.until(lambda: services.answers(old_port), limit_s=120)
    by_old = ask(world, old_port)
    worker.terminate()
    worker.wait()
    world.worker()  # of this version, which is woken by what the old one sends
    mixed = ask(world, old_port)
    start(world, ROOT, f"{WEB}{new_port}")
    world.until(lambda: services.answers(new_port), limit_s=120)
    by_new = ask(world, new_port)
    for pk in (by_old, mixed, by_new):
        assert read(old_port, pk) == read(new_port, pk) != []
    assert '"ready"' in call(new_port, "/readyz") and '"ready"' in call(old_port, "/readyz")
