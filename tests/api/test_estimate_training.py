"""POST /api/v1/estimate with kind training: the command's answer over REST, refusals as problem documents."""

from typing import Any

import pytest
from django.test import Client

from tests.as_json import training_estimate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
BODY = {
    "kind": "training", "model": "meta-llama/Llama-3.1-8B", "accelerator": "h100-sxm", "count": 8,
    "sequence_length": 4096, "global_batch": 16,
}  # fmt: skip


def post(body: Any, kind: str = "application/json") -> Any:
    return Client().post("/api/v1/estimate", body, content_type=kind)


def test_it_answers_as_the_command_does() -> None:
    response = post(BODY)
    assert response.status_code == 200
    assert response.json() == training_estimate(BODY)
    assert response.json()["kind"] == "training" and response.json()["fits"] is True


def test_yaml() -> None:
    text = """
    {kind: finetuning, model: meta-llama/Llama-3.1-8B, accelerator: h100-sxm, sequence_length: 2048, global_batch: 4,
     method: qlora, rank: 8, compile: true}
    """
    answer = post(text, "application/yaml").json()
    assert (answer["method"], answer["adapter_rank"], answer["compile"]) == ("qlora", 8, "full")


def test_what_does_not_fit_is_an_answer() -> None:
    answer = post({**BODY, "zero": 0}).json()
    assert answer["fits"] is False and "zero 1" in answer["smallest_change"] and "step_s" not in answer


def test_a_model_by_its_config() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
              "vocab_size": 100, "num_hidden_layers": 2}  # fmt: skip
    answer = post({**BODY, "model": {"config": config}}).json()
    assert answer["model"] == "own-model" and answer["fits"] is True
    refused = post({**BODY, "model": {"config": {"model_type": "unheard-of"}}})
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "model.config"


@pytest.mark.parametrize(("change", "field"), [
    ({"kind": "embedding"}, "kind"),
    ({"kind": 5}, "kind"),
    ({"kind": ["training"]}, "kind"),
    ({"accelerator": "h100"}, "accelerator"),
    ({"sequence_length": 1.5}, "sequence_length"),
    ({"sequence_length": 10**9}, "sequence_length"),
    ({"global_batch": 17}, "global_batch"),
    ({"count": 6, "tp": 4}, "count"),
    ({"tp": 3}, "count"),
    ({"zero": 4}, "zero"),
    ({"sequence_parallel": "yes"}, "sequence_parallel"),
    ({"precision": "fp4"}, "precision"),
    ({"precision": "nvfp4"}, "precision"),
    ({"weights": "bf16"}, "weights"),
    ({"tensor_parallel": 2}, "tensor_parallel"),
    ({"model": {"config": "/etc/passwd"}}, "model.config"),
])  # fmt: skip
def test_refusals_are_problems_that_name_the_field(change: dict[str, Any], field: str) -> None:
    response = post({**BODY, **change})
    assert response.status_code == 422
    assert response["Content-Type"].startswith("application/problem+json")
    assert response.json()["errors"][0]["field"] == field
    assert response.json()["errors"][0]["message"]


def test_what_a_refusal_says_to_do() -> None:
    problem = post({**BODY, "dp": 4}).json()
    assert problem["errors"][0] == {
        "field": "count",
        "message": "dp x tp x pp x cp = 4 x 1 x 1 x 1 = 4 must equal count, which is 8",
        "allowed": "4, or dp 8",
    }
