"""Run `manage.py estimate` in a test."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command

Run = Callable[..., tuple[int, str, str]]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function from arguments to exit code, standard output and standard error."""
    return partial(_run, capsys)


def _run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        call_command("estimate", *args)
    output, errors = capsys.readouterr()
    return int(ended.value.code or 0), output, errors


def said(run: Run, *args: str) -> dict[str, Any]:
    """The JSON of a successful run."""
    code, output, errors = run(*args, "--format", "json")
    assert (code, errors) == (0, "")
    return dict(json.loads(output))
