"""What each switch of a server brings on one replica, as predicted, so that each can be measured."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor.management.commands.advise import lines, require_catalog
from advisor.workload import WorkloadError
from catalog.management.errors import BAD_INPUT


class Command(BaseCommand):
    help = "The steps from eager to drafts for one fixed replica, one switch each, to measure them one by one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--model", required=True, help="an id of the catalog")
        parser.add_argument("--accelerator", required=True)
        parser.add_argument("--weights", default="bf16", help="of the first step; default bf16")
        parser.add_argument("--framework", default=None, help="default: the catalog's first that runs this")
        parser.add_argument("--isl", type=int, default=1024)
        parser.add_argument("--osl", type=int, default=256)
        parser.add_argument("--users", type=int, default=64, help="always in flight")
        parser.add_argument("--shared", type=float, default=0.5, help="share of a prompt found in the prefix cache")
        parser.add_argument("--drafts", type=int, default=3, help="n-gram tokens before each verification")
        parser.add_argument("--format", choices=["table", "json"], default="table")

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor.answer import waterfall  # here: --help need not import the engine

        require_catalog()
        if options["users"] < 1 or not 0 <= options["shared"] < 1:
            self.stderr.write("--users: 1 or more; --shared: from 0 to below 1")
            sys.exit(BAD_INPUT)
        try:
            ablation = waterfall.answer(options)
        except WorkloadError as error:
            self.stderr.write("\n".join(lines(error)))
            sys.exit(BAD_INPUT)
        as_json = options["format"] == "json"
        self.stdout.write(
            json.dumps(ablation.to_json(), indent=2, ensure_ascii=False) if as_json else waterfall.table(ablation)
        )
