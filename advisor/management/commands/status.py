"""Shows how fresh the catalog is: `status [--format json]`."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor import freshness


class Command(BaseCommand):
    help = (
        "Shows the newest date and version of prices, models, chips, frameworks and measurements, and what is lacking."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
        parser.add_argument("--json", action="store_const", dest="format", const="json", help="as --format json")

    def handle(self, *args: Any, **options: Any) -> None:
        found = freshness.freshness()
        text = json.dumps(found, indent=1) if options["format"] == "json" else "\n".join(freshness.lines(found))
        self.stdout.write(text)
