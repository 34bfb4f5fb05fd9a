"""The load generator and server settings of each source, from the ordered rules in protocols.yaml."""

import csv
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from advisor.engine.terms import CLIENTS, Protocol
from catalog.shipped import FIXTURES

PATH = FIXTURES / "measurements" / "protocols.yaml"
POOLS = FIXTURES / "measurements" / "pools.csv"  # server settings of published runs with two pools
CONDITIONS = ("source", "framework", "version", "model", "accelerator", "weights", "tokens", "isl", "osl", "prefix")
RUN_FIELDS = (
    "kv_dtype",
    "weights_dtype",
    "block_scaled",
    "isl_tokens",
    "osl_tokens",
    "max_batched_tokens",
    "max_batch",
    "memory_fraction",
    "speculative",
    "speculative_tokens",
    "attention_dp_is_tp",
    "experts_over_all_ranks",
    "cores_per_chip",
    "layers_over_chips",
    "routing_evenness",
    "beams",
    "shared_prompt",
    "seats_of_all_ranks",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The client and the settings of a source's runs that the rows themselves do not state."""

    client: Protocol = Protocol(known=False)
    kv_dtype: str | None = None
    weights_dtype: str | None = None
    block_scaled: bool = False
    isl_tokens: float | None = None
    osl_tokens: float | None = None
    max_batched_tokens: int | None = None
    max_batch: int | None = None
    memory_fraction: float | None = None
    speculative: str | None = None
    speculative_tokens: int | None = None  # draft tokens per step
    attention_dp_is_tp: bool = False  # the tp column counts ranks of an attention-data-parallel MoE deployment
    experts_over_all_ranks: bool = False  # expert parallelism over all chips, whatever the ep column says
    cores_per_chip: int = 1  # the tp and ep columns count cores, not chips
    layers_over_chips: bool = False  # a layer split: pipeline, one request at a time
    routing_evenness: float | None = None  # of an untrained router; larger is more even
    beams: int = 1  # beam search: sequences decoded for each request
    shared_prompt: bool = False  # all requests have the same prompt, which the prefix cache holds
    seats_of_all_ranks: bool = False  # a stated limit on running requests is shared by the attention ranks


class ProtocolError(ValueError):
    """protocols.yaml is not valid."""


@functools.cache
def rules(path: Path = PATH) -> tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...]:
    """The (when, set) pairs of the file. Raises ProtocolError."""
    document = yaml.safe_load(path.read_text())
    return tuple(_checked(rule, number) for number, rule in enumerate(document["rules"], 1))


def _checked(rule: Mapping[str, Any], number: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    if unknown := set(rule) - {"when", "set", "why", "source"}:
        raise ProtocolError(f"rule {number}: unknown keys {sorted(unknown)}")
    if "why" not in rule:
        raise ProtocolError(f"rule {number}: `why` is missing")
    when, settings = rule.get("when", {}), rule["set"]
    if unknown := set(when) - set(CONDITIONS):
        raise ProtocolError(f"rule {number}: unknown conditions {sorted(unknown)}; allowed: {', '.join(CONDITIONS)}")
    if unknown := set(settings) - {"client", *RUN_FIELDS}:
        raise ProtocolError(f"rule {number}: cannot set {sorted(unknown)}")
    client = settings.get("client", {})
    if unknown := set(client) - {field.name for field in fields(Protocol)}:
        raise ProtocolError(f"rule {number}: unknown client fields {sorted(unknown)}")
    if client.get("kind", "steady") not in CLIENTS:
        raise ProtocolError(f"rule {number}: client kind {client['kind']!r} is not one of {', '.join(CLIENTS)}")
    return when, settings


def run_of(facts: Mapping[str, str], path: Path = PATH) -> Run:
    """The settings of runs with these facts (keys: CONDITIONS); later rules override earlier ones."""
    client: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for when, values in rules(path):
        if all(_matches(facts, name, expected) for name, expected in when.items()):
            client |= values.get("client", {})
            settings |= {name: value for name, value in values.items() if name != "client"}
    return Run(client=Protocol(**({"known": False} | client)), **settings)


def _matches(facts: Mapping[str, str], name: str, expected: Any) -> bool:
    options = [str(option) for option in (expected if isinstance(expected, list) else [expected])]
    if name == "prefix":  # of the source key: all rounds of one benchmark
        return any(facts["source"].startswith(option) for option in options)
    return facts.get(name, "") in options


# ------------------------------------------------------------------ what a row says itself

REQUESTS_EACH = r"(\d+) ?x ?C\b"
REQUESTS = r"\brequests=(\d+)(?![\dx])|\b(\d+) requests\b"
ALL_AT_ONCE = r"\ball (?:C )?at once\b"
UNIFORM = r"uniform 1\.\.nominal|default range ratio \(uniform"
AROUND = r"\brange (0?\.\d+)\b[^;]*mean lengths given"
SEATS = r"(?:max-num-seqs|max running(?: requests)?)[ =](\d+)"
SHORTEST = 0.01  # of the mean: one token


def stated_client(note: str, load: str, users: float | None) -> dict[str, Any]:
    """Fields of a Protocol that the words of a row's note state; they replace those of its source.

    load: the row's concurrency or rate. Lengths are fractions of the row's, which are means of what was sent.
    """
    found: dict[str, Any] = {}
    sent = int(match[1] or match[2]) if (match := re.search(REQUESTS, note)) else None
    replicas = int(match[1]) if (match := re.search(r"\bof (\d+) replicas\b", note)) else 1
    if match := re.search(REQUESTS_EACH, note):
        found["requests_per_user"] = float(match[1])
    elif re.search(ALL_AT_ONCE, note):
        found["requests_per_user"] = 1.0
    elif sent and users:
        found["requests_per_user"] = max(sent / replicas / users, 1.0)
    if re.search(UNIFORM, note):
        found |= {"length_low_fraction": SHORTEST, "length_high_fraction": 2.0 - SHORTEST}
    elif match := re.search(AROUND, note):
        found |= {"length_low_fraction": 1.0 - float(match[1]), "length_high_fraction": 1.0 + float(match[1])}
    elif "fixed lengths" in note or "exact lengths" in note:
        found |= {"length_low_fraction": 1.0, "length_high_fraction": 1.0}
    if {"requests_per_user", "length_low_fraction"} <= set(found):
        found["known"] = True
    if match := re.search(r"\bburstiness=([\d.]+)", load):  # the shape of gamma gaps
        found["arrival_cv"] = 1.0 / math.sqrt(float(match[1]))
    if sent and load.startswith(("poisson", "gamma")):
        found |= {"requests": sent, "whole_run": True}
    return found


def users_of(note: str, load: str) -> float | None:
    """Requests in flight of a closed loop: the load itself, or the most that a load generator lets wait.

    `vllm bench serve` with a rate above what the server does and --max-concurrency keeps that many in flight.
    """
    if match := re.search(r"qps=\S+ max (\d+)", load):
        return float(match[1]) if "bench serve" in note else None
    return float(load) if re.fullmatch(r"\d+(\.\d+)?", load) and float(load) >= 1 else None


def stated_seats(note: str) -> int | None:
    """The server's limit on running requests in a row's note; None: it states none."""
    match = re.search(SEATS, note)
    return int(match[1]) if match else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """What a published configuration says about a run with two pools; None: nothing."""

    prefill_layout: str  # tp4, dp8 ep8, ...
    decode_layout: str
    prefill_prompts: int | None  # of a rank and step
    prefill_tokens: int | None
    decode_seats: int | None  # running requests of a rank


DEPLOYED = ("framework", "version", "accelerator", "weights", "isl", "osl", "prefill", "decode")
WHOLE = ("prefill_prompts", "prefill_tokens", "decode_seats")
Deployed = tuple[str, ...]  # values of DEPLOYED; a pool is "4x8": four workers of eight chips


@functools.cache
def pool_settings(path: Path = POOLS) -> Mapping[Deployed, Mapping[str, PoolSettings]]:
    """Settings by deployment, then by users."""
    found: dict[Deployed, dict[str, PoolSettings]] = {}
    with path.open(newline="") as lines:
        for line in csv.DictReader(lines):
            key = tuple(line[name] for name in DEPLOYED)
            prompts, tokens, seats = (int(line[name]) if line[name] else None for name in WHOLE)
            found.setdefault(key, {})[line["users"]] = PoolSettings(
                prefill_layout=line["prefill_layout"],
                decode_layout=line["decode_layout"],
                prefill_prompts=prompts,
                prefill_tokens=tokens,
                decode_seats=seats,
            )
    return found


def settings_of(deployed: Deployed, users: str) -> PoolSettings | None:
    """The settings of a run: those for its users, or the only ones of its deployment."""
    known = pool_settings().get(deployed, {})
    if users in known or not known:
        return known.get(users)
    return next(iter(known.values())) if len(set(known.values())) == 1 else None
