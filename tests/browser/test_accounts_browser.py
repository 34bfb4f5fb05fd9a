"""Accounts in a browser: sign in, be refused, accept an invitation; usable on a phone and without scripts."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from playwright.sync_api import expect

from catalog.models import Membership
from tests import sample_advice
from tests.accounts.provider import CLIENT, SECRET, running
from tests.people import member

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
Open = Callable[..., Any]
PASSWORD = "a long enough word"


def sign_in(page: Any, name: str) -> None:
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def test_a_viewer_is_refused_and_an_invited_planner_comments(open_page: Open, transactional_db: None) -> None:
    advice = sample_advice.advice()
    member("vera", "viewer", password=PASSWORD)
    member("ada", "admin", password=PASSWORD)

    page = open_page("/login?next=/advice")
    sign_in(page, "vera")
    page.get_by_role("link", name=advice.workload.name).first.click()
    expect(page.get_by_role("button", name="Add comment")).to_have_count(0)
    refused = page.request.get("/workers/enrol")  # a page that this browser has no link to
    assert refused.status == 403 and "Your role in Default is viewer" in refused.text()
    page.locator(".user-menu > summary").click()
    expect(page.get_by_role("link", name="Members")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()

    page.get_by_role("link", name="Sign in").click()
    sign_in(page, "ada")
    page.locator(".user-menu > summary").click()
    page.get_by_role("link", name="Members").click()
    page.get_by_label("E-mail address").fill("bob@acme.example")
    page.get_by_label("Role", exact=True).select_option("planner")
    page.get_by_role("button", name="Send invitation").click()
    expect(page.get_by_role("heading", name="Invitation for bob@acme.example")).to_be_visible()

    link = re.search(r"https?://[^/]+(/join/\S+)", str(mail.outbox[-1].body))
    assert link is not None
    look = {"viewport": {"width": 320, "height": 640}, "java_script_enabled": False}
    phone = open_page(link[1], **look)
    phone.get_by_label("Your name").fill("Bob")
    for field in phone.locator("input[type=password]").all():
        field.fill(PASSWORD)
    phone.get_by_role("button", name="Create account and join").click()
    expect(phone.get_by_role("status")).to_contain_text("You joined Default.")
    phone.goto(page.url.split("/members")[0] + f"/advice/{advice.pk}")
    phone.locator("summary", has_text="Comments").click()
    phone.get_by_label("Your comment").fill("Ask for a quote.")
    phone.get_by_role("button", name="Add comment").click()
    expect(phone.locator("#comments")).to_contain_text("bob@acme.example")
    assert Membership.objects.filter(user__username="bob@acme.example", role="planner").exists()


def test_single_sign_on_in_a_browser(open_page: Open, transactional_db: None, settings: Any) -> None:
    """The content security policy allows the way to the provider and back; signing out ends the session here."""
    with running() as provider:
        settings.OIDC_ISSUER = provider.address
        settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = CLIENT, SECRET
        settings.OIDC_GROUPS = (("users", "default", "planner"),)
        backends = ["advisor.accounts.single_sign_on.Backend", *settings.AUTHENTICATION_BACKENDS]
        settings.AUTHENTICATION_BACKENDS = backends
        User.objects.create_superuser("root")
        provider.person = {"sub": "1", "email": "ada@acme.example", "email_verified": True, "groups": ["users"]}
        page = open_page("/login?next=/account")
        page.get_by_role("link", name="Sign in with single sign-on").click()
        expect(page.get_by_role("heading", name="Your account")).to_be_visible()
        page.locator(".user-menu > summary").click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
        page.get_by_role("link", name="Sign out at the provider, too").click()
        page.wait_for_url(f"{provider.address}/end**")
