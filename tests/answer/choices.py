"""The choice behind an answer: costs in every draw, ties and what is set apart."""

from typing import Any

from advisor.answer.advice import question_of, searched
from advisor.answer.choice import Choice, chosen
from advisor.answer.internal_errors import Lost
from advisor.inputs import take_snapshot


def choice_of(spec: dict[str, Any]) -> Choice:
    question, found = searched(question_of(spec, take_snapshot(spec), Lost()), None)
    return chosen(question, found.result)
