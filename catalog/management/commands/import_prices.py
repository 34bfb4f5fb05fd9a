"""Adds offers from a public price list: `import_prices --from skypilot|gpuhunt|litellm|csv PATH`."""

from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from catalog import fixtures, loading
from catalog.importers import gpuhunt, litellm, skypilot
from catalog.models import ServedModel


class Command(BaseCommand):
    help = "Adds dated offers from a file; what the catalog does not know is skipped and counted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path)
        parser.add_argument("--from", dest="form", choices=("skypilot", "gpuhunt", "litellm", "csv"), required=True)
        parser.add_argument("--provider", help="default: the folder (skypilot) or the file's name (gpuhunt)")
        parser.add_argument("--as-of", type=date.fromisoformat, default=date.today(), help="default: today")

    def handle(self, *args: Any, **options: Any) -> None:
        path, form = options["path"], options["form"]
        skipped: dict[str, int] = {}
        try:
            counts = add(form, path, options["provider"], options["as_of"].isoformat(), skipped)
        except (fixtures.FixtureError, OSError) as error:
            raise CommandError(str(error)) from error
        except KeyError as error:
            raise CommandError(f"{path.name}: no column {error}; is it a file of {form}?") from error
        self.stdout.write(f"prices: {counts.created} created, {counts.changed} changed, {counts.unchanged} unchanged")
        for reason, count in sorted(skipped.items()):
            self.stdout.write(f"skipped {count}: {reason}")


@transaction.atomic
def add(form: str, path: Path, provider: str | None, as_of: str, skipped: dict[str, int]) -> loading.Counts:
    """Reads and adds the offers of one file."""
    if form == "csv":
        return loading.append_prices(fixtures.prices(path))
    if form == "litellm":
        models = ServedModel.objects.values_list("hf_id", "slug")
        hosted = litellm.read(path, models, as_of, skipped)
        return loading.append_api_prices([fixtures.api_price(path.name, row) for row in hosted])
    if form == "gpuhunt":
        offers = gpuhunt.read(path, provider or path.stem, as_of, skipped)
    else:
        offers = skypilot.read(path, provider or path.resolve().parent.name, as_of, skipped)
    return loading.append_prices([fixtures.price(path.name, row) for row in offers])
