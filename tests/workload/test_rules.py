"""What holds where a workload leaves availability, confidence or terms unset."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.terms import packing, spare_hosts
from advisor.engine.terms.machines.redundancy import Redundancy
from advisor.inputs import workload_of
from advisor.workload import WorkloadError, parse, terms_of
from tests.engine.catalog_sample import chip, offer

pytestmark = pytest.mark.margins
ASKED: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "traffic": {
        "input_tokens": {"mean": 500},
        "output_tokens": {"mean": 100},
        "requests_per_s": {"mean": 2},
    },
}


def slo_of(given: dict[str, Any], rate: float = 2.0) -> Any:
    traffic = {**ASKED["traffic"], "requests_per_s": {"mean": rate}}
    return workload_of(parse({**ASKED, "traffic": traffic, "slo": given})).slo


def test_nothing_stated_is_an_even_chance_by_the_hour_more_for_what_binds_and_a_spare_host() -> None:
    found = slo_of({})
    assert (found.confidence, found.sure_confidence, found.default_spares) == (0.5, 0.8, True)
    assert bool(found.redundancy)


@pytest.mark.parametrize("rate", [0.1, 0.99])
def test_less_than_a_request_a_second_has_no_spare_host(rate: float) -> None:
    assert not slo_of({}, rate).redundancy


def test_both_margins_are_switched_off() -> None:
    found = slo_of({"availability": "n", "confidence": "none"})
    assert (found.confidence, found.sure_confidence, bool(found.redundancy)) == (None, None, False)


@pytest.mark.parametrize(("stated", "hosts", "doubled"), [("n+1", 1, False), ("n+2", 2, False), ("2n", 0, True)])
def test_stated_values_replace_the_margins(stated: str, hosts: int, doubled: bool) -> None:
    found = slo_of({"availability": stated, "confidence": 0.9})
    assert (found.confidence, found.sure_confidence) == (0.9, 0.9)
    assert (found.spare_hosts, found.doubled, found.default_spares) == (hosts, doubled, False)


@pytest.mark.parametrize("wrong", [0, 1, 1.5, "off", -0.2])
def test_other_confidences_are_refused(wrong: object) -> None:
    with pytest.raises(WorkloadError, match="confidence"):
        slo_of({"confidence": wrong})


def test_terms_are_evaluated_unless_stated() -> None:
    assert terms_of(parse(ASKED)) == ("on_demand", "reserved_1y", "reserved_3y")
    assert terms_of(parse({**ASKED, "constraints": {"terms": ["spot"]}})) == ("spot",)


def test_a_portfolio_has_neither_margin_unless_a_workload_states_it() -> None:
    parts = [{**ASKED, "name": "a"}, {**ASKED, "name": "b", "slo": {"availability": "n+1", "confidence": 0.7}}]
    first, second = parse({"kind": "portfolio", "name": "two", "workloads": parts})["workloads"]
    assert (first["slo"]["availability"], first["slo"]["confidence"], terms_of(first)) == ("n", "none", ("on_demand",))
    assert (second["slo"]["availability"], second["slo"]["confidence"]) == ("n+1", 0.7)


@pytest.mark.parametrize(
    ("chip_changes", "offer_changes", "hosts"),
    [
        ({}, {}, 1),
        ({"market": "consumer"}, {}, 0),
        ({"chassis": "computer"}, {}, 0),
        ({"chassis": "workstation"}, {}, 0),
        ({}, {"acquisition": "own", "term": "purchase"}, 1),
        ({}, {"acquisition": "own", "term": "owned"}, 0),
        ({}, {"held_instances": 2}, 0),
    ],
)
def test_the_spare_host_is_for_data_center_machines_that_are_paid_for(
    chip_changes: dict[str, Any], offer_changes: dict[str, Any], hosts: int
) -> None:
    assert spare_hosts(replace(chip("big"), **chip_changes), replace(offer("big", 1.0, 8), **offer_changes)) == hosts


@given(st.integers(0, 60), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 4, 8]))
def test_the_default_margin_is_n_plus_1_where_it_holds_and_n_elsewhere(carrying: int, chips: int, host: int) -> None:
    default = Redundancy(by_offer=True)
    for spare in (0, 1):
        p = packing(chips, host, 1, 0, spare)
        stated = Redundancy(hosts=spare)
        assert int(default.instances(carrying, p)) == int(stated.instances(carrying, p))
        assert int(default.replicas(carrying, p)) == int(stated.replicas(carrying, p))
