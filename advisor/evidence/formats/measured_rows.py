"""A CSV file with the columns of measured rows, as `fidelity` and `calibrate` read them."""

from advisor.evidence.formats.reading import EvidenceError, Reading, figures_of, number, table_of, written_of
from advisor.fidelity import COLUMNS

NAME = "rows"
REQUIRED = ("id", "metric", "value")
NOTE_CHARS = 2000
KEPT = tuple(name for name in COLUMNS if name not in REQUIRED)


def is_table(text: str) -> bool:
    head = text.lstrip().split("\n", 1)[0].replace('"', "")
    return set(REQUIRED) <= {name.strip() for name in head.split(",")}


def read(text: str) -> list[Reading]:
    """One reading a row. EvidenceError names the columns that are missing."""
    rows = table_of(text)
    if not rows:
        raise EvidenceError("has a header but no rows")
    if missing := [name for name in REQUIRED if name not in rows[0]]:
        raise EvidenceError(f"lacks the columns {', '.join(missing)} of measured rows")
    return [_reading(place, row) for place, row in enumerate(rows, 2)]


def _reading(line: int, row: dict[str, str]) -> Reading:
    value = number(row.get("value"))
    said = {name: text for name in KEPT if (text := written_of(row.get(name, ""), NOTE_CHARS))}
    skipped = "" if value is not None else "the value is not a number"
    if not row.get("id") or not row.get("metric"):
        skipped = "has no id or no metric"
    figures = figures_of(**{row.get("metric") or "?": value})
    return Reading(
        where=f"line {line}", said=said, figures=figures, own_id=written_of(row.get("id", "")), skipped=skipped
    )
