from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from advisor.ops import backup
from catalog.management.errors import BadInput, writing


class Command(BaseCommand):
    help = "Writes the whole database to one file while the service runs. SECRET_KEY and sessions are not in it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="a file that does not exist yet")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with writing(options["to"]):
                made = backup.make(options["to"])
        except backup.BackupError as error:
            raise BadInput(str(error)) from error
        self.stdout.write(f"{options['to']}: {made.vendor}, version {made.version}, {made.bytes:,} bytes")
