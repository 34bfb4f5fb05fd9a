"""Numbers and dates as the reader's language writes them, and long texts in a cell."""

from datetime import date
from functools import lru_cache

from django.utils.formats import get_format
from django.utils.html import format_html
from django.utils.translation import get_language

MAX_CELL_CHARS = 48


@lru_cache(maxsize=64)
def separators(language: str | None) -> tuple[str, str]:
    """The thousands and decimal separators of a language."""
    return str(get_format("THOUSAND_SEPARATOR", language)), str(get_format("DECIMAL_SEPARATOR", language))


def localized(text: str) -> str:
    """A number such as 1,234.5 with the separators of the page's language: 1.234,5 in German."""
    thousands, point = separators(get_language())
    if (thousands, point) == (",", "."):
        return text
    return text.replace(",", "\0").replace(".", point).replace("\0", thousands)


def number(value: float, places: int) -> str:
    """A number with thousands separators, without trailing zeros."""
    shown = f"{value:,.{places}f}"
    return localized(shown.rstrip("0").rstrip(".") if "." in shown else shown)


def day(value: date) -> str:
    """A date as ISO 8601, which no reader mistakes."""
    return value.isoformat()


def shortened(value: str) -> str:
    """A text for a table cell. A long one, such as a citation, opens on demand and never stretches its column."""
    if len(value) <= MAX_CELL_CHARS:
        return value
    start = value[: MAX_CELL_CHARS - 1].rsplit(" ", 1)[0].rstrip(" ,;:(")[: MAX_CELL_CHARS - 1]
    return format_html('<details class="cut"><summary>{}…</summary>{}</details>', start, value)
