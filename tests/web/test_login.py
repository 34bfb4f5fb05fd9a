"""Signing in: everybody with an account, not only staff; and what is closed without one."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests import sample_advice
from tests.people import member

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough word"


@pytest.fixture
def ada() -> User:
    return member("ada", password=PASSWORD)


def sign_in(client: Client, password: str, after: str = "/advice") -> Any:
    return client.post("/login", {"username": "ada", "password": password, "next": after})


def test_an_ordinary_account_signs_in_and_out(client: Client, ada: User) -> None:
    assert "Sign in" in client.get("/login").content.decode()
    assert sign_in(client, PASSWORD)["Location"] == "/advice"
    assert "Signed in as ada" in client.get("/advice").content.decode()
    client.post("/logout")
    assert "Signed in as" not in client.get("/advice").content.decode()


def test_a_wrong_password_says_so_and_a_tenth_one_locks_out(client: Client, settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # eleven slow ones prove nothing more
    User.objects.create_user("ada", password=PASSWORD)
    assert "correct username and password" in sign_in(client, "wrong").content.decode()
    for _ in range(10):
        last = sign_in(client, "wrong")
    assert last.status_code == 429 and sign_in(client, PASSWORD).status_code == 429


@pytest.mark.parametrize("after", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_elsewhere_after_signing_in(client: Client, ada: User, after: str) -> None:
    assert sign_in(client, PASSWORD, after)["Location"] == "/"


# --- an installation that is not open ---------------------------------------------------------------------------

# What works without an account there: signs of life, the agent's file, links that were made to be shared.
PUBLIC = (
    "language",
    "login",
    "password/reset",
    "join/",
    "healthz",
    "readyz",
    "agent.pyz",
    "s/",
    "sign-in/",
    "admin/",
    "api/",
    "static/",
)


def paths(patterns: Any, prefix: str = "") -> list[str]:
    found = []
    for each in patterns:
        if isinstance(each, URLResolver):
            found += paths(each.url_patterns, prefix + str(each.pattern))
        elif isinstance(each, URLPattern):
            found.append(prefix + str(each.pattern))
    return found


def filled(path: str, advice: Any) -> str:
    """A path with something in each place that is open."""
    values = {"uuid": str(advice.pk), "int": "1", "slug": "x", "str": "x", "path": "x"}
    path = re.sub(r"\(\?P<\w+>(\w[^)|]*)[^)]*\)", r"\1", path.replace("^", "").replace("$", ""))
    path = re.sub(r"\(\?P<\w+>[^)]*\)", "1", path)
    return "/" + re.sub(r"<(\w+):\w+>", lambda m: values[m[1]], path)


def test_every_page_asks_for_an_account_where_the_installation_is_not_open(settings: Any, client: Client) -> None:
    settings.OPEN = False
    at = settings.MIDDLEWARE.index("django.contrib.auth.middleware.AuthenticationMiddleware") + 1
    login = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE[:at], login, *settings.MIDDLEWARE[at:]]
    advice = sample_advice.advice()
    closed = [filled(p, advice) for p in paths(get_resolver().url_patterns) if not p.startswith(PUBLIC)]
    assert len(closed) > 35
    for path in closed:
        for method in (client.get, client.post):
            response = method(path, headers={"Accept": "text/html,*/*;q=0.8"})
            assert response.status_code == 302 and response["Location"].startswith("/login"), path


def test_every_call_of_the_api_asks_for_an_account_or_a_token_there(settings: Any, client: Client) -> None:
    settings.OPEN = False
    advice = sample_advice.advice()
    calls = [filled(p, advice) for p in paths(get_resolver().url_patterns) if p.startswith("api/")]
    assert len(calls) > 40
    for path in (p for p in calls if "format" not in p and "/shared/" not in p):  # links that were made to be shared
        for method in ("GET", "POST", "PUT"):
            response = client.generic(method, path, b"{}", "application/json", headers={"Agent-Protocol": "2"})
            registers = path.endswith("/register") and response.status_code == 400
            assert response.status_code in (401, 403, 405) or registers, path
