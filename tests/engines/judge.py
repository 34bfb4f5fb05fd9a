"""Judges a server's start command as the engine does: its options, their values, and what the engine then checks.

fixtures/flags/values/ has the options of a release with the kind of their values, as its own parser takes them.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from advisor.answer.options.launch_flags import FLAG, FOLDER
from advisor.engine.network import Model
from advisor.engine.step.compatibility.start_checks import StartOptions, needed_options, start_refusals
from advisor.engine.step.compatibility.support import rule_for
from advisor.engine.terms import Accelerator, Framework

Given = Mapping[str, str]  # option -> its value; empty: none

NAMES = {  # what an option means -> its names in vLLM and in SGLang
    "tp": ("--tensor-parallel-size", "-tp", "--tp-size", "--tp"),
    "pp": ("--pipeline-parallel-size", "-pp", "--pp-size", "--pp"),
    "dp": ("--data-parallel-size", "-dp", "--dp-size", "--dp"),
    "ep": ("--expert-parallel-size", "--ep-size", "--ep"),
    "hosts": ("--nnodes", "-n"),
    "context": ("--max-model-len", "--context-length"),
    "step": ("--max-num-batched-tokens", "--chunked-prefill-size"),
    "running": ("--max-num-seqs",),
    "dtype": ("--dtype",),
    "memory": ("--gpu-memory-utilization", "--mem-fraction-static"),
}
POSITIVE = ("tp", "pp", "dp", "ep", "hosts", "step", "running")
HAVE_DRAFTS = ("draft_model", "eagle", "eagle3", "medusa")  # methods of --speculative-config that name a draft model


@cache
def value_kinds(stem: str) -> Mapping[str, str]:
    """Option -> kind of its values (tests/engines/option_values.py); empty: no parser of this release was recorded."""
    path = FOLDER / "values" / f"{stem}.txt"
    if not path.exists():
        return {}
    lines = (line.partition(" ") for line in path.read_text().splitlines() if line.startswith("-"))
    return {option: kind for option, _, kind in lines}


def refusals(command: str, stem: str, framework: Framework, accelerator: Accelerator, model: Model) -> list[str]:
    """Why the engine does not start with this command; empty: it does, as far as its checks are in the catalog.

    `stem`: file of the release in fixtures/flags/values/, such as vllm-0.33.0.
    """
    kinds = value_kinds(stem)
    given, faults = read(shlex.split(command), kinds)
    if not faults:
        faults = [*own_faults(given), *layout_faults(given, framework, accelerator, model)]
    return faults


def read(argv: list[str], kinds: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options of a command with their values, and each one that the parser would refuse."""
    given, faults, at = dict[str, str](), list[str](), 0
    while at < len(argv):
        name, equals, value = argv[at].partition("=")
        at += 1
        if not FLAG.fullmatch(name):
            continue  # the program and its checkpoint
        if name == "-m" and name not in kinds:
            continue  # Python's own
        kind = kinds.get(name)
        if kind is None:
            faults.append(f"unknown option {name}")
            continue
        values = [value] if equals else []
        while kind != "flag" and not equals and at < len(argv) and not FLAG.fullmatch(argv[at].partition("=")[0]):
            values.append(argv[at])
            at += 1
            if not kind.endswith("*"):
                break
        if kind != "flag" and not values:
            faults.append(f"{name} needs a value")
        faults += [f"{name}: {each!r} is not {kind}" for each in values if not takes(kind.rstrip("*"), each)]
        given[name] = " ".join(values)
    return given, faults


def takes(kind: str, value: str) -> bool:
    """Whether a parser takes this value for an option of this kind."""
    if kind in ("text", "flag"):
        return True
    try:
        if kind == "json":
            json.loads(value)
        elif kind == "int":
            int(value)
        elif kind == "number":
            float(value)
        else:
            return value in kind.split("|")
    except ValueError:
        return False
    return True


def own_faults(given: Given) -> Iterator[str]:
    """What the engine refuses whatever the model."""
    for key in POSITIVE:
        if (number := number_of(given, key)) is not None and number < 1:
            yield f"{NAMES[key][0]} is below 1"
    if (context := number_of(given, "context")) is not None and context < -1:
        yield "the context is negative"
    if (share := number_of(given, "memory")) is not None and not 0 < share <= 1:
        yield "the share of the memory is not between 0 and 1"
    if text := given.get("--speculative-config"):
        yield from draft_faults(json.loads(text))
    if (text := given.get("--hf-overrides")) and not takes("json", text):
        yield "--hf-overrides is not a mapping"
    transfer = given.get("--kv-transfer-config")
    if transfer and "kv_role" not in json.loads(transfer):
        yield "--kv-transfer-config has no kv_role"
    hosts, rank = number_of(given, "hosts") or 1, float(given.get("--node-rank") or 0)
    if not 0 <= rank < hosts:
        yield f"--node-rank {rank:g} is not one of {hosts:g} hosts"


def draft_faults(config: Any) -> Iterator[str]:
    """What vLLM refuses in --speculative-config (vllm/config/speculative.py)."""
    if not isinstance(config, dict):
        yield "--speculative-config is not a mapping"
        return
    if "num_speculative_tokens" not in config:
        yield "--speculative-config has no num_speculative_tokens"
    if config.get("method") in HAVE_DRAFTS and not config.get("model"):
        yield "--speculative-config names no draft model"


def layout_faults(given: Given, framework: Framework, accelerator: Accelerator, model: Model) -> Iterator[str]:
    """What the engine refuses of this model on this chip."""
    tp, pp, dp = (int(number_of(given, key) or 1) for key in ("tp", "pp", "dp"))
    ep = tp * dp if "--enable-expert-parallel" in given or "-ep" in given else int(number_of(given, "ep") or 1)
    chips = accelerator.chips_per_host * int(number_of(given, "hosts") or 1)
    within = framework.slug == "sglang"  # its TP size includes the attention-DP ranks
    ranks = tp if within else tp * dp
    if ranks * pp > chips:
        yield f"{ranks * pp} ranks on {chips} accelerators"
    drafts = given.get("--speculative-config", "")
    if drafts and json.loads(drafts).get("method") == "mtp" and not model.mtp_layers:
        yield "the model has no prediction layer that could draft"
    yield from format_faults(given.get("--quantization", given.get("-q", "")), framework, accelerator, model)
    wanted = needed_options(framework, accelerator, model)
    yield from (f"this model needs {option}" for option in wanted if shlex.split(option)[0] not in given)
    asked = StartOptions(
        tp=max(tp // dp, 1) if within else tp,
        moe_tp=max(ranks // ep, 1),
        pp=pp,
        ep=ep,
        context_tokens=max(int(number_of(given, "context") or 0), 0),
        step_tokens=int(number_of(given, "step") or 0),
        running_requests=int(number_of(given, "running") or 0),
        whole_prompts=bool({"--no-enable-chunked-prefill", "--disable-chunked-prefill"} & set(given)),
        longer_context="--hf-overrides" in given or "--json-model-override-args" in given,
        bf16=given.get("--dtype") == "bfloat16",
    )
    yield from start_refusals(framework, accelerator, model, asked)


def format_faults(named: str, framework: Framework, accelerator: Accelerator, model: Model) -> Iterator[str]:
    """What the engine refuses of the checkpoint's format. `named`: the method of --quantization; empty: not given."""
    published = model.published.format if model.published else model.native_dtype
    known = published in framework.quantizations
    if known and rule_for(framework.weights, published, accelerator, model) is None:
        yield f"no source says that it runs {published} weights on {accelerator.name}"
    on_load = framework.launch.formats_on_load.values() if framework.launch else ()
    if named in framework.quantizations and named not in on_load and not published.startswith(named):
        yield f"the checkpoint is in {published}, not in {named}"


def number_of(given: Given, key: str) -> float | None:
    """The number that an option of this meaning has; None: not given, or no number (such as `auto`)."""
    value = next((given[name] for name in NAMES[key] if name in given), "")
    try:
        return float(value)
    except ValueError:
        return None
