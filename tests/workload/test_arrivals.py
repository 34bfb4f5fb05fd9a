"""How a planner states traffic as it arrives: bursts, the window of the peak, classes of shared prefixes."""

from typing import Any

import numpy as np
import pytest

from advisor.engine.terms import PrefixClass
from advisor.inputs.to_engine import workload_of
from advisor.workload.schema import parse
from advisor.workload.traffic import MAX_BURSTINESS, gaps_cv, trace_statistics
from tests.workload.test_workload_refused import GOOD, refused, with_traffic

HALF = {"share": 0.5, "tokens": 200, "count": 8}


def asked(**traffic: Any) -> Any:
    return workload_of(parse(with_traffic(**traffic)), assumed_cv=1.5)


def text(arrivals: Any) -> str:
    return "arrival_s,input_tokens,output_tokens\n" + "".join(f"{at:.6f},500,100\n" for at in arrivals)


def gamma(cv: float, count: int, seed: int = 1) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).gamma(cv**-2, cv**2, count))


# --- burstiness -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0, 3.0])
def test_the_burstiness_of_recorded_gaps_is_found(cv: float):
    assert gaps_cv(gamma(cv, 20_000), 600.0) == pytest.approx(cv, rel=0.2)


def test_a_rate_that_changes_over_the_day_is_no_burst():
    rng = np.random.default_rng(2)
    at = np.concatenate([np.sort(rng.uniform(600 * k, 600 * (k + 1), 200 + 150 * k)) for k in range(10)])
    gaps = np.diff(at)
    assert gaps.std() / gaps.mean() > 1.15
    assert gaps_cv(at, 600.0) == pytest.approx(1.0, abs=0.08)


def test_few_requests_say_nothing_about_bursts():
    assert gaps_cv(np.arange(50.0), 60.0) is None
    assert gaps_cv(np.zeros(500), 60.0) is None


def test_requests_at_one_instant_have_the_most_burstiness_that_may_be_stated():
    at_once = {"trace": {"csv": text([*np.zeros(1999), 59.0])}, "input_tokens": None, "output_tokens": None}
    assert asked(**at_once, requests_per_s=None).arrival_cv == MAX_BURSTINESS


def test_what_is_stated_goes_before_the_trace_and_the_trace_before_an_assumption():
    recorded = {"trace": {"csv": text(gamma(3.0, 5000))}, "input_tokens": None, "output_tokens": None}
    measured = asked(**recorded, requests_per_s=None).arrival_cv
    assert 2.3 < measured < 3.7
    assert asked(**recorded, requests_per_s=None, burstiness=1.0).arrival_cv == 1.0
    assert asked().arrival_cv == 1.5
    assert asked(burstiness=0).arrival_cv == 0.0


def test_a_question_stored_before_these_keys_existed_is_read_as_it_was():
    spec = parse(GOOD)
    for key in ("burstiness", "peak_window_s", "prefixes"):
        del spec["traffic"][key]
    del spec["slo"]["headroom_fraction"]
    before, after = workload_of(spec), workload_of(parse(GOOD))
    assert before == after
    assert (before.arrival_cv, before.prefix_classes, before.slo.headroom_fraction) == (1.0, (), 0.0)


@pytest.mark.parametrize(
    ("traffic", "field", "says"),
    [
        ({"burstiness": -1}, "traffic.burstiness", "at least 0"),
        ({"burstiness": 21}, "traffic.burstiness", "at most 20"),
        ({"peak_window_s": 1}, "traffic.peak_window_s", "at least 10"),
        (
            {"burstiness": 2, "users": {"active": 5, "think_s": 9}, "requests_per_s": None},
            "traffic.burstiness",
            "one request at a time",
        ),
    ],
)
def test_arrivals_that_cannot_be_are_refused(traffic: Any, field: str, says: str):
    assert says in refused(with_traffic(**traffic))[field]["message"]


# --- the peak ---------------------------------------------------------------------------------------------------


def test_the_peak_of_a_trace_is_that_of_the_window_asked_for():
    calm, rush = np.arange(0, 3600, 2.0), np.arange(1800, 1830, 0.1)
    recorded = text(np.sort(np.concatenate([calm, rush])))
    by_window = [trace_statistics(recorded, w)["requests_per_s"]["peak"] for w in (10.0, 60.0, 300.0)]
    assert by_window[0] > by_window[1] > by_window[2] > 0.5
    asked_for = with_traffic(
        trace={"csv": recorded}, peak_window_s=300, requests_per_s=None, input_tokens=None, output_tokens=None
    )
    assert parse(asked_for)["traffic"]["requests_per_s"]["peak"] == by_window[2]


# --- shared prefixes --------------------------------------------------------------------------------------------


def test_classes_of_prefixes_reach_the_engine_with_their_mean_hit_rate():
    w = asked(prefixes=[HALF, {"share": "10%", "tokens": 400}])
    assert w.prefix_classes == (
        PrefixClass(fraction=0.5, shared_tokens=200, prefixes=8),
        PrefixClass(fraction=0.1, shared_tokens=400, prefixes=1),
    )
    assert w.prefix_cache_hit_fraction == pytest.approx((0.5 * 200 + 0.1 * 400) / 500)


@pytest.mark.parametrize(
    ("traffic", "field", "says"),
    [
        ({"prefix_cache_hit_rate": 0.3}, "traffic.prefixes", "contradicts traffic.prefix_cache_hit_rate"),
        (
            {"turns": {"count": 3, "added_tokens": 100, "wait_s": 9}},
            "traffic.prefixes",
            "contradicts traffic.turns",
        ),
        ({"prefixes": [HALF, {**HALF, "share": 0.6}]}, "traffic.prefixes", "more than all requests"),
        ({"prefixes": [{**HALF, "tokens": 501}]}, "traffic.prefixes[0].tokens", "more than the mean prompt"),
        ({"prefixes": [{**HALF, "share": 0}]}, "traffic.prefixes[0].share", "greater than 0"),
        ({"prefixes": [{**HALF, "prefix": 2}]}, "traffic.prefixes[0].prefix", "unknown key"),
    ],
)
def test_classes_that_contradict_are_refused(traffic: Any, field: str, says: str):
    assert says in refused(with_traffic(**{"prefixes": [HALF], **traffic}))[field]["message"]


def test_kinds_that_generate_nothing_share_no_prefixes():
    found = refused({**with_traffic(prefixes=[HALF]), "kind": "embedding"} | {"slo": {}})
    assert "traffic.prefixes" in found or "traffic.output_tokens" in found
