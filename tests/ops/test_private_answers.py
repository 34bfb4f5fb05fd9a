"""Caches keep nothing that belongs to one visitor."""

from typing import Any

import pytest
from django.test import Client

from tests import sample_advice

pytestmark = pytest.mark.django_db


def kept(path: str, **headers: str) -> str:
    return str(Client().get(path, headers=headers)["Cache-Control"])


def test_answers_that_hold_advice_or_depend_on_the_visitor_are_not_kept() -> None:
    done, running = sample_advice.advice().pk, sample_advice.advice(state="running").pk
    pages = ["/", "/advice", f"/advice/{done}", f"/advice/{running}", f"/advice/{done}/options/1", "/login", "/workers"]
    pages += [f"/advice/{done}/advice.{kind}" for kind in ("json", "csv", "md")]
    calls = ["", "advice", f"advice/{done}", f"advice/{done}/result", "enrolments", "nothing-here"]
    for path in [*pages, *(f"/api/v1/{call}" for call in calls), "/nowhere", "/s/unknown", "/admin/", "/readyz"]:
        assert kept(path) == "private, no-store", path


def test_the_public_catalog_is_kept_by_the_browser_alone_and_asked_for_again() -> None:
    assert {kept(path) for path in ("/catalog/prices", "/api/v1/prices", "/fidelity")} == {"private, no-cache"}


def test_refusals_before_any_view_are_not_kept() -> None:
    assert kept("/s/%00") == kept("/", host="evil.example") == "private, no-store"


def test_what_is_the_same_for_everybody_may_be_kept() -> None:
    for path in ("/api/schema/", "/api/docs/", "/agent.pyz"):
        assert kept(path) == "public, max-age=300", path
    assert "max-age" in kept("/static/advisor/assay.css") and "private" not in kept("/static/advisor/assay.css")


def test_where_the_installation_is_closed_its_description_is_private(settings: Any) -> None:
    settings.OPEN = False
    assert kept("/api/schema/") == "private, no-store"
