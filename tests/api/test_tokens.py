"""Tokens of people's tools: what each scope opens, how one ends, and that only its hash is kept."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from advisor.api import tokens
from advisor.models import ApiToken
from probes.agent.spec import PROTOCOL
from probes.machines import agents, jobs
from probes.models import Enrolment, Job
from tests import clocks
from tests.people import member
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db
READ, ASK, ENROL = "/api/v1/agents", "/api/v1/advice", "/api/v1/enrolments"


def call(token: str, method: str, path: str, body: Any = None) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    sent = getattr(Client(), method)(path, body, content_type="application/json", headers=headers)
    return int(sent.status_code)


@pytest.fixture(autouse=True)
def users() -> None:
    member("ada")


@pytest.mark.parametrize(
    ("scope", "read", "ask", "enrol"), [("read", 200, 403, 403), ("submit", 200, 422, 403), ("admin", 200, 422, 201)]
)
def test_a_scope_opens_what_it_says_and_no_more(scope: str, read: int, ask: int, enrol: int) -> None:
    token, _ = tokens.make("ci", scope)
    assert call(token, "get", READ) == read
    assert call(token, "post", ASK, {}) == ask and call(token, "post", ENROL, {}) == enrol


STAFF_CALLS = (
    ("get", ENROL), ("post", ENROL), ("post", "/api/v1/probe-jobs"), ("post", "/api/v1/agents/{agent}/revoke"),
    ("post", "/api/v1/probe-jobs/{job}/cancel"), ("post", "/api/v1/probe-results/1/release"),
)  # fmt: skip


@pytest.mark.parametrize("scope", ["read", "submit"])
def test_a_scope_holds_where_visitors_may_do_more(scope: str) -> None:
    User.objects.all().delete()  # an open installation without users: visitors may do what staff may
    agent, token = FakeAgent(), tokens.make("ci", scope)[0]
    job = jobs.request({"suite": "quick"})
    for method, path in STAFF_CALLS:
        assert call(token, method, path.format(agent=agent.pk, job=job.pk), {}) == 403, path
    assert Job.objects.get().state == "queued" and agent.lease().status_code == 200
    assert not Enrolment.objects.filter(used_at=None).exists()
    assert Client().post(ENROL, {}, content_type="application/json").status_code == 201
    assert call(tokens.make("ops", "admin")[0], "post", ENROL, {}) == 201


@pytest.mark.parametrize(
    ("open_to_all", "method", "path"),
    [
        (True, "post", ENROL),
        (True, "get", ENROL),
        (False, "get", READ),
        (False, "get", "/api/docs/"),
        (False, "post", ASK),
    ],
)
def test_missing_credentials_are_401_with_a_challenge_and_insufficient_ones_403(
    settings: Any, open_to_all: bool, method: str, path: str
) -> None:
    settings.OPEN = open_to_all
    missing = getattr(Client(), method)(path)
    assert missing.status_code == 401 and missing["WWW-Authenticate"] == 'Bearer realm="assay"'
    assert "manage.py token make" in missing.json()["detail"]
    unknown = getattr(Client(), method)(path, headers={"Authorization": "Bearer aat_x"})
    assert unknown.status_code == 401 and unknown["WWW-Authenticate"] == 'Bearer realm="assay"'
    if path == ENROL:
        ada = Client()
        ada.force_login(User.objects.get())
        insufficient = getattr(ada, method)(path)
        assert insufficient.status_code == 403 and "WWW-Authenticate" not in insufficient


def test_a_machine_without_its_token_is_challenged_too() -> None:
    answer = Client().post("/api/agent/v1/lease", {}, headers={"Agent-Protocol": PROTOCOL})
    assert answer.status_code == 401 and answer["WWW-Authenticate"] == "Bearer" and "agt_" in answer.json()["detail"]


def test_a_page_of_another_site_is_refused_with_403_because_no_credentials_would_help() -> None:
    answer = Client().post(ASK, {}, content_type="application/json", headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403 and "another site" in answer.json()["detail"]


def test_only_the_hash_is_kept_and_the_use_is_noted() -> None:
    token, row = tokens.make("ci", "read")
    assert call(token, "get", READ) == 200
    row.refresh_from_db()
    assert token not in str(list(ApiToken.objects.values())) and row.last_used_at


@pytest.mark.parametrize("end", ["revoked", "ended", "unknown"])
def test_a_token_that_is_no_longer_good_is_refused_even_where_visitors_may_read(end: str) -> None:
    token, row = tokens.make("ci", "admin")
    if end == "revoked":
        tokens.revoke(row)
    if end == "ended":
        ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert Client().get(READ).status_code == 200
    assert call("aat_x" if end == "unknown" else token, "get", READ) == 401


def test_a_rotated_token_works_an_hour_more(monkeypatch: pytest.MonkeyPatch) -> None:
    token, row = tokens.make("ci", "submit", days=30)
    fresh, successor = tokens.rotate(row)
    assert call(token, "get", READ) == call(fresh, "get", READ) == 200
    assert (successor.scope, successor.expires_at - timezone.now() > timedelta(days=29)) == ("submit", True)
    now = timezone.now()
    clocks.set_database(monkeypatch, lambda: now + timedelta(seconds=3601))
    assert (call(token, "get", READ), call(fresh, "get", READ)) == (401, 200)


def test_tokens_of_machines_and_of_people_open_each_only_their_side() -> None:
    token, _ = tokens.make("ci", "admin")
    machine = FakeAgent()
    assert call(machine.token, "get", READ) == 401
    machine.token = token
    assert machine.lease().status_code == 401


def test_where_a_login_is_needed_a_token_is_one(settings: Any) -> None:
    settings.OPEN = False
    token, _ = tokens.make("ci", "read")
    assert Client().get(READ).status_code == Client().get("/api/schema/").status_code == 401
    assert call(token, "get", READ) == 200


def test_the_command_makes_lists_rotates_and_revokes(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("token", "make", "ci", "--scope", "submit")
    token = capsys.readouterr().out.strip()
    call_command("token", "rotate", token[:12])
    fresh = capsys.readouterr().out.strip()
    call_command("token", "list")
    listed = capsys.readouterr().out
    assert listed.count("live") == 2 and token not in listed and "submit" in listed
    call_command("token", "revoke", fresh[:12])
    assert call(fresh, "get", READ) == 401
    for wrong in (["revoke", "aat_"], ["make", "x", "--days", "4000"]):
        with pytest.raises(CommandError):
            call_command("token", *wrong)


def test_the_admin_shows_tokens_and_machines_without_their_hashes_and_revokes(client: Client) -> None:
    User.objects.update(is_staff=True, is_superuser=True)
    client.force_login(User.objects.get())
    _, row = tokens.make("ci", "admin")
    machine = FakeAgent()
    for path in (f"advisor/apitoken/{row.pk}/change/", f"probes/agent/{machine.pk}/change/", "probes/enrolment/"):
        page = client.get(f"/admin/{path}")
        assert page.status_code == 200 and row.token_hash not in page.content.decode()
        assert agents.hashed(machine.token) not in page.content.decode()
    client.post("/admin/advisor/apitoken/", {"action": "revoke", "_selected_action": [row.pk]})
    client.post("/admin/probes/agent/", {"action": "revoke", "_selected_action": [machine.pk]})
    row.refresh_from_db()
    assert row.status == "revoked" and machine.lease().status_code == 401


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}], ids=str
)
def test_another_sites_page_changes_nothing_through_a_visitors_browser(headers: dict[str, str]) -> None:
    User.objects.all().delete()
    machine = FakeAgent()
    revoke = f"/api/v1/agents/{machine.pk}/revoke"
    assert Client().post(revoke, headers=headers).status_code == 403
    assert machine.lease().status_code == 204 and not Job.objects.exists()
    own = {"origin": "http://testserver", "sec-fetch-site": "same-origin"}
    assert Client().post(revoke, headers=own).status_code == 200
