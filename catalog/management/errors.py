"""Exit codes of management commands: every command exits with 2 on bad input."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

BAD_INPUT = 2  # exit code; 1 is for failures that other input would not fix


class BadInput(CommandError):
    """A file, ID or option value cannot be used; the message says what to give instead."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, returncode=BAD_INPUT)


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turns a failure to write `path` into BadInput."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"{path} cannot be written: {reason}; give a path that you can write to") from error


def at_least_one(option: str, number: int) -> None:
    """BadInput: the number is below 1."""
    if number < 1:
        raise BadInput(f"{option}: {number} is too small; give a whole number of at least 1")


def operator() -> str:
    """The user of this process; `unknown` where the system does not say."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
