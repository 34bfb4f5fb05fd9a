"""Which values the options of an argparse parser take, as text: one line per option, its name and its kind.

Kinds: flag (no value), int, number, json, text, a|b|c (one of these), and any of them followed by * (several values).
A line of fixtures/flags/values/*.txt. Only the standard library is used: this runs in the environment of an engine.
"""

import argparse
import contextlib
import io
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime


def kind_of(action: argparse.Action) -> str:
    """The kind of values of one option."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "flag"
    choices = action.choices or (action.metavar if isinstance(action.metavar, list) else None)
    several = "*" if action.nargs in ("*", "+") else ""
    if choices:
        return "|".join(str(choice) for choice in choices if choice is not None) + several
    takes = {text: accepts(action.type, text) for text in ("word", "8", "0.5", "{}")}
    if takes["word"] or not any(takes.values()):
        return "text" + several
    return (
        "int" if takes["8"] and not takes["0.5"] else "number" if takes["0.5"] and not takes["{}"] else "json"
    ) + several


def accepts(kind: object, text: str) -> bool:
    if not callable(kind):
        return True
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            kind(text)
        except (Exception, SystemExit):
            return False
    return True


def text_of(
    package: str, version: str, parser: argparse.ArgumentParser, names: Mapping[str, Iterable[str]] | None = None
) -> str:
    """The file of one parser. `names`: options whose names the engine checks after parsing, with those it knows."""
    kinds = {option: kind_of(a) for a in parser._actions for option in a.option_strings}
    kinds |= {option: "|".join(sorted(known)) for option, known in (names or {}).items()}
    head = [f"# package: {package}", f"# version: {version}", f"# recorded on: {datetime.now(UTC):%Y-%m-%d}"]
    return "\n".join([*head, *(f"{option} {kind}" for option, kind in sorted(kinds.items()))]) + "\n"
