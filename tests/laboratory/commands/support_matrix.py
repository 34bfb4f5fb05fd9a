"""Shows what each serving framework supports."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from advisor.management.commands.advise import require_catalog
from catalog.management.errors import writing
from catalog.models import Framework


def stated(source: Any) -> str:
    """The source with its date and whether it was read or is from memory."""
    return f"{source['source']} ({source.get('basis', 'read')}, {source['as_of']})" if source else ""


class Command(BaseCommand):
    help = "Lists the chips, formats, layouts and kinds of model that each framework supports, with sources."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--write-docs",
            type=Path,
            metavar="FILE",
            help="write the page: docs/reference/support-matrix.md",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor.inputs import catalog_resources  # here, so that --help does not import the engine
        from tests.laboratory import support_matrix

        require_catalog()
        sources = {(row.slug, row.version): stated(row.sources.get("support")) for row in Framework.objects.all()}
        libraries = [
            (f"{row.name} {row.version}", row.settings["role"], ", ".join(row.settings.get("hardware", [])),
             row.settings.get("not_started_reason", ""))
            for row in Framework.objects.order_by("slug", "version")
            if row.settings.get("role", "serving") != "serving"
        ]  # fmt: skip
        text = support_matrix.page(catalog_resources(), sources, libraries)
        if not options["write_docs"]:
            return self.stdout.write(text)
        with writing(options["write_docs"]):
            options["write_docs"].write_text(text, encoding="utf-8")
        self.stdout.write(f"Wrote {options['write_docs']}")
