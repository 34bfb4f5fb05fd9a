"""No option's maximum length is below the stated p95, and users are a closed loop, whatever is asked."""

import math
from dataclasses import replace
from functools import cache

import pytest

from advisor.engine.launch.command import context_limit
from advisor.engine.search import Question
from advisor.engine.search.estimated import estimated_ranking
from advisor.engine.search.run import SearchResult, search
from advisor.engine.step.media.encoder import normalize
from advisor.engine.terms.workloads.demand import Trace, Users
from advisor.engine.terms.workloads.workload import Lengths, Slo, Workload
from tests.engine.catalog_sample import catalog, question

LOOSE, RARE = Slo(ttft_p95_s=120.0), {"requests_per_s_mean": 0.1, "requests_per_s_peak": 0.1}


def of(mean: float, p95: float) -> Lengths:
    return Lengths(mean_tokens=mean, p95_tokens=p95)


def long_tail(prompts: int, share: float) -> Trace:
    """Ten requests a minute, of which a share has prompts of this length and the others 500 tokens."""
    long = [k % round(1 / share) == 0 for k in range(200)]
    return Trace(
        arrival_s=tuple(6.0 * k for k in range(200)),
        input_tokens=tuple(prompts if x else 500 for x in long),
        output_tokens=(100,) * 200,
    )


QUESTIONS = {
    "prompts near the cache of the small chip": question(input_tokens=of(9000, 30_000), slo=LOOSE),
    "long prompts": question(input_tokens=of(30_000, 100_000), slo=LOOSE, **RARE),
    "long answers": question(output_tokens=of(9000, 30_000), slo=Slo(), **RARE),
    "no limits": question(input_tokens=of(9000, 30_000), slo=Slo()),
    "short": question(),
    "users": question(input_tokens=of(9000, 30_000), slo=LOOSE, users=Users(active_requests=20.0, think_s=20.0),
                      requests_per_s_mean=1.0, requests_per_s_peak=1.0),
    "a trace with a rare tail": question(
        input_tokens=of(1700, 500), output_tokens=of(100, 100), slo=LOOSE, trace=long_tail(60_000, 0.02),
        requests_per_s_mean=0.2, requests_per_s_peak=0.2),
    "a trace with a common tail": question(
        input_tokens=of(8000, 60_000), output_tokens=of(100, 100), slo=LOOSE, trace=long_tail(60_000, 0.1),
        requests_per_s_mean=0.2, requests_per_s_peak=0.2),
}  # fmt: skip


@cache
def answered(name: str) -> tuple[Workload, SearchResult]:
    """Half the memory of the small chip is left for the cache of an 8B model."""
    known = catalog()
    return normalize(QUESTIONS[name], known.model)[0], search(Question(QUESTIONS[name], known))


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_option_holds_the_stated_p95_and_serves_nineteen_in_twenty(name: str) -> None:
    workload, found = answered(name)
    assert found.ranked, name
    for s in found.ranked:
        limit = context_limit(s, catalog().model, workload)
        assert limit.tokens >= workload.p95_request_tokens, (name, s.lane.choice.accelerator.slug, limit)
        assert limit.tokens >= s.verified.longest_tokens
        assert s.verified.unserved_fraction <= 0.05 and math.isfinite(s.verified.ttft_p95_s)
        if s.verified.of_trace:
            assert s.verified.of_trace.unserved_fraction <= 0.05


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_quick_ranking_holds_it_too(name: str) -> None:
    workload, model = normalize(QUESTIONS[name], catalog().model)
    found = estimated_ranking(Question(workload, replace(catalog(), model=model)))
    assert found.ranked
    for e in (*found.ranked, *found.missed):
        assert e.memory.kv_capacity_tokens >= workload.p95_request_tokens


def test_a_trace_asks_for_its_own_lengths_not_for_a_fitted_tail() -> None:
    rare, common = (answered(f"a trace with a {k} tail")[0] for k in ("rare", "common"))
    assert (rare.p95_request_tokens, common.p95_request_tokens) == (600, 60_100)


def one_user(**changes: object) -> Workload:
    asked = {
        "users": Users(active_requests=1.0, think_s=60.0),
        "requests_per_s_mean": 1 / 60,
        "requests_per_s_peak": 1 / 60,
    }
    return question(input_tokens=of(2000, 2000), output_tokens=of(500, 500), slo=Slo(), **asked | changes)


def test_a_single_user_gets_one_replica_and_finds_it_idle() -> None:
    best = search(Question(one_user(), catalog())).ranked[0]
    v = best.verified
    assert (best.replicas, best.concurrency) == (1, 1)
    assert v.ttft_p95_s == pytest.approx(v.ttft_p50_s, rel=1e-3) and v.running_requests_mean <= 1.0
    assert best.requests_per_s_peak == pytest.approx(1 / (60 + v.e2e_mean_s), rel=1e-6)


@pytest.mark.parametrize("think_s", [0.001, 1.0, 1000.0])
@pytest.mark.parametrize("active", [1.0, 3.0, 8.0])
def test_a_handful_of_users_never_has_more_requests_in_flight(active: float, think_s: float) -> None:
    rate = active / think_s
    asked = one_user(
        users=Users(active_requests=active, think_s=think_s), requests_per_s_mean=rate, requests_per_s_peak=rate
    )
    found = search(Question(asked, catalog()))
    for s in found.ranked:
        assert s.concurrency * (s.replicas - s.spare_replicas) < active + s.replicas * s.lane.choice.lanes
        assert s.verified.running_requests_mean <= s.concurrency / s.lane.choice.lanes
        assert s.replicas - s.spare_replicas <= active
    for e in estimated_ranking(Question(asked, catalog())).ranked:
        carrying = e.replicas - e.spare_replicas
        assert carrying <= active and e.concurrency * carrying < active + carrying * e.lane.choice.lanes
