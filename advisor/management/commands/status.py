"""How fresh the catalog is, and which saved answers rest on older data: `status [--format json] [--answers]`."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from advisor import refresh
from advisor.management.remote import ServerCommand, add_server, asked
from catalog.details import freshness
from catalog.management.errors import BadInput, operator
from catalog.pricing import sync


class Command(ServerCommand):
    help = "Shows the newest date and version of prices, models, accelerators, frameworks and measurements."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--format", choices=("table", "json"), default="table")
        parser.add_argument("--json", action="store_const", const="json", dest="format", help="same as --format json")
        parser.add_argument("--answers", action="store_true", help="list saved answers that are based on older data")
        parser.add_argument("--compare", action="store_true", help="compute these answers again and say what changes")
        add_server(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["server"]:
            if options["answers"] or options["compare"]:
                raise BadInput("--answers and --compare read this server's database; give --server '' on the server")
            with asked(options["server"]) as assay:
                found = assay.get("freshness")
                lines = freshness.lines(found)
            self.stdout.write(json.dumps(found, indent=1) if options["format"] == "json" else "\n".join(lines))
            return
        try:
            row = refresh.compare(operator()) if options["compare"] else None
        except sync.AlreadyRunning as error:
            raise BadInput(str(error)) from error
        found = freshness.found()
        answers = refresh.resting() if options["answers"] or row else None
        if options["format"] == "json":
            more = {} if answers is None else {"answers": [asdict(each) for each in answers]}
            more |= {"comparison": row.report} if row else {}
            self.stdout.write(json.dumps(found | more, indent=1))
            return
        told = freshness.lines(found) if answers is None else refresh.resting_lines(answers)
        self.stdout.write("\n".join([*told, *(refresh.lines(row) if row else ())]))
