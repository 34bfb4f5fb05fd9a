"""Nobody but the service's own user reads what it writes, whichever of its processes wrote it."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.world import ROOT, World


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(folder: Path) -> Iterator[str]:
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):  # a message that was just read
            if mode(path) & 0o077:
                yield f"{path} {mode(path):o}"


# As every process of the service begins.
BEGINS = ("-c", "import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'advisor.settings'; django.setup()")


def started(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    hidden = ("DATABASE_URL", "REDIS_URL")
    env = {k: v for k, v in os.environ.items() if k not in hidden} | {"ASSAY_VAR": str(folder)}
    return subprocess.run([sys.executable, *args], cwd=ROOT, env=env, capture_output=True, text=True, umask=0o022)


def test_what_worker_beat_and_commands_write_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "var"
    folder.mkdir(mode=0o755)
    world = World(folder, f"sqlite:///{folder}/assay.sqlite3")
    before = os.umask(0o022)  # as most systems set it
    try:
        world.python("manage.py", "migrate", "-v0")
        world.let_go()
        world.ask()
        world.worker()
        world.beat()
        world.until(lambda: world.states() == ["done"] and any(folder.glob("beat*")))
        made_here = {"log", "go", "runs"}
        wide = [entry for entry in open_to_others(folder) if Path(entry.split()[0]).name not in made_here]
    finally:
        os.umask(before)
        world.end()
    assert wide == []
    assert mode(folder / "assay.sqlite3") == 0o600 and (folder / "broker").is_dir()


def test_a_folder_that_was_open_is_closed_with_a_line_in_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "var"
    assert started(folder, "manage.py", "showmigrations").returncode == 0
    (folder / "broker" / "messages" / "1.celery.msg").write_text("{}")
    (folder / "notes.txt").touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    again = started(folder, *BEGINS)
    assert again.returncode == 0 and "made private" in again.stderr
    assert mode(folder) == 0o700
    for name in ("assay.sqlite3", "secret_key", "broker/messages/1.celery.msg"):
        assert mode(folder / name) == 0o600, name
    assert mode(folder / "broker" / "messages") == 0o700
    assert mode(folder / "notes.txt") == 0o644  # of somebody else, and out of reach behind the folder
    assert "made private" not in started(folder, *BEGINS).stderr


def test_a_folder_that_others_use_is_refused_and_not_changed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "of-another-program").touch()
    refused = started(shared, *BEGINS)
    assert refused.returncode != 0 and "Use a separate folder" in refused.stderr
    assert mode(shared) == 0o1777


def test_a_fresh_volume_that_everybody_may_write_is_made_private(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o1777)
    assert started(volume, *BEGINS).returncode == 0
    assert mode(volume) & 0o077 == 0


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_database_elsewhere_is_closed_too_but_not_its_folder(tmp_path: Path, migrated: Path, ending: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    shutil.copy(migrated, data / "db")
    (data / f"db{ending}").touch()
    (data / f"db{ending}").chmod(0o644)
    World(tmp_path / "var", f"sqlite:///{data}/db").python(*BEGINS)
    assert mode(data / f"db{ending}") == 0o600
    assert mode(data) == 0o755
