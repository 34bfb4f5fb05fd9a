"""A chip cut in hardware: shares that add up, slices that are never faster than the card, and cards that fail whole."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.launch.partitions import partition_commands, per_instance
from advisor.engine.scheduler.closed_form import closed_loop
from advisor.engine.scheduler.percentiles import scheduler_of
from advisor.engine.search import Question
from advisor.engine.search.candidates import CONCURRENCY, efficiency_on, enumerate_lanes
from advisor.engine.search.run import search
from advisor.engine.search.table import demand_of, evaluate
from advisor.engine.step.lane import lanes
from advisor.engine.terms.machines.hardware import Partition, cut_into
from advisor.engine.terms.workloads.workload import Constraints, Slo
from tests.engine.catalog_sample import BF16, GIB, LLAMA_8B, catalog, chip, lane, offer, question


def slices(instances, of_memory, of_compute, gib):
    return Partition(
        way="MIG", profile=f"{instances}x", instances=instances, memory_bytes=gib * GIB, bandwidth_fraction=of_memory,
        compute_fraction=of_compute, cores=int(132 * of_compute), sram_fraction=of_memory,
    )  # fmt: skip


SEVEN, TWO = slices(7, 1 / 8, 16 / 132, 17.5), slices(2, 1 / 2, 60 / 132, 70)
CARD = chip("big", memory_bytes=141 * GIB, memory_bytes_per_s=4.8e12, partitions=(SEVEN, TWO))


def world(**changes):
    return catalog(accelerators=(CARD, chip("plain")), offers=(offer("big", 4.0), offer("plain", 2.0)), **changes)


def asked(partitions, spares=0, most=None):
    limits = Constraints(partitions=partitions, quality="any", max_accelerators=most)
    return question(constraints=limits, slo=Slo(spare_hosts=spares))


@pytest.mark.parametrize("p", [SEVEN, TWO])
def test_instances_together_are_never_more_than_the_card(p):
    one = cut_into(CARD, p)
    assert p.instances * one.memory_bytes <= CARD.memory_bytes
    assert p.instances * one.memory_bytes_per_s <= CARD.memory_bytes_per_s
    assert p.instances * one.cores <= CARD.cores
    assert all(p.instances * rate <= CARD.flops_per_s[dtype] for dtype, rate in one.flops_per_s.items())
    assert (one.links, one.chips_per_host, one.watts, one.slug) == ((), 1, CARD.watts, CARD.slug)


@pytest.mark.parametrize("p", [SEVEN, TWO])
@pytest.mark.parametrize("seats", [1.0, 8.0])
def test_a_step_on_a_slice_is_never_faster_than_on_the_card(p, seats):
    built = lanes(LLAMA_8B, [lane(CARD, BF16), lane(cut_into(CARD, p), BF16)])
    found = closed_loop(built.times, np.full((2, 1), seats), demand_of(question()), scheduler_of(lane(CARD)))
    assert found.tpot_mean_s[1, 0] > found.tpot_mean_s[0, 0]
    assert found.requests_per_s[1, 0] < found.requests_per_s[0, 0]


def test_more_of_the_card_is_faster():
    built = lanes(LLAMA_8B, [lane(cut_into(CARD, p), BF16) for p in (SEVEN, TWO)])
    assert (built.times.linear_s[0] > built.times.linear_s[1]).all()
    assert built.memory.kv_bytes[0] < built.memory.kv_bytes[1]


def test_what_a_framework_takes_does_not_shrink_with_the_slice():
    room = lanes(LLAMA_8B, [lane(CARD, BF16), lane(cut_into(CARD, TWO), BF16)]).memory
    assert room.overhead_bytes[0] == room.overhead_bytes[1] > 0
    assert room.weights_bytes[0] == room.weights_bytes[1]


def test_slices_are_computed_only_where_they_are_asked_for():
    for partitions, cut, whole in (("no", 0, True), ("auto", 0, True), ("yes", 2, True), ("required", 2, False)):
        found, _ = enumerate_lanes(Question(asked(partitions), world()), [CARD])
        assert len({w.choice.accelerator.name for w in found if w.choice.accelerator.cut}) == cut
        assert any(w.choice.accelerator.cut is None for w in found) == whole
        assert all(w.choice.tp == w.choice.pp == 1 for w in found if w.choice.accelerator.cut)


def test_a_chip_without_partitions_is_refused_with_the_reason_where_they_are_required():
    answer = search(Question(asked("required"), world()))
    refused = {r.accelerator: r for r in answer.rejections}
    assert refused["plain"].reason == "unsupported" and "partitions" in refused["plain"].detail
    assert answer.ranked and all(s.lane.choice.accelerator.cut for s in answer.ranked)


def test_a_spare_is_a_card_never_an_instance_of_one_that_serves():
    few = search(Question(asked("required", spares=0), world())).ranked[0]
    safe = search(Question(asked("required", spares=1), world())).ranked[0]
    assert (safe.spare_replicas, safe.chips, safe.instances) == (1, few.chips + 1, few.instances + 1)
    assert safe.usd_per_hour == pytest.approx(few.usd_per_hour * safe.chips / few.chips)


def test_money_and_inventory_count_cards():
    one = search(Question(asked("required"), world())).ranked[0]
    assert one.usd_per_hour == pytest.approx(4.0 * one.chips)
    assert search(Question(asked("required", most=1), world())).ranked[0].chips == 1


def test_a_card_of_instances_serves_as_many_times_what_one_does():
    w, asking = asked("required"), demand_of(asked("required"))
    wanted, _ = enumerate_lanes(Question(w, world()), [CARD])
    table = evaluate(Question(w, world()), wanted)
    halves = [i for i, x in enumerate(table.lanes) if x.choice.accelerator.instances == 2]
    for i in halves:
        one = closed_loop(
            lanes(LLAMA_8B, [table.lanes[i]]).times, np.ones((1, 1)), asking, scheduler_of(table.lanes[i])
        )
        two_seats = list(CONCURRENCY).index(2.0)  # of the card: one of each half
        assert table.capacity_requests_per_s[i, two_seats] == pytest.approx(2 * one.requests_per_s[0, 0], rel=1e-6)
    assert halves


def test_nobody_measured_the_slice_of_a_measured_chip():
    scopes = world().scopes | {"accelerator:big": {"basis": "measured", "source": "a probe"}}
    assert efficiency_on(scopes, CARD).basis == "measured"
    assert efficiency_on(scopes, cut_into(CARD, TWO)).basis == "relative"


def test_each_instance_is_started_by_itself():
    best = search(Question(asked("required"), world())).ranked[0]
    n = best.lane.choice.accelerator.instances
    one = per_instance(best)
    assert (one.replicas, one.concurrency) == (best.replicas * n, best.concurrency // n)
    assert partition_commands(cut_into(CARD, SEVEN))[1] == "nvidia-smi mig -cgi " + ",".join(["7x"] * 7) + " -C"
    mode = replace(TWO, way="compute partitions", profile="CPX/NPS4")
    assert partition_commands(cut_into(replace(CARD, vendor="amd"), mode))[:2] == [
        "amd-smi set --compute-partition CPX",
        "amd-smi set --memory-partition NPS4",
    ]
