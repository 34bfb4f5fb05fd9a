"""Lives of tokens to the second, the rights of scopes and roles, and which page a visitor's request comes from."""

from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils import timezone
from rest_framework import exceptions

from advisor.api import tokens
from advisor.api.tokens import Allowed, Holder, PersonToken, TokenRefused, same_site
from advisor.models import ApiToken
from catalog.accounts.access import SESSION_KEY, Right, caller_of, needs, organisation_of
from catalog.models import Membership
from tests import clocks
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.get_current_timezone())


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    def moved(by: timedelta) -> None:
        clocks.set_database(monkeypatch, lambda: NOW + by)
        monkeypatch.setattr(timezone, "now", lambda: NOW + by)

    moved(timedelta(0))
    return moved


# --- lives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "days"), [("read", 0), ("read", 367), ("root", 30)])
def test_a_token_has_a_known_scope_and_a_life_of_1_to_366_days(scope: str, days: int) -> None:
    with pytest.raises(ValueError, match="read, submit, prices, admin, and days from 1 to 366"):
        tokens.make("ci", scope, days)
    assert not ApiToken.objects.exists()


def test_the_shortest_the_longest_and_the_usual_life(at: Callable[[timedelta], None]) -> None:
    lives = [(tokens.make("ci", "read", *days)[1].expires_at - NOW).days for days in ((1,), (366,), ())]
    assert lives == [1, 366, 90]


def test_a_token_is_shown_once_and_known_by_its_beginning() -> None:
    token, row = tokens.make("ci", "read", made_by="ada")
    assert token.startswith("aat_") and len(token) == 4 + 43 and row.token_prefix == token[:12]
    assert (row.name, row.scope, row.made_by) == ("ci", "read", "ada")
    assert row.token_hash == tokens.hashed(token) and len(row.token_hash) == 64
    assert tokens.make("ci", "read")[0] != token


def test_a_token_ends_at_its_second(at: Callable[[timedelta], None]) -> None:
    token, row = tokens.make("ci", "read", 1)
    at(timedelta(days=1, seconds=-1))
    assert tokens.by_token(token) == row
    at(timedelta(days=1))
    assert tokens.by_token(token) is None


def test_a_successor_has_the_same_life_and_the_former_an_hour(at: Callable[[timedelta], None]) -> None:
    _, row = tokens.make("ci", "submit", 30, made_by="ada")
    ApiToken.objects.update(made_at=NOW)
    row.refresh_from_db()
    at(timedelta(days=10))
    _, fresh = tokens.rotate(row)
    row.refresh_from_db()
    assert (fresh.name, fresh.scope, fresh.made_by) == ("ci", "submit", "ada")
    assert fresh.expires_at - NOW == timedelta(days=40)
    assert row.expires_at - NOW == timedelta(days=10, hours=1)


def test_rotating_never_lengthens_a_life(at: Callable[[timedelta], None]) -> None:
    _, row = tokens.make("ci", "read", 1)
    ApiToken.objects.update(made_at=NOW)
    row.refresh_from_db()
    at(timedelta(hours=23, minutes=30))
    tokens.rotate(row)
    row.refresh_from_db()
    assert row.expires_at == NOW + timedelta(days=1)


def test_a_token_is_revoked_once(at: Callable[[timedelta], None]) -> None:
    token, row = tokens.make("ci", "read")
    assert [tokens.revoke(row), tokens.revoke(row)] == [True, False]
    row.refresh_from_db()
    assert row.revoked_at == NOW and tokens.by_token(token) is None


def test_a_use_is_noted_at_most_once_a_minute(at: Callable[[timedelta], None]) -> None:
    _, row = tokens.make("ci", "read")
    noted = []
    for seconds in (0, 59, 60):
        at(timedelta(seconds=seconds))
        tokens.record_use(row)
        row.refresh_from_db()
        noted.append((row.last_used_at - NOW).seconds)
    assert noted == [0, 0, 60]


# --- callers ----------------------------------------------------------------------------------------------------


def holder(scope: str) -> Holder:
    return Holder(tokens.make(f"ci {scope}", scope)[1])


def request(user: Any, method: str = "GET", **headers: str) -> Any:
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return SimpleNamespace(
        user=user,
        method=method,
        headers=named,
        META={},
        get_host=lambda: "assay.example",
        get_full_path=lambda: "/here",
    )


def test_a_holder_is_a_caller_with_the_rights_of_its_scope() -> None:
    rights = {scope: set(caller_of(request(holder(scope))).rights) for scope in ApiToken.Scope.values}
    assert rights == {
        "read": {Right.READ},
        "submit": {Right.READ, Right.PLAN},
        "prices": {Right.READ, Right.PRICE},
        "admin": set(Right),
    }
    found = holder("read")
    assert found.is_authenticated and not found.is_anonymous and not found.is_staff and found.is_active
    assert found.pk is None and found.get_username() == "token ci read" == caller_of(request(found)).name


@pytest.mark.parametrize(("scope", "method", "may"), [
    ("read", "GET", True), ("read", "HEAD", True), ("read", "POST", False), ("submit", "POST", True),
    ("admin", "DELETE", True),
])  # fmt: skip
def test_a_token_reads_and_changes_by_its_scope_alone(settings: Any, scope: str, method: str, may: bool) -> None:
    settings.OPEN = False
    rule = Allowed()
    view = SimpleNamespace(rights={"DELETE": Right.ADMINISTER})
    elsewhere = request(holder(scope), method, origin="https://evil.example")  # a token is not a browser
    assert rule.has_permission(elsewhere, view) is may
    assert scope in rule.message


def test_a_visitor_may_where_the_installation_is_open_and_a_user_everywhere(settings: Any) -> None:
    user = member("ada")
    settings.OPEN = False
    assert [Allowed().has_permission(request(caller), None) for caller in (AnonymousUser(), user)] == [False, True]
    settings.OPEN = True
    assert Allowed().has_permission(request(AnonymousUser(), "POST"), None)


def test_a_change_from_a_page_of_another_site_is_refused_and_reading_is_not(settings: Any) -> None:
    settings.OPEN = True
    elsewhere = {"origin": "https://evil.example"}
    assert Allowed().has_permission(request(AnonymousUser(), **elsewhere), None)
    with pytest.raises(exceptions.PermissionDenied):
        Allowed().has_permission(request(AnonymousUser(), "POST", **elsewhere), None)


@pytest.mark.parametrize(("headers", "own"), [
    ({}, True), ({"origin": "https://assay.example"}, True), ({"origin": "https://trusted.example"}, True),
    ({"origin": "https://evil.example"}, False), ({"origin": "null"}, False), ({"sec_fetch_site": "none"}, True),
    ({"sec_fetch_site": "same-origin"}, True), ({"sec_fetch_site": "same-site"}, False),
    ({"sec_fetch_site": "cross-site"}, False),
    ({"origin": "https://assay.example", "sec_fetch_site": "cross-site"}, False),
])  # fmt: skip
def test_a_browser_says_which_page_a_request_comes_from(settings: Any, headers: dict[str, str], own: bool) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://trusted.example"]
    assert same_site(request(None, "POST", **headers)) is own


def test_only_bearer_tokens_of_people_are_read() -> None:
    token, row = tokens.make("ci", "read")
    reads = PersonToken()
    assert reads.authenticate(request(None)) is None
    assert reads.authenticate(request(None, authorization=f"Basic {token}")) is None
    found = reads.authenticate(request(None, authorization=f"BEARER  {token} "))
    assert found and found[0].token == row and found[1] == row
    for wrong in ("Bearer aat_x", "Bearer", f"Bearer {token}x"):
        with pytest.raises(TokenRefused):
            reads.authenticate(request(None, authorization=wrong))
    assert reads.authenticate_header(request(None)) == 'Bearer realm="assay"'


# --- roles ------------------------------------------------------------------------------------------------------

READS = {Right.READ}
PLANS = READS | {Right.PLAN, Right.PRICE}
OPERATES = PLANS | {Right.OPERATE}
ADMINISTERS = OPERATES | {Right.ADMINISTER}


@pytest.mark.parametrize(("role", "rights"), [
    ("viewer", READS), ("planner", PLANS), ("operator", OPERATES), ("admin", ADMINISTERS),
])  # fmt: skip
def test_each_role_has_the_rights_of_those_below_it(role: str, rights: set[Right]) -> None:
    caller = caller_of(request(member("ada", role, organisation("acme"))))
    assert set(caller.rights) == rights and caller.organisation is not None and caller.organisation.slug == "acme"
    shared = {Right.MAINTAIN} if Right.OPERATE in rights else set()  # those of the default organization alone
    assert set(caller_of(request(member("eve", role))).rights) == rights | shared


def test_staff_of_the_installation_are_admins_of_the_default_organization_besides_their_own() -> None:
    eve = member("eve", "viewer", organisation("acme"), is_staff=True)
    caller = caller_of(request(eve))
    assert [(m.organisation.slug, m.role) for m in caller.memberships] == [("default", "admin"), ("acme", "viewer")]
    assert set(caller.rights) == set(Right)


def test_an_account_without_an_organization_may_do_nothing() -> None:
    caller = caller_of(request(User.objects.create_user("ada")))
    assert caller.organisation is None and not caller.rights
    with pytest.raises(PermissionDenied, match="belongs to no organization"):
        organisation_of(request(caller.user))


def test_a_visitor_may_everything_while_an_open_installation_has_no_user_then_plan_only(settings: Any) -> None:
    def rights() -> set[Right]:
        return set(caller_of(request(AnonymousUser())).rights)

    settings.OPEN = True
    assert rights() == set(Right)
    settings.OPEN = False
    assert rights() == set()
    settings.OPEN = True
    User.objects.create_user("ada")
    assert rights() == {Right.READ, Right.PLAN}


def test_a_user_of_several_organizations_works_in_the_one_it_chose_and_never_in_another() -> None:
    ada, acme = member("ada", "viewer"), organisation("acme")
    Membership.objects.create(user=ada, organisation=acme, role="admin")
    others = organisation("others")
    seen = []
    for chosen in (None, acme.pk, others.pk):
        asked = request(ada)
        asked.session = {SESSION_KEY: chosen}
        seen.append(organisation_of(asked).slug)
    assert seen == ["default", "acme", "default"]


def test_pages_send_visitors_to_sign_in_and_tell_users_what_they_lack() -> None:
    planner, operator = member("ada"), member("eve", "operator")

    def page(asked: Any, pk: int) -> HttpResponse:
        """A page."""
        return HttpResponse(f"page {pk}")

    checked = needs(Right.OPERATE, "workers")(page)
    assert checked.__doc__ == "A page."
    assert checked(request(operator, "POST"), pk=3).content == b"page 3"
    assert "next=/here" in checked(request(AnonymousUser()), 3)["Location"]
    assert "next=/workers" in checked(request(AnonymousUser(), "POST"), 3)["Location"]
    with pytest.raises(PermissionDenied, match="Your role in Default is planner.*needs the role operator or higher"):
        checked(request(planner), 3)
