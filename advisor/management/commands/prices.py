"""Keeps prices fresh: `prices sync`, `prices status`; and decides on prices that an import held."""

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from advisor import bundles, refresh
from catalog import clock
from catalog.bundles import BundleError, lines, new_key, undo
from catalog.loading import fixtures
from catalog.management.errors import BadInput, operator
from catalog.models import Price, PriceRefresh
from catalog.pricing import checks as price_checks
from catalog.pricing import hosted_checks, sync
from catalog.pricing import imports as price_imports
from catalog.pricing.download import Unreachable
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
        reading.add_argument("--bundle", metavar="FILE", help="apply this bundle of `prices fetch` instead; a file, a "
                             "folder of which the newest file counts, or a URL")  # fmt: skip
        reading.add_argument("--as-of", type=date.fromisoformat, metavar="DATE",
                             help="day of the data in the file (default: as its name or content says)")  # fmt: skip
        reading.add_argument("--cloud", default="", metavar="NAME",
                             help="cloud that a file of skypilot or gpuhunt is of (default: by its path)")  # fmt: skip
        reading.add_argument("--by", default=operator(), help="who runs it (default: the user of this process)")
        reading.add_argument("--json", action="store_true", help="the report as JSON")
        fetching = actions.add_parser("fetch", help="download sources and catalog files into a signed bundle")
        fetching.add_argument("--to", type=Path, required=True, metavar="BUNDLE", help="the file to write")
        fetching.add_argument("--from", dest="names", action="append", default=[], choices=list(SOURCES),
                              metavar="NAME", help=f"one of {', '.join(SOURCES)}; may be repeated")  # fmt: skip
        fetching.add_argument("--catalog", type=Path, metavar="DIR", help="folder of catalog files, such as fixtures/")
        fetching.add_argument("--key", type=Path, required=True, help="file with the private key of `prices key`")
        making = actions.add_parser("key", help="make a key pair for bundles; prints the public key")
        making.add_argument("--to", type=Path, required=True, metavar="FILE", help="new file for the private key")
        undoing = actions.add_parser("undo", help="undo the bundle that was applied last")
        undoing.add_argument("--by", default=operator(), help="who undoes it (default: the user of this process)")
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
        action = options["action"]
        if action in ("release", "discard"):
            self.decide(action, options["ids"], options["by"])
        elif action == "sync" and options["bundle"] is not None:
            self.apply(options)
        elif action in ("status", "held"):
            getattr(self, action)(options["json"])
        elif action == "check":
            self.check_stored()
        else:
            {"sync": self.sync, "fetch": self.fetch, "key": self.key, "undo": self.undo}[action](options)

    def apply(self, options: dict[str, Any]) -> None:
        if options["names"] or options["file"] or options["as_of"] or options["cloud"]:
            raise BadInput("--bundle says itself what it holds; leave out --from, --file, --as-of and --cloud")
        place = str(options["bundle"])
        try:
            if place.startswith(("https://", "http://")) or Path(place).is_dir():
                applied = bundles.refresh_from(place, options["by"])
            else:
                applied = bundles.apply_file(Path(place), options["by"])
        except (BundleError, fixtures.FixtureError, sync.AlreadyRunning, Unreachable) as error:
            raise BadInput(f"{options['bundle']}: {error}; nothing was changed") from error
        except OSError as error:
            raise BadInput(f"{options['bundle']} cannot be read: {error.strerror}") from error
        if applied is None:
            self.stdout.write("{}" if options["json"] else "nothing new: this bundle was applied before")
        elif options["json"]:
            self.stdout.write(json.dumps({"report": applied.report, "changes": applied.changes}, indent=1))
        else:
            self.stdout.write(f"applied: made {applied.made_at:%Y-%m-%d %H:%M} UTC, signed with key {applied.key}")
            self.stdout.write("\n".join(lines(applied)) or "no changes")

    def fetch(self, options: dict[str, Any]) -> None:
        try:
            secret = options["key"].read_text().strip()
            data, problems = bundles.make(options["names"], options["catalog"], secret)
            options["to"].write_bytes(data)
        except BundleError as error:
            raise BadInput(str(error)) from error
        except OSError as error:
            raise BadInput(f"{error.filename}: {error.strerror}") from error
        self.stdout.write(f"{options['to']}: {len(data):,} bytes")
        for problem in problems:
            self.stdout.write(f"not read: {problem}")

    def key(self, options: dict[str, Any]) -> None:
        secret, public = new_key()
        try:
            with open(os.open(options["to"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"{secret}\n")
        except FileExistsError as error:
            raise BadInput(f"{options['to']} exists; name a new file") from error
        except OSError as error:
            raise BadInput(f"{options['to']}: {error.strerror}") from error
        self.stdout.write(f"private key: {options['to']} (keep it on the machine that makes bundles)")
        self.stdout.write(f"on the server: ASSAY_BUNDLE_KEYS={public}")

    def undo(self, options: dict[str, Any]) -> None:
        try:
            undone, kept = undo(options["by"])
        except BundleError as error:
            raise BadInput(str(error)) from error
        self.stdout.write(f"undone: the bundle made {undone.made_at:%Y-%m-%d %H:%M} UTC")
        for row in kept:
            self.stdout.write(f"not restored, because it changed afterwards or is in use: {row}")

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
