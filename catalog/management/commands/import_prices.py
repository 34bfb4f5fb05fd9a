"""Adds offers: `import_prices --from skypilot|gpuhunt|litellm|csv|discounts|licences PATH [--dry-run]`."""

import csv
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from catalog.importers import gpuhunt, litellm, skypilot
from catalog.loading import fixtures, load
from catalog.management.errors import BadInput
from catalog.models import ApiPrice, Discount, Organisation, Price, ServedModel, SupportLicence

PRIVATE = ("discounts", "licences")  # only of an organisation
FORMS = ("skypilot", "gpuhunt", "litellm", "csv", *PRIVATE)
MOST_SHOWN = 200


class Command(BaseCommand):
    help = "Adds dated offers from a file, whole or not at all; what the catalog does not know is skipped and counted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="a file; `live` asks an installed gpuhunt")
        parser.add_argument("--from", dest="form", choices=FORMS, required=True)
        parser.add_argument("--provider", help="default: the folder (skypilot) or the file's name (gpuhunt)")
        parser.add_argument("--as-of", type=date.fromisoformat, default=date.today(), help="default: today")
        parser.add_argument("--organisation", help="slug: private rows of this organisation")
        parser.add_argument("--dry-run", action="store_true", help="show what would be added and add nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        path, form = options["path"], options["form"]
        skipped: dict[str, int] = {}
        owner = organisation(form, options["organisation"])
        try:
            with transaction.atomic():
                before = {kind: newest(kind) for kind in KINDS}
                counts = add(form, path, options["provider"], options["as_of"].isoformat(), skipped, owner)
                added = [line for kind in KINDS for line in lines(kind, before[kind])]
                transaction.set_rollback(options["dry_run"])
        except fixtures.FixtureError as error:
            raise BadInput(str(error)) from error
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}; give the path of a file") from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"{path}: no text that can be read as {form}: {error}") from error
        except KeyError as error:
            raise BadInput(f"{path.name}: no column {error}; is it a file of {form}?") from error
        if options["dry_run"]:
            for line in added[:MOST_SHOWN]:
                self.stdout.write(line)
            self.stdout.write(f"dry run, nothing is kept; {max(len(added) - MOST_SHOWN, 0)} more not shown")
        self.stdout.write(f"prices: {counts.created} created, {counts.changed} changed, {counts.unchanged} unchanged")
        for reason, count in sorted(skipped.items()):
            self.stdout.write(f"skipped {count}: {reason}")


KINDS = (Price, ApiPrice, Discount, SupportLicence)


def newest(kind: type[Any]) -> int:
    return int(kind.objects.order_by("-pk").values_list("pk", flat=True).first() or 0)


def lines(kind: type[Any], after: int) -> list[str]:
    """What was added, with the figure that it replaces."""
    return [line(row) for row in kind.objects.filter(pk__gt=after).order_by("pk")]


def line(row: Any) -> str:
    """`+` a new offer; `~` a newer figure of a known one, from what to what."""
    if isinstance(row, Price):
        known = Price.objects.filter(
            organisation=row.organisation, provider=row.provider, instance=row.instance, region=row.region,
            accelerator=row.accelerator, term=row.term, as_of__lt=row.as_of,
        ).order_by("-as_of").first()  # fmt: skip
        name = f"{row.provider} {row.instance} {row.region} {row.accelerator.slug} x{row.accelerators} {row.term}"
        new = f"{paid(row)} USD"
        return f"~ {name}: {paid(known)} -> {new}" if known else f"+ {name}: {new}"
    if isinstance(row, ApiPrice):
        return f"+ {row.provider} {row.name}: {row.usd_per_mtok_input} in, {row.usd_per_mtok_output} out, USD per Mtok"
    return f"+ {row}"


def paid(row: Price) -> str:
    usd = row.usd_per_hour or row.purchase_usd or Decimal(0)
    return f"{usd.normalize():f}"


def organisation(form: str, slug: str | None) -> Organisation | None:
    if slug is None:
        if form in PRIVATE:
            raise BadInput(f"{form} belong to an organisation: give --organisation")
        return None
    if form not in ("csv", *PRIVATE):
        raise BadInput(f"a list of {form} is public: private rows come from csv, {' or '.join(PRIVATE)}")
    owner = Organisation.objects.filter(slug=slug).first()
    if owner is None:
        raise BadInput(
            f"no organisation {slug!r}; there are {', '.join(Organisation.objects.values_list('slug', flat=True))}"
        )
    return owner


def add(
    form: str, path: Path, provider: str | None, as_of: str, skipped: dict[str, int], owner: Organisation | None
) -> load.Counts:
    """Reads and adds the offers of one file."""
    if form == "csv":
        return load.append_prices(fixtures.prices(path), owner)
    if owner is not None and form == "discounts":
        return load.append_discounts(fixtures.table(path, fixtures.DISCOUNT_COLUMNS, fixtures.discount), owner)
    if owner is not None:
        rows = fixtures.table(path, fixtures.LICENCE_COLUMNS, fixtures.licence, fixtures.LICENCE_FOR)
        return load.append_licences(rows, owner)
    if form == "litellm":
        models = ServedModel.objects.values_list("hf_id", "slug")
        hosted = litellm.read(path, models, as_of, skipped)
        return load.append_api_prices([fixtures.api_price(path.name, row) for row in hosted])
    if form == "gpuhunt" and path.name == "live":
        if not provider:
            raise fixtures.FixtureError("live: give --provider")
        offers = gpuhunt.live(provider, as_of, skipped)
    elif form == "gpuhunt":
        offers = gpuhunt.read(path, provider or path.stem, as_of, skipped)
    else:
        offers = skypilot.read(path, provider or path.resolve().parent.name, as_of, skipped)
    return load.append_prices([fixtures.price(path.name, row) for row in offers])
