"""Loads the fixtures: `load_catalog [DIR]`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.loading.fixtures import FixtureError
from catalog.loading.load import load, shipped
from catalog.management.errors import BadInput
from catalog.models import CatalogLoad


class Command(BaseCommand):
    help = "Loads the catalog (accelerators, models, prices ...) from a directory of fixtures. It can be run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", nargs="?", type=Path, default=shipped())
        parser.add_argument("--no-scores", action="store_true", help="skip measured figures, which is faster")

    def handle(self, *args: Any, **options: Any) -> None:
        is_shipped = options["directory"].resolve() == shipped().resolve()
        origin = CatalogLoad.Origin.RELEASE if is_shipped else CatalogLoad.Origin.DIRECTORY
        try:
            with_measured = not options["no_scores"]
            counts = load(options["directory"], scores=with_measured, imported=with_measured, origin=origin)
        except FixtureError as error:
            raise BadInput(str(error)) from error
        except OSError as error:
            path = error.filename or options["directory"]
            raise BadInput(f"{path} cannot be read: {error.strerror}; check the path and its permissions") from error
        for kind, count in counts.items():
            if not options["verbosity"] and not (count.created or count.changed):
                continue
            self.stdout.write(f"{kind}: {count.created} created, {count.changed} changed, {count.unchanged} unchanged")
