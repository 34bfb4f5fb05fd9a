from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import django
from django.apps import apps
from django.core.management.base import BaseCommand, CommandError

from advisor.client.shown import error_line
from advisor.management.remote import add_server, asked, names_files
from catalog.loading import bounded
from catalog.management.errors import BAD_INPUT

if TYPE_CHECKING:
    from advisor import inputs, report, result, workload
    from advisor.inputs import Snapshot
    from advisor.result import Answer, QuickRanking
else:  # --help needs none of them, and a file that cannot be read needs no tables

    class Lazy:
        """A module that is imported when one of its attributes is first read."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self.name), attribute)

    inputs, report, result, workload = map(
        Lazy, ("advisor.inputs", "advisor.report", "advisor.result", "advisor.workload")
    )

MAX_SNAPSHOT_BYTES = 64 * 2**20
OWN_FILES = bounded.Bounds(max_bytes=MAX_SNAPSHOT_BYTES, max_values=20_000_000)  # what a command wrote
OK, NOTHING_FEASIBLE = 0, 3
STANDARD_OUTPUT = Path("-")
LENGTHS = ("input_tokens", "output_tokens")
FILES = {
    "memo": "memo.md",
    "bom": "bill-of-materials.csv",
    "costs": "costs.csv",
    "assumptions": "assumptions.csv",
    "cashflow": "cash-flow.csv",
    "workbook": "workbook.xlsx",
    **{system: f"{system}.yaml" for system in ("kserve", "llm-d", "dynamo", "skypilot")},
}  # --document: the document's name


class Command(BaseCommand):
    help = (
        "Computes the recommendation synchronously, without a message broker. "
        "Exit 0: recommended, 3: nothing feasible, 2: bad input."
    )
    requires_system_checks: list[str] = []  # they import every page, and none is served here

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workload", type=Path, help="workload file (YAML or JSON)")
        parser.add_argument(
            "--format", choices=["table", "json", "markdown"], default="table", help="output format; default: table"
        )
        parser.add_argument(
            "--canonical",
            action="store_true",
            help="reproducible JSON for diffs: sorted keys, 6 significant digits, no timestamps",
        )
        parser.add_argument("--full", action="store_true", help="print the whole table and not the first screen alone")
        parser.add_argument(
            "--include",
            type=extras,
            default=frozenset(),
            metavar="PART,...",
            help="add to the JSON what it leaves out, for example pareto,options; all: everything",
        )
        parser.add_argument("--top", type=whole, metavar="N", help="show at most N recommendations")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="path.to.key=value",
            help="change one value of the workload, for example traffic.requests_per_s.mean=6 or "
            "constraints.max_usd_per_month=$40k; repeatable",
        )
        parser.add_argument(
            "--map",
            "--trace-columns",
            dest="trace_columns",
            type=trace_columns,
            default={},
            metavar="KEY=COLUMN,...",
            help=MAP_HELP,
        )
        parser.add_argument(
            "--document",
            choices=FILES,
            help="write one document for finance, or a file for another system, instead of the answer",
        )
        parser.add_argument(
            "--out",
            type=Path,
            metavar="FILE",
            help="the document's file; .html and .md choose the format of a memo or bom; -: print a text",
        )
        parser.add_argument(
            "--option",
            type=whole,
            metavar="N",
            help="rank of the option of the document; default: of a memo the first option, else the first deployment",
        )
        parser.add_argument(
            "--quick",
            action="store_true",
            help="rank the whole catalog by closed formulas: analytical estimates, not simulated",
        )
        parser.add_argument("--prices-as-of", metavar="DATE", help="prices as they were known on a day; default: today")
        parser.add_argument(
            "--snapshot", type=Path, help="read the catalog from this file; created if it does not exist"
        )
        add_server(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["top"] is not None and options["top"] < 1:
            self.refuse(f"--top: {options['top']} is too small; give a whole number from 1")
        if fault := document_fault(options["document"], options["out"], options["option"]):
            self.refuse(fault)
        if options["quick"] and (options["document"] or options["canonical"] or options["format"] == "markdown"):
            self.refuse("--quick: prints a table or JSON; documents need a full answer")
        try:
            raw = raw_question(options["workload"], options["set"], options["prices_as_of"], options["trace_columns"])
            if options["server"]:
                self.ask(raw, options)
            require_catalog()
            spec = question_of(raw, options["workload"].parent, self.stderr.write)
            if options["quick"]:
                self.rank_quickly(spec, options)
            snapshot = file_snapshot(options["snapshot"], lambda: snapshot_of(spec))
            alone = rendering(options) == "screen" and not options["document"]
            answer = timed(lambda: recommended(spec, snapshot, first_screen=alone))
        except BadFile as error:
            self.refuse(str(error))
        except workload.WorkloadError as error:
            self.refuse(*lines(error))
        self.print_answer(answer, options)

    def ask(self, raw: dict[str, Any], options: dict[str, Any]) -> NoReturn:
        """Prints the server's answer as that of this process, and ends."""
        if options["snapshot"]:
            self.refuse("--snapshot: a server answers from its own catalog; leave out --snapshot, or give --server ''")
        sent = workload_to_send(raw, options["workload"].parent, self.stderr.write)
        with asked(options["server"]) as assay:
            if options["quick"]:
                self.print_ranking(result.QuickRanking.read(assay.quick(sent)), options)
            answer = result.Answer.read(assay.advise(sent, include="all").result)
        self.print_answer(answer, options)

    def print_answer(self, answer: Answer, options: dict[str, Any]) -> NoReturn:
        if options["document"]:
            self.write_document(answer, options["document"], options["out"], options["option"])
        answer = answer.changed(recommendations=answer.recommendations[: options["top"]])
        if options["top"]:
            options["include"] |= {"options"}
        self.stdout.write(RENDER[rendering(options)](answer, options["include"]))
        sys.exit(OK if answer.is_feasible else NOTHING_FEASIBLE)

    def rank_quickly(self, spec: dict[str, Any], options: dict[str, Any]) -> NoReturn:
        """Prints the closed-form ranking and ends."""
        from advisor.answer import quick

        snapshot = file_snapshot(options["snapshot"], lambda: snapshot_of(spec))
        self.print_ranking(quick.quick_ranking(spec, snapshot), options)

    def print_ranking(self, ranking: QuickRanking, options: dict[str, Any]) -> NoReturn:
        ranking = ranking.changed(options=ranking.options[: options["top"]])
        as_json = options["format"] == "json"
        self.stdout.write(
            json.dumps(ranking.to_json(), indent=2, ensure_ascii=False) if as_json else report.quick_table(ranking)
        )
        sys.exit(OK if ranking.options else NOTHING_FEASIBLE)

    def write_document(self, answer: Answer, document: str, out: Path, rank: int | None) -> NoReturn:
        """Writes the document or says why there is none, and ends."""
        if not answer.is_feasible:
            self.stderr.write(f"{answer.verdict}\nNothing was written to {out}: {report.NO_ANSWER}")
            sys.exit(NOTHING_FEASIBLE)
        from django.http import Http404

        name = named_file(document, out)
        try:
            content = report.DOCUMENTS[name][1](answer, rank or report.default_rank(answer, name))
            if out == STANDARD_OUTPUT:
                self.stdout.write(str(content))
            else:
                replace_file(out, content if isinstance(content, bytes) else content.encode())
                self.stdout.write(f"{out}: {document} of {answer.verdict}")
        except Http404 as error:
            with_document = answer.recommendations if document == "memo" else answer.machines
            if name in report.EXPORTS:
                with_document = [r for r in answer.machines if report.can_export(answer, name, r.rank or 1)]
            ranks = ", ".join(str(r.rank) for r in with_document) or "none"
            self.refuse(f"--option: {error} Options with documents: {ranks}.")
        except BadFile as error:
            self.refuse(str(error))
        sys.exit(OK)

    def refuse(self, *lines: str) -> NoReturn:
        self.stderr.write("\n".join(lines))
        sys.exit(BAD_INPUT)


def whole(text: str) -> int:
    """A whole number of an option. Raises what argparse reports."""
    try:
        number = workload.read_quantity(text, workload.quantity_of("count"))
    except workload.Unclear as unclear:
        raise ArgumentTypeError(str(unclear)) from None
    if not isinstance(number, int):
        raise ArgumentTypeError(f"must be a whole number, not {text}")
    return number


def extras(text: str) -> frozenset[str]:
    """The named parts of an answer. ArgumentTypeError: there is no such part."""
    try:
        return result.extras_named(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def require_catalog() -> None:
    """Loads the tables if the process has none yet. CommandError: they are missing or empty."""
    if not apps.ready:
        django.setup()
    from django.db import DatabaseError

    from catalog.models import CatalogLoad

    try:
        if CatalogLoad.objects.exists():
            return
    except DatabaseError as error:
        raise CommandError("the database is not ready: run manage.py migrate, then manage.py load_catalog") from error
    raise CommandError("the catalog is empty: run manage.py load_catalog")


def document_fault(document: str | None, out: Path | None, rank: int | None) -> str:
    """What is wrong with the options of a document; empty: nothing."""
    if document is None:
        given = "--out" if out is not None else "--option" if rank is not None else ""
        return f"{given}: give --document too: {', '.join(FILES)}" if given else ""
    if out is None:
        return "--document: give --out FILE too, the file to write"
    if rank is not None and rank < 1:
        return f"--option: {rank} is too small; give a whole number from 1"
    if out == STANDARD_OUTPUT:
        return "--out: a workbook cannot be printed; give a file" if document == "workbook" else ""
    if not out.absolute().parent.is_dir():
        return f"--out: {out.parent}: no such folder; create it first"
    return f"--out: {out} is a folder; give a file" if out.is_dir() else ""


def named_file(document: str, out: Path) -> str:
    """The document's name; a memo and a bill of materials are written in the format that the file's ending names."""
    stem, other = FILES[document].rsplit(".", 1)[0], out.suffix.lower().lstrip(".").replace("htm", "html")[:4]
    return f"{stem}.{other}" if f"{stem}.{other}" in report.DOCUMENTS else FILES[document]


def replace_file(path: Path, content: bytes) -> None:
    """Writes the file whole or not at all: beside it under another name, then renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise BadFile(f"{path}: cannot write the document: {error.strerror}; check the folder") from None


def rendering(options: dict[str, Any]) -> str:
    """How the answer is printed."""
    if options["canonical"]:
        return "canonical"
    return "screen" if options["format"] == "table" and not options["full"] else str(options["format"])


RENDER: dict[str, Callable[[Answer, frozenset[str]], str]] = {
    "screen": lambda answer, _: report.screen_text(report.screen_of(answer), "For all figures, add --full."),
    "table": lambda answer, _: report.table(answer),
    "markdown": lambda answer, _: report.markdown(answer),
    "canonical": lambda answer, _: report.canonical(answer),
    "json": lambda answer, include: json.dumps(result.short(answer.to_json(), include), indent=2, ensure_ascii=False),
}


MAP_HELP = (
    "columns of the recorded trace that have unusual names, for example "
    "arrival_ms=ts,input_tokens=n_in,output_tokens=n_out; arrivals in s, ms, us or ns; arrival=ts: as its values say"
)
CONFIRM = "set model.confirm_size to true"


class BadFile(Exception):
    """A file cannot be used; the message names it and says what to do."""


def read(path: Path, what: str, max_bytes: int = 0) -> bytes:
    """The content of a file. max_bytes: of the largest that is read; 0: of a text that people write."""
    try:
        with path.open("rb") as file:
            max_bytes = max_bytes or workload.MAX_TEXT_BYTES
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise BadFile(f"{path}: no such {what}; check the path") from None
    except OSError as error:
        raise BadFile(f"{path}: cannot read this {what}: {error.strerror}; check its path and permissions") from None
    if len(content) > max_bytes:
        raise BadFile(f"{path}: this {what} is larger than {max_bytes:,} bytes; check the path")
    return content


def read_json(path: Path, what: str, remedy: str, max_bytes: int = 0) -> dict[str, Any]:
    try:
        data = bounded.read_json(read(path, what, max_bytes), OWN_FILES, finite=True)
    except bounded.BoundedError as error:
        raise BadFile(f"{path}: this {what} {error}; {remedy}") from None
    if not isinstance(data, dict):
        raise BadFile(f"{path}: this {what} is not a JSON object; {remedy}")
    return data


def timed(compute: Callable[[], Answer]) -> Answer:
    """The answer of `compute`, with the elapsed seconds."""
    start_s = time.monotonic()
    answer = compute()
    return answer.changed(elapsed_s=round(time.monotonic() - start_s, 3))


def trace_columns(text: str) -> dict[str, str]:
    """KEY=COLUMN pairs, separated by commas. ArgumentTypeError: one is not a pair."""
    pairs = [part.partition("=") for part in text.split(",")]
    if wrong := [key for key, _, column in pairs if not key.strip() or not column.strip()]:
        raise ArgumentTypeError(f"{wrong[0]!r} is not KEY=COLUMN")
    if unknown := [key.strip() for key, _, _ in pairs if key.strip() not in workload.TRACE_COLUMNS]:
        raise ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(workload.TRACE_COLUMNS)}")
    return {key.strip(): column.strip() for key, _, column in pairs}


def snapshot_of(spec: dict[str, Any]) -> Snapshot:
    from catalog.models import default_organisation

    return inputs.take_snapshot(spec, default_organisation())


def recommended(spec: dict[str, Any], snapshot: Snapshot, first_screen: bool = False) -> Answer:
    from advisor.answer import recommend

    return recommend(spec, snapshot, first_screen=first_screen)


def ignore(text: str) -> None:
    """Drops a warning."""


def question(
    path: Path,
    changes: list[str],
    prices_as_of: str | None = None,
    warn: Callable[[str], object] = ignore,
    trace_columns: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The validated workload of the file, with each `--set` applied and the files it refers to read.

    warn: takes each warning about the size of a model that is not in the catalog.
    """
    return question_of(raw_question(path, changes, prices_as_of, trace_columns), path.parent, warn)


def raw_question(
    path: Path, changes: list[str], prices_as_of: str | None, trace_columns: Mapping[str, str]
) -> dict[str, Any]:
    """The workload as the file and the options state it, not validated; of a portfolio with its parts read."""
    content = read(path, "workload file")
    raw = workload.load(content)
    if prices_as_of is not None:
        raw = {**raw, "prices_as_of": prices_as_of}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise workload.WorkloadError([{"field": "--set", "message": f"{change}: give path.to.key=value"}])
        raw = workload.set_path(raw, key, value)
    if trace_columns:
        raw = {**raw, "traffic": {**(raw.get("traffic") or {}), "trace_columns": dict(trace_columns)}}
    return with_workloads(raw, path.parent)


def question_of(raw: dict[str, Any], folder: Path, warn: Callable[[str], object]) -> dict[str, Any]:
    """The validated workload. folder: of the files that it refers to."""
    from catalog.models import default_organisation

    owner = default_organisation()
    try:
        parsed = workload.parse(raw)
    except workload.WorkloadError as e:
        raise workload.WorkloadError(e.errors + inputs.unknown_names_in_parts(raw, owner)) from None
    spec = with_models(parsed, folder, warn)
    spec = inputs.with_catalog_names(spec, owner)
    inputs.check_catalog(spec, owner, files=True)
    return with_traces(spec, folder)


def with_traces(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The workload, with its traces read; of a portfolio those of its parts."""
    if spec["kind"] == "portfolio":
        read_parts = [workload.with_traces(part, folder) for part in spec["workloads"]]
        return workload.named({**workload.unnamed(spec), "workloads": read_parts})
    return workload.with_traces(spec, folder)


def without_files(spec: dict[str, Any]) -> dict[str, Any]:
    """The workload without the names of the files whose mean and p95 it has; of a portfolio those of its parts."""
    if spec["kind"] == "portfolio":
        return {**spec, "workloads": [without_files(part) for part in spec["workloads"]]}
    traffic = spec["traffic"] or {}
    read = {side: {k: v for k, v in (traffic.get(side) or {}).items() if k != "trace"} for side in LENGTHS}
    return {**spec, "traffic": {**traffic, **{side: each for side, each in read.items() if each}} or None}


def workload_to_send(raw: dict[str, Any], folder: Path, warn: Callable[[str], object]) -> dict[str, Any]:
    """The workload for a server, which checks it: as it is stated, or with the files that it refers to read."""
    if not names_files(raw):
        return raw
    return without_files(with_traces(with_models(workload.parse(raw), folder, warn), folder))


def with_workloads(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The raw workload, with the files that a portfolio refers to read from `folder`."""
    parts = raw.get("workloads")
    if raw.get("kind") != "portfolio" or not isinstance(parts, list):
        return raw
    loaded = [workload.load(read(folder / part, "workload file")) if isinstance(part, str) else part for part in parts]
    return {**raw, "workloads": loaded}


def model_config(path: Path, confirmed: bool, how: str, warn: Callable[[str], object]) -> dict[str, Any]:
    """The config.json in a file or folder, with its quantization. BadFile: it cannot be read, or its size needs `how`.

    A config.json that describes no known model is returned: the check of the whole question names its field.
    """
    from catalog.importers.models import model_files
    from catalog.loading.fixtures import FixtureError

    if not path.exists():
        raise BadFile(f"{path}: no such model configuration; check the path")
    try:
        files = model_files.read(path)
        for warning in files.warnings(confirmed, how):
            warn(f"warning: {warning}")
    except FixtureError as error:
        raise BadFile(f"{error}; give a Hugging Face config.json") from None
    except ValueError:
        pass
    return files.config


def with_models(spec: dict[str, Any], folder: Path, warn: Callable[[str], object]) -> dict[str, Any]:
    """The workload, with the path of a config.json replaced by its contents."""
    if spec["kind"] == "portfolio":
        return {**spec, "workloads": [with_models(part, folder, warn) for part in spec["workloads"]]}
    model = spec["model"]
    if isinstance(model, dict) and isinstance(model["config"], str):
        config = model_config(folder / model["config"], bool(model.get("confirm_size")), CONFIRM, warn)
        spec = {**spec, "model": {**model, "config": config}}
    return spec


def file_snapshot(path: Path | None, make: Callable[[], Snapshot]) -> Snapshot:
    """The snapshot in the file, which is first created from today's catalog if it does not exist."""
    if path is None:
        return make()
    if not path.exists():
        text = json.dumps(make().stored(), sort_keys=True)
        try:
            path.write_text(text)
        except OSError as error:
            raise BadFile(f"{path}: cannot write the snapshot: {error.strerror}; check the folder") from None
    remedy = "delete it to create it again from today's catalog"
    stored = read_json(path, "snapshot", remedy, MAX_SNAPSHOT_BYTES)
    if "catalog_version" not in stored:
        raise BadFile(f"{path}: this is not a catalog snapshot (it has no catalog_version); {remedy}")
    snapshot = inputs.Snapshot.read(stored)
    if not snapshot.complete:
        raise BadFile(f"{path}: this snapshot was written by an earlier version; {remedy}")
    return snapshot


def lines(
    failure: workload.WorkloadError, rename: Callable[[dict[str, str]], dict[str, str]] = lambda item: item
) -> list[str]:
    """A line for each reported error (after `rename`), and one that counts the rest."""
    return [
        *(error_line(rename(item)) for item in failure.errors[: workload.MAX_ERRORS]),
        *workload.more_errors(failure.errors),
    ]
