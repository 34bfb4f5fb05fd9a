"""Makes and restores backups of the database that the environment names, and breaks them: `python -m ... FOLDER`.

One process for all, because each one takes seconds to start. Prints what happened, as JSON.
"""

import json
import os
import sqlite3
import stat
import sys
import tarfile
from pathlib import Path
from typing import Any
from unittest import mock

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.contrib.sessions.models import Session  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import override_settings  # noqa: E402
from django.utils import timezone  # noqa: E402

from advisor import advise, storage  # noqa: E402
from advisor.models import Duty  # noqa: E402
from advisor.ops import backup  # noqa: E402

SECRET = "0123456789secret"
Report = dict[str, Any]


def fill(name: str) -> None:
    User.objects.create(username=name)
    Session.objects.create(session_key=f"{SECRET}{name}", session_data="x", expire_date=timezone.now())


def names() -> list[str]:
    return list(User.objects.order_by("username").values_list("username", flat=True))


def refusal(act: Any, *given: Any) -> str:
    try:
        act(*given)
    except backup.BackupError as error:
        return str(error)
    return "not refused"


def rebuilt(source: Path, **changes: Any) -> Path:
    """A backup with another manifest."""
    parts, target = source.parent / "parts", source.parent / "other.tar"
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        old.extractall(parts, filter="data")
        manifest = parts / backup.MANIFEST
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))
        new.add(manifest, backup.MANIFEST)
        new.add(parts / backup.DATABASE, backup.DATABASE)
    return target


def round_trip(file: Path) -> Report:
    fill("ada")
    made = backup.make(file)
    found: Report = {"mode": oct(stat.S_IMODE(file.stat().st_mode)), "session": SECRET.encode() in file.read_bytes()}
    found["again"] = refusal(backup.make, file)
    fill("bob")
    found["not empty"] = refusal(backup.restore, file)
    found["before"] = names()
    found["same"] = backup.restore(file, True) == made
    found |= {"after": names(), "sessions": Session.objects.count()}
    fill("eve")  # new rows get new keys
    broken = bytearray(file.read_bytes())
    broken[-15_000] ^= 1
    damaged = file.with_name("damaged.tar")
    damaged.write_bytes(broken)
    return found | {"damaged": refusal(backup.restore, damaged, True), "still": names()}


def refusals(file: Path) -> Report:
    with tarfile.open(file) as tar:
        member = tar.extractfile(backup.MANIFEST)
        assert member
        migrations = json.loads(member.read())["migrations"]
    found = {
        "newer": refusal(
            backup.restore, rebuilt(file, migrations=[*migrations, "advisor.9999_x"], version="9.9"), True
        ),
        "vendor": refusal(backup.restore, rebuilt(file, vendor="oracle"), True),
        "format": refusal(backup.restore, rebuilt(file, format=2, version="9.9"), True),
        "manifest": refusal(backup.restore, rebuilt(file, sha256=None, surplus=1), True),
    }
    cut = file.with_name("cut.tar")
    cut.write_bytes(file.read_bytes()[:-200_000])
    text = file.with_name("text.tar")
    text.write_text("no archive")
    found |= {"cut": refusal(backup.restore, cut, True), "text": refusal(backup.restore, text, True)}
    advise.sweep()
    with override_settings(ADVICE_SWEEP_S=600):
        found["runs"] = refusal(backup.restore, file, True)
    Duty.objects.all().delete()
    return found


def sqlite_only(file: Path) -> Report:
    database = storage.sqlite_file()
    assert database
    user = sqlite3.connect(database)
    user.execute("select 1 from auth_user").fetchone()
    found: Report = {"in use": refusal(backup.restore, file, True), "kept": names()}
    user.close()
    connection.close()
    database.write_bytes(b"not a database" * 1000)
    backup.restore(file, True)
    return found | {"repaired": names()}


def postgres_only(file: Path) -> Report:
    programs = file.parent / "programs"
    programs.mkdir()
    target = file.with_name("never.tar")
    with mock.patch.dict(os.environ, {"PATH": str(programs)}):
        missing = refusal(backup.make, target)
        (programs / "pg_dump").write_text("#!/bin/sh\necho 'aborting because of server version mismatch' >&2\nexit 1\n")
        (programs / "pg_dump").chmod(0o700)
        failing = refusal(backup.make, target)
    return {"missing": missing, "failing": failing, "left": target.exists()}


if __name__ == "__main__":
    path = Path(sys.argv[1], "backup.tar")
    report = round_trip(path) | refusals(path)
    report |= (sqlite_only if connection.vendor == "sqlite" else postgres_only)(path)
    print(json.dumps(report))
