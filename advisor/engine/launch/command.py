"""The command that starts one replica and the files it needs, shell-quoted."""

import math
import shlex
from dataclasses import dataclass, replace
from string import Template
from typing import NotRequired, TypedDict

from advisor.engine.launch.compose import compose
from advisor.engine.launch.draft_options import pool_note, variant_conditions, variant_values
from advisor.engine.launch.kubernetes import FIRST_HOST, HostRanks, ReplicaSpec, kubernetes, systemd
from advisor.engine.launch.leader_worker_set import leader_workers
from advisor.engine.launch.load_generators import LoadTest, load_test
from advisor.engine.launch.partitions import partition_notes, partition_script, per_instance
from advisor.engine.launch.served_checkpoint import CAST, PUBLISHED, ServedCheckpoint, served_checkpoint
from advisor.engine.network import Model
from advisor.engine.search import Scored
from advisor.engine.step import needed_options
from advisor.engine.terms import LaunchFacts, Lengths, Workload, command_arguments, log_normal_sigma, text_lines

CONTEXT_STEP_TOKENS = 1024
SOURCE_STEP_TOKENS = 128
Z999 = 3.0902  # 99.9 % quantile of the standard normal: one request in a thousand is longer
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}  # PyTorch names


class Launch(TypedDict):
    """The launch section of an option, as JSON."""

    command: str
    files: dict[str, str]
    load_test: NotRequired[LoadTest]


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextLimit:
    """The longest request (prompt plus answer) a server is started for, and what limits it."""

    tokens: int
    wanted_tokens: int  # p99.9 of the workload
    limit: str  # what keeps `tokens` below `wanted_tokens`; empty: nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Inputs of the values and conditions of a command template."""

    checkpoint: ServedCheckpoint
    context_limit: ContextLimit
    longest_source_tokens: int  # of an encoder-decoder; 0: no encoder
    images_per_prompt: int  # 0: requests are text only
    generates_tokens: bool
    shares_prefixes: bool
    served_name: str  # model name for clients if the checkpoint has another name; empty: the checkpoint's name
    s: Scored
    facts: LaunchFacts

    @property
    def hosts(self) -> int:
        """Hosts per replica."""
        c = self.s.lane.choice
        return math.ceil(c.tp * c.pp * c.dp / max(c.accelerator.chips_per_host, 1))

    @property
    def tp_devices(self) -> int:
        """Tensor-parallel ranks as the software stack counts them (a chip may have several devices)."""
        c = self.s.lane.choice
        return c.tp * c.accelerator.devices


def p999_tokens(lengths: Lengths) -> float:
    """99.9th percentile of the log-normal with this mean and p95, tokens."""
    sigma = log_normal_sigma(lengths)
    return lengths.mean_tokens * math.exp(Z999 * sigma - sigma**2 / 2)


def rare_request_tokens(workload: Workload) -> float:
    """p99.9 of the prompt plus p99.9 of the answer, tokens; of a trace, p99.9 of its requests."""
    if workload.trace is not None:
        return workload.trace.total_tokens(0.999)
    rare = p999_tokens(workload.pair_tokens or workload.input_tokens)
    if workload.turns:
        rare = max(rare, workload.turns.last_prompt_tokens)
    return rare + (p999_tokens(workload.output_tokens) if workload.kind.generates_tokens else 0)


def context_limit(s: Scored, model: Model, workload: Workload) -> ContextLimit:
    """p99.9 of the prompt plus p99.9 of the answer, limited by the model's context and the replica's KV cache.

    Of a trace, p99.9 of its requests. Where a longer limit reserves no memory, every simulated request fits.
    """
    rare = rare_request_tokens(workload)
    launched = s.lane.framework.launch
    if workload.kind.generates_tokens and not (launched and launched.template.reserves_slots):
        seen = [v.longest_tokens for v in (s.verified, s.verified.of_trace) if v is not None]
        rare = max(rare, *seen)
    wanted = math.ceil(rare / CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS
    held = int(s.memory.kv_capacity_tokens * s.lane.choice.pp)
    limits = ((model.longest_context_tokens, "the model's context length"), (held, "the KV cache of one replica"))
    tokens, limit = min((wanted, ""), *limits, key=lambda pair: pair[0])
    return ContextLimit(tokens=tokens, wanted_tokens=wanted, limit=limit)


def start_of(name: str, s: Scored, model: Model, workload: Workload, facts: LaunchFacts) -> Start:
    """Template inputs; the checkpoint is a placeholder if the framework cannot load the published one as planned."""
    q = s.lane.choice.quantization
    served = served_checkpoint(name, model, q, facts)
    return Start(
        checkpoint=served,
        context_limit=context_limit(s, model, workload),
        longest_source_tokens=longest_source(model, workload),
        images_per_prompt=images_per_prompt(workload),
        generates_tokens=workload.kind.generates_tokens,
        shares_prefixes=workload.prefix_cache_hit_fraction > 0 and "prefix_caching" in s.lane.framework.features,
        served_name="" if served.repository == name else name,
        s=s,
        facts=facts,
    )


def images_per_prompt(workload: Workload) -> int:
    """Images that one prompt may have: of a conversation, those of all its turns."""
    if workload.images is None:
        return 0
    return math.ceil(workload.images.per_request * (workload.turns.count if workload.turns else 1))


def longest_source(model: Model, workload: Workload) -> int:
    """p99.9 of the source lengths, rounded up; for speech the fixed window."""
    if workload.source_tokens is None:
        return 0
    if model.source_s:
        return model.source_tokens
    return math.ceil(p999_tokens(workload.source_tokens) / SOURCE_STEP_TOKENS) * SOURCE_STEP_TOKENS


def cache_gib(start: Start) -> int:
    """Whole GiB left for the KV cache of one rank."""
    return int((start.s.memory.kv_bytes + start.s.memory.free_bytes) / 2.0**30)


def slots(start: Start) -> int:
    """Concurrent requests if each reserves the space of the longest one."""
    held = int(start.s.memory.kv_capacity_tokens * start.s.lane.choice.pp)
    return max(min(start.s.concurrency, held // start.context_limit.tokens), 1)


def values_of(start: Start, model: Model) -> dict[str, object]:
    """All template values (command_template.VALUES)."""
    s, c, facts = start.s, start.s.lane.choice, start.facts
    q, source, ranks = c.quantization, start.longest_source_tokens, c.tp * c.pp * c.dp
    share = s.memory.source_kv_bytes / s.memory.kv_bytes if source and s.memory.kv_bytes else 0.0
    repository = start.checkpoint.repository
    named = repository if start.checkpoint.to_make else repository.rsplit("/", 1)[-1]
    return {
        "accelerator_name": c.accelerator.device_name or c.accelerator.slug,
        "attention_dp": c.dp,
        "cache_gib": cache_gib(start),
        "cache_name": facts.cache_names.get(c.kv_dtype, ""),
        "cast_dtype": DTYPES.get(q.weights_dtype, "") if start.checkpoint.origin == CAST else "",
        "checkpoint": repository,
        "concurrency": s.concurrency,
        "concurrency_per_rank": s.concurrency // c.dp,
        "context_and_source_tokens": source + start.context_limit.tokens,
        "context_or_source_tokens": max(start.context_limit.tokens, source),
        "context_tokens": start.context_limit.tokens,
        "expert_parallel": c.ep,
        "first_host": FIRST_HOST,
        "format_name": facts.format_names.get(q.slug, ""),
        "hosts": start.hosts,
        "images_per_prompt": start.images_per_prompt,
        "max_batched_tokens": s.lane.max_batched_tokens,
        "memory_fraction": f"{s.lane.framework.memory_fraction:g}",
        "model_name": named,
        "on_load_name": facts.formats_on_load.get(q.slug, ""),
        "pipeline_parallel": c.pp,
        "prefill_tokens": max(s.lane.max_batched_tokens, source),
        "ranks": ranks,
        "ranks_per_host": ranks // start.hosts,
        "served_name": start.served_name,
        "slot_tokens": start.context_limit.tokens * slots(start),
        "slots": slots(start),
        "source_cache_fraction": f"{share:.2f}",
        "source_tokens": source,
        "step_tokens_of_attention_ranks": s.lane.max_batched_tokens * c.dp,
        "tensor_and_attention_ranks": start.tp_devices * c.dp,
        "tensor_parallel": start.tp_devices,
        "tensor_parallel_accelerators": c.tp,
        "weights_dtype": DTYPES.get(q.weights_dtype, ""),
        "world_accelerators": c.tp * c.dp,
        **variant_values(s, model),
    }


def conditions_of(start: Start, model: Model, pool: str) -> frozenset[str]:
    """The true template conditions (command_template.CONDITIONS)."""
    c, facts = start.s.lane.choice, start.facts
    named, other_activations = c.quantization.slug in facts.format_names, c.quantization.loads != c.quantization.slug
    conditions = {
        "activations_named": named and other_activations,
        "attention_dp": c.dp > 1,
        "cache_int8": c.kv_dtype == "int8",
        "cache_named": c.kv_dtype in facts.cache_names,
        "cache_room": cache_gib(start) >= 1,
        "cast": start.checkpoint.origin == CAST,
        "cpu": c.accelerator.kind == "cpu",
        "experts": c.ep > 1,
        "experts_across_hosts": c.ep > 1 and c.dp > 1 and start.hosts > 1,
        "format_named": named and not other_activations and start.checkpoint.origin != PUBLISHED,
        "half_weights": c.quantization.weights_dtype in DTYPES,
        "made_on_load": start.checkpoint.made_on_load,
        "images": start.images_per_prompt > 0,
        "pipeline": c.pp > 1,
        "prefixes": start.shares_prefixes,
        "ranked_hosts": start.hosts > 1 and facts.hosts == "ranked",
        "ray_hosts": start.hosts > 1 and facts.hosts != "ranked",
        "served_name": bool(start.served_name),
        "several_hosts": start.hosts > 1,
        "sources": start.longest_source_tokens > 0,
        "scores": model.scores_pairs,
        "vectors": not start.generates_tokens,
        **variant_conditions(start.s, model, pool),
    }
    return frozenset(name for name, holds in conditions.items() if holds)


MULTI_HOST_NOTES = {
    "ranked": "run this on the first host and serve-host-N.sh on host N; replace < > with the first host's address",
    "ray": "start one Ray cluster across them, then run this on its head node",
    "slurm": "run this inside a Slurm allocation of these hosts",
}


def install(vendor: str, facts: LaunchFacts, version: str) -> str:
    """Install command of the pinned package, or a hint if none is published for this vendor."""
    if facts.package and (not facts.package_vendors or vendor in facts.package_vendors):
        note = f" ({facts.package_note})" if facts.package_note else ""
        return "pip install " + Template(facts.package).substitute(version=version) + note
    return f"version {version} for this chip, from the chip vendor or the framework project"


def yarn_note(model: Model) -> str:
    """What to set for contexts beyond the native one."""
    factor = math.ceil(model.extended_context_tokens / model.max_context_tokens)
    return (
        f"contexts beyond {model.max_context_tokens:,} tokens need RoPE scaling: set rope_type yarn, factor {factor}, "
        f"original_max_position_embeddings {model.max_context_tokens} as the model card describes"
    )


def notes(start: Start, model: Model, values: dict[str, object], true: frozenset[str]) -> list[str]:
    """Comments at the top of the start script."""
    s, longest_request, framework, facts = start.s, start.context_limit, start.s.lane.framework, start.facts
    one_of = f"one of {s.replicas} replicas" if s.replicas > 1 else "one replica"
    comments = [f"{framework.name} {framework.version}, {one_of}"]
    comments += partition_notes(s.lane.choice.accelerator)
    comments.append(f"install: {install(s.lane.choice.accelerator.vendor, facts, framework.version)}")
    if s.replicas > 1:
        comments.append(
            "put a load balancer in front of the replicas; give each replica on a host its own chips and port"
        )
    comments += numa_notes(s)
    if start.hosts > 1:
        comments.append(f"a replica spans {start.hosts} hosts: {MULTI_HOST_NOTES[facts.hosts or 'ray']}")
    if facts.device_note:
        comments.append(facts.device_note)
    comments.append(f"checkpoint: {start.checkpoint.step}")
    if start.checkpoint.to_make:
        comments.append(f"replace the text in < > with the path of a {s.lane.choice.quantization.name} checkpoint")
    comments += text_lines(facts.template.notes, values, true)
    if facts.template.limits_context:
        parts = "prompt plus answer" if start.generates_tokens else "each"
        if start.longest_source_tokens:
            parts = f"decoder prompt plus answer, with sources of up to {start.longest_source_tokens} tokens"
        comments.append(f"requests of up to {longest_request.tokens} tokens, {parts}; {_why(longest_request)}")
    if longest_request.tokens > model.max_context_tokens:
        comments.append(yarn_note(model))
    if facts.template.reserves_slots and slots(start) < s.concurrency:
        comments.append(
            f"planned for {s.concurrency} concurrent requests, but the KV cache holds {slots(start)} of the longest"
        )
    if "adapters" in true:
        comments += text_lines(facts.template.adapter_notes, values, true)
    return comments


def numa_notes(s: Scored) -> list[str]:
    """How to bind the replicas of a processor that leave other NUMA nodes of their instance to more replicas."""
    c, host = s.lane.choice, s.offer.host
    if c.accelerator.kind != "cpu" or host is None or host.numa_nodes <= c.tp or s.replicas < 2:
        return []
    return [
        "bind each replica to its own NUMA node: put `numactl --cpunodebind=0 --membind=0` before the first command"
    ]


def _why(longest_request: ContextLimit) -> str:
    if longest_request.limit:
        return f"limited by {longest_request.limit} (p99.9 of the workload: {longest_request.wanted_tokens} tokens)"
    return "covers p99.9 of the workload"


def launch(name: str, s: Scored, model: Model, workload: Workload) -> Launch:
    """The command of one replica and its files by name; empty if the catalog has no launch command."""
    facts = s.lane.framework.launch
    if facts is None:
        return {"command": "", "files": {}}
    s = per_instance(s)
    start = start_of(name, s, model, workload, facts)
    values, template = values_of(start, model), facts.template
    true = conditions_of(start, model, "decode" if s.pools else "")
    needed = [
        word
        for text in needed_options(s.lane.framework, s.lane.choice.accelerator, model)
        for word in shlex.split(text)
    ]
    command = [*command_arguments(template.command, values, true), *needed]
    pool_notes = text_lines(template.pool_notes, values, true) if s.pools else []
    comments = [*notes(start, model, values, true), *pool_note(s, "decode"), *pool_notes]
    files = {"serve.sh": script(command, comments)}
    prefill = command_arguments(template.command, values, conditions_of(start, model, "prefill")) if s.pools else []
    if s.pools:
        prefill += needed
        files["serve-prefill.sh"] = script(prefill, [*pool_note(s, "prefill"), *pool_notes])
    beside = {}
    if template.options_file:
        beside = {template.options_file: "".join(f"{line}\n" for line in text_lines(template.options, values, true))}
        files |= beside
    if s.lane.choice.accelerator.cut:
        files["partition.sh"] = partition_script(s.lane.choice.accelerator)
    for replica, script_argv in pools_of(replica_spec(name, start, command, beside), s, prefill):
        files |= on_one_host(replica, facts) if start.hosts == 1 else on_hosts(replica, start, script_argv)
    result: Launch = {"command": shlex.join(command), "files": files}
    test, test_files = load_test(name, start.checkpoint.repository, s, workload, start.context_limit.tokens)
    return {**result, "files": files | test_files, "load_test": test} if test else result


def script(argv: list[str], comments: list[str]) -> str:
    """A shell script that runs the command, with comments at the top: one line each, whatever a model's name holds."""
    return "\n".join(["#!/bin/sh", *(f"# {' '.join(c.split())}" for c in comments), f"exec {shlex.join(argv)}"]) + "\n"


def other_hosts(start: Start, argv: list[str]) -> dict[str, str]:
    """Start scripts for the second and later hosts of a replica."""
    template = start.facts.template
    if not template.rank_option or template.rank_option not in argv:
        return {}
    at = argv.index(template.rank_option) + 1
    more = shlex.split(template.worker_options)
    return {
        f"serve-host-{rank + 1}.sh": script(
            [*argv[:at], str(rank), *argv[at + 1 :], *more], [f"host {rank + 1} of {start.hosts} of the replica"]
        )
        for rank in range(1, start.hosts)
    }


def replica_spec(name: str, start: Start, argv: list[str], files: dict[str, str]) -> ReplicaSpec:
    """The contents of a replica's manifests."""
    c, framework, facts = start.s.lane.choice, start.s.lane.framework, start.facts
    image = facts.images.get(c.accelerator.vendor, "")
    ranks = HostRanks(
        mode=facts.hosts,
        rank_option=facts.template.rank_option,
        address_option=facts.template.address_option,
        worker_argv=tuple(shlex.split(facts.template.worker_options)),
    )
    return ReplicaSpec(
        name=name,
        argv=tuple(argv),
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


def pools_of(replica: ReplicaSpec, s: Scored, prefill: list[str]) -> list[tuple[ReplicaSpec, list[str]]]:
    """The deployment, or its two pools with their own commands and counts; decode comes first."""
    if s.pools is None:
        return [(replica, list(replica.argv))]
    return [
        (replace(replica, pool="decode", replicas=s.pools.decode_replicas), list(replica.argv)),
        (replace(replica, pool="prefill", replicas=s.pools.prefill_replicas, argv=tuple(prefill)), prefill),
    ]


def file_of(replica: ReplicaSpec, name: str) -> str:
    """The file name for a pool: prefill files get the suffix -prefill."""
    stem, _, ending = name.rpartition(".")
    return f"{stem}-prefill.{ending}" if replica.pool == "prefill" else name


def on_one_host(replica: ReplicaSpec, facts: LaunchFacts) -> dict[str, str]:
    """A systemd unit, and Kubernetes and Compose files if the health path and the chip's resource are known."""
    if facts.device_note:
        return {}
    files = {
        "assay-serve.service": systemd(replica),
        "kubernetes.yaml": kubernetes(replica),
        "compose.yaml": compose(replica),
    }
    return {file_of(replica, name): text for name, text in files.items() if text}


def on_hosts(replica: ReplicaSpec, start: Start, argv: list[str]) -> dict[str, str]:
    """A script for each additional host, and a LeaderWorkerSet if the framework's multi-host mode is known."""
    manifest = leader_workers(replica, start.hosts)
    files = other_hosts(start, argv) | ({"kubernetes.yaml": manifest} if manifest else {})
    return {file_of(replica, name): text for name, text in files.items()}
