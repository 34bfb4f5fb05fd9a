"""The text of a form field and the value of the workload file that it stands for."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from django import forms
from django.utils.translation import gettext

from advisor import workload
from advisor.templatetags.units import decimal_comma
from advisor.web.form_fields.fields import (
    CASES,
    COUNTS,
    CURVE,
    LIST,
    NUMBER,
    NUMBERS,
    PATH,
    PREFIXES,
    SECTIONS,
    TOKENS,
    VALUES,
    WHOLE,
    Field,
)
from advisor.workload import POINT, Quantity, Style, Unclear, machines, quantity_at, read_quantity, reads_back, text_of

SIZES = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))  # of numbers of tokens
SINGLE = (NUMBER, WHOLE, TOKENS)  # fields of one number
LISTED = Style(listed=True)
# of the numbers in a line: of a price path, and of a class of shared prefixes
COLUMNS = {PATH: ("month", "ratio", "low", "high"), PREFIXES: ("share", "tokens", "count")}
UNSET = "-"
ENGLISH = "english"  # code of errors without a translation


@lru_cache(512)
def quantity(path: str) -> Quantity:
    """What a number at the path of the workload file means; a plain number where the file has no such path."""
    return quantity_at(workload.Spec, path) or workload.quantity_of(path)


def is_share(field: Field) -> bool:
    return field.reads in SINGLE and quantity(field.path).kind == "share"


# --- read -------------------------------------------------------------------------------------------------------


def read(text: str, field: Field) -> object:
    """A field's value. Text that is not a number is kept for validation to report. Unclear: it has two readings."""
    if field.reads == LIST:
        return [part.strip() for part in text.split(",") if part.strip()]
    if field.reads == COUNTS:
        counted = machines(text)
        return text if counted is None else counted
    if field.reads == VALUES:
        return values(text, field.path)
    if field.reads == CURVE:
        parts = words(text)
        return [number(part, field.path, LISTED) for part in parts] if len(parts) > 1 else text
    if field.reads == NUMBERS:
        return [number(part, field.path, LISTED) for part in words(text)]
    if field.reads in COLUMNS:
        return [point(line, field) for line in lines(text)]
    if field.reads == CASES:
        return [case(line, field.path) for line in lines(text)]
    return number(text, field.path, Style(comma=decimal_comma())) if field.reads in SINGLE else text


def number(text: str, path: str, style: Style) -> object:
    found = read_quantity(text, quantity(path), style)
    return text if found is None else found


def values(text: str, path: str) -> dict[str, object]:
    """The mapping written as `pue: 1.2, spare-fraction: 10%`; validation refuses a name without a number."""
    pairs = [part.partition(":") for part in text.split(",") if part.strip()]
    inner = {name.strip(): f"{path}.{name.strip()}" if path == "tco" else path for name, _, _ in pairs}
    return {name.strip(): number(figure.strip(), inner[name.strip()], LISTED) for name, _, figure in pairs}


def point(line: str, field: Field) -> dict[str, object]:
    """A line of numbers such as a price path's `12 0.8 0.7 0.9`; a dash stands for one that is not set."""
    pairs = zip(COLUMNS[field.reads], words(line), strict=False)
    return {key: number(part, f"{field.path}.{key}", LISTED) for key, part in pairs if part != UNSET}


def case(line: str, path: str) -> dict[str, object]:
    """A line of the scenarios: `launch: load 2, rent 90%`."""
    name, _, ratios = halves(line)
    pairs = (part.split() for part in ratios.split(",") if part.strip())
    return {"name": name, **{key: number(ratio, f"{path}.{key}", LISTED) for key, ratio in pairs}}


def halves(line: str) -> tuple[str, str, str]:
    """Name, colon and ratios of a scenario; a name may hold colons."""
    name, colon, ratios = line.rpartition(":")
    return (name.strip(), colon, ratios) if colon else (line, "", "")


def words(text: str) -> list[str]:
    return [part for part in re.split(r"[,;\s]+", text) if part]


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


# --- refuse -----------------------------------------------------------------------------------------------------


def checks_of(field: Field) -> list[Callable[[str], None]]:
    """What refuses a text before the workload is validated."""
    if field.reads in (CURVE, NUMBERS, VALUES, *SECTIONS):
        shape = {PATH: [points_only], PREFIXES: [prefixes_only], CASES: [cases_only]}.get(field.reads, [])
        return [with_points, *shape, clear(field)]
    return [clear(field)] if field.reads in SINGLE else []


def clear(field: Field) -> Callable[[str], None]:
    """Refuses a text that has two readings; the message shows both."""

    def check(text: str) -> None:
        try:
            read(text, field)
        except Unclear as unclear:
            raise forms.ValidationError(unclear_text(unclear)) from None
        except ValueError:  # a line that is no pair: the check of its shape reports it
            return

    return check


def only_english(message: str) -> forms.ValidationError:
    """An error that has no translation; a page with one is in English."""
    return forms.ValidationError(message, code=ENGLISH)


def unclear_text(unclear: Unclear) -> str:
    said = {"text": unclear.text, "ways": gettext(" or ").join(unclear.ways), "currency": unclear.currency}
    if unclear.currency:
        return gettext("“%(text)s” is in %(currency)s. Enter US dollars: %(ways)s.") % said
    return gettext("“%(text)s” could mean %(ways)s. Write one of these.") % said


def with_points(text: str) -> None:
    """Refuses 0,8 in a list, where a comma separates numbers, in a language with a decimal comma."""
    if decimal_comma() and re.search(r"\d,\d", text) and not re.search(r"\d\.\d", text):
        raise forms.ValidationError(
            gettext("In lists, write a decimal point (0.8) and separate numbers with a comma and a space.")
        )


def points_only(text: str) -> None:
    """Refuses a line that is not two to four numbers."""
    for at, line in enumerate(lines(text), 1):
        parts = words(line)
        if len(parts) not in (2, 3, 4) or not all(is_number(part) or part == UNSET for part in parts):
            raise only_english(
                f"line {at} ({line[:40]}) must be two to four numbers: month ratio low high, as in 12 0.8 0.7 0.9"
            )


def prefixes_only(text: str) -> None:
    """Refuses a line that is not two or three numbers."""
    for at, line in enumerate(lines(text), 1):
        parts = words(line)
        if len(parts) not in (2, 3) or not all(is_number(part) for part in parts):
            raise only_english(
                f"line {at} ({line[:40]}) must be two or three numbers: share tokens prefixes, as in 50% 2000 8"
            )


def cases_only(text: str) -> None:
    """Refuses a line that is not a name with ratios."""
    for at, line in enumerate(lines(text), 1):
        name, _, ratios = halves(line)
        pairs = [part.split() for part in ratios.split(",") if part.strip()]
        if not name or not all(len(pair) == 2 and is_number(pair[1]) for pair in pairs):
            raise only_english(
                f"line {at} ({line[:40]}) must be a name, a colon and ratios, such as launch: load 2, rent 0.9"
            )


def is_number(text: str) -> bool:
    return not isinstance(number(text, "ratio", LISTED), str)


# --- show -------------------------------------------------------------------------------------------------------


def typed(value: object, field: Field) -> str:
    """A value as text that `read` reads back, with a decimal point."""
    if field.reads not in SINGLE or isinstance(value, bool) or not isinstance(value, int | float):
        return shown(value)
    short = [f"{value / size:g}{letter}" for letter, size in SIZES if value >= size] if field.reads == TOKENS else []
    meant = quantity(field.path)
    return next((text for text in short if reads_back(text, value, meant)), "") or text_of(value, meant)


def in_points(text: str, field: Field) -> str:
    """A number of the page's language as English writes it; other text, and one with two readings, as it is."""
    try:
        value = read(text, field) if field.reads in SINGLE and "," in text else text
    except Unclear:
        return text
    return text if isinstance(value, str) else typed(value, field)


def in_field(field: Field, text: str) -> str:
    """A value as the field shows it: with the decimal separator of the page's language."""
    if field.reads not in SINGLE or not decimal_comma() or "." not in text:
        return text
    try:
        found = read_quantity(text, quantity(field.path), POINT)
    except Unclear:
        return text
    unit = text[-1:] if text[-1:] in ("%", *(letter for letter, _ in SIZES)) else ""
    simple = re.fullmatch(r"[+-]?\d+\.\d+[%TBMk]?", text)
    if found is None or not simple:
        return text
    if unit and unit != "%":
        return text.replace(".", ",")
    return text_of(found, quantity(field.path), Style(comma=True))


def shown(value: object) -> str:
    """A value as form text: 2000.0 as 2000, lists separated by commas, mappings as a100: 16, h100: 8."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {figure}" for name, figure in value.items())
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    short = f"{value:.15g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def sections_text(sections: Any, field: Field) -> str:
    """Sections as lines: scenarios by name, others as numbers in the order of COLUMNS."""
    if field.reads == CASES:
        return cases_text(sections)
    keys = COLUMNS[field.reads]
    rows = [[UNSET if p.get(key) is None else shown(p[key]) for key in keys] for p in sections]
    return "\n".join(re.sub(rf"( {UNSET})+$", "", " ".join(row)) for row in rows)


def cases_text(cases: Any) -> str:
    """Scenarios as lines of a name and the ratios that differ from 1."""
    rows = [(c["name"], [f"{k} {shown(v)}" for k, v in c.items() if k != "name" and v != 1]) for c in cases]
    return "\n".join(f"{name}: {', '.join(ratios)}".rstrip() for name, ratios in rows)


def stripped(sections: Any) -> list[dict[str, Any]]:
    """The sections without what is not set and ratios of 1."""
    return [{key: value for key, value in each.items() if value is not None and value != 1} for each in sections]
