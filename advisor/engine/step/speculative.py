"""Speculative decoding: what drafts tokens, how many of them hold, and what a step then costs for each token shown.

A step verifies k drafts a sequence and shows (1 - a^(k+1)) / (1 - a) tokens (Leviathan et al. 2023, arXiv 2211.17192).
Drafting costs passes of a smaller network and reads of output heads. Both grow with the batch, so a draft that pays
for one user stops paying for many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.engine.network import Model, decoder_blocks
from advisor.engine.spec import Framework, Overhead
from advisor.engine.step.duration import linear_s
from advisor.engine.step.layout import HALF, Choice
from advisor.engine.step.step_time import StepTimes

TOKENS = (1, 2, 3, 5, 7)  # drafted before a verification, that are tried
EAGLE_VOCAB = 32_000  # EAGLE-3 drafts over a shortened vocabulary (arXiv 2503.01840)
MEDUSA_HEADS, MEDUSA_POSITIONS = 4, 64  # and the nodes of its tree (arXiv 2401.10774)
DRAFT_SHARE = 0.1  # of a step of the model: ours; 0.02 in arXiv 2211.17192, without a server's fixed costs
SHARE_KEY, SHOWN_KEY = "acceptance-", "tokens-a-step-"  # of the catalog's assumptions
WAITS = {"step_s": "draft-step-ms", "pass_s": "draft-pass-ms"}  # assumptions, ms; none in older snapshots
NAMES = {
    "eagle": "EAGLE-3 head (one layer on the model's own features)",
    "medusa": "Medusa heads (four, verified as a tree)",
    "mtp": "the model's own multi-token prediction layer",
    "ngram": "n-grams found in the prompt",
    "draft": "a small model of the same tokenizer",
}
# drafts that somebody publishes, by the model's slug: the name of the checkpoint, read on 2026-11-21
PUBLISHED = {
    "eagle": {
        "llama-3-3-70b-instruct": "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3",
        "llama-3-1-8b": "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
        "qwen3-32b": "RedHatAI/Qwen3-32B-speculator.eagle3",
    },
    "medusa": {"llama-3-1-8b": "nvidia/Llama-3.1-8B-Medusa-FP8"},
}
# small models of the catalog with the vocabulary of a large one: the large one's slug, the small one's id
SMALL = {
    "llama-3-3-70b": "meta-llama/Llama-3.2-1B",
    "llama-3-1-70b": "meta-llama/Llama-3.2-1B",
    "llama-3-1-405b": "meta-llama/Llama-3.2-1B",
    "llama-3-1-nemotron-70b": "meta-llama/Llama-3.2-1B",
    "qwen3-32b": "Qwen/Qwen3-0.6B",
    "qwen3-14b": "Qwen/Qwen3-0.6B",
    "qwen3-235b": "Qwen/Qwen3-0.6B",
}
# published with a layer that predicts a second token (num_nextn_predict_layers or mtp in their config.json)
MTP_MODELS = ("deepseek-v3", "deepseek-r1", "glm-4-5", "glm-4-6", "glm-5", "qwen3-next", "mimo-v2")


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """How well one method's drafts hold in one task: a published figure."""

    method: str
    task: str  # any: for whatever task has no row of its own
    accepted_fraction: float  # of drafted tokens, each given that those before it held
    shown_tokens: float = 0.0  # of a whole step, where the source states only that (trees)
    source: str = ""
    step_s: float = 0.0  # that a verifying step waits for the host beyond a plain one
    pass_s: float = 0.0  # and for each drafting pass before it


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """One way to draft, sized: tokens are those proposed for a sequence before each verification."""

    method: str
    name: str
    tokens: int
    accepted_fraction: float
    shown_tokens: float  # by a step, the one that the model itself adds included
    pass_fraction: float  # of a decode step: the drafting network for one token
    head_bytes: float  # of output heads read while drafting, all passes, on all chips of a tensor-parallel group
    task: str
    source: str
    model: Model | None = None  # the drafting model where it is one of its own: its passes are computed from its shape
    host_s: float = 0.0  # that a step waits for the host, all passes


def shown(accepted_fraction: float, tokens: int) -> float:
    """Tokens that a step shows on average."""
    if accepted_fraction >= 1.0:
        return tokens + 1.0
    return float((1.0 - accepted_fraction ** (tokens + 1)) / (1.0 - accepted_fraction))


def drafted(
    times: StepTimes,
    tokens: int,
    accepted_fraction: float,
    *,
    shown_tokens: float | None = None,
    pass_fraction: float = 0.0,
    head_s: float = 0.0,
    seats: float | None = None,
    own: StepTimes | None = None,
) -> StepTimes:
    """Step times per token shown, when every step verifies `tokens` drafts for each sequence.

    pass_fraction: one drafting pass against a decode step; head_s: seconds of output heads read while drafting.
    own: step times of a drafting model of its own, on the same chips: it reads every prompt and makes each draft.
    seats: sequences that decode at most; tokens of a step beyond them are prompts, which are not drafted. None:
    every token of a step is charged as a decode, which overstates prompts.
    """
    s = shown(accepted_fraction, tokens) if shown_tokens is None else shown_tokens
    grid, again = times.grid_tokens, tokens * pass_fraction
    decodes = grid if seats is None else np.minimum(grid, max(seats, 1.0))
    wide = (tokens + 1) * decodes + s * (grid - decodes)
    linear = np.vstack(
        [linear_s(wide, grid, row) + again * linear_s(decodes, grid, row) + head_s for row in times.linear_s]
    )
    again += 1.0
    if own is not None:
        prompts = s * (grid - decodes)
        beside = [
            tokens * linear_s(decodes, grid, row) + np.where(prompts > 0, linear_s(prompts, grid, row), 0.0)
            for row in own.linear_s
        ]
        times = with_drafting_model(times, own, tokens)
        linear = linear + np.vstack(beside)
    return replace(
        times,
        linear_s=linear / s,
        sample_s_per_sequence=times.sample_s_per_sequence * (tokens + 1) / s,
        decode_s_per_context_token=times.decode_s_per_context_token * again / s,
        window_s_per_context_token=times.window_s_per_context_token * again / s,
        decode_s_per_sequence=times.decode_s_per_sequence * again / s,
        host_s=times.host_s / s,
        serial_s=times.serial_s / s,
    )


def with_drafting_model(times: StepTimes, own: StepTimes, tokens: int) -> StepTimes:
    """Attention and sampling of a verifying step with those of the drafting passes before it."""
    added = {
        name: getattr(times, name) + tokens * getattr(own, name)
        for name in ("decode_s_per_context_token", "window_s_per_context_token", "decode_s_per_sequence")
    }
    sampled = times.sample_s_per_sequence + own.sample_s_per_sequence * tokens / (tokens + 1)
    return replace(
        times,
        **added,
        sample_s_per_sequence=sampled,
        prefill_s_per_pair=times.prefill_s_per_pair + own.prefill_s_per_pair,
        window_prefill_s_per_pair=times.window_prefill_s_per_pair + own.window_prefill_s_per_pair,
    )


def with_draft(times: StepTimes, draft: Draft, choice: Choice, seats: float, own: StepTimes | None = None) -> StepTimes:
    """The step times of one lane when it drafts so; `own`: of the drafting model on the same chips."""
    rate = choice.accelerator.memory_bytes_per_s * choice.efficiency.memory_fraction * choice.overhead.memory_factor
    positions = MEDUSA_POSITIONS - 1 if draft.method == "medusa" else draft.tokens
    if draft.method == "ngram":
        times = searched(times, choice.overhead, draft.shown_tokens)
    times = replace(times, serial_s=times.serial_s + draft.host_s)
    return drafted(
        times,
        positions,
        draft.accepted_fraction,
        shown_tokens=draft.shown_tokens,
        pass_fraction=draft.pass_fraction * draft.tokens / positions,
        head_s=draft.head_bytes / choice.tp / rate,
        seats=seats,
        own=own,
    )


def searched(times: StepTimes, o: Overhead, shown_tokens: float) -> StepTimes:
    """With the search for n-grams before each step.

    `drafted` divides the time of a step by the tokens it shows, but not the host time of a sequence.
    """
    return replace(
        times,
        serial_s=times.serial_s + o.ngram_s,
        serial_s_per_sequence=times.serial_s_per_sequence + o.ngram_s_per_sequence / shown_tokens,
    )


def acceptances_of(rows: Mapping[str, Mapping[str, Any]]) -> tuple[Acceptance, ...]:
    """`acceptance-METHOD-TASK`: share of drafted tokens; `tokens-a-step-METHOD-TASK`: where only that is published."""
    found = []
    waits = {name: rows.get(key, {}).get("value", 0.0) * 1e-3 for name, key in WAITS.items()}
    for key, row in rows.items():
        a_step = key.startswith(SHOWN_KEY)
        rest = key.removeprefix(SHOWN_KEY if a_step else SHARE_KEY)
        if rest in (key, ""):
            continue
        method, _, task = rest.partition("-")
        found.append(
            Acceptance(
                method=method,
                task=task,
                accepted_fraction=0.0 if a_step else row["value"],
                shown_tokens=row["value"] if a_step else 0.0,
                source=row["source"],
                **(waits if method != "ngram" else {}),  # whose search has figures of its own
            )
        )
    return tuple(found)


def methods_of(framework: Framework, model: Model, acceptances: Sequence[Acceptance], task: str) -> list[Acceptance]:
    """The methods that this framework documents and this model can have, with their acceptance in this task."""
    found = []
    for method in NAMES:
        rows = {a.task: a for a in acceptances if a.method == method}
        row = rows.get(task) or rows.get("any") or (rows.get("chat") if task == "any" else None)
        if row is not None and method in framework.speculative and suits(method, model):
            found.append(row)
    return found


def suits(method: str, model: Model) -> bool:
    """Whether there is such a draft for this model. Medusa heads and EAGLE layers have to be trained for most."""
    if model.encoder_only or model.source_tokens:
        return False
    return method != "mtp" or any(name in model.slug for name in MTP_MODELS)


def drafts_of(model: Model, row: Acceptance, small: Model | None = None) -> Iterator[Draft]:
    """The sizes of one method that are worth a look; `small`: the drafting model, else its cost is DRAFT_SHARE."""
    own = small if row.method == "draft" else None
    layers = sum(b.count for b in decoder_blocks(model))
    head = model.hidden * 2.0  # bytes of one row of an output head, in 16 bits
    share, rows_each, sizes = {
        "eagle": (1.0 / layers, min(EAGLE_VOCAB, model.vocab), TOKENS),
        "mtp": (1.0 / layers, model.vocab, (1,)),
        "draft": (0.0 if own else DRAFT_SHARE, 0, TOKENS),
        "ngram": (0.0, 0, TOKENS),
        "medusa": (0.0, model.vocab + model.hidden, (MEDUSA_HEADS,)),
    }[row.method]
    for k in sizes:
        yield Draft(
            method=row.method,
            name=NAMES[row.method],
            tokens=k,
            accepted_fraction=row.accepted_fraction,
            shown_tokens=row.shown_tokens or shown(row.accepted_fraction, k),
            pass_fraction=share,
            head_bytes=k * rows_each * head,
            task=row.task,
            source=row.source,
            model=own,
            host_s=row.step_s + (0.0 if row.method == "medusa" else k * row.pass_s),
        )


def plain(choice: Choice) -> bool:
    """Layouts that the frameworks draft on: no pipeline (vLLM documentation, speculative decoding), 16-bit or FP8."""
    return choice.pp == 1 and choice.kv_dtype in (*HALF, "fp8")


def published(model: Model, method: str) -> str:
    """What drafts without anybody training it: a checkpoint, the model itself or its prompt; empty: nothing known."""
    if method == "ngram":
        return "the prompt"
    if method == "mtp":
        return "the model's own layer" if suits(method, model) else ""
    named = SMALL if method == "draft" else PUBLISHED.get(method, {})
    return next((name for slug, name in named.items() if slug in model.slug), "")


def small_of(slug: str) -> str:
    """The id of a small model that drafts for the one of this slug; empty: none is known."""
    return next((name for large, name in SMALL.items() if large in slug), "")
