"""A server's command line as data: text with $values, each part under the conditions it applies to.

The templates are in fixtures/launch_templates.yaml. `advisor/engine/launch/command.py` computes the values and decides
which conditions hold. A new framework needs code only for a value or a condition that is not here.
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
    "adapters_held": "LoRA adapters in host memory: all of them, and at least the slots",
    "adapter_rank": "highest rank of an adapter, rounded up to a rank that servers accept",
    "adapter_slots": "LoRA adapters on the accelerator at once",
    "attention_dp": "attention data-parallel ranks",
    "cache_gib": "memory for the cache, in whole GiB",
    "cache_name": "what the framework calls the cache format (cache_names)",
    "cast_dtype": "bfloat16 or float16: the 16-bit format that a wider checkpoint is cast to",
    "checkpoint": "name of the checkpoint, or a placeholder if it has to be made first",
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
    "images_per_prompt": "most images of a request",
    "on_load_name": "what the framework calls the format it makes while loading (formats_on_load)",
    "max_batched_tokens": "most tokens in one step",
    "memory_fraction": "fraction of the memory that the server may use",
    "model_name": "name of the checkpoint without its owner",
    "pipeline_parallel": "pipeline stages",
    "prefill_tokens": "the larger of max_batched_tokens and the longest source",
    "ranks": "accelerators of a replica",
    "ranks_per_host": "accelerators of a replica on one host",
    "served_name": "what clients call the model",
    "slot_tokens": "longest request times slots",
    "slots": "requests that fit if each reserves memory for the longest",
    "source_cache_fraction": "fraction of the cache that holds encoded sources",
    "source_tokens": "longest source of an encoder-decoder",
    "step_tokens_of_attention_ranks": "tokens of one step times attention data-parallel ranks",
    "tensor_and_attention_ranks": "tensor-parallel ranks times attention data-parallel ranks",
    "tensor_parallel": "tensor-parallel ranks, as the software stack counts devices",
    "tensor_parallel_accelerators": "tensor-parallel accelerators",
    "tree_tokens": "tokens that Medusa heads propose in one tree",
    "verified_tokens": "drafted tokens plus one",
    "weights_dtype": "bfloat16 or float16: the format of 16-bit weights",
    "world_accelerators": "accelerators that share one step: tensor-parallel times attention data-parallel",
}
CONDITIONS = {
    "activations_named": "format_names has the weight format, which only changes the activations of a checkpoint",
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
    "experts_across_hosts": "experts are spread over hosts, and attention is data-parallel",
    "format_named": "format_names has the weight format",
    "half_weights": "the weights are in a 16-bit format",
    "images": "requests bring images",
    "made_on_load": "the weight format is made while loading (formats_on_load)",
    "pipeline": "the model is split into pipeline stages",
    "pools": "prefill and decode run in separate pools",
    "prefill_pool": "the server belongs to the prefill pool",
    "prefixes": "requests share prefixes and the framework can cache them",
    "several_hosts": "a replica spans several hosts",
    "ranked_hosts": "a replica spans several hosts, and hosts is ranked",
    "ray_hosts": "a replica spans several hosts, and hosts is not ranked",
    "scores": "the model is a reranker",
    "served_name": "the checkpoint is a path, so the model needs a name",
    "sources": "the model is an encoder-decoder",
    "vectors": "the model makes embeddings",
}
DRAFT = "draft_"  # prefix of the conditions of speculative decoding methods
POOL_CONDITIONS = ("pools", "prefill_pool", "decode_pool")


OMITTED = {  # optional parts of a template, by the conditions that select them
    "drafts": ("drafts", *(c for c in CONDITIONS if c.startswith(DRAFT))),
    "adapters": ("adapters", "attention_adapters"),
    "pools": POOL_CONDITIONS,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Text with $values, used if every condition holds."""

    text: str
    when: tuple[str, ...] = ()

    def applies(self, true: frozenset[str]) -> bool:
        """Whether the part is used when exactly these conditions are true."""
        return all((c.removeprefix(NOT) in true) != c.startswith(NOT) for c in self.when)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandTemplate:
    """One form of command line, with its options file and notes."""

    command: tuple[Part, ...]
    launcher: str = ""  # word of the command after which the server's own options begin
    options_file: str = ""  # name of the file that the command reads; empty: none
    options: tuple[Part, ...] = ()  # its lines
    notes: tuple[Part, ...] = ()  # comments in the script, for its operator
    adapter_notes: tuple[Part, ...] = ()
    pool_notes: tuple[Part, ...] = ()
    rank_option: str = ""  # option that gives each host its rank; empty: not started host by host
    address_option: str = ""  # option with the address of the first host
    worker_options: str = ""  # options of every host except the first
    reserves_slots: bool = False  # each request reserves memory for the longest one
    limits_context: bool = True  # requests longer than the longest one are refused

    @property
    def conditions(self) -> frozenset[str]:
        """Every condition used in the command or the options file."""
        parts = (*self.command, *self.options)
        return frozenset(c.removeprefix(NOT) for part in parts for c in part.when)

    @property
    def draft_methods(self) -> frozenset[str]:
        """Speculative decoding methods that the command can enable."""
        return frozenset(c.removeprefix(DRAFT) for c in self.conditions if c.startswith(DRAFT))

    @property
    def separates_pools(self) -> bool:
        """Whether the command can start a prefill or decode server of a disaggregated deployment."""
        return bool(self.conditions & set(POOL_CONDITIONS))


def command_arguments(parts: Iterable[Part], values: Mapping[str, object], true: frozenset[str]) -> list[str]:
    """The arguments of a command; a value with spaces stays one argument."""
    return [Text(w).substitute(values) for part in parts if part.applies(true) for w in shlex.split(part.text)]


def text_lines(parts: Iterable[Part], values: Mapping[str, object], true: frozenset[str]) -> list[str]:
    """One line for each part that applies, its values filled in."""
    return [Text(part.text).substitute(values) for part in parts if part.applies(true)]


PARTS = ("command", "options", "notes", "adapter_notes", "pool_notes")
TEXTS = ("launcher", "options_file", "rank_option", "address_option", "worker_options")
SWITCHES = ("reserves_slots", "limits_context")


def template_of(row: Mapping[str, Any]) -> CommandTemplate:
    """A template from its mapping. ValueError names the mistake and the allowed values."""
    if unknown := sorted(set(row) - {*PARTS, *TEXTS, *SWITCHES}):
        raise ValueError(f"unknown key {', '.join(unknown)}; allowed are {', '.join((*PARTS, *TEXTS, *SWITCHES))}")
    for key in PARTS:
        if not isinstance(row.get(key, []), list):
            raise ValueError(f"{key}: write a list of texts, with conditions, if any, under `when`")
    for key in TEXTS:
        if not isinstance(row.get(key, ""), str):
            raise ValueError(f"{key}: write a text")
    for key in SWITCHES:
        if not isinstance(row.get(key, False), bool):
            raise ValueError(f"{key}: write true or false")
    if not row.get("command"):
        raise ValueError("missing command")
    if row.get("options") and not row.get("options_file"):
        raise ValueError("options: also set options_file, the name of their file")
    parts: dict[str, Any] = {key: parts_of(key, row[key]) for key in PARTS if key in row}
    for i, part in enumerate(parts["command"], 1):
        try:
            shlex.split(part.text)
        except ValueError as error:
            raise ValueError(f"command, entry {i}: {error}; quote it as in a shell") from None
    return CommandTemplate(**parts, **{key: row[key] for key in (*TEXTS, *SWITCHES) if key in row})


def without_parts(row: Mapping[str, Any], omits: Iterable[str]) -> dict[str, Any]:
    """The mapping of a template without its parts for drafts, adapters or pools (keys of OMITTED)."""
    omitted_conditions = {c for feature in omits for c in OMITTED[feature]}

    def kept(part: Any) -> bool:
        when = part.get("when", []) if isinstance(part, Mapping) else []
        return not omitted_conditions & set([when] if isinstance(when, str) else when)

    notes = {key for feature, key in (("adapters", "adapter_notes"), ("pools", "pool_notes")) if feature in omits}
    remaining = {key: value for key, value in row.items() if key not in notes}
    return {key: list(filter(kept, value)) if key in PARTS else value for key, value in remaining.items()}


def parts_of(key: str, entries: list[Any]) -> tuple[Part, ...]:
    """The parts of one key of a template; ValueError names the key and the entry."""
    return tuple(part_of(f"{key}, entry {i}", entry) for i, entry in enumerate(entries, 1))


def part_of(where: str, entry: Any) -> Part:
    """One part from a text, or from {when: CONDITION or [CONDITION ...], add: TEXT}."""
    if isinstance(entry, str):
        entry = {"add": entry}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("add"), str) or set(entry) - {"when", "add"}:
        raise ValueError(f"{where}: write a text, or a mapping of `when` (conditions) and `add` (a text)")
    when = entry.get("when", [])
    when = [when] if isinstance(when, str) else when
    if not isinstance(when, list) or not all(isinstance(c, str) for c in when):
        raise ValueError(f"{where}: when: write a condition, or a list of conditions")
    if unknown := [c for c in when if c.removeprefix(NOT) not in CONDITIONS]:
        known = ", ".join(CONDITIONS)
        raise ValueError(f"{where}: unknown condition {', '.join(unknown)}; allowed (or with `not `) are {known}")
    text = Text(entry["add"])
    if not text.is_valid():
        raise ValueError(f"{where}: $ must be followed by the name of a value; write $$ for a dollar sign")
    if unknown := [name for name in text.get_identifiers() if name not in VALUES]:
        raise ValueError(f"{where}: unknown value ${', $'.join(unknown)}; allowed are {', '.join(VALUES)}")
    return Part(text=entry["add"], when=tuple(when))
