"""Writes fixtures/flags/KIND-VERSION.txt from a released package, without installing it."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor.answer.options import launch_flags
from catalog.management.errors import BadInput
from tests.laboratory.package_options import Package, server_options, written


class Command(BaseCommand):
    help = "Lists the option names in a wheel or source archive (get it with pip download --no-deps PACKAGE==VERSION)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=sorted(launch_flags.sources()))
        parser.add_argument("archive", type=Path, help="the wheel, or the .tar.gz of a source release")
        parser.add_argument("--out", type=Path, default=launch_flags.FOLDER)

    def handle(self, *args: Any, kind: str, archive: Path, out: Path, **options: Any) -> None:
        parts = archive.name.removesuffix(".tar.gz").split("-")
        if not archive.is_file() or len(parts) < 2:
            raise BadInput(f"{archive}: give a wheel or .tar.gz with its original name (NAME-VERSION...)")
        try:
            names = server_options(kind, Package(path=archive))
        except (ValueError, SyntaxError, OSError) as error:
            raise BadInput(str(error)) from error
        command = f"manage.py extract_flags {kind} {archive.name}"
        self.stdout.write(written(out, kind, parts[0], parts[1], command, names))
