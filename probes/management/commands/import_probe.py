from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import BadInput
from probes import results
from probes.intake import IntakeError


class Command(BaseCommand):
    help = "Imports a result file from a machine without a connection. It is used once it is approved."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("result", type=Path, help="file written by `python -m probes.agent probe --out`")
        parser.add_argument("--approve", action="store_true", help="use it to calibrate; you know where it comes from")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            result = results.import_file(options["result"].read_bytes(), options["approve"], by="manage.py")
        except OSError as error:
            raise BadInput(f"{options['result']} cannot be read: {error.strerror}; give the path of a file") from error
        except IntakeError as error:
            lines = [f"  {e['field'] or 'document'}: {e['message']}" for e in error.errors]
            raise BadInput("\n".join([f"{options['result']} is not a valid result:", *lines])) from error
        chip = result.accelerator.slug if result.accelerator else "an unknown accelerator"
        self.stdout.write(f"result {result.pk}: {result.state}, {result.measurements.count()} measurements of {chip}")
        for text in [*result.reasons, *result.remarks]:
            self.stdout.write(f"  {text}")
