"""A slower host acts as if the deployment had been built for it, and the tornado has a bar for it."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.scheduler import closed_loop, scheduler_of
from advisor.engine.search import Question
from advisor.engine.search.certainty.sensitivity import Bar, Ranges, host_effect, tornado
from advisor.engine.search.run import search
from advisor.engine.search.table import demand_of, served
from advisor.engine.step.lane import fitting, take, with_host_times
from advisor.engine.terms import with_host_factor
from tests.engine.catalog_sample import FP8, catalog, lane, question, scopes

SLOW = 8.0  # times the reference host: steps wait for it


def asked(factor: float, **changes: object):
    known = catalog(scopes=with_host_factor(scopes(), factor), quantizations=(FP8,))
    workload = question(variants="no", **changes)
    return workload, known, search(Question(workload, known))


def test_step_times_on_a_slower_host_are_those_built_for_it() -> None:
    usual = lane(catalog().accelerators[0])
    names = (
        *("host_s", "host_s_per_sequence", "serial_s", "serial_s_per_sequence", "prepare_s", "parallel_prepare_s"),
        *("pieces_s_per_layer", "eager_s_per_layer"),
    )
    host = {name: 1e-3 / (k + 1) for k, name in enumerate(names)}
    choice = replace(usual.choice, overhead=replace(usual.choice.overhead, **host), tp=2)
    slow = replace(choice, efficiency=replace(choice.efficiency, host_factor=1.7))
    (_, _, one), (_, _, two) = (fitting(catalog().model, [replace(usual, choice=c)]) for c in (choice, slow))
    assert one is not None and two is not None
    moved = with_host_times(one.times, 1.7)
    for name in two.times.__dataclass_fields__:
        assert np.allclose(getattr(moved, name), getattr(two.times, name)), name


def test_the_effect_is_that_of_the_same_deployment_built_for_a_slower_host() -> None:
    workload, known, found = asked(SLOW)
    first = found.ranked[0]
    assert found.table is not None
    effect = host_effect(workload, found.table, first, np.array([0.6, 1.0, 2.0]))
    again = served(Question(workload, replace(known, scopes=with_host_factor(scopes(), 2 * SLOW))), [
        replace(first.lane, choice=replace(
            first.lane.choice, efficiency=replace(first.lane.choice.efficiency, host_factor=2 * SLOW)))])  # fmt: skip
    assert again.built is not None and found.table.built is not None
    running = np.array([first.concurrency / first.lane.choice.lanes])
    rates = [
        float(closed_loop(times, running, demand_of(workload), scheduler_of(first.lane)).requests_per_s[0])
        for times in (again.built.times, take(found.table.built.times, np.array([first.row_index])))
    ]
    assert effect.speed[2] == pytest.approx(rates[0] / rates[1])
    assert effect.speed[1] == effect.latency[1] == 1.0
    assert effect.speed[0] > 1.05 and effect.speed[2] < 0.8 and effect.latency[2] > 1.2  # the host decides


def bars(factor: float, host: tuple[float, float] | None) -> dict[str, Bar]:
    workload, _, found = asked(factor, requests_per_s_mean=40.0, requests_per_s_peak=100.0)
    assert found.table is not None
    fixed = Ranges(price_fraction=(0.9, 1.1), performance_fraction=(0.9, 1.1), load_fraction=(0.9, 1.1))
    ranges = replace(fixed, host_ratio=host)
    return {b.name: b for b in tornado(workload, found.scale, found.table, found.ranked, ranges)}


def test_a_slower_host_costs_more_where_the_host_decides_and_nothing_where_it_does_not() -> None:
    found = bars(SLOW, (0.6, 2.0))
    assert len(found) == 6
    bar = found["host time of BIG"]
    assert (bar.low, bar.value, bar.high) == (0.6, 1.0, 2.0)
    assert bar.low_usd_per_month < bar.high_usd_per_month
    assert bar.high_usd_per_month > 1.2 * bar.low_usd_per_month
    fast = bars(0.01, (0.6, 2.0))["host time of BIG"]
    assert fast.low_usd_per_month == fast.high_usd_per_month and fast.at is None


def test_a_host_that_is_given_or_measured_has_no_bar() -> None:
    assert not [name for name in bars(SLOW, None) if name.startswith("host")]
