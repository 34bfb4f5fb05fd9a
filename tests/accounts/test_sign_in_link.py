"""The way in for staff when the provider of sign-in does not work: a link that a command prints."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from catalog.management.errors import BadInput
from catalog.models import AuditEvent
from tests.people import member

pytestmark = pytest.mark.django_db


def link(capsys: Any, name: str = "root") -> str:
    call_command("sign_in_link", name)
    found = re.search(r"http://127.0.0.1:8000(/sign-in/link/\S+)\n", capsys.readouterr().out)
    assert found is not None
    return found[1]


@pytest.fixture(autouse=True)
def root(settings: Any) -> Any:
    settings.PASSWORD_SIGN_IN, settings.OIDC_ISSUER = False, "http://127.0.0.1:9"
    settings.AUTHENTICATION_BACKENDS = [
        "axes.backends.AxesStandaloneBackend", "advisor.accounts.sign_in_link.Backend",
    ]  # fmt: skip
    return member("root", "admin", is_staff=True, is_superuser=True)


def test_a_link_signs_staff_in_once_and_opening_it_alone_does_nothing(capsys: Any) -> None:
    path, browser = link(capsys), Client()
    assert "Sign in as root" in browser.get(path).content.decode() and "_auth_user_id" not in browser.session
    assert browser.post(path).status_code == 302
    assert browser.get("/admin/").status_code == 200  # with all permissions
    assert Client().get(path).status_code == Client().post(path).status_code == 404
    assert AuditEvent.objects.get().detail == "by a link of manage.py sign_in_link"


def test_it_ends_after_ten_minutes_and_with_the_account(capsys: Any, monkeypatch: Any, root: Any) -> None:
    import time

    path = link(capsys)
    now = time.time()
    monkeypatch.setattr("django.core.signing.time.time", lambda: now + 601)
    assert Client().post(path).status_code == 404
    monkeypatch.undo()
    root.is_active = False
    root.save()
    assert Client().post(path).status_code == 404


def test_it_is_for_staff_only_and_cannot_be_forged(capsys: Any, root: Any) -> None:
    member("bob", "admin", last_login=timezone.now() - timedelta(days=1))
    for name in ("bob", "nobody"):
        with pytest.raises(BadInput, match="createsuperuser"):
            call_command("sign_in_link", name)
    path = link(capsys)
    assert root.password not in path and Client().post(path[:-3] + "abc").status_code == 404
