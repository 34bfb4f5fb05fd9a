"""The peak after the loss of one host: n+1 keeps the limits on what is left; the sentence is about the same hosts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.answer.options.demand import host_lost
from advisor.engine.fleet.host_loss import host_loss
from advisor.engine.scheduler import REQUESTS, verify
from advisor.engine.search import Question
from advisor.engine.search.limits import latency_excess
from advisor.engine.search.run import search
from advisor.engine.search.table import packing_of
from advisor.engine.terms.machines.redundancy import replicas_left
from advisor.engine.terms.workloads.demand import Users
from advisor.engine.terms.workloads.workload import Slo
from tests.engine.catalog_sample import catalog, chip, offer, question

LIMITS = Slo(ttft_p95_s=1.5, tpot_p95_s=0.05)
SETTINGS = settings(max_examples=8, deadline=None, derandomize=True)


def asked(rate: float, spares: int = 0, **changes):
    slo = replace(LIMITS, spare_hosts=spares)
    return question(requests_per_s_mean=rate / 2, requests_per_s_peak=rate, slo=slo, variants="no", **changes)


@given(st.sampled_from([1, 2, 4, 8]), st.floats(1.0, 80.0), st.sampled_from([1, 2]))
@SETTINGS
def test_with_n_plus_1_the_limits_hold_on_the_hosts_that_are_left(size: int, rate: float, spares: int) -> None:
    workload, sold = asked(rate, spares), catalog(offers=(offer("big", 3.0 * size, size),))
    found = search(Question(workload, sold))
    for s in found.ranked:
        left = int(replicas_left(s.replicas, s.instances, packing_of(s.lane.choice, s.offer), spares))
        assert left >= s.replicas - s.spare_replicas and s.instances > spares
        times, lanes = found.table.built.times, left * s.lane.choice.lanes
        seen = verify(workload, times, s.row_index, s.lane, rate / lanes, REQUESTS)
        assert latency_excess(workload, seen.ttft_p95_s, seen.tpot_p95_s) <= 1.0
        assert host_loss(Question(workload, sold), found.table, s).limits_hold


@given(st.sampled_from([1, 2, 4, 8]), st.floats(1.0, 80.0))
@SETTINGS
def test_a_spare_costs_what_the_same_deployment_costs_more_with_n_plus_1(size: int, rate: float) -> None:
    sold = catalog(offers=(offer("big", 3.0 * size, size),))
    plain = search(Question(asked(rate), sold))
    s = plain.ranked[0]
    loss = host_loss(Question(asked(rate), sold), plain.table, s)
    if s.instances == 1:
        assert loss.replicas_left == 0 and loss.verified is None and not loss.limits_hold
    if loss.limits_hold:
        assert loss.spare_usd_per_hour is None
    else:
        assert loss.spare_usd_per_hour == pytest.approx(3.0 * size)


def test_owned_machines_that_stand_idle_take_over() -> None:
    held = replace(offer("big", 2.0, 8, acquisition="own", term="owned"), held_instances=2)
    sold = catalog(offers=(held,))
    found = search(Question(asked(2.0), sold))
    loss = host_loss(Question(asked(2.0), sold), found.table, found.ranked[0])
    assert (loss.idle_instances, loss.limits_hold, loss.spare_usd_per_hour) == (1, True, None)
    said = host_lost(Question(asked(2.0), sold), found.table, found.ranked[0]).said
    assert said == (
        "One host lost: an idle server that you own takes over, and the limits hold again once it has started."
    )


def test_nobody_advises_a_spare_to_a_single_user_or_for_a_computer() -> None:
    mac = chip("big", chassis="computer")
    for workload, sold in (
        (asked(0.02, users=Users(active_requests=1, think_s=30.0)), catalog(offers=(offer("big", 3.0),))),
        (asked(1.0), catalog(accelerators=(mac,), offers=(offer("big", 3.0),))),
    ):
        found = search(Question(workload, sold))
        section = host_lost(Question(workload, sold), found.table, found.ranked[0])
        if found.ranked[0].instances == 1:
            assert section.said == "One host lost: no service until it is replaced."
        assert section.spare_usd_per_month is None


def test_what_is_left_may_be_too_slow_or_drown() -> None:
    sold = catalog(offers=(offer("big", 3.0),))
    said = []
    for rate in (10.0, 20.0, 40.0, 80.0):
        found = search(Question(asked(rate), sold))
        said.append(host_lost(Question(asked(rate), sold), found.table, found.ranked[0]).said)
    assert all(text.startswith("One host lost: ") and text.endswith(".") for text in said)
    assert any("a spare costs $2,190 a month" in text for text in said)
