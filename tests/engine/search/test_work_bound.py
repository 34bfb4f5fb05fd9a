"""The work of a search is bounded, and what was not examined is said; below the bound nothing changes."""

import pytest

from advisor.engine.search import Question
from advisor.engine.search.run import MORE_CHIPS, search
from advisor.engine.terms import effort
from tests.engine.catalog_sample import catalog, question


def test_a_search_without_work_left_says_what_it_did_not_examine(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = search(Question(question(), catalog()))
    assert not whole.effort.left_out and whole.effort.spent > 0
    monkeypatch.setattr(effort, "MOST_WORK", whole.effort.spent * 0.02)
    bounded = search(Question(question(), catalog()))
    assert bounded.effort.spent < whole.effort.spent
    assert bounded.effort.left_out
    every = {r.accelerator for r in bounded.rejections} | {s.lane.choice.accelerator.slug for s in bounded.shown}
    assert every == {r.accelerator for r in whole.rejections} | {s.lane.choice.accelerator.slug for s in whole.shown}
    left = [r for r in bounded.rejections if r.reason == "not_examined"]
    assert bool(left) == (MORE_CHIPS in bounded.effort.left_out)
    assert all(r.dead_end for r in left)


def test_the_bound_gives_the_same_answer_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MOST_WORK", search(Question(question(), catalog())).effort.spent * 0.3)
    first, second = search(Question(question(), catalog())), search(Question(question(), catalog()))
    assert [s.usd_per_hour for s in first.shown] == [s.usd_per_hour for s in second.shown]
    assert first.effort.left_out == second.effort.left_out and first.effort.spent == second.effort.spent


def test_a_stage_has_its_share_of_the_work_after_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "MOST_WORK", 100.0)
    spent = effort.Effort(spent=50.0)
    assert not spent.allows("absolute", 0.2)
    assert spent.allows("its own", 0.2, since=40.0) and not spent.allows("used up", 0.2, since=30.0)
    assert not effort.Effort(spent=100.0).allows("no work at all", 0.2, since=95.0)
