"""Backups: made while the service runs, restored whole or not at all, on both databases."""

import json
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.world import ROOT, World

BOTH = pytest.mark.parametrize(
    "world", ["sqlite files", pytest.param("postgres files", marks=pytest.mark.postgres)], indirect=True
)
FILL = """
import django; django.setup()
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
User.objects.create(username="ada")
Session.objects.create(session_key="0123456789secret", session_data="x", expire_date=timezone.now())
"""
NAMES = "select username from auth_user order by username"


def run(world: World, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", *words], cwd=ROOT, env=world.env, capture_output=True, text=True
    )


def refused(world: World, said: str, *words: str) -> None:
    done = run(world, *words)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def filled(world: World) -> Iterator[World]:
    world.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    world.python("-c", FILL)
    yield world


def rebuilt(source: Path, target: Path, **changes: Any) -> None:
    """A backup with another manifest."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        old.extractall(target.parent / "parts", filter="data")
        manifest = target.parent / "parts" / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))
        new.add(manifest, "manifest.json")
        new.add(target.parent / "parts" / "database", "database")


@BOTH
def test_a_backup_brings_back_what_was_there(filled: World, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    filled.python("manage.py", "backup", "--to", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"0123456789secret" not in file.read_bytes()
    refused(filled, "exists; give a new file name", "backup", "--to", str(file))
    filled.python("-c", FILL.replace("ada", "bob").replace("secret", "other"))
    refused(filled, "add --replace", "restore", str(file))
    assert filled.rows(NAMES) == [("ada",), ("bob",)]
    assert "restored" in filled.python("manage.py", "restore", str(file), "--replace")
    assert filled.rows(NAMES) == [("ada",)]
    assert filled.rows("select count(*) from django_session") == [(0,)]
    filled.python("manage.py", "migrate", "--check")
    filled.python("-c", FILL.replace("ada", "eve"))  # new rows get new keys
    broken = bytearray(file.read_bytes())
    broken[-15_000] ^= 1
    file.write_bytes(broken)
    refused(filled, "checksum", "restore", str(file), "--replace")
    assert filled.rows(NAMES) == [("ada",), ("eve",)]


def test_backups_that_do_not_fit_are_refused_with_what_to_do(filled: World, tmp_path: Path) -> None:
    """One database for all, because each command takes seconds to start."""
    file, other = tmp_path / "backup.tar", tmp_path / "other.tar"
    filled.python("manage.py", "backup", "--to", str(file))
    migrations = json.loads(tarfile.open(file).extractfile("manifest.json").read())["migrations"]  # type: ignore[union-attr]
    assert "advisor.0001_initial" in migrations
    rebuilt(file, other, migrations=[*migrations, "advisor.9999_later"], version="9.9")
    refused(filled, "newer schema than this version (advisor.9999_later)", "restore", str(other), "--replace")
    rebuilt(file, other, vendor="postgresql")
    refused(filled, "set DATABASE_URL to a postgresql database", "restore", str(other), "--replace")
    other.write_bytes(file.read_bytes()[:-200_000])
    refused(filled, "use another one", "restore", str(other), "--replace")
    other.write_text("no archive")
    refused(filled, "not a whole backup", "restore", str(other))
    refused(filled, "check the path", "restore", str(tmp_path / "none.tar"))
    filled.python("-c", "import django; django.setup(); from advisor import advise; advise.sweep()")
    filled.extra["ASSAY_SWEEP_S"] = "600"
    refused(filled, "stop web, workers and beat first", "restore", str(file), "--replace")
    filled.extra["ASSAY_SWEEP_S"] = "0.001"
    user = sqlite3.connect(filled.folder / "db")
    user.execute(NAMES).fetchone()
    refused(filled, "Another process uses the database", "restore", str(file), "--replace")
    user.close()
    assert filled.rows(NAMES) == [("ada",)]
    (filled.folder / "db").write_bytes(b"not a database" * 1000)
    filled.python("manage.py", "restore", str(file), "--replace")
    assert filled.rows(NAMES) == [("ada",)]


@pytest.mark.postgres
@pytest.mark.parametrize("world", ["postgres files"], indirect=True)
def test_missing_and_failing_programs_of_postgresql_are_named(filled: World, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    filled.extra["PATH"] = str(programs)
    refused(filled, "pg_dump is not on PATH; install PostgreSQL's client programs", "backup", "--to", f"{tmp_path}/b")
    (programs / "pg_dump").write_text("#!/bin/sh\necho 'aborting because of server version mismatch' >&2\nexit 1\n")
    (programs / "pg_dump").chmod(0o700)
    refused(filled, "install client programs of the server's version", "backup", "--to", f"{tmp_path}/b")
    assert not (tmp_path / "b").exists()
