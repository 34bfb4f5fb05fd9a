from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from advisor.engine.calibration import Figure
from advisor.fidelity import training_probes
from advisor.inputs import catalog_chip
from catalog.management.errors import BadInput
from catalog.models import Accelerator
from probes.fitted import fitting
from probes.machines import devices
from probes.received import intake

SCALES = {"_s": (1e3, "ms"), "_bytes": (1e-9, "GB"), "_fraction": (100.0, "%")}


class Command(BaseCommand):
    help = "Prints predicted against measured training steps of a result file (train_step, train_overlap)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("result", type=Path, help="file written by `python -m probes.agent probe --out`")
        parser.add_argument("--accelerator", help="slug; default: the one that the file's device name matches")

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["result"]
        try:
            document = intake.read(path.read_bytes(), settings.PROBE_MAX_RESULT_BYTES)
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}; give the path of a file") from error
        except intake.IntakeError as error:
            raise BadInput(f"{path} is not a valid result: {error}") from error
        row = chip_of(document, options["accelerator"])
        chip = catalog_chip(row)
        base = fitting.base_efficiency(chip)
        if base is None:
            raise BadInput("the catalog has no default calibration: run manage.py load_catalog")
        entries = document["results"]
        lines = training_probes.compared(entries, chip, base)
        if not lines:
            raise BadInput(
                f"{path} has no training steps of known layers: measure with "
                f"`python -m probes.agent probe --suite full --kinds known_answer,{','.join(training_probes.KINDS)}`"
            )
        self.stdout.write(f"{document['device']['name']} as {row.slug}. Predicted: from the kernel rates in use alone.")
        self.stdout.write("Fitted: with figures from the rows of other lengths, so never from the same row.")
        self.stdout.write("\n".join(table(lines)))
        fit = training_probes.figures_of(entries, chip, base)
        self.stdout.write("Figures that this file determines, given the kernel rates in use:")
        for text in [*map(figure_text, fit.figures), *fit.reasons]:
            self.stdout.write(f"  {text}")


def chip_of(document: dict[str, Any], slug: str | None) -> Accelerator:
    if slug:
        if found := Accelerator.objects.filter(slug=slug).first():
            return found
        raise BadInput(f"no accelerator {slug} in the catalog; give its slug")
    chip = devices.chip_of(document["device"])
    if chip is None:
        raise BadInput(f"no accelerator of the catalog is named {document['device']['name']}: give --accelerator SLUG")
    return chip


def table(lines: list[training_probes.Line]) -> Iterator[str]:
    heads = f"{'measured':>9} {'predicted':>9} {'':4} {'error':>7} {'fitted':>9} {'error':>7}"
    yield f"{'measurement':64} {'quantity':16} {heads}"
    for line in lines:
        scale, unit = next(value for end, value in SCALES.items() if line.quantity.endswith(end))
        name = line.quantity.rpartition("_")[0].replace("_", " ")
        axes = " ".join(f"{k}={v}" for k, v in line.key.items() if k not in ("dtype", "optimizer", "backend"))
        figures = (
            f"{line.measured * scale:9.3f} {line.predicted * scale:9.3f} {unit:4} {error(line, line.predicted):>7}"
        )
        held_out = f" {line.held_out * scale:9.3f} {error(line, line.held_out):>7}" if line.held_out else ""
        yield f"{axes:64} {name:16} {figures}{held_out}"


def error(line: training_probes.Line, predicted: float) -> str:
    """Of a time or a size relative to the measured one; of a fraction in percentage points."""
    if line.quantity.endswith("_fraction"):
        return f"{(predicted - line.measured) * 100:+.1f} pp"
    return f"{(predicted / line.measured - 1) * 100:+.1f} %"


def figure_text(figure: Figure) -> str:
    return f"{figure.name} {figure.value:.4g} ({figure.low:.4g} to {figure.high:.4g}), {figure.source}"
