"""Commands that make or judge shipped figures. Their code is in tests/laboratory, which only a checkout has."""

import sys
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from catalog.management.errors import BadInput

FOLDER = settings.BASE_DIR / "tests" / "laboratory"


class NeedsCheckout(BaseCommand):
    """In place of a command whose code is not installed."""

    help = "Not installed: run this command as `python manage.py` in a checkout of the project."

    def run_from_argv(self, argv: list[str]) -> None:
        if {"-h", "--help"} & set(argv):
            return super().run_from_argv(argv)
        self.stderr.write(f"{argv[1]}: {self.help}")
        sys.exit(BadInput().returncode)

    def handle(self, *args: Any, **options: Any) -> None:
        raise BadInput(self.help)


def command(name: str) -> type[BaseCommand]:
    """The command of that name, or one that says what it needs."""
    if not (FOLDER / "commands" / f"{name}.py").is_file():
        return NeedsCheckout
    if str(settings.BASE_DIR) not in sys.path:  # `assay` and `python -m advisor` started elsewhere
        sys.path.insert(0, str(settings.BASE_DIR))
    made: type[BaseCommand] = import_module(f"tests.laboratory.commands.{name}").Command
    return made
