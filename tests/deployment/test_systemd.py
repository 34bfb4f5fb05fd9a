"""The systemd units are valid, start what the code knows, and may all do equally little."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import load_command_class

from tests.deployment.manifests import ROOT

FOLDER = ROOT / "deploy" / "systemd"
SERVICES = sorted(FOLDER.glob("*.service"))
START = re.compile(r"^ExecStart=/opt/assay/bin/assay (.*)$", flags=re.MULTILINE)


def verified(folder: Path) -> str:
    """What systemd has to say about units whose program exists."""
    copied = [folder / path.name.replace("@", "@answers") for path in (*SERVICES, FOLDER / "assay.target")]
    for path in FOLDER.iterdir():
        (folder / path.name).write_text(path.read_text().replace("/opt/assay/bin/assay", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", *copied], capture_output=True, text=True)
    return done.stdout + done.stderr


needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze not found")


@needs_systemd
def test_the_units_are_valid(tmp_path: Path) -> None:
    assert verified(tmp_path) == ""


@needs_systemd
def test_a_wrong_key_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(FOLDER, wrong)
    unit = wrong / "assay-web.service"
    unit.write_text(unit.read_text().replace("ProtectClock", "ProtectClok"))
    monkeypatch.setattr(f"{__name__}.FOLDER", wrong)
    assert "Unknown key" in verified(tmp_path)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_parses(path: Path) -> None:
    words = START.findall(path.read_text())[0].replace("%i", "answers").split()
    load_command_class("advisor", words[0]).create_parser("assay", words[0]).parse_args(words[1:])


def test_the_target_wants_a_worker_for_each_queue() -> None:
    wanted = re.findall(r"assay-worker@(\w+)\.service", (FOLDER / "assay.target").read_text())
    assert wanted == list(settings.QUEUES)


def test_all_units_are_restricted_alike() -> None:
    start = re.compile(r"^EnvironmentFile=.*?(?=^\[|\Z)", flags=re.MULTILINE | re.DOTALL)
    restricted = {start.findall(path.read_text())[0].strip() for path in SERVICES}
    assert len(restricted) == 1
    for line in ("User=assay", "ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet="):
        assert line in next(iter(restricted)).splitlines()


def test_systemd_waits_longer_than_the_parts_take_to_finish() -> None:
    waits = [re.findall(r"^TimeoutStopSec=(\d+)$", path.read_text(), flags=re.MULTILINE) for path in SERVICES]
    assert all(int(found[0]) >= settings.GRACE_S + 5 for found in waits if found)
    assert sum(map(len, waits)) == 3  # all but the preparation
