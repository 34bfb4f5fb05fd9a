"""Training and fine-tuning have a place in the workload file and no answer yet: each road says so in one sentence."""

import json

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from advisor.models import Advice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
TOKENS = {"tokens": 1e9, "sequence_length": 4096, "global_batch_tokens": 1e6}
QUESTIONS = [
    {"kind": "training", "model": "meta-llama/Llama-3.1-8B", "training": {**TOKENS, "deadline_days": 3}},
    {"kind": "finetuning", "model": "meta-llama/Llama-3.1-8B", "finetuning": {**TOKENS, "method": "lora"}},
    {"kind": "training", "model": "meta-llama/Llama-3.1-8B"},
]
SAYS = "is not available yet; use kind serving, embedding, rerank, image_generation or batch"


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_api_the_form_and_the_command_line_say_so(question, client: Client, tmp_path, capsys):
    answer = client.post("/api/v1/advice", data=json.dumps(question), content_type="application/json")
    assert answer.status_code == 422 and SAYS in answer.json()["errors"][0]["message"]
    page = client.post(reverse("ask"), {"yaml": yaml.safe_dump(question)})
    assert page.status_code == 422 and SAYS in page.content.decode()
    file = tmp_path / "question.yaml"
    file.write_text(yaml.safe_dump(question))
    with pytest.raises((SystemExit, CommandError)) as left:
        call_command("advise", str(file))
    code = left.value.code if isinstance(left.value, SystemExit) else left.value.returncode
    assert code == 2 and SAYS in capsys.readouterr().err + str(left.value)
    assert not Advice.objects.exists()
