"""The audit log: every kind of action leaves an event of its organization, which admins filter and export."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from advisor import deletion
from advisor.models import Share
from catalog.accounts import audit
from catalog.models import AuditEvent, default_organisation
from probes.machines import agents
from tests import sample_advice
from tests.people import member, organisation
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough word"


def events() -> list[tuple[str, str]]:
    return list(AuditEvent.objects.order_by("pk").values_list("who", "action"))


def test_signing_in_and_failing_to_are_recorded(client: Client, settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    acme = organisation("acme")
    member("ada", "viewer", acme, password=PASSWORD)
    for name, password in (("ada", "wrong"), ("ada", PASSWORD), ("nobody", "x")):
        client.post("/login", {"username": name, "password": password})
    client.post("/admin/login/", {"username": "ada", "password": "wrong"})
    found = AuditEvent.objects.order_by("pk").values_list("organisation__slug", "who", "action", "what")
    assert list(found) == [
        ("acme", "ada", "sign_in_failed", "ada"), ("acme", "ada", "sign_in", "ada"),
        ("default", "", "sign_in_failed", "nobody"), ("acme", "ada", "sign_in_failed", "ada"),
    ]  # fmt: skip


def test_pages_record_who_did_what(client: Client) -> None:
    advice = sample_advice.advice()
    client.force_login(member("ada", "admin"))
    page = f"/advice/{advice.pk}"
    client.post(f"{page}/share", {"days": "7"})
    client.post(f"{page}/unshare", {"link": str(Share.objects.get().pk)})
    client.post(f"{page}/comments", {"text": "Buy it."})
    client.post(f"{page}/delete")
    client.post("/tokens", {"name": "ci", "scope": "read", "days": "5"})
    client.post("/workers/enrol", {"labels": "a=b"})
    client.post("/members", {"email": "bob@acme.example", "role": "viewer"})
    assert events() == [
        ("ada", name) for name in ("share", "share_ended", "comment", "delete", "token", "enroll", "invite")
    ]
    assert AuditEvent.objects.get(action="delete").what == f"advice: {advice.workload.name}"


def test_machines_are_recorded() -> None:
    machine = FakeAgent()
    agent = agents.by_token(machine.token)
    assert agent is not None
    for change in (agents.trust, agents.distrust, agents.revoke):
        change(agent, "ada")
        assert not change(agent, "ada")  # nothing changed, so nothing is recorded
    assert events()[-4:] == [("machine gpu-1", "machine"), *[("ada", "machine_changed")] * 3]


def test_an_action_that_is_rolled_back_leaves_no_event() -> None:
    advice = sample_advice.advice()
    with pytest.raises(RuntimeError), transaction.atomic():
        deletion.delete_advice(advice, "ada")
        raise RuntimeError
    assert not AuditEvent.objects.exists()


@pytest.fixture
def log(client: Client) -> Client:
    owner = default_organisation()
    for n in range(60):
        audit.record(owner, f"user-{n % 3}", audit.Action.SHARE, f"=link {n}")
    audit.record(organisation("acme"), "user-0", audit.Action.SHARE, "secret")
    audit.record(owner, "user-1", audit.Action.DELETE, "advice: gone", "x")
    AuditEvent.objects.filter(action="delete").update(at=timezone.now() - timedelta(days=3))
    client.force_login(member("ada", "admin"))
    return client


@pytest.mark.parametrize(("query", "rows"), [
    ("", 61), ("?who=user-1", 21), ("?who=USER-1&action=delete", 1), ("?action=token", 0),
    (f"?since={timezone.now() - timedelta(days=1):%Y-%m-%d}", 60),
    (f"?until={timezone.now() - timedelta(days=2):%Y-%m-%d}", 1),
])  # fmt: skip
def test_admins_filter_by_user_action_and_date_and_export(log: Client, query: str, rows: int) -> None:
    text = log.get(f"/audit{query}{'&' if query else '?'}format=csv").content.decode()
    assert text.splitlines()[0] == "at,who,action,what,detail" and len(text.splitlines()) == rows + 1
    assert "secret" not in text and ",=link" not in text  # no formulas in a spreadsheet
    page = log.get(f"/audit{query}").content.decode()
    assert page.count("<time ") == min(rows, 50) and "secret" not in page


def test_the_log_has_pages_that_keep_the_filter(log: Client) -> None:
    assert log.get("/audit?page=2").content.decode().count("<time ") == 11
    assert "action=share&amp;page=2" in log.get("/audit?action=share").content.decode()
    assert log.get("/audit?since=yesterday").status_code == 422
