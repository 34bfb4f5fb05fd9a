"""The disk: everything Assay writes is private to its user, and a full disk is noticed before and when it hurts."""

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import structlog
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

log = structlog.get_logger("assay.storage")
PRIVATE_UMASK = 0o077
OTHERS = stat.S_IRWXG | stat.S_IRWXO
OURS = ("assay.sqlite3*", "secret_key*", "beat*", "*.log", "broker", "broker/**/*")  # what Assay writes in its folder
SQLITE_SIDE_FILES = ("", "-wal", "-shm", "-journal")
MB = 1_000_000
POSTGRES_DISK_FULL = "53100"


def make_private(folder: Path, project: Path) -> None:
    """Create the folder of this installation for its user alone, and let this process write nothing for others."""
    os.umask(PRIVATE_UMASK)
    folder.mkdir(parents=True, exist_ok=True)
    shared = folder.stat().st_mode & stat.S_ISVTX and holds_other_files(folder)  # /tmp; a fresh tmpfs volume is empty
    if shared or project.is_relative_to(folder):
        why = "other programs use it too" if shared else "it contains the program"
        raise ImproperlyConfigured(f"ASSAY_VAR={folder} cannot be made private: {why}. Use a folder of its own.")


def holds_other_files(folder: Path) -> bool:
    return any(not any(fnmatch(entry.name, pattern) for pattern in (*OURS, "static")) for entry in folder.iterdir())


def tighten() -> list[Path]:
    """Take the access of other users away from what an earlier version or a restored backup left open."""
    tightened = [path for path in written() if narrowed(path)]
    if tightened:
        names = ", ".join(str(path) for path in tightened[:5])
        log.warning("made private", count=len(tightened), paths=names + (" ..." if len(tightened) > 5 else ""))
    return tightened


def written() -> Iterator[Path]:
    """The folder, the database and what Assay made in the folder; other files in it are left alone."""
    yield settings.VAR
    for pattern in OURS:
        yield from settings.VAR.glob(pattern)
    if database := sqlite_file():
        yield from (database.with_name(database.name + ending) for ending in SQLITE_SIDE_FILES)


def sqlite_file() -> Path | None:
    database = settings.DATABASES["default"]
    name = str(database["NAME"])
    is_file = database["ENGINE"].endswith("sqlite3") and name != ":memory:" and not name.startswith("file:")
    return Path(name) if is_file else None


def narrowed(path: Path) -> bool:
    """True when the mode was too wide and is not any more."""
    try:
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or not mode & OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    except FileNotFoundError:  # a message that was just read
        return False
    except OSError as error:  # of another user: a mounted volume
        log.warning("cannot be made private", path=str(path), error=error.strerror)
        return False
    return True


def free_mb() -> int:
    """Free space where Assay writes: its folder and, when elsewhere, the SQLite database's."""
    database = sqlite_file()
    folders = {settings.VAR, database.parent if database else settings.VAR}
    return min(shutil.disk_usage(folder).free for folder in folders) // MB


def has_room() -> bool:
    return free_mb() >= settings.MIN_FREE_MB


def is_full(error: BaseException | None) -> bool:
    """Whether this error, or one that caused it, says that a disk is full (here or on the PostgreSQL server)."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return True
        if getattr(error, "sqlstate", None) == POSTGRES_DISK_FULL:
            return True
        error = error.__cause__ or error.__context__
    return False
