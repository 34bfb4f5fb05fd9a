"""Keeps prices fresh: `prices sync`, `prices status`; and decides on prices that an import held."""

import json
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from advisor import refresh
from catalog import clock
from catalog.loading import fixtures
from catalog.management.errors import BadInput, operator
from catalog.models import Price, PriceRefresh
from catalog.pricing import checks as price_checks
from catalog.pricing import hosted_checks, sync
from catalog.pricing import imports as price_imports
from catalog.pricing.sources import SOURCES


class Command(BaseCommand):
    help = "Refreshes prices from public sources, and lists, releases and discards prices that an import held."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        reading = actions.add_parser("sync", help="read public price sources and report which answers change")
        reading.add_argument("--from", dest="names", action="append", default=[], choices=list(SOURCES),
                             metavar="NAME", help=f"one of {', '.join(SOURCES)}; may be repeated "
                             "(default: ASSAY_PRICE_SOURCES)")  # fmt: skip
        reading.add_argument("--file", type=Path, help="read this file instead of the network; needs one --from")
        reading.add_argument("--as-of", type=date.fromisoformat, metavar="DATE",
                             help="day of the data in the file (default: as its name or content says)")  # fmt: skip
        reading.add_argument("--cloud", default="", metavar="NAME",
                             help="cloud that a file of skypilot or gpuhunt is of (default: by its path)")  # fmt: skip
        reading.add_argument("--by", default=operator(), help="who runs it (default: the user of this process)")
        reading.add_argument("--json", action="store_true", help="the report as JSON")
        status = actions.add_parser("status", help="when each source was read, the age of prices, what is held")
        status.add_argument("--json", action="store_true", help="as JSON")
        held = actions.add_parser("held", help="list the prices that wait for a decision")
        held.add_argument("--json", action="store_true", help="as JSON")
        for name, what in (("release", "add held prices to the catalog"), ("discard", "drop held prices")):
            decide = actions.add_parser(name, help=what)
            decide.add_argument("ids", nargs="+", type=int, metavar="ID")
            decide.add_argument("--by", default=operator(), help="who decides (default: the user of this process)")
        actions.add_parser("check", help="list the stored public prices that look like a mistake")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "sync":
            self.sync(options)
        elif options["action"] == "status":
            self.status(options["json"])
        elif options["action"] == "held":
            self.held(options["json"])
        elif options["action"] == "check":
            self.check_stored()
        else:
            self.decide(options["action"], options["ids"], options["by"])

    def sync(self, options: dict[str, Any]) -> None:
        if options["file"] is not None and len(options["names"]) != 1:
            raise BadInput("--file needs exactly one --from, which names its format")
        if options["file"] is None and (options["as_of"] or options["cloud"]):
            raise BadInput("--as-of and --cloud describe a file; give it with --file")
        try:
            row = refresh.run(options["names"], options["by"], options["file"], options["as_of"], options["cloud"])
        except (refresh.NoSource, sync.AlreadyRunning, fixtures.FixtureError) as error:
            raise BadInput(str(error)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{options['file']} cannot be read: {error}") from error
        self.stdout.write(json.dumps(row.report, indent=1) if options["json"] else "\n".join(refresh.lines(row)))
        if row.state == PriceRefresh.State.FAILED:
            raise CommandError("no source could be read; nothing was changed")

    def status(self, as_json: bool) -> None:
        found = refresh.status()
        if as_json:
            self.stdout.write(json.dumps(found, indent=1))
            return
        for source in found["sources"]:
            on = "on" if source["on"] else "off"
            read = f"read {source['read_at']}" if source["read_at"] else "never read"
            problem = f"; last attempt failed: {source['error']}" if source["error"] else ""
            needs = f" (needs {source['needs']})" if source["needs"] and not source["read_at"] else ""
            self.stdout.write(f"{source['name']}: {on}, {read}{problem}{needs}")
        ages = ", ".join(f"{count} {age}" for age, count in found["offers_by_age"].items())
        self.stdout.write(f"current public offers: {ages or 'none'}")
        self.stdout.write(f"held prices: {found['held']}; last refresh: {found['last_refresh'] or 'none'}")

    def held(self, as_json: bool) -> None:
        rows = price_imports.waiting()
        if as_json:
            found = [{"id": h.pk, "file": h.price_import.file_name, "reason": h.reason, "row": h.row} for h in rows]
            self.stdout.write(json.dumps(found, indent=1))
            return
        for held in rows:
            self.stdout.write(price_imports.held_line(held))
        self.stdout.write(f"held prices: {len(rows)}")

    def decide(self, action: str, ids: list[int], by: str) -> None:
        """All or none."""
        act = price_imports.release if action == "release" else price_imports.discard
        try:
            with transaction.atomic():
                for pk in ids:
                    act(pk, by)
        except (price_imports.NotHeld, fixtures.FixtureError) as error:
            raise BadInput(str(error)) from error
        self.stdout.write(f"{len(ids)} {'released' if action == 'release' else 'discarded'}")

    def check_stored(self) -> None:
        day = clock.today()
        market, count = price_imports.market(day), 0
        rows = Price.objects.filter(organisation=None).exclude(origin=fixtures.INDEX).values(*price_imports.COLUMNS)
        for row in rows:
            row["accelerator"] = row.pop("accelerator__slug")
            if (day - row["as_of"]).days <= price_checks.CURRENT_DAYS and (
                why := price_checks.suspicion(row, market, day, stored=True)
            ):
                count += 1
                self.stdout.write(f"{row['provider']} {row['instance']} {row['region']} {row['term']}: {why}")
        hosted = hosted_checks.stored_suspicions(day)
        self.stdout.write("\n".join((*hosted, f"{len(hosted)} hosted endpoints look like a mistake")))
        self.stdout.write(f"{count} of {len(rows)} stored prices look like a mistake")
