"""Reads JSON and CSV that somebody sent, within bounds: the one place where uploads and request bodies are parsed.

json.loads needs up to 25 times the memory of its text, and holds the interpreter lock meanwhile: 30 MB of nested lists
cost 760 MB and 4.8 s. So bytes, values, depth and digits are counted in the text before anything is built.
"""

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# "..." with its escapes; an unterminated string extends to the end, so that the count stays linear
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
BRACKETS = re.compile(r"[][{}]")
SPACE = re.compile(r"\s*")


class BoundedError(ValueError):
    """The text is not valid or beyond a bound; the message says which, and follows `the file`."""


class TooLarge(BoundedError):
    """More bytes than allowed."""


class Invalid(BoundedError):
    """Within the bounds, but not JSON."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a text may have at most. The worst case of the defaults is about 60 MB of memory."""

    max_bytes: int = 4 * 2**20
    max_values: int = 200_000  # keys count too
    max_depth: int = 64
    max_digits: int = 500  # of one number


WEB = Bounds()
FILES = Bounds(max_bytes=64 * 2**20, max_values=4_000_000)  # of the command line, where only its own process waits


def text_of(content: bytes | str, bounds: Bounds = WEB) -> str:
    """UTF-8 text without a byte order mark. TooLarge: it is too long. BoundedError: it is not UTF-8."""
    size = len(content) if isinstance(content, bytes) else len(content.encode(errors="surrogatepass"))
    if size > bounds.max_bytes:
        raise TooLarge(f"is larger than {size_text(bounds.max_bytes)}")
    try:
        return content.decode("utf-8-sig") if isinstance(content, bytes) else content.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BoundedError(f"cannot be read as text: not UTF-8 ({error.reason} at byte {error.start})") from None


def size_text(size_bytes: int) -> str:
    """4 MiB, 900 kB or 1 MB."""
    if size_bytes % 2**20 == 0:
        return f"{size_bytes // 2**20} MiB"
    return f"{size_bytes / 1e6:g} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:g} kB"


def read_json(content: bytes | str, bounds: Bounds = WEB, *, finite: bool = False) -> Any:
    """The value of a JSON text with no duplicate keys. BoundedError says what is wrong; it comes before any memory.

    finite: refuse NaN and infinite numbers (Infinity, which JSON does not have but Python writes, and 1e999) by key.
    """
    text = text_of(content, bounds)
    check_json(text, bounds)
    try:
        found = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"is not JSON: {error}") from None
    if finite and (where := next(not_finite(found), None)) is not None:
        raise Invalid(f"has a number that is not finite{where and f': {where}'}; give a finite number, or null")
    return found


def not_finite(value: Any, where: str = "") -> Iterator[str]:
    """The path, such as a.b[1], of each number that is NaN or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield where
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from not_finite(inner, f"{where}.{key[:100]}" if where else key[:100])
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from not_finite(inner, f"{where}[{i}]")


def read_json_values(content: bytes | str, bounds: Bounds = WEB) -> list[Any]:
    """The values of a text with one JSON value after another, such as JSON Lines. BoundedError as for `read_json`."""
    text = text_of(content, bounds)
    check_json(text, bounds)
    decoder, found, at = json.JSONDecoder(object_pairs_hook=unique), list[Any](), 0
    while (at := SPACE.match(text, at).end()) < len(text) or not found:  # type: ignore[union-attr]
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"is not JSON: {error}") from None
        found.append(value)
    return found


def check_json(text: str, bounds: Bounds) -> None:
    """BoundedError: the JSON text has too many values, is nested too deeply, or has a number that is too long."""
    bare = STRING.sub("", text)
    if sum(map(bare.count, ",:[{")) >= bounds.max_values:
        raise BoundedError(f"has more than {bounds.max_values:,} values")
    depth = 0
    for bracket in BRACKETS.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > bounds.max_depth:
            raise BoundedError(f"is nested too deeply: at most {bounds.max_depth} levels")
    if re.search(rf"[0-9]{{{bounds.max_digits + 1}}}", bare):
        raise BoundedError(f"has a number with more than {bounds.max_digits} digits")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these pairs. ValueError: a key is set twice."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        shown = twice if len(twice) <= 100 else f"{twice[:100]}..."
        raise ValueError(f"the key {shown!r} is set twice")
    return mapping


def read_csv(
    text: str, *, max_rows: int, max_columns: int = 100, delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each line of a CSV text, empty ones too.

    BoundedError: not CSV, more than `max_rows` lines, more than `max_columns` cells in one, or a cell that is too long.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for count, cells in enumerate(reader):
            if count > max_rows:
                raise BoundedError(f"has more than {max_rows:,} rows")
            if len(cells) > max_columns:
                raise BoundedError(f"line {reader.line_num} has more than {max_columns} columns")
            yield reader.line_num, cells
    except csv.Error as error:
        raise BoundedError(f"is not CSV: {error}") from None
