"""Keeps Assay's files private to its user, and detects a full disk."""

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
OURS = ("assay.sqlite3*", "secret_key*", "beat*", "*.log", "broker", "broker/**/*")  # the files that Assay writes
SQLITE_SIDE_FILES = ("", "-wal", "-shm", "-journal")
MB = 1_000_000
POSTGRES_DISK_FULL = "53100"


def default_folder(project: Path) -> Path:
    """Where an installation keeps its files if ASSAY_VAR is not set: `var` in the checkout, else in the current folder.

    Raises ImproperlyConfigured in the root folder, whose `var` belongs to the operating system.
    """
    if (project / "manage.py").is_file():
        return project / "var"
    if Path.cwd() == Path("/"):
        raise ImproperlyConfigured("Set ASSAY_VAR to the folder for Assay's files, or start Assay in that folder.")
    return Path.cwd() / "var"


def make_private(folder: Path, project: Path) -> None:
    """Creates the installation's folder and makes all files of this process private to its user."""
    os.umask(PRIVATE_UMASK)
    folder.mkdir(parents=True, exist_ok=True)
    shared = folder.stat().st_mode & stat.S_ISVTX and holds_other_files(
        folder
    )  # such as /tmp; a new tmpfs volume is empty
    if shared or project.is_relative_to(folder):
        reason = "other programs use it too" if shared else "it contains the program"
        raise ImproperlyConfigured(f"ASSAY_VAR={folder} cannot be made private: {reason}. Use a separate folder.")


def holds_other_files(folder: Path) -> bool:
    return any(
        not any(fnmatch(entry.name, pattern) for pattern in (*OURS, "static", "numba")) for entry in folder.iterdir()
    )


def make_files_private() -> list[Path]:
    """Removes other users' access to files of an earlier version or a restored backup. Returns the changed paths."""
    changed = [path for path in own_files() if made_private(path)]
    if changed:
        names = ", ".join(str(path) for path in changed[:5])
        log.warning("made private", count=len(changed), paths=names + (" ..." if len(changed) > 5 else ""))
    return changed


def own_files() -> Iterator[Path]:
    """The folder, the database and Assay's files in the folder, but no other files."""
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


def made_private(path: Path) -> bool:
    """Removes other users' access to a file. True if the mode changed."""
    try:
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or not mode & OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    except FileNotFoundError:  # such as a message that was just read
        return False
    except OSError as error:  # owned by another user, such as a mounted volume
        log.warning("cannot be made private", path=str(path), error=error.strerror)
        return False
    return True


def free_mb() -> int:
    """Free space in MB where Assay writes: the lower one of its folder and the SQLite database's."""
    database = sqlite_file()
    folders = {settings.VAR, database.parent if database else settings.VAR}
    return min(shutil.disk_usage(folder).free for folder in folders) // MB


def has_room() -> bool:
    return free_mb() >= settings.MIN_FREE_MB


def is_full(error: BaseException | None) -> bool:
    """Whether a full disk, here or on the PostgreSQL server, caused this error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return True
        if getattr(error, "sqlstate", None) == POSTGRES_DISK_FULL:
            return True
        error = error.__cause__ or error.__context__
    return False
