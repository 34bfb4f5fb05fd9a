"""Reads a CSV file that describes the sources of measured figures."""

from pathlib import Path

from advisor.evidence.formats.reading import EvidenceError, content_of, table_of
from advisor.evidence.rows import KEY, Source

COLUMNS = {  # heading -> field of a Source
    "source_key": "key", "name": "name", "place": "place", "where": "place", "address": "place", "url": "place",
    "client": "client", "licence": "licence", "license": "licence", "caveats": "caveats",
}  # fmt: skip


def read_sources(path: Path) -> dict[str, Source]:
    """The sources by key; other columns are ignored. EvidenceError: a row has no usable key; OSError."""
    found = {}
    for line, row in enumerate(table_of(content_of(path)), 2):
        given = {COLUMNS[name.lower()]: text for name, text in row.items() if name.lower() in COLUMNS and text}
        if not KEY.fullmatch(given.get("key", "")):
            raise EvidenceError(
                f"line {line} has no source_key of letters, digits, '.', '_' and '-' (at most 60 characters)"
            )
        found[given["key"]] = Source(**given)
    return found
