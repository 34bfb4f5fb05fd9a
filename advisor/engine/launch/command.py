"""How to start one replica: a command and the files that it needs, shell-quoted."""

import math
import shlex
from dataclasses import dataclass, replace
from string import Template
from typing import NotRequired, TypedDict

from advisor.engine.launch.compose import compose
from advisor.engine.launch.draft_options import pool_note, variant_conditions, variant_values
from advisor.engine.launch.kubernetes import FIRST_HOST, HostRanks, Served, kubernetes, systemd
from advisor.engine.launch.leader_worker_set import leader_workers
from advisor.engine.launch.load_generators import LoadTest, load_test
from advisor.engine.launch.partitions import notes_of_cut, one_instance, partition_script
from advisor.engine.network import Model
from advisor.engine.scheduler import log_normal_sigma
from advisor.engine.search import Scored
from advisor.engine.spec import LaunchFacts, Lengths, Workload, lines, words_of
from advisor.engine.step import EMBEDDING, HALF

CONTEXT_STEP_TOKENS = 1024
SOURCE_STEP_TOKENS = 128
Z999 = 3.0902  # of the standard normal: one request in a thousand is longer
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}  # as PyTorch spells them


class Launch(TypedDict):
    command: str
    files: dict[str, str]
    load_test: NotRequired[LoadTest]


@dataclass(frozen=True, kw_only=True, slots=True)
class Longest:
    """The longest request, prompt and answer, that a lane is started for, and what set it."""

    tokens: int
    wanted_tokens: int  # one request in a thousand is longer
    limit: str  # what keeps it below the wanted; empty: nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What the values and conditions of a command template are computed from."""

    checkpoint: str  # the model's name, or a placeholder for a checkpoint that somebody must make or find
    made_on_load: bool
    cast_dtype: str  # the 16-bit format a wider checkpoint is cast to; empty: none
    longest: Longest
    longest_source_tokens: int  # of an encoder-decoder; 0: no encoder beside the decoder
    makes_vectors: bool
    shares_prefixes: bool
    served_name: str  # what clients ask for where the checkpoint is a path; empty: its own name
    s: Scored
    facts: LaunchFacts

    @property
    def hosts(self) -> int:
        """Hosts that one replica spans."""
        c = self.s.lane.choice
        return math.ceil(c.tp * c.pp * c.dp / max(c.accelerator.chips_per_host, 1))

    @property
    def tp_devices(self) -> int:
        """Tensor-parallel ranks as the stack counts them."""
        c = self.s.lane.choice
        return c.tp * c.accelerator.devices


def rare_tokens(lengths: Lengths) -> float:
    """The 99.9th percentile of the log-normal with this mean and p95."""
    sigma = log_normal_sigma(lengths)
    return lengths.mean_tokens * math.exp(Z999 * sigma - sigma**2 / 2)


def longest(s: Scored, model: Model, workload: Workload) -> Longest:
    """p99.9 of the prompt and p99.9 of the answer together, within the model's context and the cache of a lane."""
    rare = rare_tokens(workload.input_tokens)
    rare += 0 if workload.kind == EMBEDDING else rare_tokens(workload.output_tokens)
    wanted = math.ceil(rare / CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS
    held = int(s.memory.kv_capacity_tokens * s.lane.choice.pp)
    limits = ((model.max_context_tokens, "the model's context ends there"), (held, "the cache of a replica ends there"))
    tokens, limit = min((wanted, ""), *limits, key=lambda pair: pair[0])
    return Longest(tokens=tokens, wanted_tokens=wanted, limit=limit)


def start_of(name: str, s: Scored, model: Model, workload: Workload, facts: LaunchFacts) -> Start:
    """The published checkpoint where the framework can load it as planned, or else a placeholder."""
    q = s.lane.choice.quantization
    native = model.native_dtype in (q.slug, q.weights_dtype)
    on_load = not native and q.slug in facts.formats_on_load
    cast = q.weights_dtype if not native and q.weights_dtype in HALF else ""
    if facts.checkpoint_file:
        checkpoint = f"<{facts.checkpoint_file} of {name} in {q.name}>"
    else:
        checkpoint = name if native or on_load or cast else f"<checkpoint of {name} in {q.name}>"
    return Start(
        checkpoint=checkpoint,
        made_on_load=on_load,
        cast_dtype=cast,
        longest=longest(s, model, workload),
        longest_source_tokens=longest_source(model, workload),
        makes_vectors=workload.kind == EMBEDDING,
        shares_prefixes=workload.prefix_cache_hit_fraction > 0 and "prefix_caching" in s.lane.framework.features,
        served_name=name if checkpoint.startswith("<") else "",
        s=s,
        facts=facts,
    )


def longest_source(model: Model, workload: Workload) -> int:
    """p99.9 of the sources in whole steps; of speech always the window."""
    if workload.source_tokens is None:
        return 0
    if model.source_s:
        return model.source_tokens
    return math.ceil(rare_tokens(workload.source_tokens) / SOURCE_STEP_TOKENS) * SOURCE_STEP_TOKENS


def cache_gib(start: Start) -> int:
    """Whole GiB that are left for the cache of one rank."""
    return int((start.s.memory.kv_bytes + start.s.memory.free_bytes) / 2.0**30)


def slots(start: Start) -> int:
    """Requests that run at once where each takes the room of the longest one, used or not."""
    held = int(start.s.memory.kv_capacity_tokens * start.s.lane.choice.pp)
    return max(min(start.s.concurrency, held // start.longest.tokens), 1)


def values_of(start: Start, model: Model) -> dict[str, object]:
    """Every value that a template may name (command_template.VALUES)."""
    s, c, facts = start.s, start.s.lane.choice, start.facts
    q, source, ranks = c.quantization, start.longest_source_tokens, c.tp * c.pp * c.dp
    share = s.memory.source_kv_bytes / s.memory.kv_bytes if source and s.memory.kv_bytes else 0.0
    named = start.checkpoint if start.checkpoint.startswith("<") else start.checkpoint.rsplit("/", 1)[-1]
    return {
        "accelerator_name": c.accelerator.device_name or c.accelerator.slug,
        "attention_dp": c.dp,
        "cache_gib": cache_gib(start),
        "cache_name": facts.cache_names.get(c.kv_dtype, ""),
        "cast_dtype": DTYPES.get(start.cast_dtype, ""),
        "checkpoint": start.checkpoint,
        "concurrency": s.concurrency,
        "concurrency_per_rank": s.concurrency // c.dp,
        "context_and_source_tokens": source + start.longest.tokens,
        "context_or_source_tokens": max(start.longest.tokens, source),
        "context_tokens": start.longest.tokens,
        "expert_parallel": c.ep,
        "first_host": FIRST_HOST,
        "format_name": facts.format_names.get(q.slug, ""),
        "hosts": start.hosts,
        "max_batched_tokens": s.lane.max_batched_tokens,
        "memory_fraction": f"{s.lane.framework.memory_fraction:g}",
        "model_name": named,
        "on_load_name": facts.formats_on_load.get(q.slug, ""),
        "pipeline_parallel": c.pp,
        "prefill_tokens": max(s.lane.max_batched_tokens, source),
        "ranks": ranks,
        "ranks_per_host": ranks // start.hosts,
        "served_name": start.served_name,
        "slot_tokens": start.longest.tokens * slots(start),
        "slots": slots(start),
        "source_cache_fraction": f"{share:.2f}",
        "source_tokens": source,
        "tensor_and_attention_ranks": start.tp_devices * c.dp,
        "tensor_parallel": start.tp_devices,
        "tensor_parallel_accelerators": c.tp,
        "weights_dtype": DTYPES.get(q.weights_dtype, ""),
        "world_accelerators": c.tp * c.dp,
        **variant_values(s, model),
    }


def conditions_of(start: Start, model: Model, pool: str) -> frozenset[str]:
    """The conditions that hold (command_template.CONDITIONS)."""
    c, facts = start.s.lane.choice, start.facts
    conditions = {
        "attention_dp": c.dp > 1,
        "cache_int8": c.kv_dtype == "int8",
        "cache_named": c.kv_dtype in facts.cache_names,
        "cache_room": cache_gib(start) >= 1,
        "cast": bool(start.cast_dtype),
        "cpu": c.accelerator.kind == "cpu",
        "experts": c.ep > 1,
        "format_named": c.quantization.slug in facts.format_names,
        "half_weights": c.quantization.weights_dtype in DTYPES,
        "made_on_load": start.made_on_load,
        "pipeline": c.pp > 1,
        "prefixes": start.shares_prefixes,
        "ranked_hosts": start.hosts > 1 and facts.hosts == "ranked",
        "ray_hosts": start.hosts > 1 and facts.hosts != "ranked",
        "served_name": bool(start.served_name),
        "several_hosts": start.hosts > 1,
        "sources": start.longest_source_tokens > 0,
        "vectors": start.makes_vectors,
        **variant_conditions(start.s, model, pool),
    }
    return frozenset(name for name, holds in conditions.items() if holds)


HOSTS = {  # how one replica spans hosts, for whoever starts it
    "ranked": "run this on the first and serve-host-N.sh on each other, all with the first host's address in place of "
    "< >",
    "ray": "start one Ray cluster over them, then run this on its head",
    "slurm": "run it within a Slurm allocation of them",
}


def install(vendor: str, facts: LaunchFacts, version: str) -> str:
    """The pinned package, where one is published for this vendor's accelerators."""
    if facts.package and (not facts.package_vendors or vendor in facts.package_vendors):
        note = f" ({facts.package_note})" if facts.package_note else ""
        return "pip install " + Template(facts.package).substitute(version=version) + note
    return f"the build of {version} for this chip, from its vendor or the project"


def notes(start: Start, values: dict[str, object], true: frozenset[str]) -> list[str]:
    """What a reader of the script must know before running it."""
    s, longest_request, framework, facts = start.s, start.longest, start.s.lane.framework, start.facts
    comments = [f"{framework.name} {framework.version}, one of {s.replicas} replicas"]
    comments += notes_of_cut(s.lane.choice.accelerator)
    comments.append(f"get it: {install(s.lane.choice.accelerator.vendor, facts, framework.version)}")
    if s.replicas > 1:
        comments.append(
            "put a load balancer in front of the replicas; replicas on one host need their own chips and port"
        )
    if start.hosts > 1:
        comments.append(f"a replica spans {start.hosts} hosts: {HOSTS[facts.hosts or 'ray']}")
    if facts.device_note:
        comments.append(facts.device_note)
    if start.checkpoint.startswith("<"):
        comments.append(
            f"put the path of a checkpoint in {s.lane.choice.quantization.name} in place of the words in < >"
        )
    comments += lines(facts.template.notes, values, true)
    if facts.template.limits_context:
        parts = "each" if start.makes_vectors else "prompt and answer together"
        if start.longest_source_tokens:
            parts = f"start and answer together, after sources up to {start.longest_source_tokens} tokens"
        comments.append(f"requests up to {longest_request.tokens} tokens, {parts}; " + _why(longest_request))
    if facts.template.reserves_slots and slots(start) < s.concurrency:
        comments.append(
            f"planned for {s.concurrency} requests at once, the cache has room for {slots(start)} of the longest"
        )
    if "adapters" in true:
        comments += lines(facts.template.adapter_notes, values, true)
    return comments


def _why(longest_request: Longest) -> str:
    if longest_request.limit:
        return f"{longest_request.limit}, the 99.9th percentiles of both come to {longest_request.wanted_tokens}"
    return "the 99.9th percentiles of both fit"


def launch(name: str, s: Scored, model: Model, workload: Workload) -> Launch:
    """The command of one replica and the files that run it; empty where the catalog does not say how it starts."""
    facts = s.lane.framework.launch
    if facts is None:
        return {"command": "", "files": {}}
    s = one_instance(s)
    start = start_of(name, s, model, workload, facts)
    values, template = values_of(start, model), facts.template
    true = conditions_of(start, model, "decode" if s.pools else "")
    command = words_of(template.command, values, true)
    pool_notes = lines(template.pool_notes, values, true) if s.pools else []
    comments = [*notes(start, values, true), *pool_note(s, "decode"), *pool_notes]
    files = {"serve.sh": script(command, comments)}
    prefill = words_of(template.command, values, conditions_of(start, model, "prefill")) if s.pools else []
    if s.pools:
        files["serve-prefill.sh"] = script(prefill, [*pool_note(s, "prefill"), *pool_notes])
    beside = {}
    if template.options_file:
        beside = {template.options_file: "".join(f"{line}\n" for line in lines(template.options, values, true))}
        files |= beside
    if s.lane.choice.accelerator.cut:
        files["partition.sh"] = partition_script(s.lane.choice.accelerator)
    for served, script_words in pools_of(served_of(name, start, command, beside), s, prefill):
        files |= on_one_host(served, facts) if start.hosts == 1 else on_hosts(served, start, script_words)
    result: Launch = {"command": shlex.join(command), "files": files}
    test, test_files = load_test(name, start.checkpoint, s, workload, start.longest.tokens)
    return {**result, "files": files | test_files, "load_test": test} if test else result


def script(words: list[str], comments: list[str]) -> str:
    return "\n".join(["#!/bin/sh", *(f"# {c}" for c in comments), f"exec {shlex.join(words)}"]) + "\n"


def other_hosts(start: Start, words: list[str]) -> dict[str, str]:
    """Scripts of the hosts of a replica after the first."""
    template = start.facts.template
    if not template.rank_option or template.rank_option not in words:
        return {}
    at = words.index(template.rank_option) + 1
    more = shlex.split(template.worker_options)
    return {
        f"serve-host-{rank + 1}.sh": script(
            [*words[:at], str(rank), *words[at + 1 :], *more], [f"host {rank + 1} of {start.hosts} of the replica"]
        )
        for rank in range(1, start.hosts)
    }


def served_of(name: str, start: Start, words: list[str], files: dict[str, str]) -> Served:
    """What manifests say of a replica."""
    c, framework, facts = start.s.lane.choice, start.s.lane.framework, start.facts
    image = facts.images.get(c.accelerator.vendor, "")
    ranks = HostRanks(
        way=facts.hosts,
        rank_option=facts.template.rank_option,
        address_option=facts.template.address_option,
        worker_words=tuple(shlex.split(facts.template.worker_options)),
    )
    return Served(
        name=name,
        words=tuple(words),
        framework=framework.slug,
        version=framework.version,
        image=Template(image).substitute(version=framework.version) if image else "",
        image_has_entrypoint=facts.image_has_entrypoint,
        health_path=facts.health_path,
        ranks=ranks,
        accelerator=c.accelerator,
        chips=c.tp * c.pp * c.dp,
        replicas=start.s.replicas,
        files=files,
    )


def pools_of(served: Served, s: Scored, prefill: list[str]) -> list[tuple[Served, list[str]]]:
    """The deployment, or its two pools with their own words and counts; decode, which answers, comes first."""
    if s.pools is None:
        return [(served, list(served.words))]
    return [
        (replace(served, pool="decode", replicas=s.pools.decode_replicas), list(served.words)),
        (replace(served, pool="prefill", replicas=s.pools.prefill_replicas, words=tuple(prefill)), prefill),
    ]


def file_of(served: Served, name: str) -> str:
    """The name of a pool's file: those of prefill have it before the ending."""
    stem, _, ending = name.rpartition(".")
    return f"{stem}-prefill.{ending}" if served.pool == "prefill" else name


def on_one_host(served: Served, facts: LaunchFacts) -> dict[str, str]:
    """A systemd unit; Kubernetes and Compose files where the framework's server and the chip's resource are known."""
    if facts.device_note:
        return {}
    files = {
        "assay-serve.service": systemd(served),
        "kubernetes.yaml": kubernetes(served),
        "compose.yaml": compose(served),
    }
    return {file_of(served, name): text for name, text in files.items() if text}


def on_hosts(served: Served, start: Start, words: list[str]) -> dict[str, str]:
    """A script for each further host, and a LeaderWorkerSet where it is known how the framework spans them."""
    manifest = leader_workers(served, start.hosts)
    files = other_hosts(start, words) | ({"kubernetes.yaml": manifest} if manifest else {})
    return {file_of(served, name): text for name, text in files.items()}
