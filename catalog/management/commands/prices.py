"""Prices that an import held: `prices held`, `prices release|discard ID ...`; `prices check` reads the stored ones."""

import getpass
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction
from django.utils import timezone

from catalog.loading import fixtures
from catalog.management.errors import BadInput
from catalog.models import HeldPrice, Price
from catalog.pricing import checks as price_checks
from catalog.pricing import imports as price_imports


def operator() -> str:
    """The user of this process; `unknown` where the system does not say."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def held_line(held: HeldPrice) -> str:
    """One held price in words."""
    row = held.row
    usd = f"{float(row['usd_per_hour'] or row['purchase_usd']):g}"
    name = (
        f"{row['provider']} {row['instance']} {row['region']} {row['accelerator']} x{row['accelerators']} {row['term']}"
    )
    return f"{held.pk}: {name} at {usd} USD of {row['as_of']} {held.reason}"


class Command(BaseCommand):
    help = "Lists, releases and discards prices that an import held, and checks the stored ones."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        held = actions.add_parser("held", help="list the prices that wait for a decision")
        held.add_argument("--json", action="store_true", help="as JSON")
        for name, what in (("release", "add held prices to the catalog"), ("discard", "drop held prices")):
            decide = actions.add_parser(name, help=what)
            decide.add_argument("ids", nargs="+", type=int, metavar="ID")
            decide.add_argument("--by", default=operator(), help="who decides (default: the user of this process)")
        actions.add_parser("check", help="list the stored public prices that look like a mistake")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "held":
            self.held(options["json"])
        elif options["action"] == "check":
            self.check_stored()
        else:
            self.decide(options["action"], options["ids"], options["by"])

    def held(self, as_json: bool) -> None:
        rows = price_imports.waiting()
        if as_json:
            found = [{"id": h.pk, "file": h.price_import.file_name, "reason": h.reason, "row": h.row} for h in rows]
            self.stdout.write(json.dumps(found, indent=1))
            return
        for held in rows:
            self.stdout.write(held_line(held))
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
        day = timezone.localdate()
        market, count = price_imports.market(day), 0
        rows = Price.objects.filter(organisation=None).exclude(origin=price_checks.INDEX).values(*price_imports.COLUMNS)
        for row in rows:
            row["accelerator"] = row.pop("accelerator__slug")
            if (day - row["as_of"]).days <= price_checks.CURRENT_DAYS and (
                why := price_checks.suspicion(row, market, day, stored=True)
            ):
                count += 1
                self.stdout.write(f"{row['provider']} {row['instance']} {row['region']} {row['term']}: {why}")
        self.stdout.write(f"{count} of {len(rows)} stored prices look like a mistake")
