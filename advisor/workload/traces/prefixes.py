"""Prefix hit rate of a trace whose requests list the hashes of their prompt's blocks."""

from collections.abc import Sequence


def hit_fraction(prompts: Sequence[tuple[int, Sequence[int]]]) -> float:
    """Share of the prompt tokens that a prefix cache finds which holds every earlier block: an upper bound.

    prompts: (input tokens, block hashes) by arrival. A block is found if all blocks before it are, as its hash stands
    for the whole prefix. The last token of a prompt is always computed.
    """
    known: set[int] = set()
    found = total = 0.0
    block = block_tokens(prompts)
    for tokens, hashes in prompts:
        hits = 0
        while hits < len(hashes) and hashes[hits] in known:
            hits += 1
        found += min(hits * block, tokens - 1)
        total += tokens
        known.update(hashes)
    return found / total if total else 0.0


def block_tokens(prompts: Sequence[tuple[int, Sequence[int]]]) -> int:
    """Tokens of a block (512 of Mooncake, 16 of Bailian): the power of two that explains all numbers of blocks."""
    fewest = max((tokens / len(hashes) for tokens, hashes in prompts if hashes), default=1.0)
    return 1 << max(int(fewest) - 1, 0).bit_length()
