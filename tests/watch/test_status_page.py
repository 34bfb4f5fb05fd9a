"""The status page shows what doctor finds, to those who maintain the installation."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from advisor.models import Advice, Workload
from catalog.models import Organisation, default_organisation
from probes.status import checks

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "workers", lambda: checks.Finding(False, "worker", "no answer"))


def failed(owner: Organisation, name: str, reason: str) -> Advice:
    workload = Workload.objects.create(organisation=owner, name=name, spec={"name": name})
    ended = {"state": "failed", "error": reason, "finished_at": timezone.now()}
    return Advice.objects.create(organisation=owner, workload=workload, **ended)


def test_without_accounts_everybody_sees_every_check_and_the_newest_failures(client: Client) -> None:
    other = Organisation.objects.create(slug="acme", name="Acme")
    failed(default_organisation(), "our question", "out of memory")
    failed(other, "their secret question", "their reason")
    page = client.get("/status").content.decode()
    for finding in checks.examine():
        assert f">{finding.name}<" in page
    assert "Needs attention" in page and "no answer" in page
    assert "our question" in page and "out of memory" in page
    assert ">acme<" in page and "their secret question" not in page and "their reason" not in page


def test_only_those_who_maintain_the_installation_see_it(client: Client) -> None:
    User.objects.create_superuser("root", password="x")
    assert client.get("/status").status_code == 302
    client.force_login(User.objects.create_user("visitor"))
    assert client.get("/status").status_code == 403
    client.force_login(User.objects.get(username="root"))
    assert client.get("/status").status_code == 200


def test_it_says_so_when_the_database_cannot_be_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    from probes.status import pages

    def away(request: Any) -> Any:
        raise OperationalError

    monkeypatch.setattr(pages, "work", away)
    assert "Answers cannot be counted" in client.get("/status").content.decode()
