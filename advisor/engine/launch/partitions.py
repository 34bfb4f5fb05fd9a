"""Commands that partition a chip in hardware, and the deployment as one server per partition."""

from dataclasses import replace

from advisor.engine.search import Scored
from advisor.engine.terms import Accelerator

MIG = "MIG"  # NVIDIA; otherwise AMD partition modes


def per_instance(s: Scored) -> Scored:
    """A deployment on partitioned chips, with one replica per partition instead of per chip."""
    n = s.lane.choice.accelerator.instances
    return replace(s, concurrency=s.concurrency // n, replicas=s.replicas * n, spare_replicas=s.spare_replicas * n)


def partition_commands(a: Accelerator) -> list[str]:
    """Vendor commands that partition every chip of a host; no other process may use the chips."""
    assert a.cut is not None
    if a.cut.way == MIG:
        each = ",".join([a.cut.profile] * a.cut.instances)
        return ["nvidia-smi -mig 1", f"nvidia-smi mig -cgi {each} -C", "nvidia-smi -L  # UUIDs of the instances"]
    compute, _, memory = a.cut.profile.partition("/")
    domains = [f"amd-smi set --memory-partition {memory}"] if memory else []
    return [f"amd-smi set --compute-partition {compute}", *domains, "amd-smi list"]


def partition_script(a: Accelerator) -> str:
    """A shell script that partitions every card of a host; run once before the servers start."""
    return "\n".join(["#!/bin/sh", "set -e", *partition_commands(a)]) + "\n"


def partition_notes(a: Accelerator) -> list[str]:
    """Comments of the start script on a partitioned chip."""
    if a.cut is None:
        return []
    visible = "CUDA_VISIBLE_DEVICES" if a.cut.way == MIG else "HIP_VISIBLE_DEVICES"
    return [
        f"partition.sh splits every card into {a.cut.instances} x {a.cut.profile}; run this script once per instance",
        f"with its own port and {visible} set to that instance only",
    ]
