"""A role opens what it says: controls that it may not use are not drawn, and the server refuses them anyway."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver

from advisor.api import tokens
from advisor.models import ApiToken
from catalog.accounts import service_accounts
from catalog.models import Membership
from probes.models import Agent
from tests import sample_advice
from tests.accounts.test_other_organizations import NOT_OURS, patterns, states
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
MAY_POST = (  # a viewer
    "login", "logout", "language", "password/reset", "join/", "account", "admin/", "api/agent/", "s/", "static/",
)  # fmt: skip


def as_role(role: str) -> Client:
    client = Client()
    client.force_login(member(role, role))
    return client


def test_a_viewer_changes_nothing_at_any_address() -> None:
    client, advice = as_role("viewer"), sample_advice.advice()
    agent = Agent.objects.create(organisation=advice.organisation, name="gpu")
    values = {"uuid": str(advice.pk), "int": "1", "slug": "x", "str": "x", "path": "x", "rank": "1"}
    tried, before = 0, states()
    for pattern in patterns(get_resolver().url_patterns):
        if pattern.startswith((*MAY_POST, *NOT_OURS)) or pattern == "catalog/":  # which redirects to a list
            continue
        path = re.sub(r"\(\?P<\w+>[^)]*\)", str(agent.pk), re.sub(r"[\^$]|\\Z", "", pattern)).replace("\\.", ".")
        path = "/" + re.sub(r"<(?:(\w+):)?\w+>", lambda m: values[m[1] or "str"], path)
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = client.generic(method, path, b"{}", "application/json")
            tried += 1
            assert answer.status_code not in (201, 202, 204, 302), f"{method} {path}: {answer.status_code}"
    assert states() == before
    assert tried > 300


REFUSED = {  # a page that a role cannot open, and the role that its refusal names
    "viewer": ("/catalog/prices/new", "planner or higher"),
    "planner": ("/workers/enrol", "operator or higher"),
    "operator": ("/audit", "the role admin."),
}


@pytest.mark.parametrize("role", REFUSED)
def test_a_refusal_says_which_role_is_needed(role: str) -> None:
    path, needed = REFUSED[role]
    answer = as_role(role).get(path)
    text = answer.content.decode()
    assert answer.status_code == 403 and f"is {role}" in text and needed in text


CONTROLS = (  # what a page draws, for the first role that may use it
    ("/advice/{advice}", "Re-run with today", "planner"), ("/advice/{advice}", "Create link", "planner"),
    ("/advice/{advice}", "Add comment", "planner"), ("/advice/{advice}", "/delete", "admin"),
    ("/", "Find accelerators", "planner"), ("/workers", "Enroll a machine", "operator"),
    ("/catalog/prices", "Add your price", "planner"), ("/advice", 'href="/members"', "admin"),
    ("/advice", 'href="/audit"', "admin"), ("/advice", 'href="/account"', "viewer"),
)  # fmt: skip
ROLES = ("viewer", "planner", "operator", "admin")


def test_controls_are_drawn_for_those_who_may_use_them() -> None:
    advice, clients = sample_advice.advice(), {role: as_role(role) for role in ROLES}
    for path, control, first in CONTROLS:
        shown = [role for role in ROLES if control in clients[role].get(path.format(advice=advice.pk)).content.decode()]
        assert shown == list(ROLES[ROLES.index(first) :]), (path, control)


def test_what_all_organizations_share_is_changed_by_the_default_one_alone() -> None:
    client = Client()
    client.force_login(member("ada", "admin", organisation("acme")))
    for path in ("/workers/calibrations/1/undo", "/catalog/models/x/delete", "/catalog/models/x/share"):
        answer = client.post(path)
        assert answer.status_code == 403 and "what all organizations share" in answer.content.decode()


def test_an_account_without_an_organization_sees_only_itself() -> None:
    client = Client()
    client.force_login(User.objects.create_user("ada"))
    for path in ("/", "/advice", "/catalog/accelerators", "/workers", "/docs/"):
        answer = client.get(path)
        assert answer.status_code == 403 and "belongs to no organization" in answer.content.decode(), path
    assert client.get("/account").status_code == 200
    assert client.get("/api/v1/advice").status_code == client.get("/api/v1/models").status_code == 403


def test_a_user_of_two_organizations_switches_and_sees_only_one(client: Client) -> None:
    ada, acme = member("ada"), organisation("acme")
    Membership.objects.create(user=ada, organisation=acme, role="viewer")
    sample_advice.advice()
    client.force_login(ada)

    def count() -> Any:
        return client.get("/api/v1/advice").json()["count"]

    assert count() == 1
    client.post("/account/organization", {"organisation": acme.pk})
    assert count() == 0 and "Acme" in client.get("/advice").content.decode()
    assert client.post("/account/organization", {"organisation": organisation("others").pk}).status_code == 404
    assert count() == 0


def test_single_user_mode_has_no_accounts(client: Client) -> None:
    text = client.get("/advice").content.decode()
    assert "Sign in" not in text and 'href="/account"' not in text and 'href="/members"' not in text
    assert client.get("/members").status_code == 404 and client.get("/audit").status_code == 200
    assert client.get("/account")["Location"].startswith("/login")


OF_ADMINS = ("members", "invitations", "service-accounts", "tokens", "audit", "organization")


def test_calls_of_admins_are_open_to_admins_and_their_tokens_alone() -> None:
    """Each list by each role, in a session, with a personal token of any scope, and with a service account's."""
    User.objects.create_user("first")
    owner = organisation("acme")
    for role in ROLES:
        user = member(f"{role}-1", role, owner)
        session = Client()
        session.force_login(user)
        program = service_accounts.create(owner, role, role, "")
        callers = {
            (kind, scope): Client(
                headers={"Authorization": f"Bearer {tokens.make('x', scope, organisation=owner, holder=holder)[0]}"}
            )
            for kind, holder in (("person", user), ("program", program))
            for scope in ApiToken.Scope.values
        }
        for name in OF_ADMINS:
            assert session.get(f"/api/v1/{name}").status_code == (200 if role == "admin" else 403), (role, name)
            for (kind, scope), caller in callers.items():
                may = role == "admin" and scope == "admin"
                answer = caller.get(f"/api/v1/{name}")
                assert answer.status_code == (200 if may else 403), (role, kind, scope, name)
