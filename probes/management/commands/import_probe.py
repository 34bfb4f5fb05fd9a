from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import BadInput
from probes import results
from probes.intake import IntakeError


class Command(BaseCommand):
    help = "Reads a result that a machine without a connection wrote. It counts when it is approved."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("result", type=Path, help="the file of `python -m probes.agent probe --out`")
        parser.add_argument("--approve", action="store_true", help="let it calibrate: you know where it comes from")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            result = results.import_file(options["result"].read_bytes(), options["approve"], by="manage.py")
        except OSError as error:
            raise BadInput(f"{options['result']} cannot be read: {error.strerror}; give the path of a file") from error
        except IntakeError as error:
            lines = [f"  {e['field'] or 'document'}: {e['message']}" for e in error.errors]
            raise BadInput("\n".join([f"{options['result']} is not a result that can be used:", *lines])) from error
        chip = result.accelerator.slug if result.accelerator else "no chip of the catalog"
        self.stdout.write(f"result {result.pk}: {result.state}, {result.measurements.count()} measurements of {chip}")
        for text in [*result.reasons, *result.remarks]:
            self.stdout.write(f"  {text}")
