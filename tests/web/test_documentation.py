"""The documentation at /docs/, built or not, and the terms that pages link to it."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.template import Context, Template
from django.test import Client, RequestFactory

from advisor.templatetags import glossary
from tests import sample_advice

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = 'console.log("a")'
USED = re.compile(r'{% term "([^"]+)"')


@pytest.fixture
def built(tmp_path: Path, settings: Any) -> Path:
    site = tmp_path / "site"
    (site / "how-to" / "demand").mkdir(parents=True)
    (site / "index.html").write_text(f"<h1>Home</h1><script>{SCRIPT}</script>")
    (site / "how-to" / "demand" / "index.html").write_text("<h1>Demand</h1>")
    (site / "search.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    settings.DOCS_SITE = site
    return site


@pytest.fixture
def unbuilt(tmp_path: Path, settings: Any) -> None:
    settings.DOCS_SITE = tmp_path / "nothing"


def read(response: Any) -> str:
    return b"".join(response).decode() if response.streaming else response.content.decode()


def test_the_built_site_is_served_with_its_folders_and_files(client: Client, built: Path) -> None:
    assert "Home" in read(client.get("/docs/"))
    assert "Demand" in read(client.get("/docs/how-to/demand/"))
    assert client.get("/docs/how-to/demand")["Location"] == "/docs/how-to/demand/"
    assert client.get("/docs/search.js")["Content-Type"].endswith("javascript")
    assert client.get("/docs/nowhere/").status_code == 404


def test_only_the_scripts_that_were_built_into_a_page_may_run(client: Client, built: Path) -> None:
    policy = client.get("/docs/")["Content-Security-Policy"]
    digest = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy and "unsafe" not in policy and "default-src 'none'" in policy
    assert "sha256" not in client.get("/docs/how-to/demand/")["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["../secret.txt", "%2e%2e/secret.txt", "how-to/../../secret.txt", "/etc/passwd"])
def test_a_path_outside_the_site_is_not_found(path: str, client: Client, built: Path) -> None:
    assert client.get(f"/docs/{path}").status_code == 404


@pytest.mark.django_db
def test_without_a_site_the_pages_are_listed_and_shown_as_text(client: Client, unbuilt: None) -> None:
    assert 'href="/docs/how-to/demand.md"' in read(client.get("/docs/"))
    page = client.get("/docs/how-to/demand/")
    assert page["Content-Type"] == "text/plain; charset=utf-8" and page.content.startswith(b"# ")
    assert client.get("/docs/tutorial/cases/").status_code == 200
    assert client.get("/docs/../manage.py").status_code == 404
    assert client.get("/docs/nowhere/").status_code == 404


@pytest.mark.django_db
def test_without_a_site_a_term_still_leads_to_its_definition(client: Client, unbuilt: None) -> None:
    text = read(client.get("/docs/glossary/"))
    assert '<dt id="ttft">TTFT</dt>' in text and "Time to first token" in text


@pytest.mark.django_db
def test_every_page_leads_to_the_documentation(client: Client) -> None:
    assert 'href="/docs/"' in read(client.get("/"))


def test_the_glossary_is_in_alphabetical_order_and_short() -> None:
    names = re.findall(r"^## (.+)$", (ROOT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    assert names == sorted(names, key=str.lower)
    for term in glossary.terms().values():
        sentences = re.findall(r"[.!?](?= |$)", term.definition.replace(" p95 ", ""))
        assert 1 <= len(sentences) <= 4, term.name


def test_every_term_of_a_page_is_in_the_glossary() -> None:
    templates = [*ROOT.glob("*/templates/**/*.html")]
    used = {name.lower() for template in templates for name in USED.findall(template.read_text())}
    assert used and used <= set(glossary.terms())


def rendered(source: str, **context: Any) -> str:
    request = RequestFactory().get("/")
    return Template("{% load terms %}" + source).render(Context({"request": request, **context}))


def test_a_term_is_linked_with_its_definition_at_its_first_use_only() -> None:
    text = rendered('{% for _ in "ab" %}{% term "ttft" "TTFT" %} {% endfor %}{% term "TPOT" %}')
    assert text.count('href="/docs/glossary/#ttft"') == 1 and text.count("TTFT") == 2
    assert 'title="Time to first token' in text and 'href="/docs/glossary/#tpot"' in text


def test_an_abbreviation_leads_to_the_term_it_stands_for() -> None:
    assert 'href="/docs/glossary/#tensor-parallelism"' in rendered('{% term "TP" %}')


def test_a_name_that_the_glossary_does_not_know_stays_text() -> None:
    assert rendered("{% term name %}", name="warp & weft") == "warp &amp; weft"


def test_terms_in_a_sentence_are_linked_and_everything_else_is_escaped() -> None:
    text = rendered("{% with_terms text %}", text="A KV cache & 2 < 3; kv cache, TTFTs and a probe")
    assert text.count('class="term"') == 1 and ">KV cache</a> &amp; 2 &lt; 3; kv cache, TTFTs and a probe" in text


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["", "/options/1"])
def test_an_answer_defines_its_terms(path: str, client: Client) -> None:
    path = f"/advice/{sample_advice.advice().pk}{path}"
    pages = [read(client.get(f"{path}?section={name}")) for name in ("why", "performance", "confidence")]
    linked = [re.findall(r'class="term" href="/docs/glossary/#([\w-]+)"', page) for page in pages]
    assert {"ttft", "tpot"} <= set().union(*linked) and all(len(each) == len(set(each)) for each in linked)
