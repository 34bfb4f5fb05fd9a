"""Training and fine-tuning: each road takes the question, and asks for what is missing in one sentence."""

import json

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from advisor.models import Advice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
QUESTIONS = [
    {"kind": "training", "model": "meta-llama/Llama-3.1-8B", "training": {"tokens": 1e9, "deadline_days": 3}},
    {"kind": "finetuning", "model": "meta-llama/Llama-3.1-8B", "finetuning": {"tokens": 1e7, "method": "lora"}},
]
UNFINISHED = {"kind": "training", "model": "meta-llama/Llama-3.1-8B"}
SAYS = "is required for kind training"


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_api_and_the_form_queue_the_question(question: dict[str, object], client: Client) -> None:
    assert client.post("/api/v1/advice", data=json.dumps(question), content_type="application/json").status_code == 202
    assert client.post(reverse("ask"), {"yaml": yaml.safe_dump(question)}).status_code == 302
    assert Advice.objects.count() == 2


def test_the_api_the_form_and_the_command_line_ask_for_the_section(client: Client, tmp_path, capsys) -> None:
    answer = client.post("/api/v1/advice", data=json.dumps(UNFINISHED), content_type="application/json")
    assert answer.status_code == 422 and SAYS in answer.json()["errors"][0]["message"]
    page = client.post(reverse("ask"), {"yaml": yaml.safe_dump(UNFINISHED)})
    assert page.status_code == 422 and SAYS in page.content.decode()
    file = tmp_path / "question.yaml"
    file.write_text(yaml.safe_dump(UNFINISHED))
    with pytest.raises((SystemExit, CommandError)) as left:
        call_command("advise", str(file))
    code = left.value.code if isinstance(left.value, SystemExit) else left.value.returncode
    assert code == 2 and SAYS in capsys.readouterr().err + str(left.value)
    assert not Advice.objects.exists()
