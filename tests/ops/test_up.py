"""`up` says at once what it does, prepares an empty folder, and announces the address when it answers."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from django.core.management import call_command

from advisor.management.commands import up
from advisor.ops.supervise import free_port
from catalog.loading import fixtures
from catalog.models import CatalogLoad
from catalog.shipped import FIXTURES
from tests.world import ROOT


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(up, "call_command", lambda name, **options: found.append(name))
    monkeypatch.setattr(up.load, "load", lambda directory: found.append(f"load {directory}"))
    return found


@pytest.mark.django_db
def test_an_empty_installation_is_migrated_and_gets_the_catalog(done: list[str]) -> None:
    said: list[str] = []
    up.prepare(said.append)
    assert done == ["migrate", f"load {FIXTURES}"]
    assert said == ["Preparing the database ...", "Loading the catalog ..."]


@pytest.mark.django_db
def test_a_catalog_that_was_loaded_before_is_left_alone(done: list[str]) -> None:
    """A bundle that was applied since then would be overwritten."""
    CatalogLoad.objects.create(version=fixtures.digest(FIXTURES))
    CatalogLoad.objects.create(version="of a bundle")
    up.prepare(lambda line: None)
    assert done == ["migrate"]


def test_a_taken_port_is_refused_before_anything_is_prepared(done: list[str]) -> None:
    with pytest.raises(up.BadInput):
        call_command("up", port=0)
    assert done == []


@pytest.mark.soak
def test_an_empty_folder_serves_pages(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    hidden = ("DATABASE_URL", "REDIS_URL", "ASSAY_", "COVERAGE", "PYTEST")
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)} | {"ASSAY_VAR": str(tmp_path / "var")}
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up", "--port", str(port)], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        said = [process.stdout.readline() for _ in range(5)]
        assert said[0].startswith("Assay ") and said[0].endswith(f"files in {tmp_path / 'var'}\n")
        assert said[-1] == f"Assay on http://127.0.0.1:{port}/ (Ctrl-C to stop)\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
            assert answer.status == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
