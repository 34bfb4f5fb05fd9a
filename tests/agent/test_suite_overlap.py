"""A training step beside its collectives: two processes, in both ways of sharding."""

import multiprocessing

from probes.agent import suite
from probes.agent.decoders import NETS, TINY
from probes.agent.kinds.training import overlap
from probes.agent.kinds.training.step import parameters


def test_two_processes_time_compute_communication_and_both() -> None:
    found = suite.run({"suite": "quick", "kinds": ["train_overlap"]})
    assert found["skipped"] == []
    assert [row["key"]["sharding"] for row in found["results"]] == ["none", "full"]
    for row in found["results"]:
        assert row["check"]["ok"] and row["flops"] > 0
        assert row["bytes"] == overlap.bus_bytes(TINY, overlap.CPU_LAYERS, row["key"]["sharding"], 2)
        parts = row["parts_s"]
        assert set(parts) == {"compute", "communication", "compute_beside"} and min(parts.values()) > 0
        assert parts["compute_beside"] <= row["time_s"]["median"]
    assert multiprocessing.active_children() == []


def test_bus_bytes_are_those_of_the_collectives_that_run() -> None:
    layer = 2 * parameters(NETS[0])  # bf16
    assert overlap.bus_bytes(NETS[0], 4, "none", 2) == 4 * 2 * layer // 2  # all-reduces send everything twice
    assert overlap.bus_bytes(NETS[0], 4, "full", 4) == (7 + 4) * layer * 3 // 4  # gathers and reduce-scatters
