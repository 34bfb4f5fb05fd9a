"""Hosts lost and replicas left: the function agrees with replicas that are laid out one chip at a time."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.terms.machines.redundancy import Packing, Redundancy, instances_packed, packing, replicas_left

SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)
SIZES = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16])


def laid_out(replicas: int, instances: int, replica_chips: int, instance_chips: int, host: int) -> list[set[int]]:
    """Hosts of each replica: filled in evenly over instances of one host, else one after the other."""
    hosts_each, p = -(-instance_chips // host), packing(replica_chips, instance_chips, 1, host)
    found = []
    for k in range(replicas):
        if p.each > 1:
            first = k * p.each * hosts_each
            found.append(set(range(first, first + p.each * hosts_each)))
        elif hosts_each == 1:
            found.append({k % instances})
        else:
            instance, place = divmod(k, p.held)
            chips = range(place * replica_chips, (place + 1) * replica_chips)
            found.append({instance * hosts_each + chip // host for chip in chips})
    return found


@given(
    SIZES, st.sampled_from([1, 2, 4, 8, 16, 72]), st.sampled_from([1, 2, 4, 8]), st.integers(1, 30), st.integers(1, 2)
)
@SETTINGS
def test_whichever_hosts_are_lost_the_function_says_what_is_left(
    chips: int, instance: int, host: int, carrying: int, lost: int
) -> None:
    host = min(host, instance)
    p, needed = packing(chips, instance, 1, host), Redundancy(hosts=lost)
    replicas, instances = int(needed.replicas(carrying, p)), int(needed.instances(carrying, p))
    assert instances >= instances_packed(replicas, p)  # there is room for them
    where = laid_out(replicas, instances, chips, instance, host)
    used = sorted(set().union(*where))
    least = min(sum(not (hosts & set(gone)) for hosts in where) for gone in combinations(used, min(lost, len(used))))
    assert least >= int(replicas_left(replicas, instances, p, lost)) >= carrying


@given(SIZES, st.sampled_from([1, 2, 4, 8]), st.integers(1, 30))
@SETTINGS
def test_one_host_less_would_not_do(chips: int, instance: int, carrying: int) -> None:
    """On instances of one host, the plan for n+1 has exactly one more than the load needs."""
    p, needed = packing(chips, instance), Redundancy(hosts=1)
    plain = int(instances_packed(carrying, p))
    assert int(needed.instances(carrying, p)) == plain + p.each
    assert int(needed.replicas(carrying, p)) <= int(needed.instances(carrying, p)) * max(p.held, 1)


def test_six_chips_in_one_server_do_not_survive_it() -> None:
    """Six replicas of one chip in a server of eight: nothing is left, and n+1 takes a second server."""
    p = packing(1, 8)
    assert replicas_left(6, 1, p) == 0
    needed = Redundancy(hosts=1)
    assert (needed.instances(5, p), needed.replicas(5, p), replicas_left(10, 2, p)) == (2, 10, 5)


def test_a_rack_loses_a_tray_and_a_wide_replica_dies_with_any_of_its_hosts() -> None:
    rack = packing(8, 72, 1, 4)  # eight chips over two trays of four
    assert rack == Packing(1, 9, 18, 1) and replicas_left(5, 1, rack) == 4
    wide = packing(32, 8)
    assert wide == Packing(4, 1, 1, 1) and replicas_left(2, 8, wide) == 1
    assert Redundancy(hosts=1).instances(2, wide) == 12


def test_double_is_everything_once_more_on_other_hosts() -> None:
    p, twice = packing(2, 8), Redundancy(doubled=True)
    assert (twice.instances(3, p), twice.replicas(3, p)) == (2, 6)
    assert replicas_left(6, 2, p) == 3
