"""Can such a network be? Asked of every shape that a stranger hands in, before a figure is computed from it."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from advisor.engine.network.model import Attention, Block, Model, parameters

# Bounds of ours, far beyond any published network: above them a figure is a mistake, and a loop over it never ends.
MOST_OF_ANYTHING = 10**9
MOST_PARAMETERS = 10**15
MAY_BE_ZERO = {
    "position_embeddings", "source_tokens", "start_tokens", "norms", "q_rank", "nope_dim", "rope_dim", "index_heads",
    "index_dim", "index_top_k", "dt_rank", "shared_inner", "groups",
}  # fmt: skip


def refuse_impossible(model: Model) -> None:
    """ValueError names the first size that no network has: not a whole number, below one, or far beyond any."""
    for name, value in sizes(model):
        least = 0 if name in MAY_BE_ZERO else 1
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} must be a whole number, not {value!r}")
        if not least <= value <= MOST_OF_ANYTHING:
            raise ValueError(
                f"{name} {value:,} cannot be right: between {least:,} and {MOST_OF_ANYTHING:,} was expected"
            )
    for block in model.blocks:
        refuse_unequal(block)
    if (size := parameters(model)) > MOST_PARAMETERS:
        raise ValueError(f"{size:,} parameters cannot be right: at most {MOST_PARAMETERS:,} are computed")


def refuse_unequal(block: Block) -> None:
    """A layer chooses among the experts that it has, and its queries share the heads of keys that there are."""
    if block.ffn and block.ffn.top_k > block.ffn.experts:
        raise ValueError(f"each token goes to {block.ffn.top_k} experts of {block.ffn.experts}")
    if isinstance(block.mixer, Attention) and block.mixer.kv_heads > block.mixer.heads:
        raise ValueError(f"{block.mixer.kv_heads} heads of keys are more than the {block.mixer.heads} of queries")


def sizes(model: Model) -> Iterator[tuple[str, Any]]:
    """(name, value) of each number of the network, wherever it stands; what is None is not said."""
    if not model.blocks:
        raise ValueError("it has no layers")
    yield from counted(model)
    for block in model.blocks:
        yield from counted(block)
        for part in (block.mixer, block.ffn):
            if part is not None:
                yield from counted(part)


def counted(part: Any) -> Iterator[tuple[str, Any]]:
    """The whole numbers among the fields of one part."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.type in (int, int | None, "int", "int | None") and value is not None:
            yield field.name, value
