"""Files of four load generators come to one form; what is none is refused with what to do."""

import json
from typing import Any

import pytest

from advisor.load_results import LoadResultError
from catalog.loading.bounded import WEB
from tests.sample_load_results import aiperf, genai_perf, guidellm, metric, parse, vllm, written

TTFT = {"mean": 160.0, "p50": 140.0, "p95": 480.0, "p99": 600.0}
TPOT = {"mean": 18.0, "p50": 17.5, "p95": 23.0, "p99": 27.0}


def test_vllm_s_totals_become_means_of_a_request() -> None:
    r = parse(written(vllm()))
    assert (r.tool, r.completed, r.failed, r.concurrency) == ("vllm", 2000, 0, None)
    assert (r.input_tokens_mean, r.output_tokens_mean, r.output_tokens_per_s) == (2000, 300, 1800)
    assert r.ttft_ms == {"mean": 160, "p50": 144, "p95": 480, "p99": 640} and r.tpot_ms["p95"] == pytest.approx(23.4)
    assert r.e2e_ms["p95"] == 9000


def test_vllm_before_it_counted_failures_tells_them_by_the_prompts() -> None:
    old = vllm(completed=1990)
    del old["failed"]
    assert parse(written(old)).failed == 10


def test_vllm_s_closed_loop_has_seats() -> None:
    assert parse(written(vllm(max_concurrency=64))).concurrency == 64


def test_vllm_s_embeddings_have_the_whole_latency_alone() -> None:
    kept = ("date", "num_prompts", "duration", "completed", "total_input_tokens", "request_throughput", "p95_e2el_ms")
    r = parse(written({k: v for k, v in vllm().items() if k in kept}))
    assert r.ttft_ms == {} and r.e2e_ms == {"p95": 9000} and r.output_tokens_mean is None


def test_guidellm_s_tpot_is_its_inter_token_latency_of_the_successful() -> None:
    r = parse(written(guidellm()))
    assert (r.tool, r.tool_version, r.completed, r.failed) == ("guidellm", "0.8.1", 2000, 3)
    assert r.ttft_ms == TTFT and r.tpot_ms == TPOT and r.e2e_ms["mean"] == 5500
    assert (r.duration_s, r.requests_per_s, r.concurrency) == (333, 6, None)


def test_guidellm_s_streams_are_seats() -> None:
    assert parse(written(guidellm(strategy={"type_": "concurrent", "streams": 32}))).concurrency == 32


@pytest.mark.parametrize(("found", "tool", "seats"), [(aiperf(), "aiperf", None), (genai_perf(), "genai-perf", 64)])
def test_aiperf_and_genai_perf_share_a_form(found: Any, tool: str, seats: float | None) -> None:
    r = parse(written(found))
    assert (r.tool, r.concurrency, r.completed) == (tool, seats, 2000)
    assert r.ttft_ms == TTFT and r.tpot_ms == TPOT and r.e2e_ms["p95"] == 9000


def test_nanoseconds_become_milliseconds() -> None:
    assert parse(written(aiperf(time_to_first_token=metric("ns", 160e6)))).ttft_ms["mean"] == pytest.approx(160)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "cannot be read as text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "neither an object"),
        (b"{}", "not a result of vllm bench serve"),
        (written(vllm(completed=0)), "No request was completed"),
        (written(vllm(mean_ttft_ms="fast")), "mean_ttft_ms is 'fast'"),
        (json.dumps(vllm(mean_ttft_ms=float("nan"))).encode(), "mean_ttft_ms is 'nan'"),
        (written(vllm(request_throughput=-1)), "request_throughput is '-1'"),
        (written(vllm(duration=10**400)), "duration is '1000"),
        (written(vllm(completed=True)), "completed is 'True'"),
        (written({"benchmarks": [{"metrics": 3}]}), "metrics is not an object"),
        (written({"benchmarks": [{}]}), "GuideLLM: metrics is missing"),
        (written({"benchmarks": [{"metrics": {"a": {}}}]}), "GuideLLM: successful is missing"),
        (written(aiperf(is_complete=False, incomplete_reason="stalled")), "not finished: stalled"),
        (written(aiperf(was_cancelled=True)), "canceled"),
        (written(aiperf(time_to_first_token=metric("fortnights", 1.0))), "'fortnights'"),
        (written(genai_perf(request_count={})), "avg is missing"),
        (b" " * (WEB.max_bytes + 1), "larger than 4 MiB"),
    ],
)
def test_what_is_no_result_is_refused_with_the_reason(content: bytes, said: str) -> None:
    with pytest.raises(LoadResultError, match=said):
        parse(content)


def test_what_a_tool_says_of_itself_is_kept_as_far_as_a_database_can() -> None:
    assert parse(written(vllm(vllm_version="0.24\0\ud800", date=["x"]))).tool_version == "0.24"
    assert parse(written(aiperf(aiperf_version="0" * 999))).tool_version == "0" * 200


def test_a_start_that_is_no_date_is_not_told() -> None:
    found = guidellm()
    found["benchmarks"][0]["start_time"] = 1_763_700_000_000  # of a clock in milliseconds
    assert parse(written(found)).ran_at == ""
