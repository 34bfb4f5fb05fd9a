"""Rerankers: pairs of a query and a document; speech by hours of audio."""

from typing import Any

import pytest

from advisor.answer.advice import recommend
from advisor.inputs import take_snapshot
from advisor.result import Option
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload import load
from advisor.workload.schema import parse
from tests.answer.test_conversations import refused

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ON_L4 = {"accelerators": {"allow": ["l4"]}, "frameworks": {"allow": ["vllm"]}, "acquisition": ["rent"]}
RERANK: dict[str, Any] = {
    "name": "rerank",
    "kind": "rerank",
    "model": "BAAI/bge-reranker-v2-m3",
    "traffic": {"documents_per_request": 40, "input_tokens": 256, "requests_per_s": 1},
    "constraints": ON_L4,
}
SPEECH: dict[str, Any] = {
    "name": "calls",
    "model": "openai/whisper-large-v3",
    "traffic": {"audio": {"hours_per_hour": 40, "clip_s": 50}},
    "constraints": ON_L4,
}


def first(raw: dict[str, Any], **traffic: Any) -> Option:
    spec = parse({**raw, "traffic": {**raw["traffic"], **traffic}})
    return recommend(spec, take_snapshot(spec)).recommendations[0]


def test_pairs_of_a_request_do_not_attend_to_each_other():
    """40 pairs of 256 tokens: linear work of 10,240 tokens, attention of 40 sequences of 256."""
    option = first(RERANK)
    scores = next(line for line in option.step if line.operator == "attention/scores")
    assert scores.flops == pytest.approx(24 * 4 * 1024 * 40 * 256**2, rel=0.01)
    up = next(line for line in option.step if line.operator == "ffn/up")
    assert up.flops == pytest.approx(24 * 2 * 1024 * 4096 * 40 * 256, rel=0.01)
    assert option.latency_ms and option.output_tokens_per_s is None
    assert option.unit_cost and (option.unit_cost.unit, option.unit_cost.count) == ("scored document", 1000)
    assert option.unit_cost.usd == pytest.approx(option.usd_per_hour / 3600 / 40 * 1000, rel=1e-3)
    assert "--runner pooling" in option.launch.command and "--max-model-len 1024" in option.launch.command


def test_audio_is_cut_into_windows_and_costed_by_the_hour():
    spec = parse(SPEECH)
    assert spec["traffic"]["requests_per_s"]["mean"] == pytest.approx(40 / 25)  # two windows of 25 s in a clip of 50 s
    assert spec["traffic"]["input_tokens"]["mean"] == 1250
    assert spec["traffic"]["output_tokens"]["mean"] == pytest.approx(150 / 60 * 25 * 4 / 3)
    assert parse(spec) == spec == parse(load(as_file(spec)))
    form = WorkloadForm(from_spec(spec))
    assert form.is_valid() and form.spec == spec
    option = first(SPEECH)
    assert option.unit_cost and option.unit_cost.unit == "audio hour"
    assert option.unit_cost.usd == pytest.approx(option.usd_per_hour / 40, rel=1e-3)


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({**RERANK, "kind": "embedding"}, "traffic.documents_per_request", "cannot be used with kind embedding"),
        ({**RERANK, "traffic": {"input_tokens": 9, "requests_per_s": 1}}, "traffic.documents_per_request", "required"),
        ({**RERANK, "model": "BAAI/bge-m3"}, "model", "is no reranker"),
        ({**RERANK, "traffic": {**RERANK["traffic"], "input_tokens": 9000}}, "traffic.input_tokens", "8,192"),
        ({**RERANK, "kind": "serving", "traffic": {"input_tokens": 9, "output_tokens": 9, "requests_per_s": 1}},
         "kind", "ask with kind: rerank"),
        ({**SPEECH, "model": "Qwen/Qwen3-8B"}, "model", "does not transcribe speech"),
        ({**SPEECH, "traffic": {**SPEECH["traffic"], "input_tokens": 9}}, "traffic.input_tokens", "contradicts"),
        ({**SPEECH, "traffic": {**SPEECH["traffic"], "requests_per_s": 9}}, "traffic.requests_per_s", "contradicts"),
    ],
)  # fmt: skip
def test_contradictions_name_their_field(raw: dict[str, Any], field: str, says: str):
    assert says in refused(raw)[field]
