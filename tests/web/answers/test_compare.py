"""Two to four answers, options or scenarios side by side: what differs, what is best, and what cannot be compared."""

import csv
import io
import re
from html import escape
from typing import Any

import pytest
from django.test import Client

from advisor.models import Advice
from advisor.report import screen_of
from advisor.result import Answer
from advisor.workload.schema import parse
from tests import sample_advice
from tests.people import organisation

pytestmark = pytest.mark.django_db


def address(*keys: object, **more: str) -> str:
    return "/advice/compare?" + "&".join([f"item={key}" for key in keys] + [f"{k}={v}" for k, v in more.items()])


def shown(client: Client, *keys: object, **more: str) -> str:
    page = client.get(address(*keys, **more))
    assert page.status_code == 200
    return re.sub(r"\s+", " ", page.content.decode())


def row(text: str, label: str) -> str:
    """The cells of one row as text; those that differ start with ≠."""
    found = next(r for r in re.findall(r"<tr.*?</tr>", text) if re.search(rf"<th[^>]*>{re.escape(label)}[ <]", r))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found))


def other(**spec: Any) -> Advice:
    """A second answer, whose question differs in these sections."""
    made = sample_advice.advice()
    made.workload.spec = parse({**made.workload.spec, **spec})
    made.workload.save()
    return made


def test_options_of_one_answer_show_the_best_value_and_how_far_others_are(client: Client) -> None:
    pk = sample_advice.advice().pk
    text = shown(client, f"{pk}:1", f"{pk}:3")
    cost = row(text, "Per month")
    assert "≠" in cost and "$10,220 ✓ lowest $14,890 46% more than A" in cost
    assert "TPOT p95 ≠ (differs) 28.8 ms 18.0–27.0 19.4 ms 12.1–18.1 ✓ lowest, but the ranges overlap" in row(
        text, "TPOT p95"
    )
    assert "≠" not in row(text, "Framework")
    assert "The questions are the same" in text


def test_answers_of_different_questions_show_what_differs_first_and_everything_on_request(client: Client) -> None:
    first = sample_advice.advice()
    second = other(constraints={"max_usd_per_month": 9000})
    text = shown(client, first.pk, second.pk)
    assert "not set 9,000" in row(text, "Budget, USD per month")
    assert "Time to first token, p95, ms" not in text
    assert "a lower cost may pay for less work" in text
    assert "1,000 1,000" in row(shown(client, first.pk, second.pk, question="all"), "Time to first token, p95, ms")


def test_no_value_is_best_where_the_work_differs(client: Client) -> None:
    second = other(kind="embedding", slo={"e2e_ms_p95": 500}, traffic={
        "input_tokens": {"mean": 500}, "requests_per_s": {"mean": 4, "peak": 12},
    })  # fmt: skip
    text = shown(client, sample_advice.advice().pk, second.pk)
    assert "The items do different work: A generates tokens, B returns embeddings." in text
    assert "✓ lowest" not in text and "does not apply" in row(text, "Per M output tokens")


def test_a_scenario_is_compared_by_its_costs_alone(client: Client) -> None:
    answer = sample_advice.result()
    cost = {"rank": 1, "usd_per_month": 15000.0, "total_usd": 540000.0}
    answer["scenarios"] = [{"name": "high", "ratios": {"load": 1.5}, "first_rank": 1, "costs": [cost]}]
    pk = sample_advice.advice(answer).pk
    text = shown(client, pk, f"{pk}:1@high")
    assert "$15,000 47% more than A" in row(text, "Per month")
    assert "not computed in a scenario" in row(text, "TPOT p95") and "≠" not in row(text, "TPOT p95")
    assert "not computed in a scenario" in row(text, "Meets the SLO") and "load × 1.50" in text
    assert client.get(address(pk, f"{pk}:2@high")).status_code == 404
    assert client.get(address(pk, f"{pk}:1@low")).status_code == 404


@pytest.mark.parametrize("state", ["running", "failed"])
def test_an_answer_without_figures_says_why(client: Client, state: str) -> None:
    without = sample_advice.advice(state=state, error="x" if state == "failed" else "")
    assert f"This answer is {state}" in shown(client, sample_advice.advice().pk, without.pk)
    nothing = sample_advice.advice(sample_advice.infeasible())
    assert "Nothing is feasible for this question." in shown(client, nothing.pk, without.pk)


def test_the_csv_has_unrounded_values_with_their_ranges(client: Client) -> None:
    pk = sample_advice.advice().pk
    page = client.get(address(f"{pk}:1", f"{pk}:2", format="csv"))
    assert page["Content-Type"].startswith("text/csv")
    lines = {line["figure"]: line for line in csv.DictReader(io.StringIO(page.content.decode()))}
    assert float(lines["Per M output tokens"]["B"]) == 2.13
    assert float(lines["Per M output tokens"]["B high"]) == pytest.approx(1.2 * 2.13)
    assert lines["Per month"]["differs"] == "yes" and lines["Per month"]["A best"] == "lowest"


@pytest.mark.parametrize("count", [0, 1, 5])
def test_too_few_and_too_many_are_refused_in_words(client: Client, count: int) -> None:
    keys = [sample_advice.advice().pk for _ in range(count)]
    page = client.get(address(*keys))
    assert page.status_code == 422 and f"you selected {count}" in page.content.decode()


def test_what_does_not_exist_or_belongs_to_others_is_not_found(client: Client) -> None:
    ours, theirs = sample_advice.advice().pk, sample_advice.advice().pk
    Advice.objects.filter(pk=theirs).update(organisation=organisation())
    for key in (theirs, f"{theirs}:1", f"{ours}:9", "nonsense", "-" * 36):
        assert client.get(address(ours, key)).status_code == 404, key


def test_the_verdicts_of_answers_stand_side_by_side_first(client: Client) -> None:
    first, second = sample_advice.advice(), other(name="other")
    text = shown(client, first.pk, second.pk)
    said = screen_of(Answer.read(sample_advice.result()))
    assert text.index("What to sign") < text.index("In one line")
    assert escape(said.todo) in row(text, "What to sign")
    assert "Verdict" not in shown(client, f"{first.pk}:2", f"{first.pk}:3"), "single options have none"
