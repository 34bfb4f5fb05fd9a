"""Tests outside the scheduler remember simulations (tests/simulated_once.py): one that differs is never mistaken."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.engine.step.step_time import POISSON, STEADY, Client
from advisor.engine.terms import Lengths, PrefixClass
from tests import simulated_once
from tests.engine.catalog_sample import VLLM, chip, question
from tests.engine.catalog_sample import lane as lane_of
from tests.engine.serving_cases import lane

TIMES, SERVER = lane(kv_capacity_tokens=9e5), replace(lane_of(chip("any")), max_running_requests=64)
ASKED = question(input_tokens=Lengths(mean_tokens=1000, p95_tokens=3000))
CLIENT = Client(kind=POISSON, rate_per_s=0.5, arrival_cv=1.2)
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "prompts": {"workload": replace(ASKED, input_tokens=Lengths(mean_tokens=900, p95_tokens=3000))},
    "answers": {"workload": replace(ASKED, output_tokens=Lengths(mean_tokens=100, p95_tokens=300))},
    "cached prefixes": {"workload": replace(ASKED, prefix_cache_hit_fraction=0.5)},
    "context": {"workload": replace(ASKED, context_tokens=2000.0)},
    "step times": {"times": lane(kv_capacity_tokens=9e5, host_s=0.01)},
    "cache": {"times": lane(kv_capacity_tokens=9e4)},
    "seats": {"lane": replace(SERVER, max_running_requests=2)},
    "no prefix caching": {"lane": replace(SERVER, framework=replace(VLLM, features=frozenset()))},
    "rate": {"client": replace(CLIENT, rate_per_s=0.25)},
    "bursts": {"client": replace(CLIENT, arrival_cv=3.0)},
    "kind of client": {"client": replace(CLIENT, kind=STEADY)},
    "classes": {"client": replace(CLIENT, prefix_classes=(PrefixClass(fraction=0.5, shared_tokens=500, prefixes=2),))},
    "requests": {"requests": 300},
}


def given(changes: dict[str, Any]) -> tuple[Any, ...]:
    base = {
        "workload": ASKED, "times": TIMES, "index": 0, "lane": SERVER, "client": CLIENT, "rate": 0.5, "requests": 200,
    }  # fmt: skip
    return tuple((base | changes).values())


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_remembered_is_what_a_new_simulation_gives(name: str) -> None:
    for changes in CHANGES.values():
        simulated_once.verified(*given(changes))
    assert simulated_once.verified(*given(CHANGES[name])) == simulated_once.RUN(*given(CHANGES[name]))
