"""Speculative decoding: methods, acceptance rates, and step times per generated token.

A step verifies k drafted tokens per sequence and generates (1 - a^(k+1)) / (1 - a) tokens at an acceptance rate of a
(Leviathan et al. 2023, arXiv 2211.17192). Drafting takes passes of a smaller network and reads of output heads, and
verification computes every draft. These costs grow with the batch, so drafting helps small batches most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.engine.kernels import HALF
from advisor.engine.network import Model, decoder_blocks
from advisor.engine.step.duration import linear_s
from advisor.engine.step.layout import (
    Choice,
)
from advisor.engine.step.step_time import Array, StepTimes
from advisor.engine.terms import Framework, Overhead

TOKENS = (1, 2, 3, 5, 7)  # numbers of drafted tokens per step that are tried
EAGLE_VOCAB = 32_000  # EAGLE-3 drafts over a shortened vocabulary (arXiv 2503.01840)
MEDUSA_HEADS, MEDUSA_POSITIONS = 4, 64  # heads and nodes of the tree (arXiv 2401.10774)
DRAFT_PASS_FRACTION = 0.1  # of a target step, our assumption; 0.02 in arXiv 2211.17192, without fixed serving costs
ACCEPTANCE_KEY, SHOWN_KEY = "acceptance-", "tokens-a-step-"  # prefixes of the catalog's assumptions
HOST_KEYS = {"step_s": "draft-step-ms", "pass_s": "draft-pass-ms"}  # assumptions, ms
ATTENTION = (
    *("decode_s_per_context_token", "repeat_s_per_context_token", "window_s_per_context_token"),
    "decode_s_per_sequence",
)
NAMES = {
    "eagle": "EAGLE-3 head (one layer on the model's own features)",
    "medusa": "Medusa heads (four, verified as a tree)",
    "mtp": "the model's own multi-token prediction layer",
    "ngram": "n-grams found in the prompt",
    "draft": "a small model with the same tokenizer",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """Published acceptance rate of one method in one task."""

    method: str
    task: str  # any: for tasks without their own row
    accepted_fraction: float  # probability that a drafted token is accepted if all before it are
    shown_tokens: float = 0.0  # generated tokens per step, if the source states only that (trees)
    source: str = ""
    low: float | None = None  # lowest published value of accepted_fraction, or of shown_tokens where that is given
    high: float | None = None
    step_s: float = 0.0  # extra host time per verification step
    pass_s: float = 0.0  # extra host time per drafting pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """One drafting method with its number of drafted tokens per step."""

    method: str
    name: str
    tokens: int  # drafted per sequence and step
    accepted_fraction: float
    shown_tokens: float  # generated per step, including the target's own token
    pass_fraction: float  # time of one drafting pass as a fraction of a decode step
    head_bytes: float  # output heads read while drafting, all passes, on all chips of a tensor-parallel group
    task: str
    source: str
    model: Model | None = None  # a separate draft model, whose passes are computed from its shape
    host_s: float = 0.0  # extra host time per step, all passes
    accepted_range: tuple[float, float] = (0.0, 0.0)  # lowest and highest published acceptance; (0, 0) for trees
    shown_range: tuple[float, float] = (0.0, 0.0)  # tokens per step at both

    def scaled(self, share: float) -> "Draft":
        """The draft at this share of its acceptance rate; of a tree, at this share of the tokens it adds per step."""
        accepted = self.accepted_fraction * share
        shown = tokens_per_step(accepted, self.tokens) if accepted else 1.0
        shown = shown if self.accepted_fraction else 1.0 + (self.shown_tokens - 1.0) * share
        return replace(self, accepted_fraction=accepted, shown_tokens=shown)


def tokens_per_step(accepted_fraction: float, tokens: int) -> float:
    """Mean tokens generated per step when `tokens` are drafted (arXiv 2211.17192, equation 1)."""
    if accepted_fraction >= 1.0:
        return tokens + 1.0
    return float((1.0 - accepted_fraction ** (tokens + 1)) / (1.0 - accepted_fraction))


def speculative_times(
    times: StepTimes,
    tokens: int,
    accepted_fraction: float,
    *,
    shown_tokens: float | None = None,
    pass_fraction: float = 0.0,
    head_s: Array | float = 0.0,
    slots: float | None = None,
    draft_times: StepTimes | None = None,
    launch_s: Array | float = 0.0,
) -> StepTimes:
    """Step times per generated token when every step verifies `tokens` drafts per sequence.

    pass_fraction: time of one drafting pass relative to a decode step. head_s: time to read output heads for drafting,
    of every lane or of each.
    draft_times: step times of a separate draft model on the same chips; it prefills every prompt and makes each draft.
    launch_s: host time to launch its passes, where they are not in CUDA graphs; it overlaps the device.
    slots: maximum sequences that decode; further tokens of a step are prompt tokens, for which nothing is drafted.
    None: every token of a step is charged as a decode, which overstates prompts.
    """
    s = tokens_per_step(accepted_fraction, tokens) if shown_tokens is None else shown_tokens
    grid, passes = times.grid_tokens, tokens * pass_fraction
    decodes = grid if slots is None else np.minimum(grid, max(slots, 1.0))
    computed = (tokens + 1) * decodes + s * (grid - decodes)
    linear = np.vstack(
        [linear_s(computed, grid, row) + passes * linear_s(decodes, grid, row) for row in times.linear_s]
    ) + np.reshape(head_s, (-1, 1))
    passes += 1.0
    if draft_times is not None:
        prompts = s * (grid - decodes)
        drafting = [
            tokens * linear_s(decodes, grid, row) + np.where(prompts > 0, linear_s(prompts, grid, row), 0.0)
            for row in draft_times.linear_s
        ]
        times = with_drafting_model(times, draft_times, tokens)
        linear = linear + np.vstack(drafting)
    return replace(
        times,
        linear_s=linear / s,
        sample_s_per_sequence=times.sample_s_per_sequence * (tokens + 1) / s,
        decode_s_per_context_token=times.decode_s_per_context_token * passes / s,
        repeat_s_per_context_token=times.repeat_s_per_context_token * passes / s,
        window_s_per_context_token=times.window_s_per_context_token * passes / s,
        decode_s_per_sequence=times.decode_s_per_sequence * passes / s,
        host_s=(times.host_s + launch_s) / s,
        eager_floor_s=times.eager_floor_s + launch_s / s,
        prompt_floor_s=times.prompt_floor_s + launch_s / s,
        serial_s=times.serial_s / s,
    )


def with_drafting_model(times: StepTimes, draft_times: StepTimes, tokens: int) -> StepTimes:
    """Step times with attention and sampling of the draft model's passes added."""
    added = {name: getattr(times, name) + tokens * getattr(draft_times, name) for name in ATTENTION}
    sampled = times.sample_s_per_sequence + draft_times.sample_s_per_sequence * tokens / (tokens + 1)
    return replace(
        times,
        **added,
        sample_s_per_sequence=sampled,
        prefill_s_per_pair=times.prefill_s_per_pair + draft_times.prefill_s_per_pair,
        window_prefill_s_per_pair=times.window_prefill_s_per_pair + draft_times.window_prefill_s_per_pair,
    )


def with_draft(
    times: StepTimes,
    draft: Draft,
    choice: Choice | Sequence[Choice],
    slots: float,
    draft_times: StepTimes | None = None,
) -> StepTimes:
    """Step times of lanes with this draft, each with its choice; draft_times: of a separate draft model on their chips.

    slots: sequences that decode at most, in every lane.
    """
    choices = [choice] if isinstance(choice, Choice) else choice
    rate = np.array([_read_bytes_per_s(c) for c in choices])
    positions = MEDUSA_POSITIONS - 1 if draft.method == "medusa" else draft.tokens
    if draft.method == "ngram":
        times = searched(times, [c.overhead for c in choices], draft.shown_tokens)
    times = replace(times, serial_s=times.serial_s + draft.host_s)
    return speculative_times(
        times,
        positions,
        draft.accepted_fraction,
        shown_tokens=draft.shown_tokens,
        pass_fraction=draft.pass_fraction * draft.tokens / positions,
        head_s=draft.head_bytes / np.array([c.tp for c in choices]) / rate,
        slots=slots,
        draft_times=draft_times,
        launch_s=_launch_s(draft, choices),
    )


def _launch_s(draft: Draft, choices: Sequence[Choice]) -> Array:
    """Host seconds to launch all passes of a separate draft model layer by layer, shape (N,)."""
    layers = sum(b.count for b in decoder_blocks(draft.model)) if draft.model else 0
    slower = [c.correction.time_factor * c.efficiency.host_factor for c in choices]
    return draft.tokens * layers * np.array(slower) * [c.overhead.draft_s_per_layer for c in choices]


def _read_bytes_per_s(c: Choice) -> float:
    return c.accelerator.memory_bytes_per_s * c.efficiency.memory_fraction * c.overhead.memory_factor


def searched(times: StepTimes, overheads: Sequence[Overhead], shown_tokens: float) -> StepTimes:
    """Step times with the n-gram search before each step.

    `speculative_times` divides the time of a step by the generated tokens, but not the host time per sequence.
    """
    each = np.array([o.ngram_s_per_sequence for o in overheads])
    return replace(
        times,
        serial_s=times.serial_s + np.array([o.ngram_s for o in overheads]),
        serial_s_per_sequence=times.serial_s_per_sequence + each / shown_tokens,
    )


def acceptances_of(rows: Mapping[str, Mapping[str, Any]]) -> tuple[Acceptance, ...]:
    """Acceptance rates from the catalog's assumptions.

    Keys: `acceptance-METHOD-TASK` (fraction of drafted tokens) or `tokens-a-step-METHOD-TASK` (if only that is known).
    """
    acceptances = []
    host_times = {name: rows.get(key, {}).get("value", 0.0) * 1e-3 for name, key in HOST_KEYS.items()}
    for key, row in rows.items():
        per_step = key.startswith(SHOWN_KEY)
        rest = key.removeprefix(SHOWN_KEY if per_step else ACCEPTANCE_KEY)
        if rest in (key, ""):
            continue
        method, _, task = rest.partition("-")
        acceptances.append(
            Acceptance(
                method=method,
                task=task,
                accepted_fraction=0.0 if per_step else row["value"],
                shown_tokens=row["value"] if per_step else 0.0,
                source=row["source"],
                low=row.get("low"),
                high=row.get("high"),
                **(host_times if method != "ngram" else {}),  # n-gram search times are in Overhead
            )
        )
    return tuple(acceptances)


def methods_of(framework: Framework, model: Model, acceptances: Sequence[Acceptance], task: str) -> list[Acceptance]:
    """Acceptance in this task of each method that the framework supports and that suits the model."""
    methods = []
    for method in NAMES:
        rows = {a.task: a for a in acceptances if a.method == method}
        row = rows.get(task) or rows.get("any") or (rows.get("chat") if task == "any" else None)
        if row is not None and method in framework.speculative and suits(method, model):
            methods.append(row)
    return methods


def suits(method: str, model: Model) -> bool:
    """Whether the method applies to this model. Most models need a trained Medusa or EAGLE head first."""
    if model.encoder_only or model.source_tokens:
        return False
    return method != "mtp" or model.mtp_layers > 0


def drafts_of(model: Model, row: Acceptance, small: Model | None = None) -> Iterator[Draft]:
    """One draft for each number of drafted tokens to try; `small`: the draft model."""
    sizes = {"mtp": (1,), "medusa": (MEDUSA_HEADS,)}.get(row.method, TOKENS)
    return (draft_of(model, row, k, small) for k in sizes)


def draft_of(model: Model, row: Acceptance, tokens: int, small: Model | None = None) -> Draft:
    """The draft of this many tokens per step.

    `small`: the draft model; without it, a pass of method `draft` costs DRAFT_PASS_FRACTION of a step.
    """
    draft_model = small if row.method == "draft" else None
    layers = sum(b.count for b in decoder_blocks(model))
    row_bytes = model.hidden * 2.0  # one row of an output head, 16-bit
    pass_fraction, head_rows = {
        "eagle": (1.0 / layers, min(EAGLE_VOCAB, model.vocab)),
        "mtp": (1.0 / layers, model.vocab),
        "draft": (0.0 if draft_model else DRAFT_PASS_FRACTION, 0),
        "ngram": (0.0, 0),
        "medusa": (0.0, model.vocab + model.hidden),
    }[row.method]
    ends = [row.accepted_fraction or row.shown_tokens if end is None else end for end in (row.low, row.high)]
    shown = [end if row.shown_tokens else tokens_per_step(end, tokens) for end in ends]
    return Draft(
        method=row.method,
        name=NAMES[row.method],
        tokens=tokens,
        accepted_fraction=row.accepted_fraction,
        shown_tokens=row.shown_tokens or tokens_per_step(row.accepted_fraction, tokens),
        pass_fraction=pass_fraction,
        head_bytes=tokens * head_rows * row_bytes,
        task=row.task,
        source=row.source,
        model=draft_model,
        accepted_range=(0.0, 0.0) if row.shown_tokens else (ends[0], ends[1]),
        shown_range=(shown[0], shown[1]),
        host_s=row.step_s + (0.0 if row.method == "medusa" else tokens * row.pass_s),
    )


def supports_drafts(choice: Choice) -> bool:
    """Whether this layout supports drafts: no pipeline parallelism (vLLM documentation), 16-bit or FP8 KV cache."""
    return choice.pp == 1 and choice.kv_dtype in (*HALF, "fp8")


def published_draft(model: Model, method: str) -> str:
    """What drafts without any training: a published checkpoint, the model itself, or its prompt; empty: none known."""
    if method == "ngram":
        return "the prompt"
    if method == "mtp":
        return "the model's own layer" if suits(method, model) else ""
    return next((release.hf_id for release in model.draft_releases if release.method == method), "")
