"""Exports the OpenAPI schema, validated: JSON for *.json, the answer's field reference for *.md, else YAML."""

from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from advisor.result import reference
from catalog.management.errors import writing


class Command(BaseCommand):
    help = "Writes the OpenAPI schema of the API (.json, .yaml), or the reference of every answer field (.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE")

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"]
        if file.endswith(".md"):
            with writing(file):
                Path(file).write_text(reference.markdown(), encoding="utf-8")
            return self.stdout.write(f"Wrote {file}")
        kind = "openapi-json" if file.endswith(".json") else "openapi"
        with writing(file):
            call_command("spectacular", file=file, format=kind, validate=True, fail_on_warn=True)
        self.stdout.write(f"Wrote {file}")
