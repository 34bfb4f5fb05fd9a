"""Forty questions on the shipped catalog; each answer lies in the range that arithmetic or a measurement gives."""

from functools import cache
from typing import Any

import pytest

from advisor import workload
from advisor.inputs.from_catalog import take_snapshot
from advisor.workload import WorkloadError, deployment
from tests import as_json
from tests.questions import PAGE, evaluate, questions
from tests.questions.page import bounds, page

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
KNOWN = {q["id"]: q for q in questions()}


@cache
def answers(question: str) -> dict[str, Any]:
    return {name: asked(ask) for name, ask in KNOWN[question]["asks"].items()}


def asked(ask: dict[str, Any]) -> Any:
    """The answer as JSON, or {"errors": [...]} of a refused question."""
    try:
        if "estimate" in ask:
            return as_json.estimate(deployment.parse_deployment(ask["estimate"]))
        spec = workload.parse({"name": "question", **ask["advise"]})
        return as_json.recommend(spec, take_snapshot(spec))
    except WorkloadError as e:
        return {"errors": e.errors}


def test_there_are_twenty_of_each_origin() -> None:
    origins = [q["from"] for q in KNOWN.values()]
    assert (origins.count("buyer"), origins.count("public")) == (20, 20)
    assert all("source" in q for q in KNOWN.values() if q["from"] == "public")


def test_the_page_is_written_from_the_questions() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.questions"


SOAK = ("rare-requests", "four-hundred-tokens-per-second")  # the whole catalog against hosted APIs


@pytest.mark.parametrize(
    "question", [pytest.param(name, marks=pytest.mark.soak) if name in SOAK else name for name in KNOWN]
)
def test_the_answer_is_what_an_expert_expects(question: str) -> None:
    got = answers(question)
    assert KNOWN[question]["expect"]
    for e in KNOWN[question]["expect"]:
        if "refused" in e:
            errors = [one for answer in got.values() for one in answer.get("errors", ())]
            assert any(one["field"] == e["refused"] and e["names"] in str(one) for one in errors), (e["what"], errors)
            continue
        value = evaluate(e["read"], got)
        if "one_of" in e:
            assert value in e["one_of"], (e["what"], value)
        elif "not_in" in e:
            assert value not in e["not_in"], (e["what"], value)
        else:
            low, high = bounds(e)
            assert low <= value <= high, (e["what"], value, (low, high))
