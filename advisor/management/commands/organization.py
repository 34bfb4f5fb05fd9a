from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor.management.commands.service_account import organisation
from catalog.accounts import everything, organizations, quotas, retention
from catalog.management.errors import BadInput, operator, writing
from catalog.models import Organisation

NONE = "none"


class Command(BaseCommand):
    help = "Shows organizations, sets their quotas and retention, and exports or deletes everything of one."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(
            dest="do", required=True, metavar="list | show | limit | keep | export | delete"
        )
        actions.add_parser("list", help="list all organizations")
        for name, text in (
            ("show", "show quotas, their use, retention and the number of rows"),
            ("limit", "set quotas; `none` removes a quota"),
            ("keep", "set how many days rows are kept; `none`: as the settings say"),
            ("export", "write all data of the organization to a ZIP file"),
            ("delete", "delete all data, and accounts of no other organization; without --confirm, show them"),
        ):
            part = actions.add_parser(name, help=text)
            part.add_argument("slug")
            names = {"limit": quotas.NAMES, "keep": retention.NAMES}.get(name, {})
            for column, label in names.items():
                part.add_argument(f"--{column.replace('_', '-')}", type=number, metavar="N", help=label)
            if name == "export":
                part.add_argument("file", help="the file to write, such as acme.zip")
            if name == "delete":
                part.add_argument("--confirm", metavar="SLUG", help="repeat the slug; without it, nothing is deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["do"] == "list":
            for row in Organisation.objects.order_by("slug"):
                self.stdout.write(f"{row.slug}  {row.name}  {row.memberships.count()} members")
            return
        getattr(self, options["do"])(organisation(options["slug"]), options)

    def show(self, owner: Organisation, options: dict[str, Any]) -> None:
        for line in quotas.lines(owner):
            self.stdout.write(f"{line.label}: {line.used} of {'no limit' if line.limit is None else line.limit}")
        for label, days in retention.days_of(owner).items():
            self.stdout.write(f"{label}: {'kept' if days is None else f'{days} days'}")
        self.rows(owner)

    def rows(self, owner: Organisation) -> None:
        for name, count in everything.counts(owner).items():
            self.stdout.write(f"{count:8} {name}")

    def limit(self, owner: Organisation, options: dict[str, Any]) -> None:
        self.set(quotas, owner, options)

    def keep(self, owner: Organisation, options: dict[str, Any]) -> None:
        self.set(retention, owner, options)

    def set(self, of: Any, owner: Organisation, options: dict[str, Any]) -> None:
        given = {name: options[name] for name in of.NAMES if options[name] is not None}
        if not given:
            raise BadInput("give at least one of " + ", ".join(f"--{name.replace('_', '-')}" for name in of.NAMES))
        try:
            of.change(owner, {name: None if value == NONE else value for name, value in given.items()}, operator())
        except organizations.Refused as error:
            raise BadInput(str(error)) from None
        self.show(owner, options)

    def export(self, owner: Organisation, options: dict[str, Any]) -> None:
        path = Path(options["file"])
        with writing(path), path.open("wb") as file:
            written = everything.export(owner, file, operator())
        self.stdout.write(f"{path}: {sum(written.values())} rows in {len(written)} files")

    def delete(self, owner: Organisation, options: dict[str, Any]) -> None:
        self.rows(owner)
        if options["confirm"] != owner.slug:
            raise BadInput(f"nothing was deleted; to delete these rows, give --confirm {owner.slug}")
        deleted = everything.delete(owner, operator())
        self.stdout.write(f"{owner.slug}: {sum(deleted.values())} rows deleted")


def number(text: str) -> Any:
    if text == NONE:
        return NONE
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ArgumentTypeError(f"{text!r}: use a whole number, or {NONE}")
    return int(text)
