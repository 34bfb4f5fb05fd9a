"""What an engine refuses when it starts, as the rules of each framework say: layouts, lengths, formats, options."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from advisor.engine.network import Attention, LatentAttention, Model
from advisor.engine.step.compatibility.support import names_of
from advisor.engine.step.layout import has_experts
from advisor.engine.terms import (
    CONTEXT,
    ENCODER_STAGES,
    EXPERTS,
    FFN_WIDTH,
    KV_HEADS,
    NO_BF16,
    NO_EXPERTS,
    STAGES,
    STEP_TOKENS,
    Accelerator,
    Framework,
)


class StartFault(NamedTuple):
    """A size of the layout that the engine refuses, why, and which sizes of at most the same number it accepts."""

    field: str  # tp | moe_tp | pp
    reason: str
    allowed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StartOptions:
    """What a start command asks for. 0: not stated, so that the engine chooses a size that works."""

    tp: int = 1
    moe_tp: int = 1  # tensor-parallel size of the routed experts
    pp: int = 1
    ep: int = 1  # ranks that experts are spread over
    context_tokens: int = 0
    step_tokens: int = 0
    running_requests: int = 0
    whole_prompts: bool = False  # chunked prefill is off
    longer_context: bool = False  # the command changes the model's context length
    bf16: bool = False  # the command names BF16


def start_fault(
    framework: Framework, accelerator: Accelerator, model: Model, *, tp: int, moe_tp: int, pp: int = 1
) -> StartFault | None:
    """The first size that the framework refuses at startup; None: it starts.

    tp: tensor-parallel size of attention and dense layers; moe_tp: of the routed experts; pp: pipeline stages.
    """
    refused = refused_by(framework, accelerator, model)
    for field, size in (("tp", tp), ("moe_tp", moe_tp), ("pp", pp)):
        if reason := _refusal(refused, model, field, size):
            allowed = (n for n in range(1, size) if not _refusal(refused, model, field, n))
            return StartFault(field, reason, tuple(allowed))
    return None


def start_refusals(
    framework: Framework, accelerator: Accelerator, model: Model, asked: StartOptions
) -> tuple[str, ...]:
    """Every reason for which the framework refuses to start with these options; empty: it starts."""
    refused = refused_by(framework, accelerator, model)
    fault = start_fault(framework, accelerator, model, tp=asked.tp, moe_tp=asked.moe_tp, pp=asked.pp)
    options = (why for name, why in _options(accelerator, model, asked) if name in refused)
    return (*((fault.reason,) if fault else ()), *options)


def needed_options(framework: Framework, accelerator: Accelerator, model: Model) -> tuple[str, ...]:
    """Options without which the framework does not start this model, or starts it for something else."""
    rules = (rule for rule in framework.start_checks if rule.option)
    return tuple(rule.option for rule in rules if rule.covers(names_of(accelerator), model.slug))


def refused_by(framework: Framework, accelerator: Accelerator, model: Model) -> frozenset[str]:
    """The checks (START_CHECKS) that the framework makes on this chip for this model."""
    names = names_of(accelerator)
    rules = (rule for rule in framework.start_checks if rule.covers(names, model.slug))
    return frozenset(name for rule in rules for name in rule.refuses)


def _refusal(refused: Iterable[str], model: Model, field: str, size: int) -> str:
    """Why a framework with these checks refuses this size; empty: it does not."""
    return next((why for name, why in _uneven(model, field, size) if name in refused), "") if size > 1 else ""


def _uneven(model: Model, field: str, size: int) -> Iterator[tuple[str, str]]:
    """(check, reason) for each part of the model that does not split evenly over this many ranks."""
    layers = sum(block.count for block in model.blocks)
    if field == "pp" and size > layers:
        yield STAGES, f"{layers} layers cannot be split into {size} pipeline stages"
    for block in model.blocks:
        if field == "tp" and isinstance(block.mixer, Attention | LatentAttention):
            if block.mixer.heads % size:
                yield KV_HEADS, f"{block.mixer.heads} attention heads cannot be split {size} ways"
            kv = block.mixer.kv_heads if isinstance(block.mixer, Attention) else 1
            if kv % size and size % kv:  # fewer heads than ranks are copied to several ranks
                yield KV_HEADS, f"{kv} key-value heads cannot be split {size} ways"
        if block.ffn is None:
            continue
        routed = block.ffn.experts > 1
        for width in (block.ffn.shared_inner, 0 if routed else block.ffn.inner) if field == "tp" else ():
            if width % size:
                yield FFN_WIDTH, f"a feed-forward width of {width:,} cannot be split {size} ways"
        if field == "moe_tp" and routed and block.ffn.inner % size:
            yield FFN_WIDTH, f"an expert width of {block.ffn.inner:,} cannot be split {size} ways"


def _options(accelerator: Accelerator, model: Model, asked: StartOptions) -> Iterator[tuple[str, str]]:
    """(check, reason) for each option that does not fit the model, the chip or another option."""
    counts = {b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1}
    if asked.pp > 1 and (model.encoder_only or model.source_tokens):
        yield ENCODER_STAGES, "encoders have no pipeline stages"
    if asked.ep > 1 and not has_experts(model):
        yield NO_EXPERTS, "the model has no experts to spread"
    for count in sorted(n for n in counts if n % asked.ep):
        yield EXPERTS, f"{count} experts cannot be spread evenly over {asked.ep} ranks"
    if asked.context_tokens > model.max_context_tokens and not asked.longer_context:
        longest = f"{model.max_context_tokens:,}"
        yield CONTEXT, f"a context of {asked.context_tokens:,} tokens is longer than the model's {longest}"
    if asked.whole_prompts and 0 < asked.step_tokens < asked.context_tokens:
        yield STEP_TOKENS, f"without chunked prefill, {asked.step_tokens:,} tokens per step are less than one context"
    if 0 < asked.step_tokens < asked.running_requests:
        yield STEP_TOKENS, f"{asked.step_tokens:,} tokens per step are fewer than {asked.running_requests:,} requests"
    if asked.bf16 and "bf16" not in accelerator.flops_per_s:
        yield NO_BF16, f"{accelerator.name} has no BF16"
