"""MkDocs builds the documentation without a warning, and what it builds needs nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text()
        assert not re.search(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//', text), page
        assert not re.search(r'<link[^>]* rel="(?:stylesheet|preconnect)"[^>]* href="(?:https?:)?//', text), page
        assert not re.search(r"<[^>]+ style=|<[^>]+ on[a-z]+=", text), page


def test_every_glossary_entry_has_the_anchor_that_the_pages_link_to(site: Path) -> None:
    from advisor.templatetags import glossary

    text = (site / "glossary" / "index.html").read_text()
    assert [term.anchor for term in glossary.terms().values() if f'id="{term.anchor}"' not in text] == []


def test_the_search_index_has_every_page(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    assert '"location":"how-to/demand/' in index and '"location":"glossary/#ttft"' in index
