"""A finished answer is read once and drawn once; what changes beside it is shown at once."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from advisor import deletion
from advisor.models import Advice, Comment, Share
from advisor.result import Answer
from advisor.web import views
from advisor.web.answers import page as drawing
from catalog.models import ExchangeRate
from tests import sample_advice
from tests.pages import every_section

pytestmark = pytest.mark.django_db


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which pages were drawn: "answer" or "option"."""
    calls: list[str] = []

    def counted(name: str, function: Callable[..., object]) -> Callable[..., object]:
        return lambda *given: calls.append(name) or function(*given)

    monkeypatch.setattr(views, "page", counted("answer", drawing.page))
    monkeypatch.setattr(views, "page_of_option", counted("option", drawing.option_context))
    return calls


def shown(client: Client, path: str) -> str:
    """The page without the tokens of its forms, which differ."""
    return re.sub(r'(csrfmiddlewaretoken" value=")\w+', r"\1", client.get(path).content.decode())


@pytest.mark.parametrize(("page", "name"), [("", "answer"), ("/options/1", "option")])
def test_a_section_is_drawn_once(client: Client, drawn: list[str], page: str, name: str) -> None:
    path = f"/advice/{sample_advice.advice().pk}{page}"
    first = shown(client, f"{path}?section=cost")
    assert shown(client, f"{path}?section=cost") == first and drawn.count(name) == 1
    assert shown(client, f"{path}?section=performance") != first and drawn.count(name) == 2


@pytest.mark.parametrize("page", ["", "/options/1"])
def test_a_change_of_the_catalog_draws_it_again(client: Client, drawn: list[str], page: str) -> None:
    path = f"/advice/{sample_advice.advice().pk}{page}"
    client.get(path)
    before = len(drawn)
    ExchangeRate.objects.create(currency="EUR", per_usd=0.9, as_of="2026-11-01", source="a test")
    client.get(path)
    assert len(drawn) == 2 * before


def test_each_currency_is_drawn_by_itself_and_the_language_is_the_same(client: Client, drawn: list[str]) -> None:
    ExchangeRate.objects.create(currency="EUR", per_usd=0.9, as_of="2026-11-01", source="a test")
    path = f"/advice/{sample_advice.advice().pk}"
    for _ in range(2):
        for currency, language in (("USD", "en"), ("EUR", "en"), ("EUR", "de")):
            client.cookies["currency"], client.cookies["django_language"] = currency, language
            text = client.get(path).content.decode()
            assert ("€" in text, '<html lang="en"' in text) == (currency == "EUR", True)
    assert drawn.count("answer") == 2


def test_a_link_is_drawn_by_itself_without_what_the_owner_may_do(client: Client) -> None:
    advice = sample_advice.advice()
    expires_at = timezone.now() + timedelta(days=1)
    Share.objects.create(organisation=advice.organisation, advice=advice, expires_at=expires_at, token="abc")
    for _ in range(2):
        owner = every_section(client, f"/advice/{advice.pk}")
        linked = every_section(client, "/s/abc")
        assert f"/advice/{advice.pk}/options/1" in owner and "/s/abc/" not in owner.split('id="share"')[0]
        assert "/s/abc/options/1" in linked and f"/advice/{advice.pk}" not in linked


def test_a_comment_is_shown_at_once_and_a_deleted_answer_is_gone(client: Client) -> None:
    advice = sample_advice.advice()
    path = f"/advice/{advice.pk}"
    client.get(path)
    Comment.objects.create(advice=advice, text="Waiting for a quote.")
    assert "Waiting for a quote." in client.get(path).content.decode()
    deletion.delete_advice(advice, "ada")
    assert client.get(path).status_code == client.get(f"{path}/options/1").status_code == 404


def test_the_stored_answer_is_read_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    advice, read = sample_advice.advice(), []
    whole = Answer.read.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Answer, "read", classmethod(lambda cls, stored: read.append(1) or whole(cls, stored)))
    for page in ("?section=why", "?section=cost", "/options/1", "/documents/memo.html", "/options.csv"):
        assert client.get(f"/advice/{advice.pk}{page}").status_code == 200
    assert len(read) == 1
    assert Advice.objects.get(pk=advice.pk).result is not None
