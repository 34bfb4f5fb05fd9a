"""The sections of an answer: written after its verdict, once, by the same engine version, and never by a GET."""

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from advisor import advise, answer, deletion
from advisor.answer.advice import Verdict
from advisor.later import sections
from advisor.models import Advice, AdviceSection, Completion
from advisor.result import SECTIONS, Answer, sections_in
from tests import answers, sample_advice

pytestmark = pytest.mark.django_db
State = Advice.State
REASON = "best TPOT p95 61 ms"  # of a rejection
PAGES = ["result.json", "options.csv", "advice.md", "documents/memo.md"]


class Died(BaseException):
    """The process ends."""


@pytest.fixture
def steps(engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, woken: list[str]) -> SimpleNamespace:
    """An engine that answers in two steps; `complete` can be replaced."""
    whole = Answer.read(sample_advice.result())
    named = {key for keys in SECTIONS.values() for key in keys} & whole.model_fields_set
    later = {key: [] for key in named if isinstance(getattr(whole, key), list)}
    fake = SimpleNamespace(whole=whole, first=whole.changed(**later), complete=lambda: whole, choices=0)

    def verdict_first(spec: dict[str, Any], snapshot: Any, report: Callable[..., None], *more: Any) -> Verdict:
        fake.choices += 1
        report("simulating", 0.5)
        return Verdict(answer=fake.first, complete=lambda: (report("explaining", 0.9), fake.complete())[1])

    monkeypatch.setattr(answer, "verdict_first", verdict_first)
    return fake


@pytest.fixture
def half(steps: SimpleNamespace) -> Iterator[Advice]:
    """An advice whose worker died after the verdict."""
    whole = steps.complete

    def dies() -> Answer:
        raise Died

    steps.complete = dies
    advice = answers.queued()
    with pytest.raises(Died):
        advise.run(advice.pk)
    steps.complete = whole
    yield advise.visible(advice.organisation).get(pk=advice.pk)


def composed(advice: Advice) -> dict[str, Any]:
    found = dict(Advice.objects.get(pk=advice.pk).answer or {})
    return {key: value for key, value in found.items() if key != "elapsed_s"}


def expected(steps: SimpleNamespace) -> dict[str, Any]:
    return {key: value for key, value in steps.whole.to_json().items() if key != "elapsed_s"}


def expire() -> None:
    Completion.objects.update(lease_until=timezone.now() - timezone.timedelta(seconds=1))
    advise.sweep()


def test_the_worker_of_the_verdict_adds_the_sections(steps: SimpleNamespace) -> None:
    advice = answers.queued()
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, steps.choices) == (State.DONE, 1)
    assert Completion.objects.get().state == State.DONE
    assert {row.name for row in AdviceSection.objects.all()} == SECTIONS.keys()
    assert json.dumps(composed(advice)) == json.dumps(expected(steps))


def test_another_worker_adds_the_sections_of_a_lost_one_and_changes_nothing_else(
    half: Advice, steps: SimpleNamespace, woken: list[str]
) -> None:
    verdict = Advice.objects.values().get()
    assert half.state == State.DONE and half.is_due and not AdviceSection.objects.exists()
    expire()
    assert str(half.pk) in woken
    advise.run(half.pk)
    assert Advice.objects.values().get() == verdict
    assert json.dumps(composed(half)) == json.dumps(expected(steps)) and steps.choices == 2
    advise.run(half.pk)
    assert steps.choices == 2


def test_another_engine_version_adds_nothing_and_the_page_says_so(
    half: Advice, steps: SimpleNamespace, client: Client
) -> None:
    Completion.objects.update(engine_version="0.0.9")
    expire()
    advise.run(half.pk)
    assert steps.choices == 1 and not AdviceSection.objects.exists()
    assert "Assay was updated before" in client.get(f"/advice/{half.pk}").content.decode()
    found = client.get(f"/api/v1/advice/{half.pk}").json()
    assert found["state"] == "done" and found["sections"]["due"] == [] and "updated" in found["sections"]["missing"]
    assert client.get(f"/api/v1/advice/{half.pk}/result").status_code == 409
    assert client.get(f"/advice/{half.pk}/advice.md").status_code == 409


def test_a_worker_whose_choice_differs_adds_nothing(half: Advice, steps: SimpleNamespace) -> None:
    steps.first = steps.first.changed(verdict="another choice")
    expire()
    advise.run(half.pk)
    assert not AdviceSection.objects.exists()
    assert Completion.objects.get().error == sections.CHANGED


def test_gets_compute_nothing_and_say_what_is_due(half: Advice, steps: SimpleNamespace, client: Client) -> None:
    url = f"/api/v1/advice/{half.pk}"
    for path in [f"/advice/{half.pk}/{each}" for each in PAGES] + [f"{url}/result", f"{url}/documents/memo.md"]:
        response = client.get(path)
        assert (response.status_code, response["Retry-After"]) == (202, "1"), path
    assert client.get(f"{url}/result").json()["detail"].endswith(f"{', '.join(SECTIONS)}.")
    found = client.get(url)
    assert found.json()["sections"] == {"due": [*SECTIONS], "done": [], "missing": ""} and found["Retry-After"] == "1"
    assert found.json()["result"]["recommendations"] and "rejected" not in found.json()["result"]
    summary = client.get(f"{url}/summary").json()
    assert summary["rejected_count"] is None and summary["sections_due"] == [*SECTIONS] and summary["said"]
    page = client.get(f"/advice/{half.pk}").content.decode()
    assert "Still being computed" in page and "hx-get" in page and 'id="verdict-title"' in page
    for section in ("performance", "cost", "run", "confidence", "alternatives"):
        assert client.get(f"/advice/{half.pk}?section={section}").status_code == 200
    assert "Still being computed" in client.get(f"/advice/{half.pk}", headers={"HX-Request": "true"}).content.decode()
    assert steps.choices == 1


def test_pages_read_before_are_complete_afterwards(half: Advice, steps: SimpleNamespace, client: Client) -> None:
    early = client.get(f"/advice/{half.pk}?section=alternatives").content.decode()
    expire()
    advise.run(half.pk)
    assert client.get(f"/advice/{half.pk}", headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    late = client.get(f"/advice/{half.pk}?section=alternatives").content.decode()
    assert "Still being computed" not in late and REASON in late and REASON not in early
    found = client.get(f"/api/v1/advice/{half.pk}?include=all")
    assert "Retry-After" not in found and found.json()["sections"]["done"] == [*SECTIONS]
    assert found.json()["result"]["rejected"] == steps.whole.to_json()["rejected"]
    for each in PAGES:
        assert client.get(f"/advice/{half.pk}/{each}").status_code == 200, each


def test_cancelled_after_the_verdict_its_sections_stop(steps: SimpleNamespace, client: Client) -> None:
    advice = answers.queued()

    def cancelled() -> Answer:
        response = client.post(f"/api/v1/advice/{advice.pk}/cancel")
        assert response.status_code == 200 and response.json()["state"] == "done"
        return steps.whole

    steps.complete = cancelled
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, Completion.objects.get().error) == (State.DONE, sections.STOPPED)
    assert not AdviceSection.objects.exists()
    assert client.post(f"/api/v1/advice/{advice.pk}/cancel").status_code == 409


def test_sections_go_with_their_advice(steps: SimpleNamespace) -> None:
    advice = answers.queued()
    steps.complete = lambda: (deletion.delete_advice(advice, "ada"), steps.whole)[1]
    advise.run(advice.pk)
    assert not Advice.objects.exists() and not AdviceSection.objects.exists() and not Completion.objects.exists()


def test_an_error_in_the_sections_leaves_the_verdict(steps: SimpleNamespace) -> None:
    def broken() -> Answer:
        raise ZeroDivisionError

    steps.complete = broken
    advice = answers.queued()
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == State.DONE and "internal error" in Completion.objects.get().error


def test_every_key_belongs_to_one_section() -> None:
    whole = Answer.read(sample_advice.result()).to_json()
    keys = [key for found in sections_in(whole).values() for key in found]
    assert (
        len(keys) == len(set(keys))
        and {key for each in SECTIONS.values() for key in each} <= Answer.model_fields.keys()
    )
