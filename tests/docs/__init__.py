"""What the pages of the documentation say: their commands, and the names between backticks."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^ *```(\S*)[^\n]*\n(.*?)^ *```", flags=re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
SHELL = ("sh", "bash", "console")
RECIPES = re.compile(r"^ *```\w+ fixtures/.*?^ *```", flags=re.MULTILINE | re.DOTALL)  # tests/answer/test_recipes.py


@dataclass(frozen=True)
class Said:
    page: str
    text: str


@cache
def pages() -> tuple[tuple[str, str], ...]:
    """(name, text) of every page."""
    files = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "fixtures" / "README.md"]
    kept = [file for file in files if file.name != "CHANGELOG.md"]  # it names what was
    return tuple((str(file.relative_to(ROOT)), RECIPES.sub("", file.read_text())) for file in kept)


@cache
def spans() -> tuple[Said, ...]:
    """Every text between backticks."""
    return tuple(Said(page, span) for page, text in pages() for span in SPAN.findall(FENCE.sub("", text)))


@cache
def lines() -> tuple[Said, ...]:
    """Every command line of a shell block."""
    found = []
    for page, text in pages():
        for kind, body in FENCE.findall(text):
            shell = kind in SHELL or kind == "" and body.lstrip().startswith(("manage.py", "curl"))
            joined = re.sub(r"\\\n *", " ", body) if shell else ""
            found += [
                Said(page, line.strip()) for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"
            ]
    return tuple(found)


def words(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # an apostrophe in a comment or a sentence
        return command.split()


@cache
def commands() -> tuple[Said, ...]:
    """Every command of manage.py, in blocks and in sentences, from its name on."""
    found = []
    for said in (*lines(), *spans()):
        match = re.search(r"(?:^|[ /&|])manage\.py (\w.*)", said.text)
        if match:
            found.append(Said(said.page, match[1]))
    return tuple(dict.fromkeys(found))


def is_placeholder(word: str) -> bool:
    """NAME, <id>, OWNER/NAME, ID..., or ... itself."""
    return bool(re.fullmatch(r"[A-Z][A-Z_/]*(\.\.\.|=VALUE)?|\.\.\.|<.*>|[A-Z]+\.\w+|.*(acme|\.example).*", word))


def sources() -> Iterator[Path]:
    """Files whose words a page may name: code, settings, fixtures, but no measurements."""
    for top in ("advisor", "catalog", "probes", "tests", "fixtures"):
        for file in (ROOT / top).rglob("*"):
            known = file.suffix in (".py", ".yaml", ".html", ".js", ".css", ".toml", ".txt", ".csv")
            if known and not {"measurements", "peers", "fidelity", "prices", "frozen_catalog"} & set(file.parts[-3:-1]):
                yield file
    yield from (ROOT / name for name in ("Makefile", "pyproject.toml", "mkdocs.yml", ".ci/run", "manage.py"))
