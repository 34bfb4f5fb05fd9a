"""Share links: unguessable, read-only, expiring."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from advisor.models import Share
from tests import sample_advice

pytestmark = pytest.mark.django_db


@pytest.fixture
def share(client: Client) -> Share:
    advice = sample_advice.advice()
    assert client.post(f"/advice/{advice.pk}/share", {"days": "7"}).status_code == 302
    return Share.objects.get()


def test_a_link_shows_the_answer_without_its_controls(client: Client, share: Share) -> None:
    response = client.get(f"/s/{share.token}?section=all")
    text = response.content.decode()
    assert "4 x H200 SXM in FP8" in text
    assert text.count("<form") == text.count('<form class="reader"') == 1  # language and currency
    assert f"/advice/{share.advice_id}" not in text and 'aria-label="Main"' not in text
    assert "noindex" in response["X-Robots-Tag"] and 'content="noindex' in text
    assert response["Referrer-Policy"] == "no-referrer"


def test_a_link_leads_to_its_options(client: Client, share: Share) -> None:
    text = client.get(f"/s/{share.token}?section=all").content.decode()
    assert f'href="/s/{share.token}/options/2"' in text
    option = client.get(f"/s/{share.token}/options/2?section=all").content.decode()
    assert "4 x MI300X" in option and f"/advice/{share.advice_id}" not in option


def test_a_token_cannot_be_guessed_and_lasts_as_asked(share: Share) -> None:
    assert len(share.token) >= 32
    assert timedelta(days=6.9) < share.expires_at - timezone.now() < timedelta(days=7)


def test_an_expired_or_unknown_link_is_not_found(client: Client, share: Share) -> None:
    Share.objects.update(expires_at=timezone.now())
    for path in (f"/s/{share.token}", f"/s/{share.token}/options/1", "/s/unknown"):
        response = client.get(path)
        assert response.status_code == 404 and "has expired" in response.content.decode()


def test_a_link_can_be_ended(client: Client, share: Share) -> None:
    client.post(f"/advice/{share.advice_id}/unshare", {"token": share.token})
    assert client.get(f"/s/{share.token}").status_code == 404


def test_the_owner_sees_the_live_links(client: Client, share: Share) -> None:
    assert f"/s/{share.token}" in client.get(f"/advice/{share.advice_id}?section=all").content.decode()


def test_only_a_finished_advice_is_shared_and_only_by_post(client: Client, share: Share) -> None:
    assert client.get(f"/advice/{share.advice_id}/share").status_code == 405
    open_one = sample_advice.advice(state="queued")
    assert client.post(f"/advice/{open_one.pk}/share").status_code == 404


@pytest.mark.parametrize("days", ["999999", "-1", "x", ""])
def test_other_lifetimes_become_thirty_days(client: Client, share: Share, days: str) -> None:
    client.post(f"/advice/{share.advice_id}/share", {"days": days})
    latest = Share.objects.latest("created_at")
    assert timedelta(days=29) < latest.expires_at - timezone.now() < timedelta(days=31)
