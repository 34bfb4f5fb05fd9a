"""A training question over REST from the request to its rows and exports."""

import csv
import io
import json

import pytest
from django.test import Client
from django.urls import reverse

from advisor import advise
from advisor.models import Advice, Option

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ASKED = {
    "name": "rest",
    "kind": "finetuning",
    "model": "meta-llama/Llama-3.1-8B",
    "finetuning": {"method": "lora", "tokens": 5e7},
    "constraints": {"accelerators": {"allow": ["h200-sxm", "mi300x"]}},
}


def test_a_run_is_queued_computed_stored_and_exported(client: Client) -> None:
    response = client.post("/api/v1/advice", json.dumps(ASKED), content_type="application/json")
    assert response.status_code == 202 and response.json()["state"] == "queued"
    at = response["Location"]
    advise.run(response.json()["id"])
    body = client.get(at).json()
    assert body["state"] == "done"
    runs = body["result"]["recommendations"]
    assert runs[0]["kind"] == "finetuning" and runs[0]["method"] == "lora" and runs[0]["launch"]["command"]
    rows = Option.objects.filter(advice=Advice.objects.get()).order_by("rank")
    assert [row.accelerator_slug for row in rows] == [run["accelerator"] for run in runs]
    listed = client.get(body["links"]["result"]).json()
    assert listed == body["result"]
    csv_file, markdown = (client.get(reverse(f"advice-{form}", args=[body["id"]])) for form in ("csv", "markdown"))
    table = list(csv.DictReader(io.StringIO(csv_file.content.decode())))
    assert [float(row["usd_per_run"]) for row in table] == [run["usd_per_run"] for run in runs]
    assert "Tune LoRA adapters on" in markdown.content.decode()


def test_reinforcement_learning_is_queued_and_answered_by_phase(client: Client) -> None:
    tuned = {"objective": "grpo", "iterations": 20, "response_tokens": 200, "method": "lora"}
    limits = {"accelerators": {"allow": ["h200-sxm"]}, "max_accelerators": 1}
    asked = {**ASKED, "finetuning": tuned, "constraints": limits}
    response = client.post("/api/v1/advice", json.dumps(asked), content_type="application/json")
    assert response.status_code == 202
    advise.run(response.json()["id"])
    run = client.get(response["Location"]).json()["result"]["recommendations"][0]
    assert run["objective"] == "grpo" and run["steps"] == 20
    assert [p["name"] for p in run["phases"]][-2:] == ["reference forward", "policy update"]


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"finetuning": {}}, "finetuning.tokens", "required"),
        ({"finetuning": {"objective": "dpo"}}, "finetuning.pairs", "required for objective dpo"),
        (
            {"finetuning": {"objective": "grpo", "iterations": 5, "response_tokens": 99, "reward_model": "none/such"}},
            "finetuning.reward_model",
            "not in the catalog",
        ),
        ({"finetuning": {"tokens": 1e7, "method": "dora"}}, "finetuning.method", "not a valid choice"),
        ({"finetuning": {"tokens": 1e7, "rank": 0}}, "finetuning.rank", "at least 1"),
        ({"finetuning": {"tokens": 1e7, "epochs": 3}}, "finetuning.epochs", "unknown"),
        ({"finetuning": {"tokens": 1e7, "method": "qlora", "precision": "fp8"}}, "finetuning.precision", "qlora"),
        ({"constraints": {"acquisition": ["api"]}}, "constraints.acquisition", "training needs machines"),
        ({"model": "BAAI/bge-m3"}, "model", "decoder"),
    ],
)
def test_bad_input_names_its_field_and_what_is_allowed(
    client: Client, change: dict[str, object], field: str, says: str
) -> None:
    response = client.post("/api/v1/advice", json.dumps({**ASKED, **change}), content_type="application/json")
    assert response.status_code == 422
    errors = {error["field"]: error for error in response.json()["errors"]}
    assert field in errors, errors
    assert says in errors[field]["message"], errors[field]
