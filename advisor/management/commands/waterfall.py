"""Predicts the effect of each server optimization on one replica."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor.management.commands.advise import lines, require_catalog
from advisor.workload import WorkloadError
from catalog.management.errors import BAD_INPUT


class Command(BaseCommand):
    help = "Predicts the effect of each optimization of one replica, from eager mode to speculative decoding."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--model", required=True, help="a model ID of the catalog")
        parser.add_argument("--accelerator", required=True)
        parser.add_argument("--weights", default="bf16", help="weight format of the first step; default bf16")
        parser.add_argument(
            "--framework", default=None, help="default: the first in the catalog that supports the deployment"
        )
        parser.add_argument("--isl", type=int, default=1024)
        parser.add_argument("--osl", type=int, default=256)
        parser.add_argument("--users", type=int, default=64, help="concurrent requests")
        parser.add_argument(
            "--shared", type=float, default=0.5, help="fraction of the prompt found in the prefix cache"
        )
        parser.add_argument("--drafts", type=int, default=3, help="n-gram draft tokens per verification")
        parser.add_argument("--format", choices=["table", "json"], default="table")

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor.answer import waterfall  # here, so that --help does not import the engine

        require_catalog()
        if options["users"] < 1 or not 0 <= options["shared"] < 1:
            self.stderr.write("--users must be at least 1, and --shared at least 0 and below 1")
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
