"""Commands that ask a server over REST instead of computing here: --server, or ASSAY_URL together with ASSAY_TOKEN."""

import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.apps import apps
from django.core.management.base import BaseCommand, CommandError

from advisor.client.calls import Assay, AssayError, Problem, data_of
from advisor.client.shown import error_line
from catalog.management.errors import BadInput

REFUSED_INPUT = (400, 409, 413, 415, 422)  # statuses that another input would not get
Rename = Callable[[dict[str, str]], dict[str, str]]


class ServerCommand(BaseCommand):
    """A command with --server. Asking needs no checks of this machine's settings, which would load every page."""

    def execute(self, *args: Any, **options: Any) -> Any:
        options["skip_checks"] = options["skip_checks"] or bool(options["server"])
        return super().execute(*args, **options)


def add_server(parser: ArgumentParser) -> None:
    both = os.environ.get("ASSAY_URL", "") if os.environ.get("ASSAY_TOKEN") else ""
    parser.add_argument(
        "--server",
        metavar="URL",
        default=both,
        help="ask this Assay server, with the token in ASSAY_TOKEN; default: ASSAY_URL if ASSAY_TOKEN is set too, else "
        "compute here; '': compute here",
    )


@contextmanager
def asked(server: str, rename: Rename = lambda item: item, named: str = "") -> Iterator[Assay]:
    """The server. Ends the command with 2 if it refuses the input, with 1 if it cannot answer.

    named: what the input names on the server, such as `--advice: ID`; input is wrong if it is not found.
    """
    if not apps.ready:
        django.setup()  # what prints an answer needs it; the database is not read
    try:
        assay = Assay(server)
    except ValueError as error:
        raise CommandError(str(error)) from None
    try:
        with assay, same_shape(assay):
            yield assay
    except Problem as problem:
        said = "\n".join(map(error_line, map(rename, problem.errors))) or problem.detail
        if problem.status in REFUSED_INPUT:
            raise BadInput(said) from None
        if problem.status == 404 and named:
            raise BadInput(f"{named}: {server} has none with this ID") from None
        raise CommandError(f"{server} refuses this ({problem.status}): {said}") from None
    except AssayError as error:
        raise CommandError(str(error)) from None


@contextmanager
def same_shape(assay: Assay) -> Iterator[None]:
    """AssayError: the server has another version, whose answer cannot be read."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # pydantic's ValidationError is a ValueError
        from advisor.engine import ENGINE_VERSION  # here, because `--help` loads nothing that computes an answer

        theirs = assay.get("version").get("application", "unknown")
        if theirs == ENGINE_VERSION:
            raise
        said = f"{assay.url} runs Assay {theirs}, and this is {ENGINE_VERSION}, which cannot read its answer"
        raise AssayError(f"{said}; install {theirs} here.") from error


def posted(assay: Assay, path: str, body: Any) -> Any:
    return data_of(assay._run(assay._send("POST", path, json=body)))


def names_files(raw: Any) -> bool:
    """Whether a workload refers to files: the path of a config.json or of a trace."""
    if isinstance(raw, list):
        return any(map(names_files, raw))
    if not isinstance(raw, dict):
        return False
    return any(isinstance(raw.get(key), str) for key in ("config", "trace")) or any(map(names_files, raw.values()))
