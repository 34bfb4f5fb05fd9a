import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from advisor import report, workload
from advisor.advise import default_organisation
from advisor.extent import with_traces
from catalog.models import CatalogLoad

OK, BAD_INPUT, NOTHING_FEASIBLE = 0, 2, 3


class Command(BaseCommand):
    help = (
        "Answers one workload file at once, without a broker. Exit 0: recommended, 3: nothing feasible, 2: bad input."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workload", type=Path)
        parser.add_argument("--format", choices=["table", "json", "markdown"], default="table")
        parser.add_argument(
            "--canonical", action="store_true", help="JSON to compare: sorted, 6 digits, no clock values"
        )
        parser.add_argument("--top", type=int, help="at most so many recommendations")
        parser.add_argument("--set", action="append", default=[], metavar="path.to.key=value")
        parser.add_argument("--snapshot", type=Path, help="read the catalog from this file; written when it is absent")

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor import assemble  # here: `advise --help` need not import the engine

        require_catalog()
        try:
            spec = question(options["workload"], options["set"])
            snapshot = kept_snapshot(options["snapshot"], lambda: assemble.snapshot(spec, default_organisation()))
            result = assemble.recommend(spec, snapshot)
        except workload.WorkloadError as error:
            self.refuse(*(line(item) for item in error.errors))
        except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
            self.refuse(str(error))
        result["recommendations"] = result["recommendations"][: options["top"]]
        self.stdout.write(RENDER["canonical" if options["canonical"] else options["format"]](result))
        sys.exit(OK if result["recommendations"] else NOTHING_FEASIBLE)

    def refuse(self, *lines: str) -> NoReturn:
        self.stderr.write("\n".join(lines))
        sys.exit(BAD_INPUT)


def require_catalog() -> None:
    try:
        if CatalogLoad.objects.exists():
            return
    except DatabaseError as error:
        raise CommandError("the database is not ready: run manage.py migrate, then manage.py load_catalog") from error
    raise CommandError("the catalog is empty: run manage.py load_catalog")


RENDER: dict[str, Callable[[dict[str, Any]], str]] = {
    "table": report.table,
    "markdown": report.markdown,
    "canonical": report.canonical,
    "json": lambda result: json.dumps(result, indent=2, ensure_ascii=False),
}


def question(path: Path, changes: list[str]) -> dict[str, Any]:
    """The validated workload of the file with each `--set` applied; the files it names are read beside it."""
    raw = workload.load(path.read_bytes())
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise workload.WorkloadError([{"field": "--set", "message": f"{change}: give path.to.key=value"}])
        raw = workload.set_path(raw, key, value)
    spec = workload.parse(raw)
    workload.check_catalog(spec, files=True)
    return with_files(spec, path.parent)


def with_files(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    model = spec["model"]
    if isinstance(model, dict) and isinstance(model["config"], str):
        config = json.loads((folder / model["config"]).read_text())
        spec = {**spec, "model": {**model, "config": config}}
    return with_traces(spec, folder)


def kept_snapshot(path: Path | None, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The catalog as the file has it; a file that is absent is written from today's catalog."""
    if path is None:
        return make()
    if not path.exists():
        path.write_text(json.dumps(make(), sort_keys=True))
    return dict(json.loads(path.read_text()))


def line(error: dict[str, str]) -> str:
    allowed = f" (allowed: {error['allowed']})" if error.get("allowed") else ""
    return f"{error['field'] or 'workload'}: {error['message']}{allowed}"
