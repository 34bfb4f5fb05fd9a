from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import BadInput
from probes.fitted import fitting
from probes.models import Result
from probes.pages import result_figures
from probes.received import intake, results


class Command(BaseCommand):
    help = "Imports a result file from a machine without a connection, and prints what it changes, or why nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("result", type=Path, help="file written by `python -m probes.agent probe --out`")
        parser.add_argument("--approve", action="store_true", help="use it to calibrate; you know where it comes from")
        parser.add_argument(
            "--release", action="store_true", help="use it despite the findings that quarantine it; you reviewed them"
        )
        parser.add_argument(
            "--accelerator", default="", metavar="SLUG", help="the accelerator, if the device's name does not tell"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path, slug = options["result"], options["accelerator"]
        try:
            result = results.import_file(path.read_bytes(), options["approve"], by="manage.py", slug=slug)
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}; give the path of a file") from error
        except intake.IntakeError as error:
            lines = [f"  {e['field'] or 'document'}: {e['message']}" for e in error.errors]
            raise BadInput("\n".join([f"{path} is not a valid result:", *lines])) from error
        except ValueError as error:
            raise BadInput(f"{'--accelerator ' + slug + ': ' if slug else ''}{error}") from error
        if options["release"] and result.state == Result.State.QUARANTINED:
            results.release(result, "manage.py")
        result = calibrated(result)
        chip = result.accelerator.slug if result.accelerator else "an unknown accelerator"
        self.stdout.write(f"result {result.pk}: {result.state}, {result.measurements.count()} measurements of {chip}")
        for text in [*result.reasons, *result.remarks]:
            self.stdout.write(f"  {text}")
        for line in result_figures.report_lines(result.report):
            self.stdout.write(line)
        if result.reasons == [results.UNSIGNED]:
            self.stdout.write("To use it, import it again with --approve, or release it on its page.")
        elif result.state == Result.State.QUARANTINED:
            self.stdout.write(
                "To use it despite these findings, import it again with --release, or release it on its page."
            )


def calibrated(result: Result) -> Result:
    """The result with its report, after its fit if it counts. A worker may have fitted it first."""
    fitting.run(result.pk)
    result.refresh_from_db()
    if result.state not in results.USED or result.excluded_at:
        Result.objects.filter(pk=result.pk).update(report=fitting.preview(result))
        result.refresh_from_db()
    return result
