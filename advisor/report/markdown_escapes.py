"""Markdown from texts that others wrote: names, labels and notes stay texts, whatever they contain."""

import re
from collections.abc import Iterable

SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
LEADING = re.compile(r"^(\d*)([#+=-]|(?<=\d)[.)](?=\s|$))")  # a heading, a list or a rule, where a line begins
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # and turned writing


def escaped(text: object) -> str:
    """One line that reads as `text` in every Markdown renderer, those that pass HTML through included."""
    line = " ".join(CONTROLS.sub("", str(text)).split())
    plain = SPECIAL.sub(lambda found: f"\\{found[0]}", line)
    return plain.replace("&", "&amp;").replace("<", "&lt;")


def item(text: object) -> str:
    """A line of a list."""
    return f"- {paragraph(text)}"


def paragraph(text: object) -> str:
    """A line of its own."""
    line = LEADING.sub(r"\1\\\2", escaped(text))
    return f"&gt;{line[1:]}" if line.startswith(">") else line


def heading(level: int, text: object) -> str:
    return f"{'#' * level} {escaped(text)}"


def row(cells: Iterable[object]) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(escaped, cells))} |"


def fenced(code: str, language: str = "") -> list[str]:
    """Lines of code; the fence is longer than any inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return [f"{fence}{language}", code, fence]
