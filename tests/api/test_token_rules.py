"""Lives of tokens to the second, who counts as staff, and which page a visitor's request comes from."""

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
from catalog.access import may_change
from catalog.deleting import StaffDeletes, StaffOnly, may_delete, refused, who
from probes.access import StaffChanges, for_staff

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.get_current_timezone())


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    def moved(by: timedelta) -> None:
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
    assert [holder(scope).is_staff for scope in ("read", "submit", "admin")] == [False, False, True]
    found = holder("read")
    assert found.is_authenticated and not found.is_anonymous and found.is_active and found.pk is None
    assert found.get_username() == "token ci read" == who(found)
    assert who(AnonymousUser()) == "visitor"


@pytest.mark.parametrize(("scope", "method", "may"), [
    ("read", "GET", True), ("read", "HEAD", True), ("read", "POST", False), ("submit", "POST", True),
    ("admin", "DELETE", True),
])  # fmt: skip
def test_a_token_reads_and_changes_by_its_scope_alone(settings: Any, scope: str, method: str, may: bool) -> None:
    settings.OPEN = False
    rule = Allowed()
    elsewhere = request(holder(scope), method, origin="https://evil.example")  # a token is not a browser
    assert rule.has_permission(elsewhere, None) is may
    assert scope in rule.message


def test_a_visitor_may_where_the_installation_is_open_and_a_user_everywhere(settings: Any) -> None:
    user = User.objects.create_user("ada")
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


# --- who may change and delete ----------------------------------------------------------------------------------


def callers() -> dict[str, Any]:
    return {
        "visitor": AnonymousUser(), "user": User.objects.create_user("ada"),
        "staff": User.objects.create_user("eve", is_staff=True), "read": holder("read"), "admin": holder("admin"),
    }  # fmt: skip


@pytest.mark.parametrize("rule", [may_change, may_delete])
def test_staff_and_admin_tokens_change_and_delete(settings: Any, rule: Callable[[Any], bool]) -> None:
    settings.OPEN = True
    assert {name: rule(caller) for name, caller in callers().items()} == {
        "visitor": False, "user": False, "staff": True, "read": False, "admin": True,
    }  # fmt: skip


@pytest.mark.parametrize("rule", [may_change, may_delete])
def test_a_visitor_may_while_an_open_installation_has_no_user(settings: Any, rule: Callable[[Any], bool]) -> None:
    settings.OPEN = True
    assert rule(AnonymousUser())
    settings.OPEN = False
    assert not rule(AnonymousUser())
    settings.OPEN = True
    User.objects.create_user("ada")
    assert not rule(AnonymousUser())


def test_rules_of_the_api_by_method() -> None:
    found = callers()
    for caller, may in (("user", False), ("staff", True)):
        assert StaffOnly().has_permission(request(found[caller], "GET"), None) is may
        assert [StaffDeletes().has_permission(request(found[caller], m), None) for m in ("GET", "POST", "DELETE")] == [
            True, True, may,
        ]  # fmt: skip
        assert [StaffChanges().has_permission(request(found[caller], m), None) for m in ("GET", "POST", "DELETE")] == [
            True, may, may,
        ]  # fmt: skip


def test_pages_send_visitors_to_sign_in_and_refuse_users() -> None:
    found = callers()
    sent = refused(request(found["visitor"]))
    assert sent is not None and sent.status_code == 302 and "next=/here" in sent["Location"]
    with pytest.raises(PermissionDenied):
        refused(request(found["user"]))
    assert refused(request(found["staff"])) is None


def test_pages_of_machines_come_back_to_where_a_visitor_was_unless_that_changes_something() -> None:
    found = callers()

    def page(asked: Any, pk: int) -> HttpResponse:
        """A page."""
        return HttpResponse(f"page {pk}")

    checked = for_staff(page)
    assert checked.__doc__ == "A page."
    assert checked(request(found["staff"], "POST"), pk=3).content == b"page 3"
    assert "next=/here" in checked(request(found["visitor"]), 3)["Location"]
    assert "next=/workers" in checked(request(found["visitor"], "POST"), 3)["Location"]
    with pytest.raises(PermissionDenied):
        checked(request(found["user"]), 3)
