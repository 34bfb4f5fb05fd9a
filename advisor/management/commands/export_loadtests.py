"""Exports load tests marked as calibration, in the columns that `fidelity` and `calibrate` read."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from advisor import load_tests
from advisor.models import LoadTest
from catalog.management.errors import writing


class Command(BaseCommand):
    help = "Exports the load tests marked as calibration as CSV of measured rows."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--out", type=Path, metavar="FILE.csv", help="default: standard output")

    def handle(self, *args: Any, out: Path | None, **options: Any) -> None:
        tests = (
            LoadTest.objects.filter(calibrates=True)
            .select_related("option__advice__workload")
            .defer("option__advice__snapshot")
        )
        rows = load_tests.measured_rows(tests)
        if not rows:
            raise CommandError("No load test is marked as calibration. Mark it on the page of its option.")
        text = load_tests.csv_text(rows)
        if out is None:
            self.stdout.write(text, ending="")
        else:
            with writing(out):
                out.write_text(text)
            self.stdout.write(f"{out}: {len(rows)} rows")
