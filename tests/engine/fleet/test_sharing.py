"""One card whole, cut and shared by time: when it is a question, and what isolation costs."""

from dataclasses import replace

import pytest

from advisor.engine.fleet.card_sharing import TIME_SLICES, sharing_options, time_share
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.terms.machines.hardware import cut_into
from advisor.engine.terms.workloads.workload import Constraints, Slo
from tests.engine.catalog_sample import GIB, catalog, chip, offer, question
from tests.engine.fleet.test_partitions import SEVEN, TWO

CARD = chip("big", memory_bytes=141 * GIB, memory_bytes_per_s=4.8e12, partitions=(SEVEN, TWO))
ONE_CARD = catalog(accelerators=(CARD,), offers=(offer("big", 4.0),))


def found(partitions="auto", rate=0.2, world=ONE_CARD, tpot_s=0.04):
    w = question(
        requests_per_s_mean=rate,
        requests_per_s_peak=rate,
        constraints=Constraints(partitions=partitions, quality="any"),
        slo=Slo(tpot_p95_s=tpot_s),
    )
    return sharing_options(Question(w, world), search(Question(w, world)))


def test_a_card_that_is_hardly_used_is_compared_whole_cut_and_shared():
    kinds = [w.accelerator.cut.way if w.accelerator.cut else "whole" for w in found()]
    assert kinds == ["whole", "MIG", "MIG", TIME_SLICES, TIME_SLICES]


@pytest.mark.parametrize(
    ("partitions", "rate", "world"),
    [
        ("no", 0.2, ONE_CARD),
        ("auto", 60.0, ONE_CARD),
        ("auto", 0.2, catalog(accelerators=(replace(CARD, partitions=()),), offers=(offer("big", 4.0),))),
    ],
)
def test_otherwise_nothing_is_computed(partitions, rate, world):
    assert found(partitions, rate, world) == []


def test_isolation_costs_capacity_and_latency_never_the_other_way():
    whole, *others = found()
    for w in others:
        assert w.scored is None or w.requests_per_s_per_chip < whole.requests_per_s_per_chip
        assert w.scored is None or w.scored.verified.tpot_p95_s > whole.scored.verified.tpot_p95_s
    assert any(w.scored for w in others)


def test_a_way_that_misses_the_limits_says_so():
    seventh = next(w for w in found(tpot_s=0.01) if w.accelerator.instances == 7 and w.accelerator.cut.way == "MIG")
    assert seventh.scored is None and seventh.reason


def test_shares_of_time_divide_the_card_and_lose_nothing_of_it():
    one = cut_into(CARD, time_share(CARD, 4))
    assert one.memory_bytes * 4 == CARD.memory_bytes
    assert one.memory_bytes_per_s * 4 == CARD.memory_bytes_per_s
    assert one.cores == CARD.cores
