"""Small models on the same cards: memory and busy time that add up, copies kept apart, instances within one card."""

import math
from dataclasses import replace

import pytest

from advisor.engine.fleet.colocation import copies_of, memory_share, pack_models, stretches
from advisor.engine.fleet.milp import Limits
from advisor.engine.fleet.portfolio import Member
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.terms.machines.hardware import Partition
from advisor.engine.terms.workloads.demand import week_of
from advisor.engine.terms.workloads.kinds import BATCH
from advisor.engine.terms.workloads.workload import Constraints, Slo
from tests.engine.catalog_sample import GIB, catalog, chip, offer, question


def profile(name, instances, compute, memory, gib):
    return Partition(
        way="MIG", profile=name, instances=instances, memory_bytes=gib * GIB, bandwidth_fraction=memory / 8,
        compute_fraction=compute / 7, cores=16 * compute, sram_fraction=memory / 8, compute_slices_fraction=compute / 7,
        memory_slices_fraction=memory / 8,
    )  # fmt: skip


CUTS = (profile("1g", 7, 1, 1, 17), profile("2g", 3, 2, 2, 35), profile("3g", 2, 3, 4, 70))
CARD = chip("big", memory_bytes=141 * GIB, memory_bytes_per_s=4.8e12, partitions=CUTS)
WORLD = catalog(accelerators=(CARD,), offers=(offer("big", 4.0), offer("big", 30.0, 8)))


def member(name, rate=1.0, spares=0, world=WORLD, **changes):
    slo = changes.pop("slo", Slo(ttft_p95_s=2.0, tpot_p95_s=0.08, spare_hosts=spares))
    w = question(name=name, requests_per_s_mean=rate, requests_per_s_peak=rate, slo=slo, **changes)
    return Member(question=Question(w, world), answer=search(Question(w, world)), week=week_of("flat"))


def as_batch(m: Member) -> Member:
    return replace(m, question=replace(m.question, workload=replace(m.workload, kind=BATCH)))


def three(**changes):
    return [member(name, **changes) for name in ("a", "b", "c")]


def tenants(found):
    return [t for card in found.cards for t in card.tenants]


@pytest.fixture(scope="module")
def processes():
    return pack_models(three(), isolated=False)


@pytest.fixture(scope="module")
def instances():
    return pack_models(three(), isolated=True)


def test_three_small_models_share_one_card(processes):
    assert len(processes.cards) == 1 and processes.usd_per_hour == 4.0
    assert sorted(t.copy.member_index for t in tenants(processes)) == [0, 1, 2]


def test_shares_of_memory_hold_what_each_needs_and_stay_within_the_card(processes):
    own = tenants(processes)
    assert sum(t.memory_fraction for t in own) == pytest.approx(0.9)  # what the framework may fill
    assert all(t.memory_fraction * CARD.memory_bytes >= t.copy.needed_bytes for t in own)


def test_every_process_brings_its_own_weights_and_runtime(processes):
    for t in tenants(processes):
        assert t.copy.fixed_bytes > 2 * GIB + 8e9 / 2  # the runtime, and 8 billion weights of at least 4 bits


def test_steps_stretch_by_the_busy_time_of_the_others(processes):
    own = tenants(processes)
    for t in own:
        others = sum(x.busy_fraction for x in own if x is not t)
        assert t.stretch == pytest.approx(1 + others, rel=1e-3)
        assert 1 < t.stretch < len(own)


def test_a_model_alone_on_a_card_is_not_stretched_and_more_load_of_others_stretches_more():
    copies = [copies_of(0, member("a", rate), CARD)[0] for rate in (0.5, 0.5, 2.0)]
    rooms = [40 * GIB] * 2
    assert stretches(copies[:1], rooms[:1])[0] == pytest.approx([1.0])
    light, heavy = stretches(copies[:2], rooms)[0], stretches([copies[0], copies[2]], rooms)[0]
    assert 1 < light[0] < heavy[0]


def test_every_tenant_holds_its_limits_in_simulation(processes, instances):
    for t in tenants(processes) + tenants(instances):
        assert t.verified.ttft_p95_s <= 2.0 and t.verified.tpot_p95_s <= 0.08


def test_copies_of_one_workload_never_share_a_card():
    found = pack_models([member("a", spares=1), member("b")], isolated=False)
    assert sum(t.copy.member_index == 0 for t in tenants(found)) == 2
    for card in found.cards:
        assert len({t.copy.member_index for t in card.tenants}) == len(card.tenants)
    assert len(found.cards) == 2 and found.usd_per_hour == 8.0


def test_instances_of_one_card_take_no_more_slices_than_it_has(instances):
    for card in instances.cards:
        assert sum(t.partition.compute_slices_fraction for t in card.tenants) <= 1 + 1e-9
        assert sum(t.partition.memory_slices_fraction for t in card.tenants) <= 1 + 1e-9
        assert sum(t.partition.memory_bytes for t in card.tenants) <= CARD.memory_bytes
    assert all(t.stretch == 1.0 for t in tenants(instances))


def test_isolation_is_never_cheaper_here_and_its_tokens_never_faster(processes, instances):
    assert instances.usd_per_hour >= processes.usd_per_hour
    slowest = max(t.verified.tpot_p95_s for t in tenants(processes))
    assert all(t.verified.tpot_p95_s > 0.5 * slowest for t in tenants(instances))


def test_a_card_that_cannot_be_mixed_is_cut_into_equal_parts():
    equal = tuple(replace(p, way="CPX", compute_slices_fraction=0.0, memory_slices_fraction=0.0) for p in CUTS)
    world = replace(WORLD, accelerators=(replace(CARD, partitions=equal),))
    found = pack_models(three(world=world), isolated=True)
    for card in found.cards:
        assert len({t.partition.profile for t in card.tenants}) == 1
        assert len(card.tenants) <= card.tenants[0].partition.instances


def test_a_heavy_load_takes_a_card_of_its_own():
    light, heavy = (
        pack_models(three(), isolated=False),
        pack_models([member("a", rate=40.0), *three()[1:]], isolated=False),
    )
    assert heavy.usd_per_hour > light.usd_per_hour


@pytest.mark.parametrize(
    ("members", "isolated", "reason"),
    [
        (lambda: [member("a")], False, "two or more"),
        (
            lambda: [member("a"), as_batch(member("b"))],
            False,
            "serving",
        ),
        (
            lambda: [member("a", constraints=Constraints(partitions="required")), member("b")],
            False,
            "requires hardware",
        ),
        (
            lambda: [member(n, world=replace(WORLD, accelerators=(replace(CARD, partitions=()),))) for n in "ab"],
            True,
            "hardware partitions",
        ),
    ],
)
def test_what_is_not_packed_says_why(members, isolated, reason):
    found = pack_models(members(), isolated)
    assert not found.cards and math.isinf(found.usd_per_hour) and reason in found.reason


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(inventory_chips={"big": 0}), "your inventory has"),
        (Limits(inventory_chips={"big": 3}, max_usd_per_hour=3.9), "budget"),
        (Limits(max_usd_per_hour=1.0), "budget"),
    ],
)
def test_the_portfolios_own_limits_hold(limits, reason):
    found = pack_models([member("a"), member("b")], isolated=False, limits=limits)
    assert not found.cards and reason in found.reason


def test_only_servers_that_leave_memory_alone_share_a_card():
    world = replace(WORLD, frameworks=tuple(f for f in WORLD.frameworks if f.slug == "sglang"))
    assert not pack_models(three(world=world), isolated=False).cards
    assert pack_models(three(world=world), isolated=True).cards


def test_what_is_left_of_the_memory_goes_where_the_cache_is_needed():
    small, large = (copies_of(0, member("a", rate), CARD)[0] for rate in (0.2, 3.0))
    shares = memory_share(CARD.memory_bytes, [small, large])
    assert shares[0] < shares[1] and sum(shares) == pytest.approx(0.9)
