"""The list of advice by name, model, kind, state, author and day, in any order; what it does not know is refused."""

from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import pytest
import yaml
from django.test import Client

from advisor.inputs import what_if
from advisor.models import Advice, Workload
from advisor.workload import WorkloadError
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
        spec = {**row.workload.spec, "kind": kind, "tags": [["Team-A", "größe"], ["team-a.1"], []][n % 3]}
        regions = {"allow": ["eu", "eu-west-1"] if n & 1 else [], "deny": []}
        vendors = {"allow": ["nvidia"] if n & 2 else [], "deny": ["amd"] if n & 4 else []}
        spec["constraints"] = {**spec["constraints"], "regions": regions, "vendors": vendors}
        spec["constraints"]["max_usd_per_month"] = 5000 if n & 8 else None
        if n == 15:
            del spec["tags"], spec["constraints"]  # as an older version stored it
        Workload.objects.filter(pk=row.workload_id).update(name=name, spec=spec)
        made.append(Advice.objects.select_related("workload").get(pk=row.pk))
    return made


def limits(row: Advice) -> Any:
    return row.workload.spec.get("constraints", {})


WANTED: dict[str, Any] = {
    "name=chat": lambda row: "chat" in row.workload.name.lower(),
    "kind=batch": lambda row: row.workload.spec["kind"] == "batch",
    "state=queued": lambda row: row.state == "queued",
    "author=token+ci": lambda row: row.made_by == "token ci",
    "since=2026-10-02": lambda row: row.created_at.day >= 2,
    "until=2026-10-01": lambda row: row.created_at.day <= 1,
    "tag=team-a": lambda row: "Team-A" in row.workload.spec.get("tags", ()),
    "tag=gr%C3%B6%C3%9Fe": lambda row: "größe" in row.workload.spec.get("tags", ()),
    "tag=_": lambda row: False,
    "objective=cost": lambda row: True,
    "constraint=max_usd_per_month": lambda row: limits(row).get("max_usd_per_month") is not None,
    "constraint=vendors": lambda row: any(limits(row).get("vendors", {}).values()),
    "constraint=regions": lambda row: any(limits(row).get("regions", {}).values()),
    "vendor=nvidia": lambda row: "nvidia" in limits(row).get("vendors", {}).get("allow", ()),
    "vendor=amd": lambda row: False,
    "region=eu": lambda row: "eu" in limits(row).get("regions", {}).get("allow", ()),
    "region=eu-west": lambda row: False,
    "model=llama-3.3": lambda row: True,
    "model=qwen": lambda row: False,
}


def test_every_pair_of_filters_narrows_together(rows: list[Advice]) -> None:
    for chosen in [(name,) for name in WANTED] + list(combinations(list(WANTED)[::-1], 2))[::3]:
        if len({each.partition("=")[0] for each in chosen}) < len(chosen):
            continue
        found = Client().get(f"{LIST}?{'&'.join(chosen)}").json()
        wanted = {str(row.pk) for row in rows if all(WANTED[each](row) for each in chosen)}
        assert {row["id"] for row in found["results"]} == wanted and found["count"] == len(wanted), chosen


@pytest.mark.parametrize("column", ["created_at", "finished_at", "kind", "made_by", "name", "state"])
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


def test_the_page_filters_by_tags_and_constraints_too_and_shows_the_tags(rows: list[Advice]) -> None:
    text = Client().get("/advice?tag=team-a&constraint=regions").content.decode()
    wanted = [row for row in rows if WANTED["tag=team-a"](row) and WANTED["constraint=regions"](row)]
    assert [str(row.pk) in text for row in rows] == [row in wanted for row in rows]
    assert "Tags: Team-A, größe" in text and 'value="team-a"' in text


def test_a_tag_is_asked_for_and_changes_no_answer() -> None:
    spec = sample_advice.parse(sample_advice.SPEC)
    tagged = sample_advice.parse(sample_advice.SPEC + "tags: [team-a, größe]")
    assert tagged == {**spec, "tags": ["team-a", "größe"]}
    assert what_if.same_question(spec, tagged) and not what_if.differences({**spec, "tags": ["x"]}, tagged)
    for wrong in ("team a", "a,b", 'a"b', "a\\b", "", "x" * 41):
        with pytest.raises(WorkloadError):
            sample_advice.parse({**yaml.safe_load(sample_advice.SPEC), "tags": [wrong]})
