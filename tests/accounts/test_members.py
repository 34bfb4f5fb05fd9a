"""Joining and leaving an organization: invitations, roles, the last admin, and how the first organization starts."""

import re
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core import mail
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from advisor.api import tokens
from advisor.models import ApiToken
from catalog.accounts import organizations
from catalog.models import AuditEvent, Invitation, Membership, Organisation, default_organisation
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
EMAIL, PASSWORD = "bob@acme.example", "a long enough word"


@pytest.fixture
def acme() -> Organisation:
    return organisation("acme")


@pytest.fixture
def admin(acme: Organisation, client: Client) -> Client:
    client.force_login(member("ada", "admin", acme))
    return client


def invited(admin: Client, role: str = "planner", email: str = EMAIL) -> str:
    """The path of the link in the e-mail."""
    assert admin.post("/members", {"email": email, "role": role}).status_code == 200
    found = re.search(r"http://127.0.0.1:8000(/join/\S+)", str(mail.outbox[-1].body))
    assert found is not None
    return found[1]


def test_an_invitation_arrives_by_email_and_makes_an_account_with_its_role(admin: Client, acme: Organisation) -> None:
    path = invited(admin, "operator")
    assert (
        mail.outbox[0].to == [EMAIL] and "join Acme" in mail.outbox[0].body and "ada invited you" in mail.outbox[0].body
    )
    assert path.removeprefix("/join/") not in str(list(Invitation.objects.values()))  # only its hash is stored
    bob = Client()
    assert "invited as operator" in bob.get(path).content.decode()
    given = {"name": "Bob", "new_password1": PASSWORD, "new_password2": PASSWORD}
    assert bob.post(path, given).status_code == 302
    user = User.objects.get(username=EMAIL)
    assert (user.email, user.first_name, user.is_staff, user.check_password(PASSWORD)) == (EMAIL, "Bob", False, True)
    assert Membership.objects.get(user=user).role == "operator"
    assert "Acme" in bob.get("/account").content.decode()
    assert Client().get(path).status_code == Client().post(path, given).status_code == 404  # single use


@pytest.mark.parametrize(
    "change", [{"expires_at": timezone.now() - timedelta(seconds=1)}, {"revoked_at": timezone.now()}]
)
def test_an_invitation_that_ended_opens_nothing(admin: Client, change: dict[str, Any]) -> None:
    path = invited(admin)
    Invitation.objects.update(**change)
    assert Client().get(path).status_code == 404


def test_it_lasts_seven_days_and_a_second_one_replaces_it(admin: Client) -> None:
    first = invited(admin)
    assert timedelta(days=6.9) < Invitation.objects.get().expires_at - timezone.now() <= timedelta(days=7)
    second = invited(admin, email=EMAIL.upper())
    assert (Client().get(first).status_code, Client().get(second).status_code) == (404, 200)
    admin.post(f"/members/invitations/{Invitation.objects.first().pk}/revoke")  # type: ignore[union-attr]
    assert Client().get(second).status_code == 404


def test_an_existing_account_joins_and_another_one_cannot(admin: Client, acme: Organisation) -> None:
    bob, eve = member("bob", email=EMAIL), member("eve", email="eve@acme.example")
    path = invited(admin)
    visitor = Client()
    assert "Sign in to join" in visitor.get(path).content.decode()
    visitor.post(path, {"name": "Bob", "new_password1": PASSWORD, "new_password2": PASSWORD})
    assert User.objects.count() == 3
    for user, joins in ((eve, False), (bob, True)):
        browser = Client()
        browser.force_login(user)
        assert ("is for bob@acme.example" in browser.get(path).content.decode()) is not joins
        browser.post(path)
        assert Membership.objects.filter(user=user, organisation=acme).exists() is joins
    assert invited_again(admin) == 422


def invited_again(admin: Client) -> int:
    return admin.post("/members", {"email": EMAIL, "role": "viewer"}).status_code


def test_weak_passwords_are_refused(admin: Client) -> None:
    path = invited(admin)
    for password in ("short", "password123", EMAIL):
        answer = Client().post(path, {"name": "Bob", "new_password1": password, "new_password2": password})
        assert answer.status_code == 422
    assert not User.objects.filter(username=EMAIL).exists()


def test_the_link_is_shown_where_no_email_can_be_sent(admin: Client, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9  # nobody listens
    text = admin.post("/members", {"email": EMAIL, "role": "viewer"}).content.decode()
    assert "could not be sent" in text and "http://127.0.0.1:8000/join/" in text


# --- roles ------------------------------------------------------------------------------------------------------


def test_an_admin_changes_roles_and_removes_members_with_their_tokens(admin: Client, acme: Organisation) -> None:
    bob = member("bob", "viewer", acme)
    row = Membership.objects.get(user=bob)
    _, token = tokens.make("ci", "read", made_by="bob", organisation=acme)
    _, kept = tokens.make("ci", "read", made_by="bob")  # of another organization
    admin.post(f"/members/{row.pk}/role", {"role": "planner"})
    row.refresh_from_db()
    assert row.role == "planner"
    assert "Remove bob from Acme?" in admin.get(f"/members/{row.pk}/remove").content.decode()
    admin.post(f"/members/{row.pk}/remove")
    assert not Membership.objects.filter(user=bob).exists() and User.objects.filter(pk=bob.pk).exists()
    assert [each.status for each in ApiToken.objects.filter(pk__in=[token.pk, kept.pk]).order_by("pk")] == [
        "revoked", "live",
    ]  # fmt: skip


def test_the_last_admin_stays(admin: Client, acme: Organisation) -> None:
    row = Membership.objects.get(user__username="ada")
    for path, given in ((f"/members/{row.pk}/role", {"role": "viewer"}), (f"/members/{row.pk}/remove", {})):
        text = admin.post(path, given, follow=True).content.decode()
        assert "This is the last admin" in text
    row.refresh_from_db()
    assert row.role == "admin"
    member("bob", "admin", acme)
    admin.post(f"/members/{row.pk}/role", {"role": "viewer"})
    row.refresh_from_db()
    assert row.role == "viewer" and admin.get("/members").status_code == 403


def test_staff_stay_admins_of_the_default_organization() -> None:
    eve = member("eve", "admin", is_staff=True)
    row = Membership.objects.get(user=eve)
    with pytest.raises(organizations.Refused, match="eve is staff"):
        organizations.remove(row, "", tokens.revoke_made_by)
    ada = Membership.objects.get(user=member("ada", "admin"))
    organizations.remove(ada, "", tokens.revoke_made_by)  # eve is left
    assert list(Membership.objects.all()) == [row]


# --- how organizations start ------------------------------------------------------------------------------------


def test_a_command_creates_an_organization_and_invites_its_admin(capsys: Any, settings: Any) -> None:
    settings.PUBLIC_URL = "https://assay.example/"
    call_command("create_organization", "acme", "--name", "Acme Inc.", "--admin", EMAIL)
    link = re.search(r"https://assay.example(/join/\S+)", capsys.readouterr().out)
    assert link is not None and link[0] in mail.outbox[0].body
    bob = Client()
    bob.post(link[1], {"name": "Bob", "new_password1": PASSWORD, "new_password2": PASSWORD})
    assert "Acme Inc." in bob.get("/members").content.decode()
    call_command("create_organization", "acme", "--admin", "second@acme.example")
    assert Organisation.objects.filter(slug="acme").count() == 1 and Invitation.objects.count() == 2


def test_existing_accounts_become_members_of_the_default_organization() -> None:
    """The migration of a database from before there were roles."""
    User.objects.create_user("staff", is_staff=True)
    User.objects.create_user("user")
    import_module("catalog.migrations.0023_members").add_members(apps, None)
    rows = Membership.objects.filter(organisation=default_organisation())
    assert set(rows.values_list("user__username", "role")) == {("staff", "admin"), ("user", "planner")}
    assert not AuditEvent.objects.exists()
