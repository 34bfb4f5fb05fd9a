"""A server that runs, stated key by key: each key moves the estimate the way that it moves the server."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from advisor.answer import single_estimate
from advisor.result import Estimate
from advisor.workload import WorkloadError, deployment
from catalog.models import Assumption
from tests.estimate_command import runner, said

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
SERVER = {"model": "meta-llama/Llama-3.1-8B", "accelerator": "h200-sxm", "weights": "bf16", "framework": "vllm"}
TRAFFIC = {"isl": 1000, "isl_p95": 3000, "osl": 250, "osl_p95": 700, "rate": 8, "burstiness": 1}
ASKED = {**SERVER, **TRAFFIC, "use_measurements": False}


def seen(**changes: Any) -> Estimate:
    return single_estimate.answer(deployment.parse_deployment(ASKED | changes))


def p95(e: Estimate, name: str) -> float:
    return float(e.figure(f"{name}_ms.p95"))


def test_the_result_has_every_statistic_in_order() -> None:
    e = seen()
    for name in ("ttft", "tpot", "e2e", "queue"):
        spread = e.figure(f"{name}_ms")
        assert spread.p50 <= spread.p90 <= spread.p95 <= spread.p99 and spread.p50 <= spread.mean * 1.5
        low, high = spread.p95_bounds
        assert low <= spread.p95 and (high is None or spread.p95 <= high)
    assert e.queue_ms and e.ttft_ms and e.queue_ms.mean < e.ttft_ms.mean
    assert e.requests_per_s == pytest.approx(8, rel=0.1) and e.rate == 8 and e.burstiness == 1
    # Little's law: requests in the system are rate times time in the system
    assert e.running_requests_mean and e.e2e_ms and e.running_requests_mean < 8 * e.e2e_ms.mean / 1e3 * 1.2
    assert e.simulated_requests and e.simulated_requests >= 1000 and e.accelerator_watts


@pytest.mark.parametrize(("changes", "metric"), [
    ({"enforce_eager": True}, "tpot"), ({"burstiness": 3}, "ttft"), ({"seats": 4}, "ttft"),
    ({"adapters": 8}, "tpot"), ({"rate": 16}, "tpot"), ({"max_batched_tokens": 512}, "ttft"),
    ({"speculative": {"method": "ngram", "k": 3, "acceptance": 0.0}}, "tpot"),
])  # fmt: skip
def test_what_slows_the_server_slows_the_estimate(changes: dict[str, Any], metric: str) -> None:
    assert p95(seen(**changes), metric) > 1.05 * p95(seen(), metric)


@pytest.mark.parametrize(("changes", "metric"), [
    ({"prefixes": [{"share": 1.0, "tokens": 900, "count": 4}]}, "ttft"),
    ({"http": False}, "ttft"), ({"isl_p95": None}, "ttft"), ({"dp": 2}, "tpot"),
    ({"speculative": {"method": "ngram", "k": 3, "acceptance": 0.8}, "rate": 2}, "tpot"),
])  # fmt: skip
def test_what_helps_the_server_helps_the_estimate(changes: dict[str, Any], metric: str) -> None:
    base = {"rate": changes["rate"]} if "rate" in changes else {}
    assert p95(seen(**changes), metric) < p95(seen(**base), metric)


def test_prefixes_help_only_a_server_that_keeps_them() -> None:
    shared = {"prefixes": [{"share": 0.5, "tokens": 900, "count": 4}]}
    assert p95(seen(**shared, prefix_caching=False), "ttft") == p95(seen(), "ttft")


def test_memory_fraction_and_adapters_take_memory_from_the_cache() -> None:
    most = seen().kv_capacity_tokens or 0
    assert (seen(memory_fraction=0.5).kv_capacity_tokens or 0) < 0.6 * most
    adapted = seen(adapters={"count": 16, "rank": 64})
    assert adapted.memory.adapters_gib > 1 and (adapted.kv_capacity_tokens or 0) < most


def test_drafts_are_stated_or_published() -> None:
    stated = seen(speculative={"method": "ngram", "k": 5, "acceptance": 0.7}).speculative
    assert stated and (stated.method, stated.k, stated.acceptance, stated.source) == ("ngram", 5, 0.7, "stated")
    known = seen(speculative={"method": "ngram", "k": 5}).speculative
    assert known and known.acceptance and known.source not in ("", "stated")
    small = seen(speculative={"method": "draft", "k": 3, "draft": "meta-llama/Llama-3.2-1B", "acceptance": 0.7})
    assert small.speculative and small.memory.weights_gib > seen().memory.weights_gib + 1


def test_a_trace_is_replayed_request_by_request() -> None:
    """Requests far apart wait for nobody: their TTFT is that of a prompt alone, and their number is the trace's."""
    rows = "".join(f"{20 * k},{1000 + k},50\n" for k in range(40))
    lengths = dict.fromkeys(("isl", "isl_p95", "osl", "osl_p95", "rate", "burstiness"))
    e = seen(**lengths, trace={"csv": "arrival_s,input_tokens,output_tokens\n" + rows})
    alone = seen(**lengths | {"isl": 1020, "osl": 50, "concurrency": 1})
    assert (e.client, e.simulated_requests, e.isl, e.osl) == ("trace", 40, 1020, 50)
    assert e.ttft_ms and alone.ttft_ms and e.ttft_ms.mean == pytest.approx(alone.ttft_ms.mean, rel=0.1)
    assert e.running_requests_mean and e.running_requests_mean < 0.1


def test_replicas_share_bursts_at_random() -> None:
    """The lanes of many replicas see calmer arrivals than one server with the same bursts of its own."""
    one = seen(burstiness=3)
    four = seen(burstiness=3, dp=4, rate=32)
    assert p95(seen(), "ttft") < p95(four, "ttft") < p95(one, "ttft")


def test_the_assumed_burstiness_is_that_of_advice() -> None:
    Assumption.objects.filter(key="arrival-cv").update(value=2.5)
    assert seen(burstiness=None).burstiness == 2.5
    assert seen(rate=None, burstiness=None, client="poisson:8").burstiness == 1


def test_the_command_takes_the_same_keys_and_a_workload_file(tmp_path: Path, capsys: Any) -> None:
    run = runner(capsys)
    file = tmp_path / "asked.yaml"
    file.write_text(
        "model: meta-llama/Llama-3.1-8B\n"
        "traffic: {input_tokens: {mean: 1000, p95: 3000}, output_tokens: {mean: 250, p95: 700}, requests_per_s: 8,"
        " burstiness: 3, prefixes: [{share: 0.5, tokens: 500, count: 8}]}\n"
    )
    server = ["--accelerator", "h200-sxm", "--weights", "bf16", "--framework", "vllm", "--seats", "64",
              "--enforce-eager", "--no-http", "--no-measurements", "--memory-fraction", "0.8"]  # fmt: skip
    from_file = said(run, "--workload", str(file), *server)
    options = ["--isl", "1000", "--isl-p95", "3000", "--osl", "250", "--osl-p95", "700", "--rate", "8/s",
               "--burstiness", "3", "--prefixes", "share=0.5;tokens=500;count=8"]  # fmt: skip
    assert from_file == said(run, "--model", "meta-llama/Llama-3.1-8B", *options, *server)
    keys = ASKED | {"seats": 64, "enforce_eager": True, "http": False, "memory_fraction": 0.8, "burstiness": 3}
    body = {**keys, "prefixes": [{"share": 0.5, "tokens": 500, "count": 8}]}
    assert Client().post("/api/v1/estimate", body, content_type="application/json").json() == from_file
    code, _, refusal = run("--workload", str(file), *server, "--isl-p95", "10")
    assert code == 2 and "--isl-p95" in refusal


def test_many_estimates_take_the_keys_too() -> None:
    body = {"base": ASKED, "estimates": [{"seats": 64}, {"seats": 0}, {"adapters": 2, "rate": 4}]}
    answer = json.loads(Client().post("/api/v1/estimates", body, content_type="application/json").getvalue())
    first, wrong, last = answer["results"]
    assert first["estimate"]["seats"] == 64 and last["estimate"]["rate"] == 4
    assert wrong["problem"]["errors"][0]["field"] == "seats"


def test_far_above_capacity_the_queue_is_served_at_capacity() -> None:
    above, most = seen(rate=1e6), seen(rate=200)
    assert above.requests_per_s == pytest.approx(most.requests_per_s, rel=0.1)
    assert any("exceed the capacity" in line for line in above.warnings)


def test_fewer_requests_of_long_answers_are_simulated() -> None:
    e = seen(isl=100, isl_p95=None, osl=16_384, osl_p95=None, rate=0.01)
    assert 2000 <= (e.simulated_requests or 0) < 3000 < (seen().simulated_requests or 0)


@pytest.mark.parametrize("changes", [{"rate": 5e-324}, {"rate": 1e-7}, {"rate": None, "client": "poisson:1e9"}])
def test_rates_that_no_clock_can_follow_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(WorkloadError, match="cannot be simulated"):
        seen(**{"burstiness": None} | changes)
