"""Links that open accounts are in no log of a server that nobody told how to send e-mail."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from tests.people import member
from tests.test_layers import ROOT

pytestmark = pytest.mark.django_db


def test_with_accounts_no_link_is_printed_and_the_inviter_sees_it(
    client: Client, settings: Any, capfd: Any, caplog: Any
) -> None:
    settings.EMAIL_BACKEND = "advisor.accounts.mail.Withheld"
    cache.clear()  # an address gets one e-mail in five minutes
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    client.force_login(member("ada", "admin", email="ada@acme.example", password="a long enough word"))
    page = client.post("/members", {"email": "bob@acme.example", "role": "viewer"}).content.decode()
    assert "/join/" in page and "could not be sent" in page and "set ASSAY_EMAIL_URL" in page
    assert "cannot send e-mail" in client.get("/password/reset").content.decode()
    client.post("/password/reset", {"email": "ada@acme.example"})
    printed = "".join(capfd.readouterr()) + caplog.text
    assert "/join/" not in printed and "/password/reset/" not in printed.replace("/password/reset/sent", "")
    assert caplog.text.count("ASSAY_EMAIL_TO_LOG") == 2


def test_without_accounts_an_email_is_printed(settings: Any, capsys: Any) -> None:
    from django.core.mail import send_mail

    settings.EMAIL_BACKEND = "advisor.accounts.mail.Withheld"
    assert send_mail("prices", "changed", None, ["ada@acme.example"]) == 1
    assert "changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "backend"),
    [
        ({}, "advisor.accounts.mail.Withheld"),
        ({"ASSAY_EMAIL_TO_LOG": "true"}, "django.core.mail.backends.console.EmailBackend"),
        ({"ASSAY_EMAIL_URL": "smtp://mail.example"}, "django.core.mail.backends.smtp.EmailBackend"),
    ],
    ids=str,
)
def test_what_the_settings_choose(given: dict[str, str], backend: str, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")} | {"ASSAY_VAR": str(tmp_path)} | given
    code = "import advisor.settings as s; print(s.EMAIL_BACKEND)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == backend
