"""Share links: unguessable, read-only, expiring."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from advisor.models import Advice, Share
from tests import links, sample_advice
from tests.pages import every_section

pytestmark = pytest.mark.django_db


@pytest.fixture
def advice() -> Advice:
    return sample_advice.advice()


@pytest.fixture
def token(client: Client, advice: Advice) -> str:
    return links.shared(client, advice, days="7")


@pytest.fixture
def share(token: str) -> Share:
    return Share.objects.get()


def test_a_link_shows_the_answer_without_its_controls(client: Client, share: Share, token: str) -> None:
    response = client.get(f"/s/{token}")
    text = response.content.decode()
    assert "4 x H200 SXM in FP8" in text
    assert text.count("<form") == text.count('<form class="reader"') == 1  # language and currency
    assert f"/advice/{share.advice_id}" not in text and 'aria-label="Main"' not in text
    assert "noindex" in response["X-Robots-Tag"] and 'content="noindex' in text
    assert response["Referrer-Policy"] == "no-referrer"


def test_a_link_leads_to_its_options(client: Client, share: Share, token: str) -> None:
    text = every_section(client, f"/s/{token}")
    assert f'href="/s/{token}/options/2"' in text
    option = every_section(client, f"/s/{token}/options/2")
    assert "4 x MI300X" in option and f"/advice/{share.advice_id}" not in option


def test_a_token_cannot_be_guessed_and_lasts_as_asked(share: Share, token: str) -> None:
    assert len(token) >= 32
    assert timedelta(days=6.9) < share.expires_at - timezone.now() < timedelta(days=7)


def test_an_expired_or_unknown_link_is_not_found(client: Client, token: str) -> None:
    Share.objects.update(expires_at=timezone.now())
    for path in (f"/s/{token}", f"/s/{token}/options/1", "/s/unknown"):
        response = client.get(path)
        assert response.status_code == 404 and "has expired" in response.content.decode()


@pytest.mark.parametrize("by", ["link", "token"])
def test_a_link_can_be_ended(client: Client, share: Share, token: str, by: str) -> None:
    client.post(f"/advice/{share.advice_id}/unshare", {by: token if by == "token" else str(share.pk)})
    assert client.get(f"/s/{token}").status_code == 404


def test_the_owner_sees_which_links_are_live_but_not_the_links(client: Client, share: Share, token: str) -> None:
    text = every_section(client, f"/advice/{share.advice_id}")
    assert f"/s/{token[:6]}…" in text and f"{share.expires_at:%b}" in text and token not in text
    assert token not in str(client.get(f"/api/v1/advice/{share.advice_id}/shares").json())


def test_no_table_holds_a_token_of_a_link(client: Client, token: str) -> None:
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f"select * from {table}")
            assert token not in str(cursor.fetchall()), table


def test_a_link_of_the_previous_version_works_and_is_hashed_when_it_is_opened(client: Client, advice: Advice) -> None:
    ends = timezone.now() + timedelta(days=1)
    old = Share.objects.create(organisation=advice.organisation, advice=advice, token="of-old", expires_at=ends)
    assert client.get("/s/of-old").status_code == 200
    old.refresh_from_db()
    assert (old.token_prefix, old.token == "of-old") == ("of-old", False) and old.token_hash
    assert client.get("/s/of-old").status_code == 200
    assert client.get(f"/s/{old.token}").status_code == client.get(f"/s/{old.token_hash}").status_code == 404


def test_only_a_finished_advice_is_shared_and_only_by_post(client: Client, share: Share) -> None:
    assert client.get(f"/advice/{share.advice_id}/share").status_code == 405
    open_one = sample_advice.advice(state="queued")
    assert client.post(f"/advice/{open_one.pk}/share").status_code == 404


@pytest.mark.parametrize("days", ["999999", "-1", "x", ""])
def test_other_lifetimes_become_thirty_days(client: Client, share: Share, days: str) -> None:
    client.post(f"/advice/{share.advice_id}/share", {"days": days})
    latest = Share.objects.latest("created_at")
    assert timedelta(days=29) < latest.expires_at - timezone.now() < timedelta(days=31)
