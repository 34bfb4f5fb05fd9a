"""A server's command line as data: words with values in them, each group under the conditions it applies to.

The templates are in fixtures/launch_templates.yaml. `launch.py` knows the deployment, so it computes the values and
decides which conditions hold. A new framework needs code only if it needs a value or a condition that is not here.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Template as Text
from typing import Any

NOT = "not "
VALUES = {
    "accelerator_name": "what the framework calls the accelerator (device_name of the accelerator's software group)",
    "adapter_count": "LoRA adapters that requests may name",
    "adapters_held": "LoRA adapters in host memory: all, and never fewer than the slots",
    "adapter_rank": "highest rank of an adapter, rounded up to one that servers accept",
    "adapter_slots": "LoRA adapters on the accelerator at once",
    "attention_dp": "attention data-parallel ranks",
    "cache_gib": "memory for the cache, in whole GiB",
    "cache_name": "what the framework calls the cache format (cache_names)",
    "cast_dtype": "bfloat16 or float16: the 16-bit format that a wider checkpoint is cast to",
    "checkpoint": "name of the checkpoint, or a placeholder for one that has to be made first",
    "concurrency": "requests in flight on a replica",
    "concurrency_per_rank": "requests in flight on one attention data-parallel rank",
    "context_and_source_tokens": "longest source plus longest answer",
    "context_or_source_tokens": "the larger of longest request and longest source",
    "context_tokens": "longest request, prompt plus answer",
    "draft_checkpoint": "name of the draft model, or a placeholder",
    "draft_checkpoint_json": "the same as a JSON string, quotes included",
    "draft_tokens": "tokens drafted before each verification",
    "expert_parallel": "ranks that experts are spread over",
    "first_host": "placeholder for the address of the first host",
    "format_name": "what the framework calls the weight format (format_names)",
    "hosts": "hosts of a replica",
    "on_load_name": "what the framework calls the format it makes while loading (formats_on_load)",
    "max_batched_tokens": "most tokens in one step",
    "memory_fraction": "share of the memory that the server may use",
    "model_name": "name of the checkpoint without its owner",
    "pipeline_parallel": "pipeline stages",
    "prefill_tokens": "the larger of max_batched_tokens and the longest source",
    "ranks": "accelerators of a replica",
    "ranks_per_host": "accelerators of a replica on one host",
    "served_name": "what clients call the model",
    "slot_tokens": "longest request times slots",
    "slots": "requests that fit if each takes the room of the longest",
    "source_cache_fraction": "share of the cache that holds encoded sources",
    "source_tokens": "longest source of an encoder-decoder",
    "tensor_and_attention_ranks": "tensor-parallel ranks times attention data-parallel ranks",
    "tensor_parallel": "tensor-parallel ranks, as the software stack counts devices",
    "tensor_parallel_accelerators": "tensor-parallel accelerators",
    "tree_tokens": "tokens that Medusa heads propose in one tree",
    "verified_tokens": "drafted tokens plus one",
    "weights_dtype": "bfloat16 or float16: the format of 16-bit weights",
    "world_accelerators": "accelerators that share one step: tensor-parallel times attention data-parallel",
}
CONDITIONS = {
    "adapters": "LoRA adapters are served",
    "attention_adapters": "LoRA adapters cover only the attention matrices",
    "attention_dp": "attention is data-parallel",
    "cache_int8": "the cache is stored in INT8",
    "cache_named": "cache_names has the cache format",
    "cache_room": "at least one GiB is left for the cache",
    "cast": "the checkpoint is cast to a 16-bit format while loading",
    "cpu": "the accelerator is a CPU",
    "decode_pool": "the server belongs to the decode pool",
    "draft_draft": "a small model drafts",
    "draft_eagle": "an EAGLE head drafts",
    "draft_medusa": "Medusa heads draft",
    "draft_mtp": "the model's own prediction layer drafts",
    "draft_ngram": "n-grams of the prompt draft",
    "drafts": "tokens are drafted by any method",
    "experts": "experts are spread over ranks",
    "format_named": "format_names has the weight format",
    "half_weights": "the weights are in a 16-bit format",
    "made_on_load": "the weight format is made while loading (formats_on_load)",
    "pipeline": "the model is split into pipeline stages",
    "pools": "prefill and decode run in separate pools",
    "prefill_pool": "the server belongs to the prefill pool",
    "prefixes": "requests share prefixes and the framework can cache them",
    "several_hosts": "a replica spans several hosts",
    "ranked_hosts": "a replica spans several hosts, and hosts is ranked",
    "ray_hosts": "a replica spans several hosts, and hosts is not ranked",
    "served_name": "the checkpoint is a path, so the model needs a name",
    "sources": "the model is an encoder-decoder",
    "vectors": "the model makes embeddings",
}
DRAFT = "draft_"  # how the conditions of drafting methods begin
POOL_CONDITIONS = ("pools", "prefill_pool", "decode_pool")


OMITTED = {  # parts of a template that a framework may do without, by the conditions they stand under
    "drafts": ("drafts", *(c for c in CONDITIONS if c.startswith(DRAFT))),
    "adapters": ("adapters", "attention_adapters"),
    "pools": POOL_CONDITIONS,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Text with $values in it, used where every condition holds."""

    text: str
    when: tuple[str, ...] = ()

    def holds(self, true: frozenset[str]) -> bool:
        return all((c.removeprefix(NOT) in true) != c.startswith(NOT) for c in self.when)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandTemplate:
    """One form of command line, with the options file and the notes that go with it."""

    command: tuple[Part, ...]
    launcher: str = ""  # word of the command after which the server's own options begin
    options_file: str = ""  # name of the file that the command reads; empty: none
    options: tuple[Part, ...] = ()  # its lines
    notes: tuple[Part, ...] = ()  # for whoever runs it, in the script
    adapter_notes: tuple[Part, ...] = ()
    pool_notes: tuple[Part, ...] = ()
    rank_option: str = ""  # option that gives each host its rank; empty: not started host by host
    address_option: str = ""  # option with the address of the first host
    worker_options: str = ""  # options of every host but the first
    reserves_slots: bool = False  # each request gets the room of the longest one
    limits_context: bool = True  # requests beyond the longest one are refused

    @property
    def conditions(self) -> frozenset[str]:
        """Every condition that some part names."""
        parts = (*self.command, *self.options)
        return frozenset(c.removeprefix(NOT) for part in parts for c in part.when)

    @property
    def draft_methods(self) -> frozenset[str]:
        """Methods of speculative decoding that the command can switch on."""
        return frozenset(c.removeprefix(DRAFT) for c in self.conditions if c.startswith(DRAFT))

    @property
    def separates_pools(self) -> bool:
        """Whether the command can start a server of a prefill or a decode pool."""
        return bool(self.conditions & set(POOL_CONDITIONS))


def words_of(parts: Iterable[Part], values: Mapping[str, object], true: frozenset[str]) -> list[str]:
    """The arguments of a command; a value stays one word whatever is in it."""
    return [Text(w).substitute(values) for part in parts if part.holds(true) for w in shlex.split(part.text)]


def lines(parts: Iterable[Part], values: Mapping[str, object], true: frozenset[str]) -> list[str]:
    """One line for each part that applies."""
    return [Text(part.text).substitute(values) for part in parts if part.holds(true)]


PARTS = ("command", "options", "notes", "adapter_notes", "pool_notes")
TEXTS = ("launcher", "options_file", "rank_option", "address_option", "worker_options")
SWITCHES = ("reserves_slots", "limits_context")


def template_of(row: Mapping[str, Any]) -> CommandTemplate:
    """A template from its mapping; ValueError says what is wrong with it and what is allowed."""
    if unknown := sorted(set(row) - {*PARTS, *TEXTS, *SWITCHES}):
        raise ValueError(f"unknown key {', '.join(unknown)}; allowed are {', '.join((*PARTS, *TEXTS, *SWITCHES))}")
    for key in PARTS:
        if not isinstance(row.get(key, []), list):
            raise ValueError(f"{key}: write a list of texts, each with its conditions under `when` if it has any")
    for key in TEXTS:
        if not isinstance(row.get(key, ""), str):
            raise ValueError(f"{key}: write a text")
    for key in SWITCHES:
        if not isinstance(row.get(key, False), bool):
            raise ValueError(f"{key}: write true or false")
    if not row.get("command"):
        raise ValueError("missing command")
    if row.get("options") and not row.get("options_file"):
        raise ValueError("options: give the name of their file in options_file")
    parts: dict[str, Any] = {key: parts_of(key, row[key]) for key in PARTS if key in row}
    for i, part in enumerate(parts["command"], 1):
        try:
            shlex.split(part.text)
        except ValueError as error:
            raise ValueError(f"command, entry {i}: {error}; quote it as in a shell") from None
    return CommandTemplate(**parts, **{key: row[key] for key in (*TEXTS, *SWITCHES) if key in row})


def reduced(row: Mapping[str, Any], omits: Iterable[str]) -> dict[str, Any]:
    """The mapping of a template without the parts for drafts, adapters or pools."""
    gone = {c for what in omits for c in OMITTED[what]}

    def kept(part: Any) -> bool:
        when = part.get("when", []) if isinstance(part, Mapping) else []
        return not gone & set([when] if isinstance(when, str) else when)

    notes = {key for what, key in (("adapters", "adapter_notes"), ("pools", "pool_notes")) if what in omits}
    found = {key: value for key, value in row.items() if key not in notes}
    return {key: list(filter(kept, value)) if key in PARTS else value for key, value in found.items()}


def parts_of(key: str, given: list[Any]) -> tuple[Part, ...]:
    return tuple(part_of(f"{key}, entry {i}", part) for i, part in enumerate(given, 1))


def part_of(where: str, given: Any) -> Part:
    """A text, or {when: CONDITION or [CONDITION ...], add: TEXT}."""
    if isinstance(given, str):
        given = {"add": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("add"), str) or set(given) - {"when", "add"}:
        raise ValueError(f"{where}: write a text, or a mapping of `when` (conditions) and `add` (a text)")
    when = given.get("when", [])
    when = [when] if isinstance(when, str) else when
    if not isinstance(when, list) or not all(isinstance(c, str) for c in when):
        raise ValueError(f"{where}: when: write a condition, or a list of conditions")
    if unknown := [c for c in when if c.removeprefix(NOT) not in CONDITIONS]:
        known = ", ".join(CONDITIONS)
        raise ValueError(f"{where}: unknown condition {', '.join(unknown)}; allowed (or with `not `) are {known}")
    text = Text(given["add"])
    if not text.is_valid():
        raise ValueError(f"{where}: a $ without the name of a value; write $$ for a dollar sign")
    if unknown := [name for name in text.get_identifiers() if name not in VALUES]:
        raise ValueError(f"{where}: unknown value ${', $'.join(unknown)}; allowed are {', '.join(VALUES)}")
    return Part(text=given["add"], when=tuple(when))
