"""The served OpenAPI document: made once, the same for everyone, and not sent again to a client that has it."""

from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from advisor.api import description

pytestmark = pytest.mark.django_db
SCHEMA, JSON = "/api/schema/", {"Accept": "application/json"}


def test_the_document_is_made_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[None] = []
    monkeypatch.setattr(
        SchemaGenerator, "get_schema", lambda *given, **named: made.append(None) or {"openapi": "3.1.1"}
    )
    description.written.cache_clear()
    try:
        found = [Client().get(SCHEMA, headers=JSON) for _ in range(3)]
    finally:
        description.written.cache_clear()
    assert len(made) == 1 and [each.json() for each in found] == [{"openapi": "3.1.1"}] * 3


@pytest.mark.parametrize("is_open", [True, False])
def test_a_client_that_has_the_document_gets_304(settings: Any, admin_client: Client, is_open: bool) -> None:
    settings.OPEN = is_open
    first = admin_client.get(SCHEMA, headers=JSON)
    assert first.json()["openapi"].startswith("3.1")
    again = admin_client.get(SCHEMA, headers={**JSON, "If-None-Match": first["ETag"]})
    assert again.status_code == 304 and not again.content and again["ETag"] == first["ETag"]
    assert first["Cache-Control"] == again["Cache-Control"]
    assert "no-store" not in first["Cache-Control"]
    other = admin_client.get(SCHEMA, headers={**JSON, "If-None-Match": '"other"'})
    assert other.status_code == 200 and other.content == first.content


def test_the_document_does_not_depend_on_the_readers_language(client: Client) -> None:
    found = [client.get(SCHEMA, headers={**JSON, "Accept-Language": name}).content for name in ("en", "de")]
    assert found[0] == found[1]
