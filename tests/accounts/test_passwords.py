"""Passwords: reset by e-mail, and changing the own one."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.cache import cache
from django.test import Client

from catalog.models import AuditEvent
from tests.people import member

pytestmark = pytest.mark.django_db
OLD, NEW = "a long enough word", "another long word"


@pytest.fixture(autouse=True)
def ada(settings: Any) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear()
    return member("ada", email="ada@acme.example", password=OLD)


def test_a_link_by_email_sets_a_new_password_once(client: Client) -> None:
    client.post("/password/reset", {"email": "ADA@acme.example"})
    path = re.search(r"http://127.0.0.1:8000(/password/reset/\S+)", str(mail.outbox[0].body))
    assert path is not None and "account ada" in mail.outbox[0].body
    form = client.get(path[1])["Location"]
    assert client.post(form, {"new_password1": NEW, "new_password2": NEW})["Location"] == "/password/reset/done"
    assert Client().post("/login", {"username": "ada", "password": NEW}).status_code == 302
    assert "no longer works" in Client().get(path[1]).content.decode()
    assert AuditEvent.objects.filter(who="ada", action="password").count() == 1


def test_an_unknown_address_looks_the_same_and_a_known_one_gets_one_email(client: Client) -> None:
    pages = [
        client.post("/password/reset", {"email": f"{name}@acme.example"})["Location"] for name in ("eve", "ada", "ada")
    ]
    assert set(pages) == {"/password/reset/sent"} and [each.to for each in mail.outbox] == [["ada@acme.example"]]


def test_the_own_password_and_name_are_changed_on_the_account_page(client: Client, ada: User) -> None:
    client.force_login(ada)
    client.post("/account", {"form": "name", "first_name": "Ada", "last_name": "Lovelace"})
    wrong = {"form": "password", "old_password": "x", "new_password1": NEW, "new_password2": NEW}
    assert client.post("/account", wrong).status_code == 422
    client.post("/account", wrong | {"old_password": OLD})
    ada.refresh_from_db()
    assert ada.get_full_name() == "Ada Lovelace" and ada.check_password(NEW)
    assert client.get("/account").status_code == 200  # still signed in
