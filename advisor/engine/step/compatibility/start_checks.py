"""What an engine refuses when it starts: layouts that it cannot split evenly, as the rules of each framework say."""

from collections.abc import Iterator
from typing import NamedTuple

from advisor.engine.network import Attention, LatentAttention, Model
from advisor.engine.step.compatibility.support import names_of
from advisor.engine.terms import FFN_WIDTH, KV_HEADS, Accelerator, Framework


class StartFault(NamedTuple):
    """A size of the layout that the engine refuses, why, and which sizes of at most the same number it accepts."""

    field: str  # tp | moe_tp
    reason: str
    allowed: tuple[int, ...]


def start_fault(
    framework: Framework, accelerator: Accelerator, model: Model, *, tp: int, moe_tp: int
) -> StartFault | None:
    """The first size that the framework refuses at startup; None: it starts.

    tp: tensor-parallel size of attention and dense layers; moe_tp: of the routed experts.
    """
    for field, size in (("tp", tp), ("moe_tp", moe_tp)):
        if reason := _refusal(framework, accelerator, model, field, size):
            allowed = (n for n in range(1, size) if not _refusal(framework, accelerator, model, field, n))
            return StartFault(field, reason, tuple(allowed))
    return None


def _refusal(framework: Framework, accelerator: Accelerator, model: Model, field: str, size: int) -> str:
    """Why the framework refuses this size; empty: it does not."""
    refused = {name for rule in framework.start_checks if rule.covers(names_of(accelerator)) for name in rule.refuses}
    return next((why for name, why in _uneven(model, field, size) if name in refused), "") if size > 1 else ""


def _uneven(model: Model, field: str, size: int) -> Iterator[tuple[str, str]]:
    """(check, reason) for each part of the model that does not split evenly over this many ranks."""
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
