"""Which numbers of accelerators are tried: whole instances of an offer, up to what its provider connects."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.terms.machines.offer import OWNED
from advisor.engine.terms.workloads.workload import TrainingTask
from advisor.engine.training_search.layouts import HOSTS, global_batch, reach, serves, sizes
from tests.engine.training_search.sample import BIG, asked, bought, found_for, rented

TASK = TrainingTask(tokens=1e9, sequence_tokens=4096, global_batch=256)


def test_sizes_are_whole_instances_up_to_the_fabric() -> None:
    assert list(sizes(asked(), BIG, [rented(fabric=64)])) == [8, 16, 24, 32, 48, 64]
    assert list(sizes(asked(), BIG, [rented(fabric=0)])) == [8]
    assert list(sizes(asked(), BIG, [])) == []


def test_each_size_keeps_only_the_offers_that_connect_it() -> None:
    near, far = rented(fabric=16), rented(fabric=32, provider="other")
    found = sizes(asked(), BIG, [near, far])
    assert found[16] == [near, far] and found[32] == [far] and max(found) == 32


def test_limits_on_accelerators_bound_the_sizes() -> None:
    assert max(sizes(asked({"max_accelerators": 24}), BIG, [rented()])) == 24
    assert max(sizes(asked({"inventory_chips": {"big": 16}}), BIG, [rented()])) == 16
    assert max(sizes(asked(global_batch=1), BIG, [rented(fabric=10_000)])) == 64  # 64 accelerators for a sequence


def test_hosts_that_are_already_owned_are_one_network() -> None:
    held = bought(fabric=0, term=OWNED, held_instances=4)
    assert reach(held) == 32 and serves(held, 32) and not serves(held, 40) and not serves(held, 12)
    assert list(sizes(asked(), BIG, [held])) == [8, 16, 24, 32]


def test_hosts_to_own_are_tried_although_rents_begin_with_one_accelerator() -> None:
    single = rented(usd_per_hour=2.5, fabric=8)
    single = replace(single, instance="big-1", accelerators=1, joined_accelerators=8)
    held = bought(fabric=0, term=OWNED, held_instances=2)
    found = found_for(asked(tokens=1e9), single, held, bought(instance="server"))
    chips = {c.chips: c.offer for c in found.curves["big"]}
    assert min(chips) < 2 and {8, 16} <= set(chips) and chips[8].term == OWNED
    assert any(c.offer.term == OWNED for c in found.ranked)
    beside = found_for(asked(tokens=1e9), single, bought()).curves["big"]
    assert max(c.chips for c in beside) == 8 and min(c.chips for c in beside) < 2


@given(st.integers(1, 20_000))
def test_a_global_batch_is_rounded_by_at_most_a_twelfth_to_a_number_that_divides(sequences: int) -> None:
    rounded = global_batch(replace(TASK, global_batch=sequences))
    assert abs(rounded - sequences) <= sequences / 12
    twos = rounded & -rounded
    assert twos * 12 > sequences or rounded == sequences  # the largest power of two that divides it


def test_numbers_of_hosts_grow_by_at_most_two() -> None:
    assert all(b <= 2 * a for a, b in zip(HOSTS, HOSTS[1:], strict=False))
