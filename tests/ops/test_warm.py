"""A web process loads in the background what its first pages need."""

import pytest
from django.test import override_settings

from advisor.answer import quick
from advisor.ops import warm
from advisor.web import forms
from catalog.models import default_organisation


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
def test_the_rows_of_the_catalog_are_read_before_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    quick.kept.forget()
    monkeypatch.setattr(warm.connections, "close_all", lambda: None)
    warm.load()
    monkeypatch.setattr(quick.kept, "market_rows", lambda *given: pytest.fail("read again"))
    question = forms.preset("summarisation")
    assert question and quick.quick_answer(question, default_organisation()).options


@pytest.mark.django_db
def test_without_a_catalog_the_server_starts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm.connections, "close_all", lambda: None)
    warm.load()


@override_settings(WARM=False)
def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm.threading, "Thread", lambda *given, **named: pytest.fail("started"))
    warm.in_background()
