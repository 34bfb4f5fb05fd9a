"""Measured figures of published benchmarks: `evidence import`, `status`, `held`, `release` and others."""

import json
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor import evidence
from advisor.evidence import EvidenceError, Imported, NotHeld, Source
from catalog import clock
from catalog.management.errors import BadInput, operator, writing

HELP = {
    "model": "the model, by Hugging Face ID or name; overrides the name in the file",
    "accelerator": "the accelerator, by slug or name; overrides the name in the file",
    "n_accelerators": "accelerators of the whole deployment",
    "tp": "tensor parallelism of one replica",
    "pp": "pipeline stages",
    "ep": "expert parallelism",
    "attention_dp": "attention data parallelism inside a replica",
    "weights_dtype": "format of the weights: bf16, fp8, nvfp4, mxfp4, int4, q4_k_m ... (default: as published)",
    "kv_dtype": "format of the KV cache",
    "framework": "serving engine and version, such as 'vllm 0.29.0'",
    "isl": "mean input tokens per request",
    "osl": "mean output tokens per request",
    "concurrency_or_batch": "requests in flight, qps=RATE, or the batch size",
    "date": "date of the run, if the file does not state it",
}


class Command(BaseCommand):
    help = "Imports measured figures of published benchmarks, and lists, releases and discards those that are held."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        reading = actions.add_parser("import", help="import result files and report the outcome for each figure")
        reading.add_argument("files", nargs="+", type=Path, metavar="FILE")
        reading.add_argument("--from", dest="file_format", default="", choices=["", *evidence.FORMATS], metavar="NAME",
                             help=f"one of {', '.join(evidence.FORMATS)} (default: detected)")  # fmt: skip
        reading.add_argument("--source", default="", metavar="KEY", help="short name of the source of the figures")
        reading.add_argument("--name", default="", help="full name of the source")
        reading.add_argument("--place", default="", help="URL or repository, with the commit")
        reading.add_argument("--client", default="", help="load generator with its version, and how it sends requests")
        reading.add_argument(
            "--license", dest="licence", default="", help="license of the figures (default: not known)"
        )
        reading.add_argument("--caveats", default="", help="what readers should know about the figures")
        reading.add_argument("--sources", type=Path, metavar="FILE",
                             help="CSV that describes the sources that rows name")  # fmt: skip
        for column, option in evidence.OPTIONS.items():
            reading.add_argument(option, dest=column, default="", help=HELP[column])
        reading.add_argument("--by", default=operator(), help="who imports (default: the user of this process)")
        reading.add_argument("--json", action="store_true", help="the report as JSON")
        for name, what in (
            ("status", "list the sources with their figures and held figures"),
            ("held", "list the held figures"),
        ):
            actions.add_parser(name, help=what).add_argument("--json", action="store_true", help="as JSON")
        for name, what in (("release", "add held figures"), ("discard", "discard held figures")):
            decide = actions.add_parser(name, help=what)
            decide.add_argument("ids", nargs="+", type=int, metavar="ID")
            decide.add_argument("--by", default=operator(), help="who decides (default: the user of this process)")
        actions.add_parser("predict", help="predict all imported figures again, for example after an upgrade")
        leaving = actions.add_parser(
            "export", help="write imported figures as catalog files (for a bundle) or measured rows (for calibrate)"
        )
        leaving.add_argument("--to", type=Path, metavar="DIR", help="folder for catalog files (DIR/evidence)")
        leaving.add_argument("--rows", type=Path, metavar="FILE.csv", help="file for measured rows")

    def handle(self, *args: Any, **options: Any) -> None:
        action = options["action"]
        if action in ("release", "discard"):
            self.decide(action, options["ids"], options["by"])
        elif action == "import":
            self.add(options)
        elif action == "predict":
            self.stdout.write(f"{evidence.predict()} predictions changed")
        elif action == "export":
            self.export(options["to"], options["rows"])
        else:
            {"status": self.status, "held": self.held}[action](options["json"])

    def add(self, options: dict[str, Any]) -> None:
        sources = self._sources(options)
        stated = {name: options[name].strip() for name in evidence.OPTIONS if options[name].strip()}
        if stated.get("date"):
            _refuse_day(stated["date"])
        done: list[Imported] = []
        for path in options["files"]:
            try:
                done.append(
                    evidence.add(path, options["file_format"], sources, options["source"], stated, options["by"])
                )
            except EvidenceError as error:
                raise BadInput(f"{path}: {error}; nothing of it was imported") from error
            except OSError as error:
                raise BadInput(f"{path} cannot be read: {error.strerror or error}; give a result file") from error
        if options["json"]:
            self.stdout.write(json.dumps([each.as_json() for each in done], indent=1))
            return
        for each in done:
            self.stdout.write("\n".join(lines(each, sources)))

    def _sources(self, options: dict[str, Any]) -> dict[str, Source]:
        described: dict[str, Source] = {}
        if options["sources"]:
            try:
                described = evidence.read_sources(options["sources"])
            except EvidenceError as error:
                raise BadInput(f"{options['sources']}: {error}") from error
            except OSError as error:
                raise BadInput(f"{options['sources']} cannot be read: {error.strerror}") from error
        key = options["source"]
        if not key:
            if not described and options["file_format"] not in ("", "rows"):
                raise BadInput("name the source of the figures: give --source KEY, with --place and --client")
            return described
        if not evidence.KEY.fullmatch(key):
            raise BadInput(f"--source {key}: use letters, digits, '.', '_' and '-', at most 60 characters")
        own = {name: options[name] for name in ("name", "place", "client", "licence", "caveats") if options[name]}
        if key in described:
            return described
        return {key: Source(key=key, **own)}

    def status(self, as_json: bool) -> None:
        found = evidence.status()
        if as_json:
            self.stdout.write(json.dumps(found, indent=1))
            return
        for each in found["sources"]:
            engines = ", ".join(each["engines"][:3]) + (" ..." if len(each["engines"]) > 3 else "")
            self.stdout.write(
                f"{each['source_key']}: {each['figures']} figures to {each['as_of']}, {each['held']} held; "
                f"license {each['licence']}; client {each['client'] or 'not known'}; engines {engines or 'none'}; "
                f"{each['place'] or 'place not known'}"
            )
        self.stdout.write(f"imported figures: {found['figures']}; held: {found['held']}")

    def held(self, as_json: bool) -> None:
        rows = evidence.waiting()
        if as_json:
            found = [
                {"id": h.pk, "source": h.evidence_import.source_key, "reason": h.reason, "row": h.row} for h in rows
            ]
            self.stdout.write(json.dumps(found, indent=1))
            return
        for held in rows:
            self.stdout.write(evidence.held_line(held))
        self.stdout.write(f"held figures: {len(rows)}")

    def decide(self, action: str, ids: list[int], by: str) -> None:
        """All or none."""
        try:
            (evidence.release if action == "release" else evidence.discard)(ids, by)
        except (NotHeld, EvidenceError) as error:
            raise BadInput(str(error)) from error
        self.stdout.write(f"{len(ids)} {'released' if action == 'release' else 'discarded'}")

    def export(self, directory: Path | None, rows: Path | None) -> None:
        if directory is None and rows is None:
            raise BadInput("give --to DIR for catalog files, or --rows FILE.csv for measured rows")
        if directory is not None:
            with writing(directory):
                count = evidence.export(directory)
            self.stdout.write(f"{directory}/evidence: {count} figures")
        if rows is not None:
            with writing(rows):
                rows.write_text(evidence.measured_rows(), encoding="utf-8")
            self.stdout.write(f"{rows}: measured rows")


def _refuse_day(text: str) -> None:
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"--as-of {text}: not a date; give YYYY-MM-DD") from error
    if day > clock.today():
        raise BadInput(f"--as-of {text} is in the future; give the day of the run")


def lines(done: Imported, sources: dict[str, Source]) -> list[str]:
    """The report in words."""
    skipped = sum(done.skipped.values())
    told = [
        f"{done.file} ({done.file_format}; {', '.join(done.sources) or 'no source'}): {done.new} new, "
        f"{done.changed} changed, {done.confirmed} confirmed, {done.held} held, {skipped} skipped "
        f"of {done.read} figures read"
    ]
    told += [f"  held {line}" for line in done.quarantined[:10]]
    told += [f"  ... and {done.held - 10} more; see `manage.py evidence held`"] if done.held > 10 else []
    told += [f"  skipped {count}: {reason}" for reason, count in done.skipped.items()]
    unknown = [key for key in done.sources if key in sources and not sources[key].licence]
    return told + ([f"  license not known: {', '.join(unknown)}"] if unknown else [])
