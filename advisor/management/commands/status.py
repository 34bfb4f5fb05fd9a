"""How fresh the catalog is, and which saved answers rest on older data: `status [--format json] [--answers]`."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.details import freshness


class Command(BaseCommand):
    help = "Shows the newest date and version of prices, models, accelerators, frameworks and measurements."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--format", choices=("table", "json"), default="table")
        parser.add_argument("--json", action="store_const", const="json", dest="format", help="same as --format json")

    def handle(self, *args: Any, **options: Any) -> None:
        found = freshness.found()
        self.stdout.write(
            json.dumps(found, indent=1) if options["format"] == "json" else "\n".join(freshness.lines(found))
        )
