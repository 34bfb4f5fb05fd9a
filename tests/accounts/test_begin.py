"""What somebody made while nobody had an account, and addresses that a request chooses."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client

from advisor.api import tokens
from advisor.models import ApiToken
from tests.people import member

pytestmark = pytest.mark.django_db
READ = "/api/v1/advice"


def get(token: str) -> Any:
    return Client(headers={"Authorization": f"Bearer {token}"}).get(READ)


@pytest.mark.parametrize("how", ["page", "command", "rotated"])
def test_a_token_from_before_the_first_account_ends_with_it(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    if how == "page":
        page = Client().post("/tokens", {"name": "ci", "scope": "admin", "days": "5"})
        token = page.context["token"]
    elif how == "command":
        call_command("token", "make", "ci")
        token = capsys.readouterr().out.strip()
    else:
        token, _ = tokens.rotate(tokens.make("ci", "read")[1])
    assert get(token).status_code == 200
    User.objects.create_user("ada")
    refused = get(token)
    assert refused.status_code == 401 and refused["WWW-Authenticate"] == 'Bearer realm="assay"'
    assert "before this installation had accounts" in refused.json()["detail"]
    assert "manage.py token make" in refused.json()["detail"]
    assert ApiToken.objects.latest("made_at").status == "ended"
    fresh, _ = tokens.make("ci", "read")
    assert get(fresh).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "assay.example:8443", "testserver"])
def test_no_link_in_an_email_comes_from_the_request(host: str, settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.PUBLIC_URL = ["*"], "https://assay.acme.example/"
    cache.clear()
    ada = member("ada", "admin", email="ada@acme.example", password="correct horse battery")
    Client(headers={"Host": host}).post("/password/reset", {"email": "ada@acme.example"})
    admin = Client(headers={"Host": host})
    admin.force_login(ada)
    page = admin.post("/members", {"email": "bob@acme.example", "role": "viewer"}).content.decode()
    assert len(mail.outbox) == 2
    for sent in mail.outbox:
        assert "https://assay.acme.example/" in sent.body and host not in f"{sent.body}{sent.subject}"
    assert "https://assay.acme.example/join/" in page and f"//{host}/join/" not in page
