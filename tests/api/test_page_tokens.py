"""Tokens on pages: every export opens with one, a refused one is a 401, only browsers are sent to the sign-in page."""

from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.urls import get_resolver, is_valid_path, resolve

from advisor.api import tokens
from advisor.models import Advice
from catalog.models import Calibration
from probes.models import Result
from tests import sample_advice, sample_money
from tests.accounts.test_other_organizations import BY_SECRET, NOT_OURS, filled, patterns, private, theirs
from tests.people import member, organisation

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
__all__ = ["theirs"]  # a fixture
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
LOGIN = "django.contrib.auth.middleware.LoginRequiredMiddleware"
BY_SESSION = ("account", "login", "logout", "join", "language", "password", "static")
FOR_ALL = ("healthz", "readyz", "agent.pyz")
DOCUMENTS = ("memo.html", "memo.md", "bill-of-materials.csv", "cash-flow.csv", "workbook.xlsx")


@pytest.fixture(params=["open", "closed"])
def door(request: Any, settings: Any) -> str:
    """An installation with accounts, open to visitors or closed."""
    member("root", "admin")
    if request.param == "closed":
        settings.OPEN = False
        after = settings.MIDDLEWARE.index("advisor.api.page_tokens.AcceptTokens") + 1
        settings.MIDDLEWARE = [*settings.MIDDLEWARE[:after], LOGIN, *settings.MIDDLEWARE[after:]]
    return str(request.param)


def bearer(scope: str = "read", **named: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.make('ci', scope, **named)[0]}"}


def ours() -> dict[str, Any]:
    """Rows of the default organization, by the part of the URL that names them."""
    advice = sample_advice.advice(sample_money.result())
    result = Result.objects.create(organisation=advice.organisation, state="accepted", document={"a": 1})
    calibration = Calibration.objects.first()
    assert calibration is not None
    return {"advice": advice.pk, "rank": 1, "results": result.pk, "calibrations": calibration.pk}


def pages() -> list[str]:
    """Every pattern of a page, except those that only a signed-in person or the holder of a link can use."""
    found = patterns(get_resolver().url_patterns)
    return [p for p in found if not p.startswith((*BY_SECRET, *NOT_OURS, *BY_SESSION, *FOR_ALL, "api/"))]


def exports(advice: Advice) -> list[str]:
    files = ["result.json", "workload.yaml", "options.csv", "advice.md", *(f"documents/{name}" for name in DOCUMENTS)]
    lists = ["catalog/accelerators", "catalog/models", "catalog/prices"]
    return [f"/advice/{advice.pk}/{name}" for name in files] + [
        f"/{name}?format={kind}" for name in lists for kind in ("csv", "json")
    ]


def test_a_token_opens_every_export(door: str) -> None:
    advice, headers = sample_advice.advice(sample_money.result()), bearer()
    for path in exports(advice):
        answer = Client().get(path, headers=headers)
        assert answer.status_code == 200, (path, answer.status_code)
        assert "text/html" not in answer["Content-Type"] or path.endswith(".html"), path


def test_a_token_opens_every_page_that_reads(door: str) -> None:
    """An admin's token: no page sends it to the sign-in form or asks for a session."""
    rows, headers = ours(), bearer("admin")
    tried = 0
    for pattern in pages():
        path = filled(pattern, rows)
        answer = Client().get(path, headers=headers)
        assert answer.status_code in (200, 302, 400, 404, 405, 422), (path, answer.status_code)
        assert "/login" not in answer.get("Location", ""), path
        tried += answer.status_code == 200
    assert tried > 30


def test_a_token_that_is_refused_is_told_so(door: str) -> None:
    """Whatever the client accepts, and before anything else is said of the address."""
    rows = ours()
    for pattern in pages():
        path = filled(pattern, rows)
        if not is_valid_path(path):
            continue  # this test has no such row
        if not getattr(resolve(path).func, "login_required", True):
            continue  # sign-in itself needs no account and ignores tokens
        for accept in ("*/*", BROWSER):
            headers = {"Authorization": "Bearer aat_wrong", "Accept": accept}
            answer = Client().get(path, headers=headers)
            assert answer.status_code == 401, pattern
            assert answer["Content-Type"] == "application/problem+json" and answer["WWW-Authenticate"], pattern


def test_a_token_of_another_organization_finds_nothing(theirs: dict[str, Any]) -> None:
    headers = bearer("admin")
    named = [p for p in private() if "<" in p and not p.startswith("api/")]
    assert len(named) > 30
    for pattern in named:
        answer = Client().get(filled(pattern, theirs), headers=headers)
        assert answer.status_code in (404, 405), (pattern, answer.status_code)


def test_a_token_without_the_scope_is_told_which_it_needs(door: str) -> None:
    answer = Client().get("/audit?format=csv", headers=bearer("read"))
    assert answer.status_code == 403 and answer["Content-Type"] == "application/problem+json"
    assert "This token's scope is read" in answer.json()["detail"] and "admin" in answer.json()["detail"]


def test_a_token_changes_nothing_through_pages(door: str) -> None:
    advice = sample_advice.advice(sample_money.result())
    for path in (f"/advice/{advice.pk}/delete", f"/advice/{advice.pk}/rescore", "/"):
        answer = Client().post(path, headers=bearer("admin"))
        assert answer.status_code == 403 and "REST API" in answer.json()["detail"], path
    assert Advice.objects.count() == 1


@pytest.mark.parametrize("door", ["closed"], indirect=True)
def test_without_credentials_a_program_gets_401_and_a_browser_the_form(door: str) -> None:
    advice = sample_advice.advice(sample_money.result())
    for path in exports(advice):
        for accept in ("*/*", "application/json", "text/csv"):
            answer = Client().get(path, headers={"Accept": accept})
            assert answer.status_code == 401, (path, accept)
            assert answer["Content-Type"] == "application/problem+json"
            assert "Authorization: Bearer" in answer.json()["detail"]
        assert Client().get(path, headers={"Accept": BROWSER})["Location"].startswith("/login?next="), path
    for path in ("/", "/advice", f"/advice/{advice.pk}"):
        assert Client().get(path, headers={"Accept": "application/json"}).status_code == 401
        for accept in ("*/*", BROWSER):
            assert Client().get(path, headers={"Accept": accept}).status_code == 302, path


def test_the_admin_site_takes_no_token(door: str) -> None:
    answer = Client().get("/admin/", headers=bearer("admin"))
    assert answer.status_code == 403 and "signed in" in answer.json()["detail"]


def test_a_token_sees_the_pages_of_its_own_organization(door: str) -> None:
    theirs = organisation("acme")
    sample_advice.advice(sample_money.result())
    for owner, count in ((None, 1), (theirs, 0)):
        text = Client().get("/advice", headers=bearer(organisation=owner)).content.decode()
        assert text.count("support-chat") >= count and ("support-chat" in text) is bool(count)


def test_the_middleware_comes_between_the_session_and_the_sign_in_page() -> None:
    names = list(django_settings.MIDDLEWARE)
    mine = names.index("advisor.api.page_tokens.AcceptTokens")
    assert names.index("django.contrib.auth.middleware.AuthenticationMiddleware") < mine
    assert mine < names.index("catalog.accounts.MembersOnly") and (LOGIN not in names or mine < names.index(LOGIN))
