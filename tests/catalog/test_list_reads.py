"""What a list reads: as many queries for many rows as for one, and no document that its page does not show."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from advisor import advise
from catalog.models import Accelerator
from probes.machines import jobs
from probes.models import Agent, Job, Result
from probes.received import results
from tests import sample_advice

pytestmark = pytest.mark.django_db


def an_advice(n: int) -> None:
    sample_advice.advice(snapshot={"n": n})


def a_machine(n: int) -> None:
    """With a job that it did and two results."""
    chip = Accelerator.objects.get_or_create(
        slug=f"chip-{n}", defaults={"memory_gib": 1, "memory_gb_per_s": 1, "as_of": "2026-01-01"}
    )[0]
    organisation = advise.default_organisation()
    agent = Agent.objects.create(organisation=organisation, name=f"gpu-{n}", token_hash=f"{n:064}")
    job = jobs.request({"suite": "quick"}, wanted_agent=agent)
    Job.objects.filter(pk=job.pk).update(state="done", agent=agent)
    for attempt in (1, 2):
        Result.objects.create(
            organisation=organisation, agent=agent, job=job, attempt=attempt, state="accepted", accelerator=chip,
            document={"results": []},
        )  # fmt: skip


LISTS: tuple[tuple[str, Callable[[int], None], str], ...] = (
    ("/advice", an_advice, '"advisor_advice"."result"'),
    ("/api/v1/advice", an_advice, '"result"'),
    ("/workers", a_machine, '"document"'),
    ("/workers/results", a_machine, '"document"'),
    ("/api/v1/agents", a_machine, '"document"'),
    ("/api/v1/probe-jobs", a_machine, '"document"'),
    ("/api/v1/probe-results", a_machine, '"document"'),
)


def queries(client: Client, url: str) -> list[str]:
    with CaptureQueriesContext(connection) as found:
        assert client.get(url).status_code == 200
    return [query["sql"] for query in found.captured_queries]


@pytest.mark.parametrize(("url", "make", "unread"), LISTS, ids=[url for url, _, _ in LISTS])
def test_a_list_asks_no_more_of_many_rows_than_of_one(
    client: Client, url: str, make: Callable[[int], None], unread: str
) -> None:
    make(1)
    of_one = queries(client, url)
    for n in range(2, 5):
        make(n)
    of_many = queries(client, url)
    assert len(of_many) == len(of_one)
    assert not [sql for sql in of_many if unread in sql.partition(" FROM ")[0]]


def test_the_last_result_of_each_machine_is_shown(client: Client) -> None:
    for n in (1, 2):
        a_machine(n)
    shown = client.get("/workers").content.decode().partition("</table>")[0]
    newest = [Result.objects.filter(agent__name=f"gpu-{n}").latest("pk") for n in (1, 2)]
    assert all(f'/workers/results/{result.pk}"' in shown for result in newest)


@pytest.mark.parametrize("state", ["running", "done"])
def test_looking_at_an_advice_does_not_read_its_snapshot(client: Client, state: str) -> None:
    found: Any = sample_advice.advice(state=state, snapshot={"asked_on": "2026-01-01"})
    for url in (f"/advice/{found.pk}", f"/api/v1/advice/{found.pk}"):
        assert not [sql for sql in queries(client, url) if '"snapshot"' in sql]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL reads an empty table without any index")
@pytest.mark.parametrize(
    ("newest", "index"),
    [
        (advise.visible, "newest_advice"),
        (jobs.visible, "newest_job"),
        (results.visible, "newest_result"),
    ],
)
def test_the_newest_page_is_found_by_an_index_however_many_there_are(newest: Callable[..., Any], index: str) -> None:
    plan = newest(advise.default_organisation())[:50].explain()
    assert index in plan and "TEMP B-TREE" not in plan
