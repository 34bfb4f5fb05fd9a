"""Scores the engine on measured rows: `fidelity --measurements FILE.csv [--by column,...] [--format table|json]`."""

import csv
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor.engine.terms import Case
from advisor.fidelity import Json, Row, scorecard, scoring, stored
from advisor.inputs import measured
from advisor.workload import WorkloadError
from catalog.loading import scored as scored_files
from catalog.loading.fixtures import FixtureError
from catalog.management.errors import BadInput, at_least_one, writing
from catalog.models import EvidenceRow, ScoredRow
from catalog.shipped import FIXTURES
from tests.laboratory import calibration_files, conditioning, disputed, peers, report, score_files, summaries
from tests.laboratory.decisions import document as decision_document
from tests.laboratory.decisions import record as decision_record
from tests.laboratory.measurements import MeasurementsError, read
from tests.laboratory.training import layouts as training_layouts
from tests.laboratory.training import report as training_report
from tests.laboratory.training import scores as training_scores


def catalog_estimator() -> tuple[Any, scoring.Estimator, dict[str, str]]:
    """(the catalog, an estimator that uses it, chip slug -> family)."""
    from advisor.engine.estimate import estimate_all
    from advisor.inputs import catalog_resources

    resources = catalog_resources()

    def estimator(cases: Sequence[Case]) -> Sequence[Any]:
        return estimate_all(cases, resources)

    return resources, estimator, {slug: chip.family for slug, chip in resources.accelerators.items()}


class Command(BaseCommand):
    help = "Predicts measured rows and reports the errors."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--measurements",
            action="append",
            metavar="FILE.csv",
            help="measured rows (columns: fixtures/README.md); without it, the rows of the shipped scorecard",
        )
        parser.add_argument(
            "--by", default="", help="columns to group by, comma-separated, also derived ones such as family and phase"
        )
        parser.add_argument("--format", choices=("table", "json"), default="table")
        parser.add_argument("--limit", type=int, help="only the first N rows (for debugging)")
        parser.add_argument("--write-docs", metavar="FILE.md", help="also write the report and the scorecard files")
        parser.add_argument(
            "--write-track-record",
            metavar="FILE.md",
            help="only check decisions, with the predictions of the loaded scorecard and today's prices",
        )
        parser.add_argument(
            "--rows-to",
            type=Path,
            default=score_files.DIRECTORY,
            metavar="DIR",
            help="folder of the scorecard files (--write-docs)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        by = [name.strip() for name in options["by"].split(",") if name.strip()]
        if unknown := [name for name in by if name not in summaries.COLUMNS]:
            raise BadInput(f"unknown column {', '.join(unknown)}; columns: {', '.join(summaries.COLUMNS)}")
        if options["limit"] is not None:
            at_least_one("--limit", options["limit"])
        given = options["measurements"]
        if not given and (options["write_docs"] or options["write_track_record"]):
            raise BadInput("the scorecard's own rows cannot replace it: give --measurements FILE.csv")
        rows = self._rows(given, options["limit"]) if given else []  # a wrong file is named before the catalog is read
        if options["write_track_record"]:
            self._write_track_record(rows, Path(options["write_track_record"]))
            return
        known, estimator, families = catalog_estimator()
        if not given:
            rows = self._published(known, options["limit"])
        trained = [row for row in rows if row.task == "training"]
        served = [r for r in rows if r.task != "training" and not (options["write_docs"] and kept_apart(r))]
        scored = scoring.predict(served, known, estimator, families) if served else []
        runs = training_scores.predict(trained, known, families)
        doubts = disputed.find(rows, known) | disputed.read()
        figures = summaries.report([*scored, *runs], by or ["source_key"], doubts)
        if options["write_docs"]:
            training = training_report.markdown(runs, training_layouts.compare(trained, known))
            decided = functools.partial(decision_record.record, served, resources=known, disputed=doubts)
            write_docs(Path(options["write_docs"]), options["rows_to"], scored, doubts, runs, training, decided)
        if options["format"] == "json":
            self.stdout.write(json.dumps(figures, allow_nan=False))
        else:
            self.stdout.write(table(figures, by or ["source_key"]))
            if not given and not options["limit"]:
                self.stdout.write(f"\n{public_reports()}")

    def _write_track_record(self, rows: Sequence[Row], document: Path) -> None:
        from advisor.inputs import catalog_resources

        known, scored = catalog_resources(), list(ScoredRow.objects.order_by("pk"))
        served = [r for r in rows if r.task != "training" and not kept_apart(r)]
        doubts = disputed.find(served, known) | disputed.read()
        record = decision_record.record(served, scored, known, doubts, peers.read())
        with writing(document):
            decision_document.write(record, document)
        self.stdout.write(decision_document.verdict(record))

    def _published(self, known: Any, limit: int | None) -> list[Row]:
        """The rows of the loaded scorecard, with a note on those that its columns do not describe completely."""
        found, left = score_files.published(ScoredRow.objects.order_by("pk"), known)
        self.stderr.write(f"{len(found)} rows of the shipped scorecard are predicted again; not predicted:")
        for reason, count in left.items():
            self.stderr.write(f"  {count} {reason}")
        return found[:: max(len(found) // limit, 1)][:limit] if limit else found

    def _rows(self, paths: Sequence[str], limit: int | None) -> list[Row]:
        try:
            rows = [row for path in paths for row in read(path)]
        except MeasurementsError as error:
            raise BadInput(str(error)) from error
        if len({row.id for row in rows}) != len(rows):
            raise BadInput("two files have rows with the same ID; give each file only once")
        return rows[:limit] if limit else rows


REPORTS = FIXTURES / "measurements" / "public_reports.csv"
REPORTS_TEXT = """## Public reports

What people reported about their own deployments, and what `estimate` says now. The reports are no random sample, and
some are of old software or of one run. Figures are facts with their source; the arguments are in
`fixtures/measurements/public_reports.csv`."""


def public_reports() -> str:
    """The section with a line for each public report: its source, the deployment, the figure and the prediction now."""
    from advisor.answer import single_estimate
    from advisor.workload import deployment

    lines, ratios = [], []
    for row in csv.DictReader(REPORTS.read_text(encoding="utf-8").splitlines()):
        asked, measured = json.loads(row["arguments"]), float(row["measured"])
        try:
            found: Any = single_estimate.answer(deployment.parse_deployment(asked)).figure(row["figure"])
        except WorkloadError as error:
            lines.append((row["source"], deployed(asked), row["figure"], amount(measured), f"refused: {error}", "-"))
            continue
        ratios.append(float(found or 0.0) / measured)
        off = report.percent_text(ratios[-1] - 1.0)
        said = f"{row['figure']} ({row['note']})" if row["note"] else row["figure"]
        lines.append((row["source"], deployed(asked), said, amount(measured), amount(float(found or 0.0)), off))
    near = {most: sum(1 / (1 + most) <= ratio <= 1 + most for ratio in ratios) for most in (0.15, 0.3)}
    counted = f"{near[0.15]} of {len(lines)} figures are within 15 % and {near[0.3]} within 30 %."
    heads = ("source", "deployment", "figure", "measured", "predicted now", "off")
    return "\n\n".join((REPORTS_TEXT, counted, report.table_of(heads, lines)))


def amount(value: float) -> str:
    """1,382 or 12.8"""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def deployed(asked: Mapping[str, Any]) -> str:
    """A deployment in a few words."""
    ways = " ".join(f"{name}{asked[name]}" for name in ("tp", "ep", "attention_dp") if asked.get(name))
    tokens = f"{asked['isl']}/{asked['osl']} tokens, {asked['concurrency']} users"
    where = f"{asked['accelerator']} {ways}".strip()
    return f"{asked['model'].rpartition('/')[2]} {asked['weights']}, {asked['framework']}, {where}, {tokens}"


def write_docs(
    document: Path,
    rows_to: Path,
    scored: Sequence[scoring.Scored],
    doubts: Mapping[str, str],
    runs: Sequence[scoring.Scored] = (),
    training: str = "",
    decided: Callable[..., Json] = dict,
) -> None:
    """Writes the report, and the scorecard files that `load_catalog` reads; if those are shipped, the track record too.

    `runs`: scored training rows; `training`: their section of the report; `decided`: makes the track record.
    """
    validation, calibration = stored.fit_scores(), calibration_files.digest()
    rows = score_files.catalog_rows(scored, doubts)
    published = rows_to == score_files.DIRECTORY
    asked = pairs_of(rows) if published else None
    others = f"{public_reports()}\n\n{report.peers_section(*asked)}" if asked else ""
    record = decided(scored=rows, recorded=asked[0]) if asked else {}
    try:
        with writing(rows_to):
            score_files.write(scored, doubts, validation, calibration, rows_to, runs)
    except FixtureError as error:
        raise BadInput(str(error)) from error
    targets = score_files.against_targets(scored, doubts, validation)
    conditioned = conditioning.decisions(rows, EvidenceRow.objects.order_by("pk"))
    if published:
        with writing(measured.PATH.parent):
            measured.PATH.write_text(conditioning.document(conditioned), encoding="utf-8")
            decision_document.write(record, document.with_name(decision_document.NAME))
    if asked:
        with writing(stored.COMPARED):
            peers.write(scored_files.digest_of(rows_to), peers.shown(*asked))
    text = report.markdown(
        scored, doubts, report.calibrations(), validation, calibration, targets, training, conditioned, others
    )
    with writing(document):
        document.write_text(text, encoding="utf-8")


def pairs_of(rows: Sequence[ScoredRow]) -> tuple[peers.Recorded, dict[str, list[peers.Pair]]]:
    """The answers of other tools beside these rows. BadInput: they belong to other rows."""
    try:
        recorded = peers.read()
        return recorded, peers.paired(map(scorecard.line_of, rows), recorded)
    except peers.PeersError as error:
        raise BadInput(str(error)) from error


def kept_apart(row: Row) -> bool:
    """Whether a row is for acceptance only: the scorecard, which corrects answers, must not contain it."""
    return "held_out=1" in row.params_note


HEADS = ("n", "skipped", "median", "groups", "p90", "bias", "in 90 %", "pairs")


def table(figures: Mapping[str, Any], by: Sequence[str]) -> str:
    """The report as an aligned table: groups, overall lines, and skipped rows with reasons."""
    lines: list[tuple[str, ...]] = [(", ".join(by), *HEADS)]
    lines += [(" / ".join(str(g[name]) or "-" for name in by), *cells(g)) for g in figures["groups"]]
    lines += [
        (name, *cells(figures[key]))
        for name, key in (("ALL", "overall"), ("without disputed", "undisputed"), ("... known client", "known_client"))
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    text.insert(len(text) - 3, text[1])
    misfits, disputed_rows = figures["overall"]["predicted_not_to_fit"], figures["undisputed"]["disputed"]
    text.append("")
    text.append(
        "errors are |predicted - measured| / measured; groups: median of the medians of (chip, model, source) groups"
    )
    text.append(f"ran but predicted not to fit: {misfits}; disputed: {disputed_rows}")
    text += [f"skipped {number:5d}  {reason}" for reason, number in figures["skipped_reasons"].items()]
    return "\n".join(text)


def cells(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of one line."""
    pairs = "-" if not figures["pairs"] else f"{percent(figures['pairs_ordered'])} of {figures['pairs']}"
    return (
        str(figures["n"]),
        str(figures.get("skipped", "")),
        percent(figures["median_ape"]),
        percent(figures["group_median_ape"]),
        percent(figures["p90_ape"]),
        percent(figures["bias"], sign=True),
        percent(figures["coverage_90"]),
        pairs,
    )


def percent(value: float | None, sign: bool = False) -> str:
    """0.0834 as 8.3 %; a dash for None."""
    if value is None:
        return "-"
    return f"{value * 100:+.1f} %" if sign else f"{value * 100:.1f} %"
