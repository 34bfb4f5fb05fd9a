"""Tokens of people and of service accounts: never more than the role behind them, and they end with it."""

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor.api import tokens
from advisor.models import ApiToken
from catalog.accounts import Right, caller_of, service_accounts
from catalog.accounts.access import OF_ROLE, OF_SCOPE
from catalog.management.errors import BadInput
from catalog.models import AuditEvent, Membership, Organisation, Role, ServiceAccount
from tests import sample_advice
from tests.people import member, organisation

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Organisation:
    return organisation("acme")


@pytest.fixture
def admin(client: Client, acme: Organisation) -> Client:
    client.force_login(member("ada", "admin", acme))
    return client


def with_token(token: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {token}"})


def sent(client: Client, method: str, path: str, **body: Any) -> Any:
    return getattr(client, method)(f"/api/v1/{path}", body or None, content_type="application/json")


@pytest.mark.parametrize("role", Role.values)
@pytest.mark.parametrize("scope", ApiToken.Scope.values)
@pytest.mark.parametrize("kind", ["person", "service"])
def test_a_token_has_the_rights_of_scope_and_role(acme: Organisation, role: Role, scope: str, kind: str) -> None:
    person = member("bob", role, acme)
    holder = person if kind == "person" else service_accounts.create(acme, "ci", role, "")
    _, row = tokens.make("x", scope, organisation=acme, holder=holder)
    row = tokens.by_token(_) or row
    user = tokens.Holder(row)
    rights = caller_of(type("R", (), {"user": user})()).rights
    assert rights == OF_SCOPE[scope] & OF_ROLE[role] and Right.READ in rights
    assert user.get_username() == ("bob" if kind == "person" else "service ci")


def test_a_personal_token_follows_the_membership(acme: Organisation) -> None:
    bob = member("bob", "planner", acme)
    token, _ = tokens.make("mine", "admin", organisation=acme, holder=bob)
    caller, row = with_token(token), Membership.objects.get(user=bob)
    assert caller.get("/api/v1/advice").status_code == 200 and caller.get("/api/v1/members").status_code == 403
    assert "role behind this token" in caller.get("/api/v1/members").json()["detail"]
    Membership.objects.filter(pk=row.pk).update(role="admin")
    assert caller.get("/api/v1/members").status_code == 200
    Membership.objects.filter(pk=row.pk).update(role="viewer")
    assert sent(caller, "post", "advice", name="x").status_code == 403
    row.delete()
    answer = caller.get("/api/v1/advice")
    assert answer.status_code == 401 and "no longer a member" in answer.json()["detail"]
    Membership.objects.create(user=bob, organisation=acme, role="admin")
    bob.is_active = False
    bob.save()
    assert caller.get("/api/v1/advice").status_code == 401


def test_a_member_manages_personal_tokens_and_a_token_cannot_make_one(acme: Organisation, client: Client) -> None:
    client.force_login(member("vera", "viewer", acme))
    member("eve", "admin", acme)
    made = sent(client, "post", "own-tokens", name="laptop", scope="admin", days=5)
    assert made.status_code == 201 and made.json()["user"] == "vera" and made.json()["token"].startswith("aat_")
    caller, pk = with_token(made.json()["token"]), made.json()["id"]
    assert caller.get("/api/v1/own-tokens").json()["count"] == 1
    assert sent(caller, "post", "own-tokens", name="more", scope="read").status_code == 403
    assert sent(client, "post", "own-tokens", name="x", scope="read", days=400).status_code == 422
    fresh = sent(caller, "post", f"own-tokens/{pk}/rotate")
    assert fresh.status_code == 201 and fresh.json()["scope"] == "admin" and fresh.json()["user"] == "vera"
    assert with_token(fresh.json()["token"]).get("/api/v1/advice").status_code == 200
    assert client.delete(f"/api/v1/own-tokens/{pk}").status_code == 204
    assert caller.get("/api/v1/advice").status_code == 401
    others = Client()
    others.force_login(member("mallory", "admin", acme))
    left = ApiToken.objects.get(user__username="vera")
    assert others.delete(f"/api/v1/own-tokens/{left.pk}").status_code == 404  # admins use /tokens
    assert others.get("/api/v1/tokens").json()["results"][0]["user"] == "vera"


def test_pages_make_and_revoke_personal_tokens_and_service_accounts(admin: Client, acme: Organisation) -> None:
    page = admin.post("/account/tokens", {"name": "laptop", "scope": "read", "days": "5"}).content.decode()
    assert "New token: laptop" in page and "Service account" not in page
    row = ApiToken.objects.get()
    admin.post(f"/account/tokens/{row.pk}/revoke")
    row.refresh_from_db()
    assert row.status == "revoked"
    admin.post("/service-accounts", {"name": "nightly", "role": "planner"})
    account = ServiceAccount.objects.get()
    given = {"name": "nightly", "scope": "submit", "days": "5", "service_account": account.pk}
    assert "nightly" in admin.post("/tokens", given).content.decode()
    assert ApiToken.objects.get(name="nightly").service_account == account
    for change, expected in (({"role": "viewer"}, ("viewer", False)), ({"do": "disable"}, ("viewer", True))):
        admin.post(f"/service-accounts/{account.pk}", change)
        account.refresh_from_db()
        assert (account.role, bool(account.disabled_at)) == expected
    admin.post(f"/service-accounts/{account.pk}", {"do": "delete"})
    assert not ServiceAccount.objects.exists() and not ApiToken.objects.filter(name="nightly").exists()


def test_service_accounts_and_their_tokens_by_rest(admin: Client, acme: Organisation) -> None:
    account = sent(admin, "post", "service-accounts", name="ci", role="planner").json()
    assert sent(admin, "post", "service-accounts", name="ci", role="viewer").status_code == 409
    theirs = service_accounts.create(organisation("theirs"), "ci", "admin", "")
    assert sent(admin, "post", "tokens", name="x", scope="read", service_account=theirs.pk).status_code == 422
    made = sent(admin, "post", "tokens", name="ci", scope="admin", service_account=account["id"]).json()
    caller = with_token(made["token"])
    assert made["service_account"] == "ci" and caller.get("/api/v1/advice").status_code == 200
    assert caller.get("/api/v1/tokens").status_code == 403
    changed = sent(admin, "patch", f"service-accounts/{account['id']}", role="admin").json()
    assert changed["role"] == "admin" and caller.get("/api/v1/tokens").status_code == 200
    sent(admin, "patch", f"service-accounts/{account['id']}", disabled=True)
    answer = caller.get("/api/v1/advice")
    assert answer.status_code == 401 and "disabled" in answer.json()["detail"]
    sent(admin, "patch", f"service-accounts/{account['id']}", disabled=False)
    assert caller.get("/api/v1/advice").status_code == 200
    wrong = admin.patch(f"/api/v1/service-accounts/{account['id']}", {"name": "x"}, "application/json")
    assert wrong.status_code == 400
    assert admin.delete(f"/api/v1/service-accounts/{account['id']}").status_code == 204
    assert caller.get("/api/v1/advice").status_code == 401
    details = AuditEvent.objects.filter(organisation=acme, action="service_account").values_list("detail", flat=True)
    assert list(details)[::-1] == [
        "created, planner", "planner to admin", "disabled", "enabled", "deleted with its tokens",
    ]  # fmt: skip


def test_members_and_invitations_by_rest(admin: Client, acme: Organisation) -> None:
    member("bob", "viewer", acme, email="bob@acme.example")
    bob = next(row for row in admin.get("/api/v1/members").json()["results"] if row["user"] == "bob")
    assert bob["role"] == "viewer" and bob["email"] == "bob@acme.example"
    assert sent(admin, "patch", f"members/{bob['id']}", role="planner").json()["role"] == "planner"
    assert sent(admin, "patch", f"members/{bob['id']}", role="king").status_code == 400
    ada = Membership.objects.get(user__username="ada")
    last = admin.delete(f"/api/v1/members/{ada.pk}")
    assert last.status_code == 409 and "last admin" in last.json()["detail"]
    assert admin.delete(f"/api/v1/members/{bob['id']}").status_code == 204
    made = sent(admin, "post", "invitations", email="eve@acme.example", role="operator")
    assert made.status_code == 201 and "/join/" in made.json()["url"] and made.json()["was_sent"]
    assert sent(admin, "post", "invitations", email="nobody").status_code == 400
    (listed,) = admin.get("/api/v1/invitations").json()["results"]
    assert listed["email"] == "eve@acme.example" and "url" not in listed
    assert admin.delete(f"/api/v1/invitations/{listed['id']}").status_code == 204
    assert admin.get("/api/v1/invitations").json()["count"] == 0
    events = admin.get("/api/v1/audit?action=role").json()["results"]
    assert [(each["who"], each["what"], each["detail"]) for each in events] == [("ada", "bob", "viewer to planner")]
    assert admin.get("/api/v1/audit?who=nobody").json()["count"] == 0
    assert admin.get("/api/v1/audit?since=yesterday").status_code == 400


def test_planners_share_by_rest_and_admins_delete(acme: Organisation, client: Client) -> None:
    advice = sample_advice.advice()
    path = f"advice/{advice.pk}/shares"
    token, _ = tokens.make("ci", "submit")
    caller, reader = with_token(token), with_token(tokens.make("r", "read")[0])
    assert sent(reader, "post", path, days=5).status_code == reader.get(f"/api/v1/{path}").status_code == 403
    made = sent(caller, "post", path, days=5)
    assert made.status_code == 201
    link = made.json()["url"].removeprefix("http://testserver")
    assert Client().get(link).status_code == 200
    assert caller.get(f"/api/v1/{path}").json()["results"][0]["url"] is None
    assert sent(caller, "post", path, days=0).status_code == 400
    pk = made.json()["id"]
    assert caller.delete(f"/api/v1/{path}/{pk}").status_code == 403
    assert sent(caller, "post", f"{path}/{pk}/end").status_code == 200
    assert Client().get(link).status_code == 404 and sent(caller, "post", f"{path}/{pk}/end").status_code == 409
    theirs = with_token(tokens.make("t", "admin", organisation=acme)[0])
    assert sent(theirs, "post", path).status_code == sent(theirs, "post", f"{path}/{pk}/end").status_code == 404


def test_the_commands_make_service_accounts_and_their_tokens(acme: Organisation, capsys: Any) -> None:
    call_command("service_account", "--organization", "acme", "make", "ci", "viewer")
    call_command("token", "make", "ci", "--organization", "acme", "--service-account", "ci", "--scope", "admin")
    token = capsys.readouterr().out.split()[-1]
    assert with_token(token).get("/api/v1/advice").status_code == 200
    call_command("service_account", "--organization", "acme", "disable", "ci")
    call_command("service_account", "--organization", "acme", "list")
    assert "ci  viewer  disabled" in capsys.readouterr().out
    with pytest.raises(BadInput, match="has no service account"):
        call_command("token", "make", "x", "--service-account", "ci")
    with pytest.raises(BadInput, match="no organization 'none'"):
        call_command("service_account", "--organization", "none", "list")


def test_the_settings_bound_the_life_of_tokens(settings: Any, admin: Client) -> None:
    settings.TOKEN_DAYS, settings.TOKEN_MAX_DAYS = 7, 14
    assert (tokens.make("x", "read")[1].expires_at - tokens.clock.read()).days in (6, 7)
    with pytest.raises(ValueError, match="days from 1 to 14"):
        tokens.make("x", "read", 15)
    assert sent(admin, "post", "tokens", name="x", scope="read", days=15).status_code == 422
