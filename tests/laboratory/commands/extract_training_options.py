"""Writes fixtures/flags/training/NAME-VERSION.txt from a released training package, without running it."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import BadInput
from tests.laboratory.package_options import FOLDER, Package, sources, training_options, written


class Command(BaseCommand):
    help = "Lists the options of a training package (get it with pip download --no-deps PACKAGE==VERSION)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", choices=sorted(sources()))
        parser.add_argument(
            "package", type=Path, help="a wheel, a source archive, or the folder of an installed package"
        )
        parser.add_argument("--release", default="", help="the version of an installed package")
        parser.add_argument("--out", type=Path, default=FOLDER)

    def handle(self, *args: Any, name: str, package: Path, release: str, out: Path, **options: Any) -> None:
        parts = package.name.removesuffix(".tar.gz").split("-")
        if not package.exists() or not (release or (package.is_file() and len(parts) > 1)):
            raise BadInput(f"{package}: give a wheel or .tar.gz with its original name, or a folder and --release")
        version = release or parts[1]
        try:
            found = training_options(name, Package(path=package))
        except (ValueError, SyntaxError, OSError) as error:
            raise BadInput(str(error)) from error
        shown = f"site-packages --release {release}" if release else package.name
        command = f"manage.py extract_training_options {name} {shown}"
        self.stdout.write(written(out, name, "torch" if name == "torchrun" else name, version, command, found))
