"""Files as data: lines with $values, each under the conditions that it applies to.

A template file has sections, `== NAME`; `== NAME < FILE` is another file as it is. A line may start with conditions,
`[optimizer=adamw, zero>=2]`: all must hold, or all of one side of ` or `. Conditions alone on a line apply to all lines
down to `[end]`. `$name` is a value in the form of the section's file, `${condition}` true or false, `$$` a dollar sign.
A file without lines is left out; `#: ` starts a comment.
"""

import json
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from advisor.engine.launch.kubernetes import yaml_text

FOLDER = Path(__file__).parent
Facts = Mapping[str, object]
CONDITIONAL = re.compile(r"(?:\[([^\]]*)\] ?)?(.*)")
TRAILING_COMMA = re.compile(r",(\s*[}\]])")  # of JSON
PLACE = re.compile(r"\$(?:(\w+)|\{([^}]*)\}|\$)")
TERM = re.compile(r"(not )?(\w+)(?:(!=|>=|<=|=|<|>)(.*))?")
COMPARED: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


class Raw(str):
    """Text that is written as it is."""

    __slots__ = ()


def yaml_form(value: object) -> str:
    return yaml_text(value).rstrip("\n")


FORMS: dict[str, Callable[[object], str]] = {
    "yaml": yaml_form, "yml": yaml_form, "json": json.dumps, "py": repr, "sbatch": str, "notes": str, "install": str,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and the conditions that must all hold for it."""

    text: str
    when: tuple[str, ...] = ()


@cache
def sections(file: str) -> Mapping[str, tuple[Line, ...] | str]:
    """The lines of each section of a template file, or the file that it names."""
    found: dict[str, tuple[Line, ...] | str] = {}
    for block in f"\n{_read(file)}".split("\n== ")[1:]:
        head, *lines = block.rstrip("\n").split("\n")
        name, _, source = head.partition(" < ")
        found[name] = _read(source) if source else tuple(_lines(lines))
    return found


def _read(file: str) -> str:
    return (FOLDER / file).read_text(encoding="utf-8")


def _lines(lines: Iterable[str]) -> Iterator[Line]:
    blocks: list[str] = []
    for line in lines:
        if line.startswith("#: "):
            continue
        conditions, text = CONDITIONAL.match(line).groups()  # type: ignore[union-attr]
        if conditions == "end":
            blocks.pop()
        elif conditions and not text:
            blocks.append(conditions)
        else:
            yield Line(text, (*blocks, conditions) if conditions else tuple(blocks))


def lines_of(file: str, name: str, facts: Facts) -> list[str]:
    """The lines of a section that apply, their values filled in."""
    form = FORMS.get(name.rpartition(".")[2], lambda value: shlex.quote(str(value)))
    lines = sections(file).get(name, ())
    return [filled(line.text, facts, form) for line in lines if isinstance(line, Line) and holds(line.when, facts)]


def files_of(file: str, facts: Facts) -> dict[str, str]:
    """The files of a template: its sections whose names have an ending."""
    found = {}
    for name, lines in sections(file).items():
        if "." in name:
            text = lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines_of(file, name, facts))
            found[name] = TRAILING_COMMA.sub(r"\1", text) if name.endswith(".json") else text
    return {name: text for name, text in found.items() if text}


def filled(text: str, facts: Facts, form: Callable[[object], str]) -> str:
    def value(match: re.Match[str]) -> str:
        name, condition = match.groups()
        if condition:
            return form(holds((condition,), facts))
        if name is None:
            return "$"
        return str(facts[name]) if isinstance(facts[name], Raw) else form(facts[name])

    return PLACE.sub(value, text)


def holds(conditions: Iterable[str], facts: Facts) -> bool:
    """Whether each condition holds: all terms of one side of ` or `."""
    return all(any(all(_term(t, facts) for t in side.split(", ")) for side in c.split(" or ")) for c in conditions)


def _term(text: str, facts: Facts) -> bool:
    match = TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no condition")
    negated, name, sign, other = match.groups()
    value = facts[name]
    if sign is None:
        return bool(value) != bool(negated)
    if sign in COMPARED:
        return COMPARED[sign](float(str(value)), float(other)) != bool(negated)
    return (str(value) in other.split("|")) == (sign == "=")
