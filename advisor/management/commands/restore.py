from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from advisor.ops import backup, health
from catalog.management.errors import BadInput


class Command(BaseCommand):
    help = "Restores a backup into the configured database, all of it or nothing. Stop the service first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument(
            "--replace", action="store_true", help="replace a database that is not empty; its data is lost"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"]
        try:
            restored = backup.restore(file, options["replace"])
        except backup.BackupError as error:
            raise BadInput(str(error)) from error
        except OSError as error:
            path = error.filename or file
            raise BadInput(f"{path} cannot be used: {error.strerror}; check the path and its permissions") from error
        self.stdout.write(f"restored: the database of {restored.made_at}, version {restored.version}")
        for check in (health.migrations(), health.catalog()):
            if not check.ok:
                self.stdout.write(f"{check.name}: {check.detail}")
