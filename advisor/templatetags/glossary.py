"""The terms of docs/glossary.md, which pages link to and define in tooltips."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from catalog.shipped import DOCS

HEADING = re.compile(r"^## +(.+?) *$", flags=re.MULTILINE)
MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[*`]")
ABBREVIATED = re.compile(r"\bAbbreviated (\w+)\.")


@dataclass(frozen=True, slots=True)
class Term:
    """One entry: its name, its anchor on the glossary page, and its definition as plain text."""

    name: str
    anchor: str
    definition: str


def terms() -> dict[str, Term]:
    """Each entry by its name and its abbreviation in lower case; empty without a glossary file."""
    path = DOCS / "glossary.md"
    return _read(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=1)
def _read(path: Path, changed_ns: int) -> dict[str, Term]:
    _, *parts = HEADING.split(path.read_text(encoding="utf-8"))
    entries = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        term = Term(name, anchor(name), MARKUP.sub(r"\1", " ".join(text.split())))
        entries[name.lower()] = term
        if abbreviated := ABBREVIATED.search(text):
            entries[abbreviated[1].lower()] = term
    return entries


def anchor(heading: str) -> str:
    """The anchor of a heading, as in MkDocs and GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
