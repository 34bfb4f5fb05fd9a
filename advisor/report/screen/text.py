"""The first screen for a terminal, at most 25 lines, and as Markdown."""

import textwrap
from collections.abc import Sequence

from advisor.report import markdown_escapes as md
from advisor.report.screen.rows import Table
from advisor.report.screen.screen import MOST_LINES, Screen

WIDTH = 118


def screen_text(screen: Screen, more: str = "") -> str:
    """Lines of a terminal, the last one with what else there is; long sentences wrap as long as there is room."""
    head = [screen.title, *wrapped("", screen.question), ""]
    end = [
        "",
        *aligned(screen.table),
        *[line for each in screen.below for line in wrapped("", each)],
        *(["", more] if more else []),
    ]
    body = [*wrapped("", screen.todo), *facts(screen)]
    return "\n".join([*head, *cut(body, MOST_LINES - len(head) - len(end)), *end])


def answer_text(screen: Screen, most_lines: int) -> str:
    """The answer first, then the question, without the table of the other choices."""
    question = wrapped("", f"{screen.title}: {screen.question}")
    answer = [*wrapped("", screen.todo), *facts(screen)]
    return "\n".join([*cut(answer, most_lines - len(question) - 1), "", *question])


def cut(lines: list[str], most_lines: int) -> list[str]:
    """The lines, the last one with an ellipsis if there are more."""
    if len(lines) <= most_lines:
        return lines
    return [*lines[: most_lines - 1], f"{lines[most_lines - 1][: WIDTH - 1]}…"]


def facts(screen: Screen) -> list[str]:
    width = max((len(fact.label) for fact in screen.facts), default=0)
    return [line for each in screen.facts for line in wrapped(f"{each.label}:".ljust(width + 2), each.text)]


def wrapped(label: str, text: str) -> list[str]:
    """A labeled sentence; its further lines are indented below its first word."""
    return textwrap.wrap(f"{label}{text}", WIDTH, subsequent_indent=" " * len(label)) if text else []


def lines(table: Table) -> list[list[str]]:
    """Head and rows."""
    return [[text for text, _ in cells] for cells in (table.head(), *(cells for _, cells in table.body()))]


def aligned(table: Table) -> list[str]:
    rows = lines(table) if table.rows else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if i in (0, last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def screen_markdown(screen: Screen) -> list[str]:
    """The same text as Markdown, the title as its heading."""
    found = [md.heading(1, screen.title), "", md.paragraph(screen.question), "", f"**{md.paragraph(screen.todo)}**", ""]
    found += [*(md.item(f"{fact.label}: {fact.text}") for fact in screen.facts), ""]
    found += markdown_table(lines(screen.table)) if screen.table.rows else []
    return [*found, *([""] if screen.table.rows else []), *(md.paragraph(each) for each in screen.below), ""]


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    return [md.row(rows[0]), md.row("---" for _ in rows[0]), *map(md.row, rows[1:])] if rows else []
