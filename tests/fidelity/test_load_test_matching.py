"""A load test corrects the steps of its deployment, so that percentiles at other loads follow; nobody else's change."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor import load_tests
from advisor.advise import Unanswerable
from advisor.engine.scheduler import Simulation
from advisor.inputs import measured
from advisor.load_results import LoadResultError
from advisor.load_tests import records
from advisor.load_tests.matching import Run, Unmatched, _run_of, load_of
from advisor.load_tests.records import _factor_now, match
from advisor.models import Option
from catalog.models import Organisation
from tests import sample_advice
from tests.sample_load_results import aiperf, guidellm, metric, parse, summary, vllm, written

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ANOTHER_SEED = 7
RATE = 2.0


@pytest.fixture
def option() -> Option:
    """70B in FP8 on two H200s, with 1,000 to 3,000 input and 300 to 800 output tokens."""
    return sample_advice.advice().options.get(rank=1)


def run_of(option: Option, rate: float, cv: float = 1.0) -> Run:
    found = parse(written(vllm(rate=rate, request_rate=rate, burstiness=cv**-2))).as_json()
    return _run_of(option, load_tests.predicted(option), found)


def of(values: Any) -> dict[str, float]:
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    return {"mean": float(np.mean(values)), "median": p50, "p50": p50, "p95": p95, "p99": p99}


def vllm_file(seen: Simulation, rate: float, cv: float = 1.0, **more: Any) -> dict[str, Any]:
    """What `vllm bench serve --request-rate` writes of this server."""
    figures = {
        f"{key}_{name}_ms": 1e3 * value
        for name, values in (("ttft", seen.ttft_s), ("tpot", seen.tpot_s), ("e2el", seen.e2e_s))
        for key, value in of(values).items()
    }
    tokens = {"total_input_tokens": int(seen.input_tokens.sum()), "total_output_tokens": int(seen.output_tokens.sum())}
    return vllm(rate=rate, request_rate=rate, burstiness=cv**-2) | figures | tokens | more


def errors(option: Option, rate: float, slower: float, cv: float = 1.0) -> list[float]:
    """Of p95 TTFT and p95 TPOT at a rate, on a server that is slower by a factor: corrected prediction over truth."""
    run = run_of(option, rate, cv)
    now, truth = run.figures(_factor_now_of(option)), run.figures(slower)
    return [now[m]["p95"] / truth[m]["p95"] - 1 for m in ("ttft", "tpot")]


def _factor_now_of(option: Option) -> float:
    return _factor_now(option.load_tests.get(), load_tests.predicted(option))


@pytest.mark.parametrize(("slower", "cv"), [(0.85, 1.0), (1.2, 1.0), (1.2, 3.0)])
def test_a_slower_server_is_predicted_at_other_rates(option: Option, slower: float, cv: float) -> None:
    """Its requests are other draws than those of the prediction: 2,000 of them know a p95 TTFT to about 10 %."""
    seen = run_of(option, RATE, cv).simulated(slower, seed=ANOTHER_SEED)
    test, _ = load_tests.record(option, written(vllm_file(seen, RATE, cv)), "r.json")
    match(test)
    found = test.measured["matched"]
    assert abs(np.log(found["time_factor"] / slower)) < 3 * found["log_sd"] < 0.15
    if cv == 1.0:
        assert found["time_factor"] == pytest.approx(slower, rel=0.03)
        assert max(abs(error) for rate in (1.0, 1.5, 2.5) for error in errors(option, rate, slower)) < 0.07


def test_details_give_the_very_arrivals_and_the_percentiles_that_the_file_lacks(option: Option) -> None:
    run = run_of(option, RATE)
    rng = np.random.default_rng(1)
    count = 400
    arrival_s = np.cumsum(rng.exponential(1 / RATE, count)) + 1234.5
    given, made = rng.integers(200, 4000, count), rng.integers(10, 900, count)
    details = {"start_times": list(arrival_s), "input_lens": given.tolist(), "output_lens": made.tolist()}
    load = parse(written(vllm(request_rate=RATE, completed=count, num_prompts=count) | details)).as_json()
    run = _run_of(option, load_tests.predicted(option), load)
    seen = run.simulated(1.2)
    assert list(seen.input_tokens) == given.tolist() and run.load.said == "its 400 recorded arrivals"
    without_p95 = {k: v for k, v in vllm_file(seen, RATE, completed=count, num_prompts=count).items() if "p95" not in k}
    order = rng.permutation(count)  # as requests end, not as they arrive
    lists = {key: [values[i] for i in order] for key, values in (details | {"ttfts": list(seen.ttft_s)}).items()}
    lists |= {"errors": [""] * count, "itls": [[seen.tpot_s[i]] * int(made[i] - 1) for i in order]}
    test, _ = load_tests.record(option, written(without_p95 | lists), "detailed.json")
    assert test.measured["ttft_ms"]["p95"] == pytest.approx(1e3 * np.percentile(seen.ttft_s, 95))
    assert test.measured["tpot_ms"]["p95"] == pytest.approx(1e3 * np.percentile(seen.tpot_s, 95))
    match(test)
    assert test.measured["matched"]["time_factor"] == pytest.approx(1.2, rel=0.01)
    assert "requests" not in test.measured


def test_guidellm_and_aiperf_at_a_rate_match_as_well(option: Option) -> None:
    seen = run_of(option, RATE).simulated(1.2)
    ttft, tpot = (of(1e3 * values) for values in (seen.ttft_s, seen.tpot_s))

    def as_summary(f: dict[str, float]) -> dict[str, Any]:
        return summary(f["mean"], f["p50"], f["p95"], f["p99"])

    report = guidellm(rate=RATE, strategy={"type_": "poisson", "rate": RATE})
    report["benchmarks"][0]["metrics"] |= {
        "time_to_first_token_ms": as_summary(ttft), "inter_token_latency_ms": as_summary(tpot),
        "request_totals": {"successful": 2000, "errored": 0, "incomplete": 0},
    }  # fmt: skip

    def as_metric(f: dict[str, float]) -> dict[str, Any]:
        return metric("ms", f["mean"], p50=f["p50"], p95=f["p95"], p99=f["p99"])

    export = aiperf(
        time_to_first_token=as_metric(ttft),
        inter_token_latency=as_metric(tpot),
        input_config={"phases": [{"name": "warmup", "concurrency": 8}, {"type": "poisson", "rate": RATE}]},
    )
    for file in (report, export):
        load = parse(written(file))
        assert (load.rate_per_s, load.arrival_cv, load.concurrency) == (RATE, 1.0, None)
        test, _ = load_tests.record(option, written(file), "r.json")
        match(test)
        assert test.measured["matched"]["time_factor"] == pytest.approx(1.2, rel=0.05)
        test.delete()


@pytest.mark.parametrize(("changes", "rate", "cv", "seats"), [
    ({"request_rate": 4, "burstiness": 0.25}, 4, 2, None),
    ({"request_rate": 4, "max_concurrency": 64, "max_concurrent_requests": 30}, 4, 1, None),
    ({"request_rate": 4, "max_concurrency": 64, "max_concurrent_requests": 64}, None, 1, 64),
    ({"request_rate": "inf"}, None, 1, None),  # a replayed trace: the mean request lasts 2 % of the run
    ({"request_rate": "inf", "duration": 9.0}, None, 1, 2000),  # all at once
])  # fmt: skip
def test_the_client_is_read_from_the_file(changes: Any, rate: float, cv: float, seats: float) -> None:
    found = parse(written(vllm(**changes)))
    assert (found.rate_per_s, found.arrival_cv, found.concurrency) == (rate, cv, seats)


def test_a_replay_without_arrivals_has_the_burstiness_of_the_exported_trace(option: Option) -> None:
    """Two replicas share arrivals with a CV of 3: each gets gaps with a CV of 5 ** 0.5."""
    option.detail["simulation"] = {
        "requests": 2000,
        "seed": 1,
        "requests_per_s": 12.0,
        "arrival_cv": 3.0,
    } | dict.fromkeys(("ttft_standard_error_ms", "tpot_standard_error_ms", "running_requests_mean"), 0.0)
    deployment = load_tests.predicted(option)
    replayed, at_a_rate = (
        _run_of(option, deployment, parse(written(vllm(rate=2.0, request_rate=rate))).as_json()).load
        for rate in ("inf", 2.0)
    )
    assert replayed.client.arrival_cv == pytest.approx(5**0.5) and at_a_rate.client.arrival_cv == 1.0


@pytest.mark.parametrize(("changes", "says"), [
    ({"input_lens": [1, 2], "output_lens": [1]}, "output_lens has 1 values for 2 requests"),
    ({"input_lens": [1, 2], "output_lens": "two"}, "output_lens has no list for 2 requests"),
    ({"input_lens": [1, "x"], "output_lens": [1, 1]}, "input_lens is 'x': not a number"),
    ({"input_lens": [1, 1], "output_lens": [2, 2], "itls": [[0.1], ["x"]]}, "itls has .*which are no times"),
    ({"input_lens": [1, 1], "output_lens": [2, 2], "itls": [[0.1], [10**400]]}, "itls has .*which are no times"),
    ({"input_lens": [1, 1], "output_lens": [2, 2], "itls": [[0.1], [-1]]}, "itls has .*which are no times"),
    ({"request_rate": "fast"}, "request_rate is 'fast': not a number"),
    ({"burstiness": -1}, "burstiness is '-1': not a number of at least 0"),
    ({"mean_ttft_ms": "NaN"}, "mean_ttft_ms is 'NaN'"),
])  # fmt: skip
def test_bad_fields_are_named(changes: Any, says: str) -> None:
    with pytest.raises(LoadResultError, match=says):
        parse(written(vllm(**changes)))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6))
def test_unknown_and_shuffled_fields_change_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items = [*vllm(request_rate=4).items(), ("new_in_this_version", {"a": [1]})]
    shuffled = dict(items[i] for i in rng.permutation(len(items)))
    assert parse(written(shuffled)) == parse(written(vllm(request_rate=4)))


def test_another_organization_and_an_unmatched_test_change_nothing(option: Option) -> None:
    seen = run_of(option, RATE).simulated(1.2)
    test, _ = load_tests.record(option, written(vllm_file(seen, RATE)), "r.json")
    assert not test.comparable, "it ran at 2 requests/s, and 6 were predicted"
    model, own = option.advice.workload.spec["model"], option.advice.organisation
    assert measured.own_observed(model, own) == []
    match(test)
    (row,) = measured.own_observed(model, own)
    assert row.noise and row.noise < 0.004 and abs(row.log_error - np.log(1.2)) < 2 * row.noise**0.5
    assert measured.own_observed(model, Organisation.objects.create(name="Other", slug="other")) == []


def test_the_sweep_matches_what_was_uploaded_and_the_page_shows_before_and_after(
    option: Option, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswerable(advice: Any) -> None:
        raise Unanswerable("answering again takes long")

    monkeypatch.setattr(records, "with_measurements", unanswerable)
    seen = run_of(option, RATE).simulated(1.2)
    load_tests.record(option, written(vllm_file(seen, RATE)), "r.json")
    assert load_tests.correct_next() and not load_tests.correct_next()
    (shown,) = load_tests.shown(option)["tests"]
    assert shown["matched"]["load"].startswith("Poisson arrivals at 2 a second")
    rows = {row["name"]: row for row in shown["effect"]["figures"]}
    truth = run_of(option, RATE).expected(1.2)
    for name in ("TTFT", "TPOT"):
        row, there = rows[f"{name} p95"], truth[name.lower()]["p95"]
        assert abs(row["after"] / there - 1) < 0.06 and row["predicted"] / there < 0.9
    page = client.get(f"/advice/{option.advice_id}/options/1?section=run").content.decode()
    assert "Before and after this load test" in page and "Poisson arrivals at 2 a second" in page


def test_a_run_with_failures_or_without_lengths_is_not_matched_and_says_why(option: Option) -> None:
    for changes, why in (
        ({"completed": 1900, "failed": 100}, "100 of 2,000 requests failed"),
        ({"total_input_tokens": 0}, "does not state the token lengths"),
    ):
        test, _ = load_tests.record(option, written(vllm(rate=3, request_rate=3, **changes)), "r.json")
        assert why in load_tests.correct(test)["why_nothing"]
        assert "time_factor" not in test.measured["matched"]


def test_settings_of_other_types_are_not_taken_for_a_load() -> None:
    for value in (10**400, -1, True, [1], {}):
        assert parse(written(aiperf(input_config={"x": {"concurrency": value}}))).concurrency is None
    assert parse(written(guidellm(strategy={"type_": ["poisson"], "rate": 1.0}))).rate_per_s is None


@pytest.mark.parametrize(("changes", "why"), [
    ({"completed": 10**9, "num_prompts": 10**9, "max_concurrency": 10**6}, "1,000,000 requests at once are too many"),
    ({"request_throughput": 0.0}, "0 requests a second .* out of range"),
    ({"request_rate": 1e-300}, "1e-300 requests a second .* out of range"),
    ({"request_rate": 2.0, "burstiness": 1e-300}, "coefficient of variation of 1e\\+150 are out of range"),
])  # fmt: skip
def test_a_load_that_no_simulation_can_follow_says_why(option: Option, changes: Any, why: str) -> None:
    more = {"total_input_tokens": 10**12, "total_output_tokens": 10**12} if "completed" in changes else {}
    found = parse(written(vllm(**{"request_rate": None} | more | changes))).as_json()
    with pytest.raises(Unmatched, match=why):
        load_of(option.advice.workload.spec["traffic"], found, lanes=1)


@pytest.mark.parametrize("seats", [1e-320, 1.0, 64.0])
def test_a_long_closed_loop_is_simulated_with_its_first_requests(option: Option, seats: float) -> None:
    changes = {"completed": 10**9, "num_prompts": 10**9, "max_concurrency": seats, "request_rate": None}
    found = parse(written(vllm(**changes))).as_json()
    load = load_of(option.advice.workload.spec["traffic"], found, lanes=1)
    assert load.client.requests_per_user * load.concurrency <= 20_000
