"""Asking by the form, without a script."""

from datetime import date

import pytest
from django.test import Client
from django.urls import reverse

from advisor.models import Advice
from catalog.models import ServedModel
from tests import sample_advice

pytestmark = pytest.mark.django_db
FILLED = {
    "name": "desk",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic.input_tokens.mean": "2000",
    "traffic.output_tokens.mean": "300",
    "traffic.requests_per_s.mean": "4",
}


@pytest.fixture(autouse=True)
def model() -> None:
    ServedModel.objects.create(slug="l", hf_id="meta-llama/Llama-3.1-8B", shape={}, as_of=date(2026, 11, 1))


def test_a_valid_question_is_queued_and_leads_to_its_page(client: Client) -> None:
    response = client.post("/", FILLED)
    advice = Advice.objects.get()
    assert (response.status_code, response["Location"]) == (302, f"/advice/{advice.pk}")
    assert (advice.state, advice.workload.name) == ("queued", "desk")
    assert client.get(response["Location"]).status_code == 200


def test_a_wrong_question_keeps_what_was_typed_and_says_where(client: Client) -> None:
    page = client.post("/", {**FILLED, "traffic.input_tokens.mean": "lots"})
    text = page.content.decode()
    assert page.status_code == 422 and not Advice.objects.exists()
    assert 'value="lots"' in text and 'value="desk"' in text
    assert "must be a number" in text and 'href="#id_traffic.input_tokens.mean"' in text


def test_a_preset_fills_the_form(client: Client) -> None:
    text = client.get("/?preset=support-chat").content.decode()
    assert 'value="meta-llama/Llama-3.3-70B-Instruct"' in text and 'value="6000"' in text


def test_an_earlier_question_fills_the_form(client: Client) -> None:
    advice = sample_advice.advice()
    assert 'value="support-chat"' in client.get(f"/?from={advice.pk}").content.decode()


@pytest.mark.parametrize("query", ["preset=../../etc/passwd", "preset=", "from=x", "from=" + "0" * 32])
def test_nothing_to_start_from_is_not_found(client: Client, query: str) -> None:
    assert client.get(f"/?{query}").status_code == 404


def test_a_full_queue_asks_to_come_back(client: Client, settings: object) -> None:
    settings.ADVICE_MAX_QUEUED = 0  # type: ignore[attr-defined]
    page = client.post("/", FILLED)
    assert "Too many requests are waiting" in page.content.decode() and not Advice.objects.exists()


def test_the_form_needs_its_token() -> None:
    page = Client(enforce_csrf_checks=True).post(reverse("ask"), FILLED)
    assert page.status_code == 403 and not Advice.objects.exists()
    assert "Reload the page" in page.content.decode()
