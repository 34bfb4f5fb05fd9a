"""Imports prices: `import_prices --from skypilot|gpuhunt|litellm|csv|discounts|licences PATH [--dry-run]`."""

import csv
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from advisor.engine.terms import exact_text
from catalog import clock
from catalog.importers.prices import Account, Offer, gpuhunt, litellm, names, skypilot
from catalog.loading import fixtures, load
from catalog.management.errors import BadInput, operator
from catalog.models import ApiPrice, Discount, Organisation, Price, SupportLicence
from catalog.pricing import imports as price_imports
from catalog.pricing import sources, sync

PRIVATE = ("discounts", "licences")  # always belong to an organisation
FORMATS = ("skypilot", "gpuhunt", "litellm", "csv", *PRIVATE)
MAX_LINES = 200


class Command(BaseCommand):
    help = (
        "Adds dated offers from a file, all or none. Offers of unknown accelerators or models are skipped and counted. "
        "Prices that look like a mistake are held: `manage.py prices held`."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="a file, or `live` to query the gpuhunt package")
        parser.add_argument("--from", dest="format", choices=FORMATS, required=True, help="format of the file")
        parser.add_argument("--provider", help="default: name of the folder (skypilot) or of the file (gpuhunt)")
        parser.add_argument(
            "--as-of", type=date.fromisoformat, default=clock.today(), help="date of the prices (default: today)"
        )
        parser.add_argument(
            "--organization",
            "--organisation",
            dest="organisation",
            help="slug of the organization that the rows are private to",
        )
        parser.add_argument("--by", default=operator(), help="who imports them (default: the user of this process)")
        parser.add_argument("--dry-run", action="store_true", help="show what would be added without adding it")

    def handle(self, *args: Any, **options: Any) -> None:
        path, file_format = options["path"], options["format"]
        account = Account()
        owner = organisation(file_format, options["organisation"])
        try:
            with transaction.atomic():
                before = {kind: newest(kind) for kind in KINDS}
                as_of = options["as_of"].isoformat()
                done = add(file_format, path, options["provider"], as_of, account, owner, options["by"])
                added = [line for kind in KINDS for line in lines(kind, before[kind])]
                transaction.set_rollback(options["dry_run"])
        except fixtures.FixtureError as error:
            raise BadInput(str(error)) from error
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}; give the path of a file") from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"{path}: cannot be read as {file_format}: {error}") from error
        except KeyError as error:
            raise BadInput(f"{path.name}: column {error} is missing; is it a {file_format} file?") from error
        if options["dry_run"]:
            for line in added[:MAX_LINES]:
                self.stdout.write(line)
            self.stdout.write(f"dry run: nothing was saved; {max(len(added) - MAX_LINES, 0)} more lines not shown")
        counts = done.counts
        self.stdout.write(f"prices: {counts.created} created, {counts.changed} changed, {counts.unchanged} unchanged")
        for held in done.held[:MAX_LINES]:
            self.stdout.write(f"held {price_imports.held_line(held)}")
        if done.held and not options["dry_run"]:
            self.stdout.write("held prices are not used: `manage.py prices release ID` adds one, `discard ID` drops it")
        for reason, count in sorted(account.skipped.items()):
            self.stdout.write(f"skipped {count}: {reason}")


KINDS = (Price, ApiPrice, Discount, SupportLicence)


def newest(kind: type[Any]) -> int:
    return int(kind.objects.order_by("-pk").values_list("pk", flat=True).first() or 0)


def lines(kind: type[Any], after: int) -> list[str]:
    """One line per row added since primary key `after`."""
    return [line(row) for row in kind.objects.filter(pk__gt=after).order_by("pk")]


def line(row: Any) -> str:
    """`+` for a new offer; `~` for a newer price of a known one, with the old price."""
    if isinstance(row, Price):
        known = Price.objects.filter(
            organisation=row.organisation, provider=row.provider, instance=row.instance, region=row.region,
            accelerator=row.accelerator, term=row.term, as_of__lt=row.as_of,
        ).order_by("-as_of").first()  # fmt: skip
        name = f"{row.provider} {row.instance} {row.region} {row.accelerator.slug} x{row.accelerators} {row.term}"
        new, old = (row and exact_text(row.usd_per_hour or row.purchase_usd or 0) for row in (row, known))
        return f"~ {name}: {old} -> {new}" if known else f"+ {name}: {new}"
    if isinstance(row, ApiPrice):
        return f"+ {row.provider} {row.name}: {row.usd_per_mtok_input} in, {row.usd_per_mtok_output} out, USD per Mtok"
    return f"+ {row}"


def organisation(file_format: str, slug: str | None) -> Organisation | None:
    """The owner of private rows; None for public ones. BadInput: it does not fit the format, or does not exist."""
    if slug is None:
        if file_format in PRIVATE:
            raise BadInput(f"{file_format} belong to an organization; give --organization")
        return None
    if file_format not in ("csv", *PRIVATE):
        raise BadInput(f"{file_format} prices are public; --organization works only with csv, {' or '.join(PRIVATE)}")
    owner = Organisation.objects.filter(slug=slug).first()
    if owner is None:
        raise BadInput(
            f"no organization {slug!r}; choose one of {', '.join(Organisation.objects.values_list('slug', flat=True))}"
        )
    return owner


def add(
    file_format: str,
    path: Path,
    provider: str | None,
    as_of: str,
    account: Account,
    owner: Organisation | None,
    by: str,
) -> price_imports.Imported:
    """Reads and adds the offers of one file."""
    if owner is not None and file_format in PRIVATE:
        return price_imports.Imported(counts=add_terms(file_format, path, owner), held=())
    if file_format == "litellm":
        done = sync.Read(source=file_format, as_of=as_of)
        hosted = list(litellm.read(path, sources.models(), as_of, account))
        imported = sync.store(sources.named(file_format), hosted, by, done)
        for reason, count in done.skipped.items():
            account.skip(reason, count)
        return imported
    if file_format == "csv":
        return price_imports.add(list(fixtures.prices(path)), file_format, path.name, by, owner)
    read = list(offers(file_format, path, provider, as_of, account))
    rows = [fixtures.price(path.name, row) for row in read]
    return price_imports.add(rows, file_format, path.name, by, owner, [row.hold for row in read])


def add_terms(file_format: str, path: Path, owner: Organisation) -> load.Counts:
    """Adds the discounts or licenses of an organization."""
    if file_format == "discounts":
        return load.append_discounts(fixtures.table(path, fixtures.DISCOUNT_COLUMNS, fixtures.discount), owner)
    rows = fixtures.table(path, fixtures.LICENCE_COLUMNS, fixtures.licence, fixtures.LICENCE_FOR)
    return load.append_licences(rows, owner)


def offers(file_format: str, path: Path, provider: str | None, as_of: str, account: Account) -> Iterator[Offer]:
    """The prices of accelerators in a file of SkyPilot or gpuhunt, or in the live catalog of gpuhunt."""
    live = file_format == "gpuhunt" and path.name == "live"
    if live and not provider:
        raise fixtures.FixtureError("live needs --provider")
    stated = provider or (path.resolve().parent.name if file_format == "skypilot" else path.stem)
    seller = names.provider(stated, sources.known_providers()) or stated
    if live:
        return gpuhunt.live(stated, sources.known(), as_of, account)
    read = gpuhunt.read if file_format == "gpuhunt" else skypilot.read
    return read(path, seller, sources.known(), as_of, account)
