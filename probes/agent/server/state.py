"""The agent's files: its identity, and results that the server has not acknowledged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

# Comes from the server and becomes part of a file name.
JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
MAX_WAITING: Final = 8
OPTIONAL: Final = {"key": ""}  # absent in files of agents before 1.1


class StateError(Exception):
    """A file of the agent is unusable; the message says which and what to do."""


@dataclass(frozen=True)
class Identity:
    """The agent's identity. `enrolment`: hash of the used token, so that a restart does not register again."""

    install_id: str
    server: str = ""
    agent_id: str = ""
    token: str = ""
    enrolment: str = ""
    key: str = ""  # signs results; empty: none received yet


@dataclass(frozen=True)
class Waiting:
    """A result that the server has not acknowledged."""

    job_id: str
    attempt: int
    path: Path
    signature: str = ""  # empty: written by an agent before 1.1

    def body(self) -> bytes:
        return self.path.read_bytes()


def default_folder() -> Path:
    """The state folder: from systemd, otherwise of the user."""
    given = os.environ.get("STATE_DIRECTORY")
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(given) if given else Path(base, "assay-agent").expanduser()


def write_atomically(path: Path, body: bytes, mode: int = 0o600) -> None:
    """Writes a file completely or not at all, even if power fails."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load(folder: Path) -> Identity:
    """The stored identity; a new one is created and stored if there is none. StateError: unreadable."""
    path = folder / "agent.json"
    if not path.exists():
        return save(folder, Identity(install_id=str(uuid.uuid4())))
    try:
        stored = OPTIONAL | json.loads(path.read_text(encoding="utf-8"))
        return Identity(**{name: str(stored[name]) for name in asdict(Identity(""))})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} cannot be read ({error}). Delete it and register again.") from error


def save(folder: Path, identity: Identity) -> Identity:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(folder / "agent.json", json.dumps(asdict(identity), indent=1).encode())
    except OSError as error:
        raise StateError(f"{folder} cannot be written ({error.strerror}). Give another folder with --state.") from error
    return identity


def save_registration(
    folder: Path, identity: Identity, server: str, agent_id: str, token: str, enrolment: str, key: str = ""
) -> Identity:
    used = fingerprint(enrolment)
    return save(folder, replace(identity, server=server, agent_id=agent_id, token=token, enrolment=used, key=key))


def fingerprint(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def keep_result(folder: Path, job_id: str, attempt: int, body: bytes, signature: str) -> None:
    """Stores the body as it will be sent. The file name has the signature, so both are stored atomically."""
    outbox = folder / "outbox"
    outbox.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(outbox / f"{job_id}.{attempt}.{signature}.json", body)


def waiting_results(folder: Path) -> Iterator[Waiting]:
    for path in sorted((folder / "outbox").glob("*.json")):
        job_id, attempt, signature = (*path.stem.split("."), "", "")[:3]
        if JOB_ID.fullmatch(job_id) and attempt.isdecimal():
            yield Waiting(job_id, int(attempt), path, signature)


def drop(result: Waiting) -> None:
    with contextlib.suppress(FileNotFoundError):
        result.path.unlink()


def set_aside(result: Waiting) -> Path:
    """Renames a result that the server refused, so that it is not sent again. Returns the new path."""
    return result.path.replace(result.path.with_suffix(".refused"))
