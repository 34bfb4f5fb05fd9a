"""Every page: a strict content policy, nothing inline, nothing from elsewhere; errors say what to do."""

import re

import pytest
from django.test import Client

from tests import sample_advice

pytestmark = pytest.mark.django_db
LOAD_TESTS = "/advice/x/options/1/load-tests"  # takes files of up to 4 MiB, as every other upload


@pytest.fixture
def pages() -> list[str]:
    done, running = sample_advice.advice().pk, sample_advice.advice(state="running").pk
    return ["/", "/advice", f"/advice/{done}", f"/advice/{done}/options/1", f"/advice/{running}", "/nowhere"]


def test_the_content_policy_is_strict_and_pages_keep_to_it(client: Client, pages: list[str]) -> None:
    for path in pages:
        response = client.get(path)
        text, policy = response.content.decode(), response["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script>(?!</script>)", text), path
        assert all(src.startswith("/static/") for src in re.findall(r'(?:src|<link[^>]* href)="([^"]+)"', text)), path


def test_every_page_has_a_title_a_heading_and_a_skip_link(client: Client, pages: list[str]) -> None:
    for path in pages:
        text = client.get(path).content.decode()
        assert len(re.findall("<h1", text)) == 1 and 'class="skip"' in text and "· Assay</title>" in text, path


def test_tables_have_captions_and_scopes(client: Client, pages: list[str]) -> None:
    for path in pages:
        text = client.get(path).content.decode()
        assert text.count("<table") == text.count("<caption"), path
        assert not re.search(r"<th(?![^>]*scope=)[ >]", text), path


def test_an_unknown_page_says_what_to_do(client: Client) -> None:
    response = client.get("/nowhere")
    assert response.status_code == 404 and "Check the address" in response.content.decode()


def test_a_body_too_large_is_refused(client: Client) -> None:
    response = client.post("/", {"yaml": "x" * 1_200_000}, content_type="application/x-www-form-urlencoded")
    assert response.status_code in (400, 413)
    response = client.generic("POST", "/", b"yaml=" + b"x" * 1_200_000, "application/x-www-form-urlencoded")
    assert response.status_code == 413 and "at most 1 MB" in response.content.decode()


def test_a_wrong_host_is_a_bad_request(client: Client) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_an_error_of_ours_is_a_plain_page_without_a_trace(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.web import forms

    client.raise_request_exception = False
    monkeypatch.setattr(forms, "presets", lambda: 1 / 0)
    response = client.get("/")
    assert response.status_code == 500
    assert "Something went wrong here" in response.content.decode() and "Traceback" not in response.content.decode()


@pytest.mark.parametrize("path", ["/s/%00", "/catalog/frameworks/%00", "/catalog/compare?a=%00", "/api/v1/units/%00"])
def test_an_address_that_no_database_can_look_up_is_refused(path: str, client: Client) -> None:
    """PostgreSQL takes no NUL in a text; SQLite would look for it."""
    response = client.get(path)
    assert response.status_code == 400 and "NUL" in response.content.decode()


@pytest.mark.parametrize(
    ("path", "mebibytes", "refused"),
    [
        (path, *case)
        for path in ("/workers/queue", LOAD_TESTS)
        for case in ((6, True), (20, True), (5, False), (4, False))
    ],
)
def test_an_upload_is_refused_before_any_of_it_is_written_to_disk(
    path: str, mebibytes: int, refused: bool, client: Client
) -> None:
    class Unread:
        def read(self, *size: int) -> bytes:
            assert not refused, "read"
            return b""

        readline = read

    said = {"CONTENT_LENGTH": str(mebibytes * 2**20), "CONTENT_TYPE": "multipart/form-data; boundary=x"}
    response = client.post(path, **said, **{"wsgi.input": Unread()})
    assert (response.status_code == 413) is refused
