import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from advisor.management.commands.advise import (
    NOTHING_FEASIBLE,
    OK,
    BadFile,
    lines,
    read_json,
    require_catalog,
)
from advisor.workload import WorkloadError
from catalog.management.errors import BAD_INPUT

WHOLE = ("count", "tp", "pp", "ep", "dp", "attention_dp", "moe_tp", "isl", "osl", "max_batched_tokens")
TEXTS = ("accelerator", "weights", "kv", "framework", "framework_version", "client", "length_spread")
HELP = {
    "accelerator": "catalog name of the accelerator",
    "tp": "tensor-parallel size; default: 1",
    "pp": "pipeline-parallel size; default: 1",
    "ep": "expert-parallel size; default: 1",
    "moe_tp": "tensor-parallel size of the expert layers",
    "isl": "input tokens per request",
    "osl": "output tokens per request",
    "max_batched_tokens": "token budget of a scheduler step",
    "framework_version": "release of the framework; default: the catalog's",
    "count": "all accelerators; default: tp x pp x attention-dp x dp (+ the pools)",
    "dp": "independent replicas",
    "attention_dp": "attention data parallelism inside a replica",
    "weights": "a dtype, or the slug of a quantization method",
    "kv": "KV cache format; default: the framework's default",
    "framework": "default: the first in the catalog that supports the deployment",
    "client": "steady, burst:10, poisson:RATE or static; default steady",
    "length_spread": "lengths are uniform between these fractions of isl and osl, such as 0.8:1.0",
}


def requests(text: str) -> int | str:
    """A number if the text is one; the deployment validates other text."""
    return int(text) if text.lstrip("-").isdecimal() else text


class Command(BaseCommand):
    help = "Estimates one fixed deployment. Exit codes: 0 estimated, 3 does not fit, 2 bad input."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--model", required=True, help="model name or Hugging Face ID, or the path of a config.json"
        )
        for name in (*WHOLE, *TEXTS):
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                type=int if name in WHOLE else str,
                required=name in ("accelerator", "weights", "isl"),
                help=HELP.get(name),
            )
        for name in ("prefill", "decode"):
            parser.add_argument(
                f"--{name}-pool", metavar="K=V;...", help="workers, batch, tp, pp, ep, attention_dp, moe_tp"
            )
        parser.add_argument(
            "--concurrency", type=requests, default="max", metavar="N|max", help="total across all replicas"
        )
        parser.add_argument(
            "--format", choices=["table", "json"], default="table", help="output format; default: table"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor.answer import single_estimate
        from advisor.report import estimate_text  # here, so that --help does not import the engine

        require_catalog()
        try:
            estimate = single_estimate.answer(deployment(options))
        except WorkloadError as error:
            self.refuse(*lines(error, with_flag))
        except BadFile as error:
            self.refuse(f"--model: {error}")
        as_json = options["format"] == "json"
        text = (
            json.dumps(estimate.to_json(), indent=2, ensure_ascii=False) if as_json else estimate_text.table(estimate)
        )
        self.stdout.write(text)
        sys.exit(OK if estimate.fits else NOTHING_FEASIBLE)

    def refuse(self, *lines: str) -> NoReturn:
        self.stderr.write("\n".join(lines))
        sys.exit(BAD_INPUT)


def deployment(options: dict[str, Any]) -> Any:
    """The deployment from the command-line arguments."""
    from advisor.workload import parse_deployment, parse_pool

    raw = {name: options[name] for name in (*WHOLE, *TEXTS, "concurrency") if options[name] is not None}
    for name in ("prefill_pool", "decode_pool"):
        if options[name] is not None:
            raw[name] = parse_pool(name, options[name])
    return parse_deployment({**raw, "model": model(options["model"])})


def model(text: str) -> Any:
    """A model ID, or {config: contents} for the path of a config.json."""
    if not text.endswith(".json") and not Path(text).exists():
        return text
    return {"config": read_json(Path(text), "model configuration", "give a Hugging Face config.json")}


def with_flag(item: dict[str, str]) -> dict[str, str]:
    """The error, with its field as the command-line flag."""
    flag, dot, rest = item["field"].partition(".")
    return {**item, "field": f"--{flag.replace('_', '-')}{dot}{rest}" if flag else "estimate"}
