"""Whose turn it is, how many are ahead, and how much each organization and person may queue."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from advisor import advise, turns
from advisor.models import Advice, Workload
from catalog.models import Organisation
from tests import answers

START = datetime(2026, 11, 26, tzinfo=UTC)


def waiting(*groups: tuple[int, str]) -> list[turns.Waiting]:
    """One row of each group, the oldest first."""
    return [turns.Waiting(n, *group, START + timedelta(seconds=n)) for n, group in enumerate(groups)]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(50))
def test_nobody_starts_twice_while_somebody_who_has_fewer_waits(seed: int) -> None:
    """At every start, no organization that waits has fewer calculations, and within it no person has."""
    rng = random.Random(seed)
    rows = waiting(*((rng.randrange(3), rng.choice("abc")) for _ in range(40)))
    running = {(rng.randrange(3), rng.choice("abc")): rng.randrange(4) for _ in range(4)}
    last = {(rng.randrange(3), rng.choice("abc")): START - timedelta(seconds=rng.randrange(99)) for _ in range(4)}
    left, load = {row.pk: row for row in rows}, Counter(running)
    for pk in turns.in_turn(rows, running, last):
        taken = left[pk]
        of = Counter[int]()
        for (organisation, _), count in load.items():
            of[organisation] += count
        assert of[taken.organisation] == min(of[row.organisation] for row in left.values())
        mates = [row for row in left.values() if row.organisation == taken.organisation]
        own = [load[row.organisation, row.person] for row in mates]
        assert load[taken.organisation, taken.person] == min(own)
        assert taken.since == min(row.since for row in mates if row.person == taken.person)
        del left[pk]
        load[taken.organisation, taken.person] += 1
    assert not left


def test_a_person_without_a_turn_comes_before_an_older_question_of_one_who_had_one() -> None:
    rows = waiting(*[(1, "ada")] * 30, (2, "bob"))
    assert list(turns.in_turn(rows, {}, {(1, "ada"): START}))[0] == 30
    same = waiting(*[(1, "ada")] * 30, (1, "bob"))
    assert list(turns.in_turn(same, {}, {(1, "ada"): START}))[0] == 30


def queued(slug: str, person: str, count: int = 1) -> list[Advice]:
    owner, _ = Organisation.objects.get_or_create(slug=slug, defaults={"name": slug})
    rows = [Workload.objects.create(organisation=owner, name="small", spec=answers.spec()) for _ in range(count)]
    return [advise.queue(row, made_by=person) for row in rows]


@pytest.mark.django_db
def test_page_and_api_say_how_many_are_ahead(client: Client, woken: list[str]) -> None:
    queued("acme", "ada", 3)
    own = queued("default", "", 3)
    shown = client.get(f"/api/v1/advice/{own[2].pk}").json()
    assert shown["ahead"] == 5
    assert "5 requests ahead" in client.get(f"/advice/{own[2].pk}").content.decode()
    listed = {row["id"]: row["ahead"] for row in client.get("/api/v1/advice").json()["results"]}
    assert [listed[str(row.pk)] for row in own] == [1, 3, 5]
    advise.cancel(own[2])
    assert client.get(f"/api/v1/advice/{own[2].pk}").json()["ahead"] is None


@pytest.mark.django_db
def test_a_full_queue_of_one_organization_leaves_room_for_another(
    woken: list[str], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ADVICE_MAX_QUEUED, settings.ADVICE_MAX_QUEUED_PERSON = 4, 3
    queued("acme", "ada", 3)
    acme, other = Organisation.objects.get(slug="acme"), advise.default_organisation()
    with pytest.raises(advise.QueueFull, match="you have 3, and your limit is 3"):
        advise.check_room(acme, "ada")
    advise.check_room(acme, "bob")
    with pytest.raises(advise.QueueFull, match="your organization has 3, and its limit is 4"):
        advise.check_room(acme, "bob", 2)
    advise.check_room(other, "ada", 3)
    Advice.objects.update(state="cancelled")
    advise.check_room(acme, "ada")


@pytest.mark.django_db
def test_a_portfolio_gives_way_after_each_of_its_workloads(
    woken: list[str], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four requests that wait, one is computed after each of three workloads; another portfolio is not."""
    owner, full, seen = advise.default_organisation(), engine.recommend, []
    spec = {"kind": "portfolio", "name": "all", "workloads": [{"kind": "chat"}] * 3}
    both = [Workload.objects.create(organisation=owner, name="all", spec=spec) for _ in range(2)]
    advice, second = (advise.queue(row) for row in both)

    def recommend(spec: Any, snapshot: Any, progress: Any) -> Any:
        seen.append(spec["name"])
        for part in range(3 if spec["name"] == "all" else 0):
            for done in (0.0, 0.5, 1.0):
                progress(f"part {part}", (part + done) / 4)
            seen.append(f"after {part}")
        return full(spec, snapshot)

    engine.recommend = recommend
    claim = advise.claimed(advice.pk)
    assert claim
    queued("acme", "bob", 4)
    advise.work(claim)
    assert seen == ["all", "small", "after 0", "small", "after 1", "small", "after 2"]
    advice.refresh_from_db()
    second.refresh_from_db()
    assert (advice.state, advice.attempt, second.state) == ("done", 1, "queued")
    assert Advice.objects.filter(state="done").count() == 4
