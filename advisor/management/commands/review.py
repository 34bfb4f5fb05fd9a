import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from advisor import workload
from advisor.management.commands.advise import (
    BadFile,
    lines,
    question,
    raw_question,
    read_json,
    recommended,
    replace_file,
    require_catalog,
    snapshot_of,
    workload_to_send,
)
from advisor.management.remote import ServerCommand, add_server, asked
from advisor.report import review
from advisor.result import Answer
from catalog.management.errors import BAD_INPUT

KINDS = (".yaml", ".yml")
ANSWERS = Path("assay-answers.json")
REMEDY = "write it anew with --update"


class Command(ServerCommand):
    help = (
        "Answers workload files and compares the answers with earlier ones, for a check of pull requests. "
        "Exit 0: within the limits, 1: a cost, a margin or a first choice moved beyond them, 2: bad input."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", type=Path, nargs="+", help="workload files, or folders of them (.yaml, .yml)")
        parser.add_argument(
            "--answers", type=Path, default=ANSWERS, metavar="FILE", help=f"the earlier answers; default: {ANSWERS}"
        )
        parser.add_argument("--update", action="store_true", help="write the new answers to that file")
        parser.add_argument(
            "--cost", type=percent, default=0.05, metavar="PERCENT", help="how far the cost may move; default: 5%%"
        )
        parser.add_argument(
            "--margin",
            type=percent,
            default=0.1,
            metavar="PERCENT",
            help="how much less of a latency limit may be left; default: 10%%",
        )
        parser.add_argument("--format", choices=["markdown", "json"], default="markdown")
        add_server(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        allowed = review.Allowed(cost_fraction=options["cost"], margin_points=options["margin"])
        try:
            files = sorted(set(workload_files(options["paths"])))
            before = earlier(options["answers"], options["update"])
            if not options["server"]:
                require_catalog()
            now = {file.as_posix(): self.answered(file, options["server"]) for file in files}
            found = {name: moves(before.get(name), one, allowed) for name, one in now.items()}
            if options["update"]:
                kept = {name: one.stored() for name, one in sorted({**before, **now}.items()) if Path(name).exists()}
                replace_file(options["answers"], (json.dumps(kept, indent=1, ensure_ascii=False) + "\n").encode())
        except BadFile as error:
            self.refuse(str(error))
        fails = any(move.fails for each in found.values() for move in each or ())
        self.stdout.write(
            as_json(found, now, fails) if options["format"] == "json" else review.comment(found, now, allowed)
        )
        sys.exit(1 if fails and not options["update"] else 0)

    def answered(self, file: Path, server: str) -> review.Record:
        """The answer of one file, as it is kept."""
        try:
            if server:
                sent = workload_to_send(raw_question(file, [], None, {}), file.parent, self.stderr.write)
                with asked(server, lambda item: {**item, "field": f"{file}: {item['field'] or 'workload'}"}) as assay:
                    found = assay.advise(sent, include="all")
                    return review.record(Answer.read(found.result), found.workload.get("slo") or {})
            spec = question(file, [], warn=self.stderr.write)
            return review.record(recommended(spec, snapshot_of(spec)), spec.get("slo") or {})
        except workload.WorkloadError as error:
            self.refuse(*(f"{file}: {line}" for line in lines(error)))

    def refuse(self, *said: str) -> NoReturn:
        self.stderr.write("\n".join(said))
        sys.exit(BAD_INPUT)


def percent(text: str) -> float:
    """5 or 5 % as 0.05. ArgumentTypeError: it is not a share."""
    try:
        share = float(text.removesuffix("%")) / 100.0
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 10.0:
        raise ArgumentTypeError(f"must be a percentage from 0 to 1000, not {text}")
    return share


def workload_files(paths: list[Path]) -> Iterator[Path]:
    """The files themselves, and those directly in folders. BadFile: there are none."""
    for path in paths:
        inside = [each for each in sorted(path.iterdir()) if each.suffix in KINDS] if path.is_dir() else [path]
        if not inside:
            raise BadFile(f"{path}: no workload files (.yaml, .yml) in this folder")
        yield from inside


def earlier(path: Path, may_be_missing: bool) -> dict[str, review.Record]:
    """The answers kept at the last update. BadFile: there are none, or the file is not of this command."""
    if may_be_missing and not path.exists():
        return {}
    stored = read_json(path, "file of answers", REMEDY)
    try:
        return {name: review.Record.read(one) for name, one in stored.items()}
    except ValueError as error:
        raise BadFile(f"{path}: {error}; {REMEDY}") from None


def moves(before: review.Record | None, now: review.Record, allowed: review.Allowed) -> list[review.Move] | None:
    return None if before is None else review.moves(before, now, allowed)


def as_json(found: dict[str, list[review.Move] | None], now: dict[str, review.Record], fails: bool) -> str:
    files = {
        name: {
            **now[name].stored(),
            "new": each is None,
            "moved": [{"text": move.text, "fails": move.fails} for move in each or ()],
        }
        for name, each in found.items()
    }
    return json.dumps({"fails": fails, "workloads": files}, indent=1, ensure_ascii=False)
