"""Embedding workloads from the file to the page: one latency, tokens read per second, CPUs beside GPUs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import advise, report
from advisor.inputs.check import check_catalog
from advisor.models import Advice
from advisor.result import Answer
from advisor.web.answers.page import csv_text
from advisor.web.forms import WorkloadForm, from_spec
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from tests.answer.processors import sell_sizes
from tests.pages import every_section

pytestmark = pytest.mark.django_db
WORKLOAD = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "embedding.yaml"
CPUS = ["xeon-8480plus", "xeon-6980p", "epyc-9965"]
ASKED: dict[str, Any] = {
    "name": "passages",
    "kind": "embedding",
    "model": "intfloat/e5-large-v2",
    "traffic": {"input_tokens": 256, "requests_per_s": {"mean": 40, "peak": 100}},
    "slo": {"e2e_ms_p95": 300},
    "constraints": {"accelerators": {"allow": ["l4", *CPUS]}, "acquisition": ["rent"]},
}


def asked(**traffic: Any) -> dict[str, Any]:
    return {**ASKED, "traffic": {**ASKED["traffic"], **traffic}}


@pytest.mark.parametrize("given", [{}, {"output_tokens": 0}, {"output_tokens": 1}, {"output_tokens": {"mean": 0}}])
def test_the_output_of_an_embedding_may_be_left_out(given: dict[str, Any]) -> None:
    spec = parse(asked(**given))
    assert spec["traffic"]["output_tokens"] == {"mean": 1, "p95": 1}
    assert parse(spec) == spec


def test_generated_tokens_are_refused() -> None:
    with pytest.raises(WorkloadError) as caught:
        parse(asked(output_tokens=200))
    (found,) = caught.value.errors
    assert (found["field"], found["message"]) == ("traffic.output_tokens", "embeddings generate no output tokens")


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"kind": "serving", "traffic": {**ASKED["traffic"], "output_tokens": 9}}, "kind", "ask with kind: embedding"),
        ({"model": "google/flan-t5-xxl"}, "kind", "ask with kind: serving"),
        ({"traffic": {**ASKED["traffic"], "input_tokens": 2000}}, "traffic.input_tokens", "at most 512 tokens"),
    ],
)
def test_a_question_that_does_not_suit_its_model_is_refused_before_it_is_queued(
    change: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(WorkloadError, match=says) as caught:
        check_catalog(parse({**ASKED, **change}))
    assert caught.value.errors[0]["field"] == field


@pytest.mark.usefixtures("frozen")
def test_longer_audio_is_several_requests() -> None:
    speech = {**asked(input_tokens=3000, output_tokens=200), "kind": "serving", "model": "openai/whisper-large-v3"}
    with pytest.raises(WorkloadError, match="one window of 30 s, at most 1,500 input tokens"):
        check_catalog(parse(speech))


@pytest.mark.usefixtures("frozen")
def test_embeddings_on_cpus_against_an_l4(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/tutorial/cases/embeddings.md: CPUs hold the limit, and a small GPU is far cheaper by the million tokens."""
    sell_sizes("c7i", 192)
    sell_sizes("c8i", 384)
    allowed = f"constraints.accelerators.allow=[l4,{','.join(CPUS)}]"
    with pytest.raises(SystemExit) as ended:
        call_command(
            "advise",
            str(WORKLOAD),
            "--set",
            allowed,
            "--set",
            "constraints.acquisition=[rent]",
            "--format",
            "json",
            "--include",
            "all",
        )
    answer = json.loads(capsys.readouterr().out)
    ranked = {r["accelerator"]: r for r in reversed(answer["recommendations"])}  # the best of each
    assert not ended.value.code and set(ranked) == {"l4", *CPUS}
    assert answer["recommendations"][0]["accelerator"] == "l4"
    for r in ranked.values():
        assert 0 < r["latency_ms"]["p95"] <= 300
        assert r["tpot_ms"] == dict.fromkeys(r["tpot_ms"]) and r["output_tokens_per_s"] is None
        assert r["input_tokens_per_s"] == pytest.approx(40 * 256) and r["sequences_per_s"] == 40
        assert {line["phase"] for line in r["step"]} == {"prefill"}
        assert sum(r["memory"].values()) > 0 and r["memory"]["kv_gib"] == 0 and r["kv_capacity_tokens"] is None
        low, high = r["interval"]["usd_per_mtok_input"]
        assert low <= r["usd_per_mtok_input"] <= high
    instances = {slug: r["money"]["parts"][0]["usd_per_month"] for slug, r in ranked.items()}
    assert all(instances["l4"] * 10 < instances[slug] for slug in CPUS)
    assert "latency" in answer["verdict"] and "TTFT" not in answer["verdict"]
    first = answer["recommendations"][0]
    asks = {"vllm": "--runner pooling", "sglang": "--is-embedding", "llama.cpp": "--embedding"}
    assert asks[first["framework"]] in first["launch"]["command"]


@pytest.mark.usefixtures("frozen")
def test_over_rest_and_on_the_page(client: Client) -> None:
    body = {**ASKED, "slo": {"e2e_ms_p95": 300, "tpot_ms_p95": 40}}
    response = client.generic("POST", "/api/v1/advice", json.dumps(body), "application/json")
    assert response.status_code == 202
    advise.run(response.json()["id"])
    advice = Advice.objects.get()
    assert advice.state == "done" and [item["field"] for item in advice.result["not_used"]] == ["slo.tpot_ms_p95"]
    text = every_section(client, f"/advice/{advice.pk}")
    for said in (
        "Latency p95",
        "Sequences/s",
        "256 tokens each, 40 requests/s",
        "USD per M tokens",
        "latency, ms (log)",
    ):
        assert said in text, said
    option = every_section(client, f"/advice/{advice.pk}/options/1")
    for page in (text, option):
        assert "TTFT" not in re.sub(r"<[^>]+>", " ", page) and "Per M output tokens" not in page
    assert "Whole request" in option and "Time per output token" not in option
    first = next(line for line in csv_text(Answer.read(advice.result)).splitlines() if line.startswith("1,"))
    assert first.endswith("10240.0,,,40.0")  # no interval of the tokens/s at this load
    assert "latency p95 ms" in report.markdown(Answer.read(advice.result))


@pytest.mark.usefixtures("frozen")
def test_the_form_asks_for_embeddings() -> None:
    typed = {
        "model": "intfloat/e5-large-v2",
        "kind": "embedding",
        "traffic.input_tokens.mean": "256",
        "traffic.requests_per_s.mean": "40",
    }
    form = WorkloadForm(typed)
    assert form.is_valid(), form.errors
    assert form.spec["kind"] == "embedding"
    again = from_spec(form.spec)
    assert again["kind"] == "embedding" and not any("output_tokens" in path for path in again)
    assert "output_tokens" not in again.get("yaml", "")
    refused = WorkloadForm({**typed, "kind": "serving", "traffic.output_tokens.mean": "5"})
    assert not refused.is_valid() and "ask with kind: embedding" in refused.errors["kind"][0]
