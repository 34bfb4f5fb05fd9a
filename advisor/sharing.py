"""Parts of a chip in an answer: hardware instances of a catalog row as engine values, and what they cost and save."""

from typing import Any

from advisor.engine.hardware import Accelerator, Partition

Json = dict[str, Any]
GIB = 2.0**30


def partitions_of(row: Json) -> tuple[Partition, ...]:
    """Ways to cut the chip into at least two instances; bandwidth goes with the L2 slices where those are fewer."""
    found = row.get("partitions") or {}
    return tuple(
        Partition(
            way=found["way"],
            profile=p["name"],
            instances=p["instances"],
            memory_bytes=p["gib"] * GIB,
            bandwidth_fraction=min(p["memory_slices"], p["l2_slices"]) / found["memory_slices"],
            compute_fraction=p["cores"] / row["cores"],
            cores=p["cores"],
            sram_fraction=p["l2_slices"] / found["memory_slices"],
        )
        for p in found.get("profiles", [])
        if p["instances"] > 1
    )


def partition_json(a: Accelerator) -> Json | None:
    """How the chip is cut; None: it is whole. Memory and rates of an option are then those of one instance."""
    if a.cut is None:
        return None
    return {
        "way": a.cut.way,
        "profile": a.cut.profile,
        "instances": a.cut.instances,
        "gib": a.cut.memory_bytes / GIB,
        "compute_fraction": round(a.cut.compute_fraction, 4),
        "bandwidth_fraction": round(a.cut.bandwidth_fraction, 4),
    }


def said_of_cut(a: Accelerator) -> list[str]:
    """What a reader of a cut chip's figures must know."""
    if a.cut is None:
        return []
    return [
        f"each card is cut into {a.cut.instances} x {a.cut.profile} ({a.cut.way}): {a.cut.instances} engines that "
        f"share no memory, bandwidth or cores, each {a.cut.compute_fraction:.1%} of the card's compute and "
        f"{a.cut.bandwidth_fraction:.1%} of its bandwidth; a replica is such a card",
        "instances of one card are lost together: spares are whole cards",
    ]
