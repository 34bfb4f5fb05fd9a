import os
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from catalog.management.errors import BadInput


class Command(BaseCommand):
    help = (
        "Serves Assay's tools to an AI assistant (Model Context Protocol), over standard input and output or HTTP. "
        "ASSAY_URL is the Assay server; over stdio, ASSAY_TOKEN is the token. Over HTTP every caller sends its own."
    )
    requires_system_checks: list[str] = []  # it serves no page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--http", type=address, metavar="HOST:PORT", help="serve HTTP at /mcp, such as 127.0.0.1:8765"
        )
        parser.add_argument(
            "--allow-host",
            action="append",
            default=[],
            metavar="NAME[:PORT]",
            help="also answer to this Host header, of a proxy in front; repeatable",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not os.environ.get("ASSAY_URL", "").startswith(("http://", "https://")):
            raise BadInput("Set ASSAY_URL to the address of the Assay server, such as https://assay.example.")
        try:
            from advisor.client import assistant
        except ImportError as error:
            raise CommandError(f"{error.name} is not installed: pip install 'assay[mcp]'") from None
        host, port = options["http"] or ("", 0)
        assistant.run(host, port, options["allow_host"])


def address(text: str) -> tuple[str, int]:
    """HOST:PORT. ArgumentTypeError: it is not one."""
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise ArgumentTypeError(f"{text} is not HOST:PORT")
    return host, int(port)
