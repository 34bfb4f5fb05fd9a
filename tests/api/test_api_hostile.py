"""Every call of the API with what a hostile or broken client would send: an answer that its description names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor.api import tokens
from tests import sample_advice
from tests.probes.client import HEADERS, FakeAgent

pytestmark = pytest.mark.django_db
VALUES = ["", "-1", "9" * 40, "1e999", "\0", "'\"<%", "[]", "x" * 5000]
BODIES = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"0",
    b'"x"',
    b"\x00",
    b"\xff\xfe",
    b"{" * 9000,
    b'{"a": 1, "a": 2}',
    b'{"a": NaN}',
]
BODIES += [json.dumps({"name": text, "spec": text, "labels": {text: text}}).encode() for text in ("\0", "\ud800", "é")]
IDS = ["9" * 40, "x", "%00", "00000000-0000-0000-0000-000000000000"]
Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    file = tmp_path_factory.mktemp("schema") / "openapi.json"
    call_command("export_openapi", str(file))
    paths = json.loads(Path(file).read_text())["paths"]
    return [(path, method, each) for path, methods in paths.items() for method, each in methods.items()]


@pytest.fixture
def send() -> Any:
    """A client with every right; a machine with a token of its own."""
    token, machine = tokens.make("fuzz", "admin")[0], FakeAgent()

    def call(method: str, path: str, body: bytes = b"", kind: str = "application/json") -> Any:
        bearer = machine.token if "/agent/" in path else token
        headers = {**HEADERS, "Authorization": f"Bearer {bearer}", "Idempotency-Key": "k"}
        return Client().generic(method.upper(), path, body, kind, headers=headers)

    return call


def problems(answer: Any, operation: Operation, sent: str) -> Iterator[str]:
    path, method, described = operation
    if answer.status_code >= 500 or str(answer.status_code) not in described["responses"]:
        yield f"{method} {path} with {sent[:60]!r}: {answer.status_code} {answer.content[:120]!r}"


def test_query_values_are_answered_as_described(operations: list[Operation], send: Any) -> None:
    found: list[str] = []
    for operation in operations:
        path, method, described = operation
        names = [p["name"] for p in described.get("parameters", []) if p["in"] == "query"]
        if method == "get" and names and "{" not in path:
            for value in VALUES:
                query = "&".join(f"{name}={quoted(value)}" for name in names)
                found += problems(send(method, f"{path}?{query}"), operation, query)
    assert not found, "\n".join(found)


def test_bodies_are_answered_as_described(operations: list[Operation], send: Any) -> None:
    advice, found = sample_advice.advice(), list[str]()
    for operation in operations:
        path, method, described = operation
        if method in ("post", "put") and "requestBody" in described:
            at = re.sub(r"{(\w+)}", lambda m: "1" if m[1] in ("rank", "attempt") else str(advice.pk), path)
            for body in BODIES:
                found += problems(send(method, at, body), operation, repr(body))
            found += problems(send(method, at, b"a: [", "application/yaml"), operation, "yaml")
            found += problems(send(method, at, b"x", "text/csv"), operation, "another kind")
    assert not found, "\n".join(found)


def test_ids_are_answered_as_described(operations: list[Operation], send: Any) -> None:
    found: list[str] = []
    for operation in operations:
        path, method, _ = operation
        if "{" in path:
            for text in IDS:
                found += problems(send(method, re.sub(r"{\w+}", text, path), b"{}"), operation, text)
    assert not found, "\n".join(found)


def test_an_answer_that_is_not_described_is_seen() -> None:
    class Answer:
        status_code, content = 500, b""

    assert list(problems(Answer(), ("/x", "get", {"responses": {"200": {}}}), "y"))


def quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
