"""How a chip is cut into its instances before anything starts, and what then starts on each of them."""

from dataclasses import replace

from advisor.engine.search import Scored
from advisor.engine.spec import Accelerator

MIG = "MIG"  # the way NVIDIA's cards are cut; the others are AMD's partition modes


def one_instance(s: Scored) -> Scored:
    """A replica that is a cut chip, as its instances: each is started by itself."""
    n = s.lane.choice.accelerator.instances
    return replace(s, concurrency=s.concurrency // n, replicas=s.replicas * n, spare_replicas=s.spare_replicas * n)


def cutting(a: Accelerator) -> list[str]:
    """Commands that cut every chip of a host, as the vendors document them; nothing may run on it meanwhile."""
    assert a.cut is not None
    if a.cut.way == MIG:
        each = ",".join([a.cut.profile] * a.cut.instances)
        return ["nvidia-smi -mig 1", f"nvidia-smi mig -cgi {each} -C", "nvidia-smi -L  # the UUIDs of the instances"]
    compute, _, memory = a.cut.profile.partition("/")
    domains = [f"amd-smi set --memory-partition {memory}"] if memory else []
    return [f"amd-smi set --compute-partition {compute}", *domains, "amd-smi list"]


def partition_script(a: Accelerator) -> str:
    """A shell script that cuts every card of the host, run once before the servers start."""
    return "\n".join(["#!/bin/sh", "set -e", *cutting(a)]) + "\n"


def notes_of_cut(a: Accelerator) -> list[str]:
    """What a reader of the start script must know of a cut chip."""
    if a.cut is None:
        return []
    visible = "CUDA_VISIBLE_DEVICES" if a.cut.way == MIG else "HIP_VISIBLE_DEVICES"
    return [
        f"partition.sh makes {a.cut.instances} x {a.cut.profile} of every card; run this once on each of them",
        f"with its own port and {visible} set to that instance alone",
    ]
