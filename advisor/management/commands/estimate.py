import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from advisor.management.commands.advise import (
    NOTHING_FEASIBLE,
    OK,
    BadFile,
    lines,
    model_config,
    require_catalog,
)
from advisor.workload import FIXED, WorkloadError
from catalog.management.errors import BAD_INPUT

WHOLE = ("count", "tp", "pp", "ep", "dp", "attention_dp", "moe_tp", "isl", "osl", "max_batched_tokens")
TEXTS = ("accelerator", "weights", "kv", "framework", "framework_version", "client", "length_spread")
REQUIRED = ("weights", "isl")  # for serving; argparse requires --model and --accelerator
TRAINING_WHOLE = (
    "sequence_length", "micro_batch", "global_batch", "micro_batches", "cp", "virtual_stages", "zero", "rank",
    "response_tokens",
    "longest_response_tokens",
    "prompt_tokens",
)  # fmt: skip
TRAINING_TEXTS = ("precision", "recompute", "method", "optimizer", "offload", "code", "objective", "reference")
SWITCHES = ("sequence_parallel", "compile")
HELP = {
    "accelerator": "catalog name of the accelerator",
    "tp": "tensor-parallel size; default: 1",
    "pp": "pipeline-parallel size; default: 1",
    "ep": "expert-parallel size; default: 1",
    "moe_tp": "tensor-parallel size of the expert layers",
    "isl": "input tokens per request, such as 6000 or 6k",
    "osl": "output tokens per request",
    "max_batched_tokens": "token budget of a scheduler step",
    "framework_version": "release of the framework; default: the catalog's",
    "count": "all accelerators; default: tp x pp x attention-dp x dp (+ the pools); training: dp x tp x pp x cp",
    "dp": "independent replicas; training: data-parallel size, default count / (tp x pp x cp)",
    "attention_dp": "attention data parallelism inside a replica",
    "weights": "a dtype, or the slug of a quantization method",
    "kv": "KV cache format; default: the framework's default",
    "framework": "default: the first in the catalog that supports the deployment; training: whose launch files run",
    "host_speed_ratio": "host time of a step over that on the host of the measured overheads; above 1 is slower",
    "client": "steady, burst:10, poisson:RATE or static; default steady",
    "length_spread": "lengths are uniform between these fractions of isl and osl, such as 0.8:1.0",
    "sequence_length": "tokens of a sequence",
    "micro_batch": "sequences of one forward pass of a data-parallel rank; default: 1",
    "global_batch": "sequences of one step on all ranks, a multiple of dp x micro-batch",
    "micro_batches": "forward passes of a rank in one step, instead of --global-batch",
    "cp": "context-parallel size; default: 1",
    "virtual_stages": "interleaved stages of a pipeline rank; default: 1 (plain 1F1B)",
    "zero": "ZeRO stage 0 to 3; 3 is FSDP; default: 1 for megatron, 3 for hf and plain, 0 on one rank",
    "rank": "rank of the adapters; default: 16",
    "precision": "bf16, bf16_master, fp8, mxfp8, nvfp4, amp or fp32; default: bf16",
    "recompute": "activation recomputation: none, selective or full; default: none",
    "method": "full, lora or qlora; default: full",
    "optimizer": "adamw, adamw_8bit, adafactor, muon or sgd; default: adamw",
    "offload": "what is kept in host memory: none, optimizer or all; default: none",
    "code": "hf, plain or megatron; default: megatron, for finetuning hf",
    "objective": "sft, dpo or grpo; default: sft",
    "longest_response_tokens": "tokens of the longest response (grpo); default: twice the mean",
    "prompt_tokens": "mean tokens of a prompt (grpo); default: what the longest response leaves of the sequence",
    "reference": "reference model of dpo and grpo: yes, no (grpo) or precomputed (dpo); default: yes",
    "response_tokens": "mean tokens of a generated response (grpo); default: a quarter of the sequence",
    "sequence_parallel": "split norms and residuals over the tensor-parallel ranks",
    "compile": "torch.compile",
}


class Command(BaseCommand):
    help = "Estimates one fixed deployment or one training step. Exit codes: 0 estimated, 3 does not fit, 2 bad input."

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.parser = parser
        parser.add_argument(
            "--kind", default="serving", metavar="KIND", help="serving, training or finetuning; default: serving"
        )
        parser.add_argument(
            "--model", required=True, help="model name or Hugging Face ID, or the path of a config.json"
        )
        parser.add_argument(
            "--confirm-size",
            action="store_true",
            help="confirm that the size in config.json is right although its name or its checkpoint states another",
        )
        for name in (*WHOLE, *TEXTS):
            parser.add_argument(f"--{name.replace('_', '-')}", required=name == "accelerator", help=HELP.get(name))
        parser.add_argument("--host-speed-ratio", help=HELP["host_speed_ratio"])
        for name in ("prefill", "decode"):
            parser.add_argument(
                f"--{name}-pool", metavar="K=V;...", help="workers, batch, tp, pp, ep, attention_dp, moe_tp"
            )
        parser.add_argument("--concurrency", metavar="N|max", help="total across all replicas; default: max")
        training = parser.add_argument_group("training and finetuning")
        for name in (*TRAINING_WHOLE, *TRAINING_TEXTS):
            training.add_argument(f"--{name.replace('_', '-')}", help=HELP[name])
        parser.add_argument(
            "--no-measurements",
            dest="use_measurements",
            action="store_const",
            const=False,
            help="physics alone: do not correct the prediction by measured rows of similar deployments",
        )
        for name in SWITCHES:
            training.add_argument(f"--{name.replace('_', '-')}", action="store_true", default=None, help=HELP[name])
        parser.add_argument(
            "--format", choices=["table", "json"], default="table", help="output format; default: table"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        missing = [f"--{name}" for name in REQUIRED if options["kind"] == FIXED and options[name] is None]
        if missing:
            self.parser.error(f"the following arguments are required: {', '.join(missing)}")
        require_catalog()
        try:
            result, table = estimated(options, self.stderr.write)
        except WorkloadError as error:
            self.refuse(*lines(error, with_flag))
        except BadFile as error:
            self.refuse(f"--model: {error}")
        as_json = options["format"] == "json"
        self.stdout.write(json.dumps(result.to_json(), indent=2, ensure_ascii=False) if as_json else table)
        sys.exit(OK if result.fits else NOTHING_FEASIBLE)

    def refuse(self, *lines: str) -> NoReturn:
        self.stderr.write("\n".join(lines))
        sys.exit(BAD_INPUT)


def estimated(options: dict[str, Any], warn: Callable[[str], object]) -> tuple[Any, str]:
    """The estimate that the arguments ask for, and its table."""
    from advisor.answer import single_estimate, training_estimate
    from advisor.report import estimate_text, training_text  # here, so that --help does not import the engine
    from advisor.workload import TrainingRun, parse_estimate

    asked = parse_estimate(arguments(options, warn))
    if isinstance(asked, TrainingRun):
        step = training_estimate.answer(asked)
        return step, training_text.table(step)
    estimate = single_estimate.answer(asked)
    return estimate, estimate_text.table(estimate)


def arguments(options: dict[str, Any], warn: Callable[[str], object]) -> dict[str, Any]:
    """The command-line arguments that were given, as the API takes them."""
    from advisor.workload import parse_pool

    own = ("host_speed_ratio", "concurrency", "use_measurements")
    names = ("kind", *WHOLE, *TEXTS, *own, *TRAINING_WHOLE, *TRAINING_TEXTS, *SWITCHES)
    raw = {name: options[name] for name in names if options[name] is not None}
    for name in ("prefill_pool", "decode_pool"):
        if options[name] is not None:
            raw[name] = parse_pool(name, options[name])
    return {**raw, "model": model(options["model"], options["confirm_size"], warn)}


def model(text: str, confirmed: bool, warn: Callable[[str], object]) -> Any:
    """A model ID, or {config: contents} for the path of a config.json or of its folder."""
    if not text.endswith(".json") and not Path(text).exists():
        return text
    config = model_config(Path(text), confirmed, "add --confirm-size", warn)
    return {"config": config, "confirm_size": confirmed}


def with_flag(item: dict[str, str]) -> dict[str, str]:
    """The error, with its field as the command-line flag."""
    flag, dot, rest = item["field"].partition(".")
    return {**item, "field": f"--{flag.replace('_', '-')}{dot}{rest}" if flag else "estimate"}
