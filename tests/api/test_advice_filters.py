"""The list of advice by name, model, kind, state, author and day, in any order; what it does not know is refused."""

from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import pytest
from django.test import Client

from advisor.models import Advice, Workload
from tests import sample_advice

pytestmark = pytest.mark.django_db
LIST = "/api/v1/advice"


@pytest.fixture
def rows() -> list[Advice]:
    """One of each combination of two names, kinds, states, authors and days."""
    made = []
    for n in range(16):
        state = ("done", "queued")[n & 1]
        row = sample_advice.advice(
            state=state, made_by=("ada", "token ci")[n >> 1 & 1],
            created_at=datetime(2026, 10, 1 + (n >> 2 & 1), 23, 59, tzinfo=UTC),
        )  # fmt: skip
        kind, name = ("serving", "batch")[n >> 3 & 1], f"Chat {n}" if n % 3 else f"nightly {n}"
        Workload.objects.filter(pk=row.workload_id).update(name=name, spec={**row.workload.spec, "kind": kind})
        made.append(Advice.objects.select_related("workload").get(pk=row.pk))
    return made


WANTED: dict[str, Any] = {
    "name=chat": lambda row: "chat" in row.workload.name.lower(),
    "kind=batch": lambda row: row.workload.spec["kind"] == "batch",
    "state=queued": lambda row: row.state == "queued",
    "author=token+ci": lambda row: row.made_by == "token ci",
    "since=2026-10-02": lambda row: row.created_at.day >= 2,
    "until=2026-10-01": lambda row: row.created_at.day <= 1,
    "model=llama-3.3": lambda row: True,
    "model=qwen": lambda row: False,
}


def test_every_pair_of_filters_narrows_together(rows: list[Advice]) -> None:
    for chosen in [(name,) for name in WANTED] + list(combinations(WANTED, 2)):
        if len({each.partition("=")[0] for each in chosen}) < len(chosen):
            continue
        found = Client().get(f"{LIST}?{'&'.join(chosen)}").json()
        wanted = {str(row.pk) for row in rows if all(WANTED[each](row) for each in chosen)}
        assert {row["id"] for row in found["results"]} == wanted and found["count"] == len(wanted), chosen


@pytest.mark.parametrize("column", ["created_at", "finished_at", "name", "state"])
@pytest.mark.parametrize("key", ["sort", "ordering"])
def test_it_is_sorted_by_any_column_both_ways(rows: list[Advice], column: str, key: str) -> None:
    for sign in ("", "-"):
        found = [row[column] for row in Client().get(f"{LIST}?{key}={sign}{column}").json()["results"]]
        known = [value for value in found if value is not None]
        assert known == sorted(known, reverse=bool(sign)) and found[: len(known)] == known


def test_the_newest_come_first(rows: list[Advice]) -> None:
    found = [row["created_at"] for row in Client().get(LIST).json()["results"]]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("state=finished", "queued, running, done, failed, cancelled"),
        ("kind=car", "serving"),
        ("since=yesterday", "2026-10-21"),
        ("until=2026-13-01", "2026-10-21"),
        ("sort=cost", "created_at"),
        ("title=chat", "name"),
        ("name=a&name=b", "only once"),
    ],
)
def test_what_it_does_not_know_is_refused_with_what_it_does(asked: str, said: str) -> None:
    answer = Client().get(f"{LIST}?{asked}")
    (error,) = answer.json()["errors"]
    assert answer.status_code == 400 and answer["Content-Type"] == "application/problem+json"
    assert error["field"] == asked.partition("=")[0] and said in error["message"], error
