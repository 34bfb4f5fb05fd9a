"""Whoever reads advice, jobs, results or machines writes nothing, and sees one organization."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from advisor import advise
from catalog.models import Organisation
from probes.machines import agents, jobs
from probes.models import Agent, Result
from probes.received import results
from tests import sample_advice

pytestmark = pytest.mark.django_db
VISIBLE = [advise.visible, agents.visible, jobs.visible, results.visible]


def written(read: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(connection) as found:
        read()
    assert len(found) > 0
    return [q["sql"] for q in found if q["sql"].split()[0].upper() in ("INSERT", "UPDATE", "DELETE")]


@pytest.mark.parametrize("visible", VISIBLE)
def test_a_read_writes_nothing(visible: Callable[..., Any]) -> None:
    owner = advise.default_organisation()
    assert written(lambda: list(visible(owner))) == []


def test_a_read_does_not_create_a_missing_organization() -> None:
    Organisation.objects.all().delete()

    def read() -> None:
        with pytest.raises(Organisation.DoesNotExist, match="run manage.py migrate"):
            advise.default_organisation()

    assert written(read) == []


@pytest.mark.parametrize("path", ["/advice", "/api/v1/advice", "/workers", "/api/v1/agents"])
def test_a_list_writes_nothing(path: str, client: Client) -> None:
    assert written(lambda: client.get(path)) == []


def test_a_caller_sees_the_rows_of_the_organization_it_names() -> None:
    other = Organisation.objects.create(slug="other", name="Other")
    mine, default = sample_advice.advice(), advise.default_organisation()
    agent = Agent.objects.create(organisation=other, name="machine")
    job = jobs.request({"suite": "quick"}, organisation=other)
    row = Result.objects.create(organisation=other, agent=agent, job=job, state=Result.State.ACCEPTED)
    assert list(advise.visible(default)) == [mine] and not advise.visible(other).exists()
    for visible, own in ((agents.visible, agent), (jobs.visible, job), (results.visible, row)):
        assert list(visible(other)) == [own] and not visible(default).exists()


def test_migrate_creates_the_default_organization_again() -> None:
    Organisation.objects.all().delete()
    call_command("migrate", verbosity=0)
    assert advise.default_organisation().slug == "default"
