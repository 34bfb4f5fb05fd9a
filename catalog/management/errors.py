"""How every command ends when what it was given cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

BAD_INPUT = 2  # the exit code; 1 stays for failures that other input would not avoid


class BadInput(CommandError):
    """A file, id or option value that cannot be used; the text says what to give instead."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, returncode=BAD_INPUT)


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """A file that cannot be written is bad input."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"{path} cannot be written: {reason}; give a path in a folder that you may write") from error


def at_least_one(option: str, number: int) -> None:
    if number < 1:
        raise BadInput(f"{option}: {number} is too small; give a whole number from 1")
