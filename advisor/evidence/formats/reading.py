"""What the readers of all formats share: the text of a file, and what one run of it says."""

import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.loading.bounded import FILES, BoundedError, read_csv, read_json_values, text_of

Json = Mapping[str, Any]
MAX_ROWS = 200_000
GZIP = b"\x1f\x8b"
CELL_CHARS = 500
SPECULATION = "uses speculative decoding ({}), which measured rows of the catalog do not have"


class EvidenceError(ValueError):
    """The file cannot be imported; the message names the key or the option, and says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One run of a file: what it says of the deployment and the load, and its figures.

    said: columns of measured rows, as text; a column that is missing is not stated.
    figures: metric -> value in the unit at the end of the metric's name.
    """

    where: str  # such as `line 3`
    said: Mapping[str, str]
    figures: Mapping[str, float]
    own_id: str = ""  # of the run in its source; empty: it has none
    stamp: str = ""  # when it ran, as exactly as the file says: tells runs of one configuration apart
    skipped: str = ""  # why none of its figures can be used
    doubt: str = ""  # why a person has to look at it
    gpu_layers: int | None = None  # llama.cpp: layers on the accelerator; None: all


def content_of(path: Path) -> str:
    """The text of a file, which may be compressed with gzip. EvidenceError: it is too large or no text."""
    data = path.read_bytes()
    if data.startswith(GZIP):
        try:
            with gzip.open(io.BytesIO(data)) as stream:
                data = stream.read(FILES.max_bytes + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise EvidenceError(f"is not a complete gzip file: {error}") from error
    try:
        return text_of(data, FILES)
    except BoundedError as error:
        raise EvidenceError(str(error)) from error


def objects_of(text: str) -> list[dict[str, Any]]:
    """The objects of a JSON text: one, a list of them, or one a line. EvidenceError: it has none."""
    try:
        values = read_json_values(text, FILES)
    except BoundedError as error:
        raise EvidenceError(str(error)) from error
    found = [each for value in values for each in (value if isinstance(value, list) else [value])]
    if not found or not all(isinstance(each, dict) for each in found):
        raise EvidenceError("is JSON, but neither an object nor a list of objects")
    return found


def table_of(text: str) -> list[dict[str, str]]:
    """The rows of a CSV text with a header, by column. EvidenceError: it is not one."""
    try:
        rows = [cells for _, cells in read_csv(text, max_rows=MAX_ROWS, max_columns=300) if any(map(str.strip, cells))]
    except BoundedError as error:
        raise EvidenceError(str(error)) from error
    if not rows:
        raise EvidenceError("is empty")
    head = [name.strip() for name in rows[0]]
    return [dict(zip(head, (cell.strip() for cell in cells), strict=False)) for cells in rows[1:]]


def number(value: Any) -> float | None:
    """A finite number, also written as text (1,146.31); None: there is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        value = value.replace(",", "").strip()
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def figures_of(**values: float | None) -> dict[str, float]:
    """The figures that the run has."""
    return {name: value for name, value in values.items() if value is not None}


def said_of(**values: Any) -> dict[str, str]:
    """The columns that the run states, as text."""
    return {name: written for name, value in values.items() if (written := written_of(value))}


def written_of(value: Any, most_chars: int = CELL_CHARS) -> str:
    """A value as a cell: numbers without needless digits, printable text in one line."""
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, int | float):
        return f"{value:.6g}" if math.isfinite(value) and abs(value) < 1e15 else ""
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())[:most_chars]


def first(record: Json, *names: str) -> Any:
    """The first of these keys that has a value."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def below(record: Any, *keys: str) -> Json:
    """A nested object; empty if it is not there."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record if isinstance(record, Mapping) else {}


def truth(value: Any) -> bool:
    """true, "True" and 1."""
    return str(value).strip().lower() in ("true", "1", "yes", "on")


def day_of(stamp: Any) -> str:
    """The day in a time such as 20260129-040949 or 2026-01-29T04:09:49Z; empty: it has none."""
    if match := re.match(r"\D?(20\d\d)-?([01]\d)-?([0-3]\d)", str(stamp or "")):
        return "-".join(match.groups())
    return ""


def runs(records: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    """Each record with its place in the file."""
    return ((f"run {place}", record) for place, record in enumerate(records, 1))
