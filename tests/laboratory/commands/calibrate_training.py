"""Makes the intervals of training figures: `calibrate_training --measurements FILE.csv... [--out DIR]`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor.engine.terms import SHARES
from advisor.engine.terms.ratio_distribution import quantile_key
from advisor.fidelity import Row
from catalog.management.errors import BadInput, writing
from tests.laboratory import calibration_files
from tests.laboratory.commands.fidelity import catalog_estimator
from tests.laboratory.least_squares import Interval
from tests.laboratory.measurements import MeasurementsError, read
from tests.laboratory.training import intervals as training_intervals
from tests.laboratory.training import scores as training_scores


class Command(BaseCommand):
    help = "Makes the 90% intervals of training figures from the errors on measured runs, and writes them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--measurements", action="append", nargs="+", required=True, metavar="FILE.csv")
        parser.add_argument("--out", type=Path, default=calibration_files.CALIBRATION, metavar="DIR")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = training_rows([path for paths in options["measurements"] for path in paths])
        known, _, families = catalog_estimator()
        spans = training_intervals.intervals(training_scores.predict(rows, known, families))
        with writing(options["out"]):
            options["out"].mkdir(parents=True, exist_ok=True)
            for basis, figures in spans.items():
                write(options["out"], basis, figures, max(row.date for row in rows))
        self.stdout.write(table(spans))


def training_rows(paths: Sequence[str]) -> list[Row]:
    """The training rows of the files. BadInput: a file is not valid, or none has such rows."""
    try:
        rows = [row for path in paths for row in read(path) if row.task == "training"]
    except MeasurementsError as error:
        raise BadInput(str(error)) from error
    if not rows:
        raise BadInput("no training rows in these files: rows need task=training")
    return rows


def write(out: Path, basis: str, figures: Mapping[str, Interval], newest: str) -> None:
    """One scope: what the product and the scores read."""
    ratios = {key: value for name, span in figures.items() for key, value in quantiles_of(name, span).items()}
    counts = ", ".join(f"{name} {span.rows} rows in {span.groups} groups" for name, span in figures.items())
    text = (
        "quantiles of measured / predicted step time and peak memory, with equal weight for each group, from 5 and 95 "
        "% outwards until they hold 88 % of held-out chips (measured: models, datasheet: families, memory: groups); "
        f"only the time of NVFP4's transforms is fitted, to 9 of these rows ({counts or 'too few rows'})"
    )
    as_of = newest if len(newest) == 10 else f"{newest}-28"
    calibration_files.write_scope(out, f"interval:training:{basis}", basis, as_of, text, ratios)


def quantiles_of(name: str, span: Interval) -> dict[str, float]:
    """The stored factors of one figure: those that answers draw; of the memory the interval."""
    kept = dict(zip(SHARES, span.quantiles, strict=True))
    shares = (SHARES[0], SHARES[-1]) if name == "memory" else SHARES
    return {quantile_key(name, share): kept[share] for share in shares}


def table(spans: training_intervals.Spans) -> str:
    lines = [f"{'basis':<11}{'figure':<22}{'low':>8}{'high':>8}{'rows':>7}{'groups':>8}{'held out':>10}"]
    lines += [
        f"{basis:<11}{name:<22}{s.low:>8.3f}{s.high:>8.3f}{s.rows:>7}{s.groups:>8}{s.coverage:>10.1%}"
        for basis, figures in spans.items()
        for name, s in figures.items()
    ]
    return "\n".join(lines)
