import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from advisor.management.commands.advise import (
    MAP_HELP,
    NOTHING_FEASIBLE,
    OK,
    BadFile,
    lines,
    model_config,
    question,
    raw_question,
    read,
    require_catalog,
    trace_columns,
    with_models,
    with_traces,
    without_files,
)
from advisor.management.remote import ServerCommand, add_server, asked
from advisor.result import ClosedEstimate, Estimate, TrainingEstimate
from advisor.workload import FIXED, WorkloadError, parse, text_of_trace
from catalog.loading.bounded import WEB, BoundedError
from catalog.management.errors import BAD_INPUT

WHOLE = ("count", "tp", "pp", "ep", "dp", "attention_dp", "moe_tp", "isl", "isl_p95", "osl", "osl_p95",
         "max_batched_tokens", "seats")  # fmt: skip
TEXTS = ("accelerator", "weights", "kv", "framework", "framework_version", "client", "length_spread", "task")
NUMBERS = ("host_speed_ratio", "rate", "burstiness", "memory_fraction", "prefix_cache_hit_rate")
SECTIONS = ("adapters", "speculative", "users")
FILES = ("workload", "trace")
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
    "seats": "maximum running requests per scheduler (--max-num-seqs); default: the framework's",
    "isl_p95": "p95 of log-normal input lengths; default: all are equal",
    "osl_p95": "p95 of log-normal output lengths; default: all are equal",
    "rate": "requests/s that arrive, whether or not earlier ones are finished",
    "burstiness": "coefficient of variation of the gaps between arrivals at --rate; 1: Poisson; default: assumed",
    "task": "chat, code ...: for the assumed burstiness and acceptance of drafts; default: any",
    "memory_fraction": "fraction of memory for the server (--gpu-memory-utilization); default: the framework's",
    "prefix_cache_hit_rate": "fraction of each prompt that the prefix cache holds",
    "adapters": "LoRA adapters: their number, or count=8;rank=16;active=4",
    "speculative": "drafts: method=ngram|eagle|mtp|draft;k=3;acceptance=0.6;draft=MODEL",
    "users": "active=500;think_s=20, instead of --rate",
    "prefixes": "share=0.5;tokens=2000;count=8: half of the requests begin with one of 8 texts; repeatable",
    "workload": "workload file with the model and the traffic; other options replace its values",
    "trace": "recorded requests as published (CSV or JSON lines), replayed as they are",
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
    "precision": "bf16, bf16_master, bf16_pure, fp8, mxfp8, nvfp4, amp or fp32; default: bf16",
    "recompute": "activation recomputation: none, selective or full; default: none",
    "method": "serving: simulated or closed_form (formulas alone); training: full, lora or qlora; default: the first",
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


class Command(ServerCommand):
    help = "Estimates one fixed deployment or one training step. Exit codes: 0 estimated, 3 does not fit, 2 bad input."

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.parser = parser
        parser.add_argument(
            "--kind", default="serving", metavar="KIND", help="serving, training or finetuning; default: serving"
        )
        parser.add_argument("--model", help="model name or Hugging Face ID, or the path of a config.json")
        parser.add_argument(
            "--confirm-size",
            action="store_true",
            help="confirm that the size in config.json is right although its name or its checkpoint states another",
        )
        for name in (*WHOLE, *TEXTS):
            parser.add_argument(f"--{name.replace('_', '-')}", required=name == "accelerator", help=HELP.get(name))
        for name in (*NUMBERS, *SECTIONS):
            parser.add_argument(f"--{name.replace('_', '-')}", help=HELP[name])
        for name in FILES:
            parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=HELP[name])
        parser.add_argument("--map", dest="trace_columns", type=trace_columns, metavar="KEY=COLUMN,...", help=MAP_HELP)
        parser.add_argument("--prefixes", action="append", metavar="K=V;...", help=HELP["prefixes"])
        parser.add_argument(
            "--enforce-eager", action="store_true", default=None, help="without CUDA graphs and compilation"
        )
        for flag, dest, said in (
            ("--no-http", "http", "requests go straight to the engine, without HTTP server and tokenizer"),
            ("--no-prefix-caching", "prefix_caching", "every prompt is computed in full"),
        ):
            parser.add_argument(flag, dest=dest, action="store_const", const=False, help=said)
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
        add_server(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        missing = [f"--{name}" for name in required(options) if options[name] is None]
        if missing:
            self.parser.error(f"the following arguments are required: {', '.join(missing)}")
        if not options["server"]:
            require_catalog()
        try:
            result, table = estimated(options, self.stderr.write)
        except WorkloadError as error:
            self.refuse(*lines(error, with_flag))
        except BadFile as error:
            self.refuse(str(error))
        as_json = options["format"] == "json"
        self.stdout.write(json.dumps(result.to_json(), indent=2, ensure_ascii=False) if as_json else table)
        sys.exit(OK if result.fits else NOTHING_FEASIBLE)

    def refuse(self, *lines: str) -> NoReturn:
        self.stderr.write("\n".join(lines))
        sys.exit(BAD_INPUT)


def required(options: dict[str, Any]) -> tuple[str, ...]:
    """Options that must be given; argparse requires --accelerator."""
    if options["kind"] != FIXED:
        return ("model",)
    if options["workload"] is not None:
        return ("weights",)
    return ("model", "weights") if options["trace"] is not None else ("model", "weights", "isl")


Found = Estimate | ClosedEstimate | TrainingEstimate


def estimated(options: dict[str, Any], warn: Callable[[str], object]) -> tuple[Any, str]:
    """The estimate that the arguments ask for, and its table."""
    from advisor.report import estimate_text, training_text  # here, so that --help does not import the engine

    found = ask(options, warn) if options["server"] else computed(options, warn)
    if isinstance(found, TrainingEstimate):
        return found, training_text.table(found)
    if isinstance(found, ClosedEstimate):
        return found, estimate_text.closed_table(found)
    return found, estimate_text.table(found)


def ask(options: dict[str, Any], warn: Callable[[str], object]) -> Found:
    """The estimate of a server."""
    body = arguments(options, warn, stated)
    with asked(options["server"], with_flag) as assay:
        found = assay.estimate(**body)
        if options["kind"] != FIXED:
            return TrainingEstimate.read(found)
        return (ClosedEstimate if options["method"] == "closed_form" else Estimate).read(found)


def computed(options: dict[str, Any], warn: Callable[[str], object]) -> Found:
    from advisor.answer import closed_estimates, single_estimate, training_estimate
    from advisor.workload import TrainingRun, parse_estimate

    raw = arguments(options, warn)
    run = parse_estimate(raw)
    if isinstance(run, TrainingRun):
        return training_estimate.answer(run)
    return closed_estimates.answer(raw) if run.method == "closed_form" else single_estimate.answer(run)


def stated(path: Path, warn: Callable[[str], object]) -> dict[str, Any]:
    """The workload of a file with the files that it refers to read; names of the catalog are not checked."""
    return with_traces(with_models(parse(raw_question(path, [], None, {})), path.parent, warn), path.parent)


def known(path: Path, warn: Callable[[str], object]) -> dict[str, Any]:
    return question(path, [], None, warn)


def arguments(
    options: dict[str, Any],
    warn: Callable[[str], object],
    read_workload: Callable[[Path, Callable[[str], object]], dict[str, Any]] = known,
) -> dict[str, Any]:
    """The command-line arguments that were given, as the API takes them."""
    from advisor.workload import parse_pool, parse_section

    own = ("concurrency", "use_measurements", "enforce_eager", "http", "prefix_caching")
    names = ("kind", *WHOLE, *TEXTS, *NUMBERS, *own, *TRAINING_WHOLE, *TRAINING_TEXTS, *SWITCHES)
    raw = {name: options[name] for name in names if options[name] is not None}
    for name in ("prefill_pool", "decode_pool"):
        if options[name] is not None:
            raw[name] = parse_pool(name, options[name])
    for name in SECTIONS:
        if options[name] is not None:
            raw[name] = parse_section(name, options[name])
    if options["prefixes"]:
        raw["prefixes"] = [parse_section("prefixes", text) for text in options["prefixes"]]
    if options["trace"] is not None:
        try:
            raw["trace"] = {"csv": text_of_trace(read(options["trace"], "trace"), WEB.max_bytes)}
        except BoundedError as fault:
            raise BadFile(f"--trace: {options['trace']} {fault}") from None
    if options["trace_columns"]:
        raw["trace_columns"] = options["trace_columns"]
    if options["workload"] is not None:
        raw["workload"] = without_files(read_workload(options["workload"], warn))
    if options["model"] is not None:
        try:
            raw["model"] = model(options["model"], options["confirm_size"], warn)
        except BadFile as fault:
            raise BadFile(f"--model: {fault}") from None
    return raw


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
