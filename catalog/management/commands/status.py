"""How fresh the catalog is: `status [--json]`."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.details import freshness


class Command(BaseCommand):
    help = "Shows the newest date and version of prices, models, accelerators, frameworks and measurements."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found = freshness.found()
        self.stdout.write(json.dumps(found, indent=1) if options["json"] else "\n".join(freshness.lines(found)))
