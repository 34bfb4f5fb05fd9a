"""Exports the OpenAPI schema, validated: as JSON if the file name ends in .json, else as YAML."""

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import writing


class Command(BaseCommand):
    help = "Writes the OpenAPI schema of the API."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE")

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"]
        kind = "openapi-json" if file.endswith(".json") else "openapi"
        with writing(file):
            call_command("spectacular", file=file, format=kind, validate=True, fail_on_warn=True)
        self.stdout.write(f"Wrote {file}")
