"""The mix of machines: as cheap as trying everything, within what there is, and never dearer for having more."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.fleet.milp import ALWAYS, Job, Limits, Machine, Period, Unit, cheapest

FAST = Machine(name="fast", accelerator="fast", chips=1, usd_per_hour=4.0)
SLOW = Machine(name="slow", accelerator="slow", chips=1, usd_per_hour=1.0)
# the slow one does short requests for half the price, long ones hardly
UNITS = (Unit(machine_index=0, requests_per_s=(8.0, 4.0)), Unit(machine_index=1, requests_per_s=(4.0, 0.5)))
WEEK = (
    Period(day_index=0, duration_s=10 * 3600, week_fraction=50 / 168),
    Period(day_index=0, duration_s=14 * 3600, week_fraction=70 / 168),
    Period(day_index=1, duration_s=24 * 3600, week_fraction=48 / 168),
)


def streams(short: float, long: float, spares: int = 0) -> tuple[Job, ...]:
    return (
        Job(name="short", requests_per_s=(short,), spare_hosts=spares),
        Job(name="long", requests_per_s=(long,), spare_hosts=spares),
    )


def tried(units: tuple[Unit, ...], machines: tuple[Machine, ...], rates: tuple[float, float], most: int) -> float:
    """The least cost over all whole numbers of machines; the split of two jobs over two units is checked at its ends.

    With two jobs and capacities that add up, a number of machines is enough if the unit that is relatively better at
    the first job, filled with it first, leaves room for the rest.
    """
    best = math.inf
    for counts in itertools.product(range(most + 1), repeat=2):
        usd = sum(n * machines[u.machine_index].usd_per_hour for n, u in zip(counts, units, strict=True))
        if usd < best and enough(units, counts, rates):
            best = usd
    return best


def enough(units: tuple[Unit, ...], counts: tuple[int, ...], rates: tuple[float, float]) -> bool:
    left = list(rates)
    order = sorted(range(2), key=lambda u: -units[u].requests_per_s[0] / units[u].requests_per_s[1])
    room = [float(counts[u]) for u in order]
    for k, u in enumerate(order):  # the first job from the unit that is relatively best at it
        done = min(left[0], room[k] * units[u].requests_per_s[0])
        left[0] -= done
        room[k] -= done / units[u].requests_per_s[0]
    for k, u in enumerate(order):
        left[1] -= room[k] * units[u].requests_per_s[1]
    return left[0] <= 1e-6 and left[1] <= 1e-6


SPEED = st.floats(0.5, 10.0)


@settings(deadline=None, max_examples=25)
@given(SPEED, SPEED, SPEED, SPEED, st.floats(0.5, 5), st.floats(0.5, 5), st.floats(0.1, 20), st.floats(0.1, 20))
def test_two_kinds_and_two_jobs_cost_what_trying_all_numbers_costs(
    a: float, b: float, c: float, d: float, usd_a: float, usd_b: float, short: float, long: float
) -> None:
    units = Unit(machine_index=0, requests_per_s=(a, b)), Unit(machine_index=1, requests_per_s=(c, d))
    machines = tuple(
        Machine(name=n, accelerator=n, chips=1, usd_per_hour=usd) for n, usd in (("x", usd_a), ("y", usd_b))
    )
    most = min(math.ceil(short / u.requests_per_s[0] + long / u.requests_per_s[1]) for u in units)
    if most > 25:
        return
    found = cheapest(machines, units, streams(short, long))
    alone = [
        math.ceil(short / u.requests_per_s[0] + long / u.requests_per_s[1] - 1e-9) * m.usd_per_hour
        for u, m in zip(units, machines, strict=True)
    ]
    assert found is not None and found.proven
    assert found.usd_per_hour <= min(alone) * (1 + 1e-6)
    ceiling = math.ceil(min(alone) / min(usd_a, usd_b)) + 1
    if ceiling <= 60:
        assert found.usd_per_hour == pytest.approx(tried(units, machines, (short, long), ceiling), rel=1e-5)


def test_short_requests_go_where_they_are_cheap() -> None:
    found = cheapest((FAST, SLOW), UNITS, streams(short=16, long=4))
    assert found is not None and found.kept_instances == (1, 4) and found.usd_per_hour == 8.0
    assert {(u.unit_index, u.job_index) for u in found.uses} == {(0, 1), (1, 0)}
    single = cheapest((FAST,), UNITS[:1], streams(short=16, long=4))
    assert single is not None and single.usd_per_hour == 12.0


def test_the_inventory_is_kept_to_and_costs() -> None:
    found = cheapest((FAST, SLOW), UNITS, streams(16, 4), Limits(inventory_chips={"slow": 2}))
    assert found is not None and found.kept_instances == (2, 2) and found.usd_per_hour == 10.0
    assert cheapest((FAST, SLOW), UNITS, streams(16, 4), Limits(inventory_chips={"slow": 2, "fast": 0})) is None


def test_chips_and_dollars_are_limits() -> None:
    found = cheapest((FAST, SLOW), UNITS, streams(16, 4), Limits(max_chips=3))
    assert found is not None and sum(found.kept_instances) <= 3
    assert cheapest((FAST, SLOW), UNITS, streams(16, 4), Limits(max_usd_per_hour=7.9)) is None


@settings(deadline=None, max_examples=15)
@given(st.floats(0.1, 30), st.floats(0.1, 30), st.floats(1.0, 2.0), st.integers(0, 6))
def test_more_traffic_never_costs_less_and_more_chips_never_cost_more(
    short: float, long: float, more: float, chips: int
) -> None:
    def usd(short: float, long: float, chips: int) -> float:
        found = cheapest((FAST, SLOW), UNITS, streams(short, long), Limits(inventory_chips={"slow": chips}))
        assert found is not None
        return found.usd_per_hour

    base = usd(short, long, chips)
    assert usd(short * more, long, chips) >= base * (1 - 1e-5)
    assert usd(short, long, chips + 1) <= base * (1 + 1e-5)


def test_each_unit_in_use_has_its_spare() -> None:
    plain, spare = cheapest((FAST, SLOW), UNITS, streams(16, 4)), cheapest((FAST, SLOW), UNITS, streams(16, 4, 1))
    assert plain is not None and spare is not None
    assert spare.usd_per_hour == plain.usd_per_hour + 5.0  # one more of each


def test_work_that_waits_fills_the_valley() -> None:
    day = Job(name="chat", requests_per_s=(16.0, 2.0, 2.0))
    night = Job(name="batch", requests_per_s=(0.0, 1.0, 1.0), work_requests=3 * 4.0 * 14 * 3600)
    both = (Unit(machine_index=0, requests_per_s=(4.0, 0.0)), Unit(machine_index=0, requests_per_s=(0.0, 4.0)))
    shared = cheapest((FAST,), both, (day, night), periods=WEEK)
    assert shared is not None and shared.kept_instances == (4,)  # three of four are free at night, just enough
    more = Job(name="batch", requests_per_s=(0.0, 1.0, 1.0), work_requests=3.1 * 4.0 * 14 * 3600)
    larger = cheapest((FAST,), both, (day, more), periods=WEEK)
    assert larger is not None and larger.kept_instances == (5,)


def test_what_does_not_fit_into_the_valley_is_rented_by_the_hour() -> None:
    rented = Machine(name="rented", accelerator="fast", chips=1, usd_per_hour=5.0, hourly=True)
    day = Job(name="chat", requests_per_s=(16.0, 2.0, 2.0))
    work = Job(name="batch", requests_per_s=(0.0, 1.0, 1.0), work_requests=3.5 * 4.0 * 14 * 3600)
    units = (
        Unit(machine_index=0, requests_per_s=(4.0, 0.0)),
        Unit(machine_index=0, requests_per_s=(0.0, 4.0)),
        Unit(machine_index=1, requests_per_s=(4.0, 4.0)),
    )
    found = cheapest((FAST, rented), units, (day, work), periods=WEEK)
    assert found is not None and found.kept_instances[0] == 4
    assert found.usd_per_hour == pytest.approx(4 * 4.0 + 0.5 * 5.0 * 70 / 168)
    assert all(u.job_index == 1 for u in found.uses if u.unit_index == 2)


def test_the_same_question_has_the_same_plan() -> None:
    assert cheapest((FAST, SLOW), UNITS, streams(7, 3), periods=ALWAYS) == cheapest(
        (FAST, SLOW), UNITS, streams(7, 3), periods=ALWAYS
    )


def test_nothing_to_choose_from_is_no_plan() -> None:
    assert cheapest((), (), streams(1, 1)) is None
    assert cheapest((SLOW,), (Unit(machine_index=0, requests_per_s=(4.0, 0.0)),), streams(1, 1)) is None


def test_replicas_of_two_chips_do_not_divide_three_free_ones() -> None:
    host = Machine(name="host", accelerator="fast", chips=4, usd_per_hour=8.0)
    chat = Job(name="chat", requests_per_s=(1.0, 1.0))
    units = (
        Unit(machine_index=0, requests_per_s=(4.0, 0.0), replicas=4),
        Unit(machine_index=0, requests_per_s=(0.0, 8.0), replicas=2),
    )

    def hosts(requests_per_s: float) -> int:
        work = Job(name="batch", requests_per_s=(0.0, 1.0), work_requests=requests_per_s * 14 * 3600)
        found = cheapest((host,), units, (chat, work), periods=(WEEK[0], WEEK[1]))
        assert found is not None
        return found.kept_instances[0]

    assert hosts(4.0) == 1  # one replica of the batch, one chip idle
    assert hosts(4.1) == 2
