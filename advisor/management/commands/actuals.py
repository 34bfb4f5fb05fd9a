"""Compares a bill in FOCUS and the tokens served with the forecast of an answer."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from uuid import UUID

from advisor import workload
from advisor.actuals import ActualsError, in_words, measured, option_of
from advisor.management.commands.advise import (
    BadFile,
    question,
    raw_question,
    read_json,
    recommended,
    require_catalog,
    snapshot_of,
    workload_to_send,
)
from advisor.management.remote import ServerCommand, add_server, asked
from advisor.models import Advice
from catalog.management.errors import BadInput

MAX_ANSWER_BYTES = 64 * 2**20


class Command(ServerCommand):
    help = "Compares a bill in FOCUS 1.2 and the tokens served with the forecast. Exit 0: compared, 2: bad input."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bill", type=Path, required=True, metavar="FILE", help="FOCUS as CSV, .csv.gz or Parquet")
        parser.add_argument(
            "--tokens", type=Path, metavar="FILE", help="CSV by day or hour, or the JSON of a Prometheus range"
        )
        parser.add_argument("--advice", metavar="ID", help="the stored answer that is the forecast")
        parser.add_argument("--answer", type=Path, metavar="FILE", help="an answer as advise --format json printed it")
        parser.add_argument("--workload", type=Path, metavar="FILE", help="a workload file, answered now")
        parser.add_argument("--option", type=int, default=1, metavar="N", help="rank of the option; default: 1")
        parser.add_argument("--tag", default="", metavar="KEY", help="split costs by this tag")
        parser.add_argument("--only", default="", metavar="KEY=VALUE", help="count rows with this tag alone")
        parser.add_argument("--currency", default="", help="count rows in this currency alone")
        parser.add_argument("--model", default="", help="count tokens of this model or deployment alone")
        parser.add_argument("--format", choices=["table", "json", "markdown"], default="table")
        add_server(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        given = [name for name in ("advice", "answer", "workload") if options[name]]
        if len(given) > 1:
            raise BadInput(f"--{given[1]}: give one forecast alone: --advice, --answer or --workload")
        selected = {name: options[name] for name in ("tag", "only", "currency", "model")}
        try:
            option = self.option(options) if given else None
            result = measured(options["bill"], options["tokens"], option, **selected)
        except (ActualsError, BadFile) as error:
            raise BadInput(f"{error}") from None
        except workload.WorkloadError as error:
            raise BadInput(f"{options['workload']}: {error}") from None
        if options["format"] == "json":
            self.stdout.write(json.dumps(result, indent=2, ensure_ascii=False))
        else:
            self.stdout.write(in_words(result, markdown=options["format"] == "markdown"))
        sys.stdout.flush()

    def option(self, options: dict[str, Any]) -> dict[str, Any]:
        """The JSON of the option that is the forecast."""
        if options["server"] and not options["answer"]:
            return option_of(self.ask(options), options["option"])
        if options["advice"]:
            return option_of(advice_of(options["advice"]).answer, options["option"])
        if options["answer"]:
            answer = read_json(options["answer"], "answer", "print it with advise --format json", MAX_ANSWER_BYTES)
            return option_of(answer, options["option"])
        require_catalog()
        spec = question(options["workload"], [], warn=self.stderr.write)
        return option_of(recommended(spec, snapshot_of(spec)).to_json(), options["option"])

    def ask(self, options: dict[str, Any]) -> Any:
        """The server's answer: a stored one, or to the workload. The bill stays here."""
        with asked(options["server"], named=f"--advice: {options['advice']}" if options["advice"] else "") as assay:
            if options["advice"]:
                return assay.answer(options["advice"], include="all").result
            file = options["workload"]
            sent = workload_to_send(raw_question(file, [], None, {}), file.parent, self.stderr.write)
            return assay.advise(sent, include="all").result


def advice_of(text: str) -> Advice:
    """The finished answer with this ID. Raises BadInput."""
    try:
        found = Advice.objects.filter(pk=UUID(text), state=Advice.State.DONE).first()
    except ValueError:
        found = None
    if found is None:
        raise BadInput(f"--advice: {text}: no such finished answer; its page and the API show the ID")
    return found
