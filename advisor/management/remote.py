"""Commands that ask a server over REST instead of computing here: --server, or ASSAY_URL together with ASSAY_TOKEN."""

import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.apps import apps
from django.core.management.base import CommandError

from advisor.client.calls import Assay, AssayError, Problem
from advisor.client.shown import error_line
from catalog.management.errors import BadInput

REFUSED_INPUT = (400, 409, 413, 415, 422)  # statuses that another input would not get
Rename = Callable[[dict[str, str]], dict[str, str]]


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
def asked(server: str, rename: Rename = lambda item: item) -> Iterator[Assay]:
    """The server. Ends the command with 2 if it refuses the input, with 1 if it cannot answer."""
    if not apps.ready:
        django.setup()  # what prints an answer needs it; the database is not read
    try:
        with Assay(server) as assay:
            yield assay
    except Problem as problem:
        said = "\n".join(map(error_line, map(rename, problem.errors))) or problem.detail
        if problem.status in REFUSED_INPUT:
            raise BadInput(said) from None
        raise CommandError(f"{server} refuses this ({problem.status}): {said}") from None
    except (AssayError, ValueError) as error:
        raise CommandError(str(error)) from None


def names_files(raw: Any) -> bool:
    """Whether a workload refers to files: the path of a config.json or of a trace."""
    if isinstance(raw, list):
        return any(map(names_files, raw))
    if not isinstance(raw, dict):
        return False
    return any(isinstance(raw.get(key), str) for key in ("config", "trace")) or any(map(names_files, raw.values()))
