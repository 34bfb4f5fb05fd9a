"""A run of GRPO on its pages, in its memo and as text: one table of phases, and the update by operator."""

import pytest
from django.test import Client
from django.urls import reverse

from advisor.report import training_answer
from advisor.result import Answer
from tests.pages import every_section
from tests.sample_training import advice, result

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def test_pages_and_memo_show_the_phases(client: Client) -> None:
    made = advice("grpo")
    option = every_section(client, reverse("advice-option", args=[made.pk, 1]))
    answer = every_section(client, reverse("advice", args=[made.pk]))
    for page in (option, answer):
        assert "One GRPO iteration" in page and '<th scope="row">Longest responses</th>' in page
        assert "One policy update" in page
    assert "500 iterations" in option
    memo = client.get(f"/api/v1/advice/{made.pk}/documents/memo.md").content.decode()
    assert "longest responses" in memo and "policy update" in memo


def test_supervised_runs_show_no_phases(client: Client) -> None:
    page = every_section(client, reverse("advice-option", args=[advice("weekly").pk, 1]))
    assert "policy update" not in page.lower() and "One step" in page


def test_the_terminal_shows_each_phase() -> None:
    text = "\n".join(training_answer.detail_lines(Answer.read(result("grpo")).training_runs[0]))
    assert "  generation: " in text and "run: 500 iterations of" in text and "no launch file" in text
