"""Copies the whole database to one file while the service runs, and restores it.

The file is a tar archive: `manifest.json` and the database, as a SQLite file or as pg_dump's custom format. It holds
neither SECRET_KEY nor sessions, which would sign in whoever reads it. A restore checks everything before it changes
anything, and replaces the database at once or not at all.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

from advisor import storage
from advisor.engine import ENGINE_VERSION
from advisor.models import Duty
from advisor.ops import health
from catalog import clock
from catalog.loading.bounded import FILES, read_json

FORMAT, MANIFEST, DATABASE = 1, "manifest.json", "database"
MAX_MANIFEST_BYTES, PART_BYTES = 2**20, 2**20
SESSIONS = "django_session"
# Tables that a new database fills by itself.
FILLED = {"contenttypes.ContentType", "auth.Permission", "catalog.Organisation", "advisor.Duty", "advisor.Tally"}
PG_OPTIONS = {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY"}
SWEEPS = 3  # a service whose last sweep is not older than so many intervals runs


class BackupError(Exception):
    """The backup cannot be made or restored; the message says what to do. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds. `sha256`: of the database in it. `migrations`: those that its schema has, as app.name."""

    format: int
    version: str
    made_at: str
    vendor: str
    migrations: tuple[str, ...]
    bytes: int
    sha256: str


def make(target: Path) -> Manifest:
    """Writes a backup to a new file that only its owner can read."""
    if target.exists():
        raise BackupError(f"{target} exists; give a new file name, so that no earlier backup is lost")
    with tempfile.TemporaryDirectory(prefix=".assay-backup-", dir=target.parent) as folder:
        copy = Path(folder, DATABASE)
        (dump_sqlite if connection.vendor == "sqlite" else dump_postgres)(copy)
        migrations = tuple(sorted(f"{app}.{name}" for app, name in MigrationRecorder(connection).applied_migrations()))
        manifest = Manifest(
            format=FORMAT,
            version=ENGINE_VERSION,
            made_at=clock.read().isoformat(timespec="seconds"),
            vendor=connection.vendor,
            migrations=migrations,
            bytes=copy.stat().st_size,
            sha256=digest(copy),
        )
        described = Path(folder, MANIFEST)
        described.write_text(json.dumps(asdict(manifest), indent=1))
        archive = Path(folder, "archive")
        with tarfile.open(archive, "w") as tar:
            tar.add(described, MANIFEST)
            tar.add(copy, DATABASE)
        with archive.open("rb") as written:
            os.fsync(written.fileno())
        archive.replace(target)
    return manifest


def restore(source: Path, replace: bool = False) -> Manifest:
    """Restores a backup into the configured database. `replace`: also if it holds something, which is then lost."""
    with opened(source) as (manifest, tar):
        check(manifest)
        refuse_to_lose_rows(replace)
        beside = storage.sqlite_file()
        with tempfile.TemporaryDirectory(prefix=".assay-restore-", dir=beside.parent if beside else None) as folder:
            copy = Path(folder, DATABASE)
            extract(tar, copy, manifest)
            (load_sqlite if connection.vendor == "sqlite" else load_postgres)(copy)
    return manifest


# --- before anything is changed ---------------------------------------------------------------------------------


@contextmanager
def opened(source: Path) -> Iterator[tuple[Manifest, tarfile.TarFile]]:
    """The manifest of a backup, and its archive."""
    try:
        with tarfile.open(source, "r:") as tar:
            member = tar.next()
            stream = tar.extractfile(member) if member and member.name == MANIFEST else None
            if stream is None:
                raise BackupError(f"{source} is not a backup of Assay: it does not begin with {MANIFEST}")
            text = stream.read(MAX_MANIFEST_BYTES)
            yield read_manifest(source, text), tar
    except tarfile.TarError as error:
        raise BackupError(f"{source} is not a complete Assay backup ({error}); use another one") from error


def read_manifest(source: Path, text: bytes) -> Manifest:
    try:
        given: dict[str, Any] = read_json(text, FILES)
        if given["format"] != FORMAT:
            raise BackupError(f"{source} has format {given['format']}; restore it with version {given['version']}")
        return Manifest(**given | {"migrations": tuple(map(str, given["migrations"]))})
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{source}: its {MANIFEST} cannot be read; use another backup") from error


def check(manifest: Manifest) -> None:
    """BackupError: this code or this database cannot use the backup."""
    if manifest.vendor != connection.vendor:
        raise BackupError(
            f"The backup is from {manifest.vendor}, and this database is {connection.vendor}; set DATABASE_URL to a "
            "database of that kind"
        )
    known = {f"{app}.{name}" for app, name in health.shipped_migrations()}
    if newer := sorted(set(manifest.migrations) - known):
        raise BackupError(
            f"The backup has a newer schema than this version ({newer[0]}); restore it with version "
            f"{manifest.version} or a later one"
        )


def refuse_to_lose_rows(replace: bool) -> None:
    """BackupError: the database holds something, or the service runs."""
    try:
        tables = set(connection.introspection.table_names())
        kept = [m._meta.label for m in apps.get_models() if m._meta.db_table in tables and m._meta.label not in FILLED]
        full = next((label for label in kept if apps.get_model(label)._base_manager.exists()), None)
        last = Duty.objects.filter(name="sweep").first() if Duty._meta.db_table in tables else None
    except DatabaseError as error:
        if replace:  # it is damaged, or has the schema of another version
            connection.close()
            return
        raise BackupError(f"The database cannot be read ({error}); add --replace to replace it") from error
    if full and not replace:
        raise BackupError(f"The database is not empty (it has {full} rows); add --replace to overwrite it")
    if last and (age_s := (clock.read() - last.last_run_at).total_seconds()) < SWEEPS * settings.ADVICE_SWEEP_S:
        raise BackupError(
            f"The service is running (its last sweep was {age_s:.0f} s ago); stop web, workers and beat first"
        )


def extract(tar: tarfile.TarFile, copy: Path, manifest: Manifest) -> None:
    member = tar.next()
    stream = tar.extractfile(member) if member and member.name == DATABASE else None
    if stream is not None:
        with copy.open("wb") as out:
            shutil.copyfileobj(stream, out, PART_BYTES)
    if stream is None or digest(copy) != manifest.sha256:
        raise BackupError("The backup is damaged: its checksum differs from its manifest; use another one")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- SQLite -----------------------------------------------------------------------------------------------------


def dump_sqlite(copy: Path) -> None:
    """SQLite's online backup: one consistent state, while others write."""
    source = storage.sqlite_file()
    if source is None or not source.exists():
        raise BackupError("There is no database yet; run manage.py migrate")
    with closing(sqlite3.connect(source, timeout=20)) as database, closing(sqlite3.connect(copy)) as target:
        database.backup(target)
        target.execute("pragma journal_mode=delete")
        if target.execute("select 1 from sqlite_master where name = ?", (SESSIONS,)).fetchone():
            target.execute(f"delete from {SESSIONS}")
            target.commit()
            target.execute("vacuum")  # else their rows stay in free pages


def load_sqlite(copy: Path) -> None:
    target = storage.sqlite_file()
    if target is None:
        raise BackupError("The database is in memory; set ASSAY_VAR or DATABASE_URL")
    with closing(sqlite3.connect(copy)) as database:
        if database.execute("pragma quick_check").fetchall() != [("ok",)]:
            raise BackupError("The backup is damaged: SQLite's integrity check fails; use another one")
    copy.chmod(0o600)
    connection.close()
    if target.exists():
        end_wal(target)
    copy.replace(target)


def end_wal(target: Path) -> None:
    """Ends the write-ahead log of the old database, which SQLite would otherwise apply to the new one."""
    try:
        with closing(sqlite3.connect(target, timeout=1)) as database:
            mode = database.execute("pragma journal_mode=delete").fetchone()[0]
    except sqlite3.OperationalError:  # locked
        mode = "wal"
    except sqlite3.DatabaseError:  # not a database any more
        mode = "delete"
        for ending in storage.SQLITE_SIDE_FILES[1:]:
            target.with_name(target.name + ending).unlink(missing_ok=True)
    if mode != "delete":
        raise BackupError("Another process uses the database; stop web, workers and beat first")


# --- PostgreSQL -------------------------------------------------------------------------------------------------


def dump_postgres(copy: Path) -> None:
    program(
        "pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--exclude-table-data=*.{SESSIONS}",
        f"--file={copy}",
    )  # fmt: skip


def load_postgres(copy: Path) -> None:
    """In one transaction: drops the tables that are there, and runs the dump as a script."""
    names = [connection.ops.quote_name(name) for name in connection.introspection.table_names()]
    script = copy.with_name("script.sql")
    program("pg_restore", "--no-owner", "--no-privileges", f"--file={script}", str(copy), connects=False)
    first = copy.with_name("first.sql")
    first.write_text(f"drop table if exists {', '.join(names)} cascade;\n" if names else "")
    connection.close()
    program("psql", "--quiet", "--no-psqlrc", "--single-transaction", "--set=ON_ERROR_STOP=1", f"--file={first}",
            f"--file={script}", "--output=/dev/null")  # fmt: skip


def program(name: str, *options: str, connects: bool = True) -> None:
    """Runs one of PostgreSQL's client programs on the configured database; the password is not on its command line."""
    if shutil.which(name) is None:
        server = connection.cursor().connection.info.server_version // 10_000
        raise BackupError(f"{name} is not on PATH; install PostgreSQL's client programs, version {server} or newer")
    given = settings.DATABASES["default"]
    env = {"PGHOST": given["HOST"], "PGPORT": given["PORT"], "PGUSER": given["USER"], "PGPASSWORD": given["PASSWORD"]}
    env |= {PG_OPTIONS[key]: value for key, value in given.get("OPTIONS", {}).items() if key in PG_OPTIONS}
    env |= {"PGDATABASE": connection.settings_dict["NAME"]}
    env = {key: str(value) for key, value in env.items() if value} if connects else {}
    done = subprocess.run([name, *options], env=os.environ | env, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip()
        hint = "; install client programs of the server's version or newer" if "version" in said else ""
        raise BackupError(f"{name} failed{hint}: {said[-2000:]}")
