"""POST /api/v1/estimate: the command's answer over REST, refusals as problem documents."""

from typing import Any

import pytest
from django.test import Client

from advisor.workload import deployment
from tests.as_json import estimate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
BODY = {"model": "meta-llama/Llama-3.1-8B", "accelerator": "h100-sxm", "weights": "bf16", "isl": 1000, "osl": 200}


def post(body: Any, kind: str = "application/json") -> Any:
    return Client().post("/api/v1/estimate", body, content_type=kind)


def test_it_answers_as_the_command_does() -> None:
    body = {**BODY, "concurrency": 8, "tp": 2}
    response = post(body)
    assert response.status_code == 200
    assert response.json() == estimate(deployment.parse_deployment(body))


def test_yaml_and_pools_as_sections() -> None:
    text = """
    {model: deepseek-ai/DeepSeek-V3, accelerator: h200-sxm, weights: fp8, isl: 1000, osl: 100, concurrency: 32,
     prefill_pool: {tp: 8}, decode_pool: {attention_dp: 8, ep: 8, workers: 2}}
    """
    answer = post(text, "application/yaml").json()
    assert (answer["accelerator_count"], answer["replicas"]) == (24, 2)


def test_what_does_not_fit_is_an_answer() -> None:
    answer = post({**BODY, "model": "meta-llama/Llama-3.3-70B-Instruct"}).json()
    assert answer["fits"] is False and answer["smallest_change"]


def test_a_model_by_its_slug_and_by_its_config() -> None:
    assert post({**BODY, "model": "meta-llama-llama-3-1-8b"}).json()["model"] == "meta-llama/Llama-3.1-8B"
    refused = post({**BODY, "model": {"config": {"model_type": "unheard-of"}}})
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "model.config"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"accelerator": "h100"}, "accelerator"),
        ({"isl": 1.5}, "isl"),
        ({"isl": 10_000_000}, "isl"),
        ({"osl": 200_000}, "osl"),
        ({"osl": 0}, "osl"),
        ({"concurrency": 90_000}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"tensor_parallel": 2}, "tensor_parallel"),
        ({"model": {"config": "/etc/passwd"}}, "model.config"),
        ({"model": {"config": {"hidden_size": 10**400}}}, "model.config.hidden_size"),
        ({"client": "burst:1000000"}, "client"),
        ({"decode_pool": {"tp": 2}}, "prefill_pool"),
    ],
)
def test_refusals_are_problems_that_name_the_field(change: dict[str, Any], field: str) -> None:
    response = post({**BODY, **change})
    assert response.status_code == 422
    assert response["Content-Type"].startswith("application/problem+json")
    assert response.json()["errors"][0]["field"] == field


def test_bodies_that_are_no_deployment() -> None:
    assert post("[]").status_code == 422
    assert post("{").status_code == 400
    assert post({}).status_code == 422
    assert Client().get("/api/v1/estimate").status_code == 405
