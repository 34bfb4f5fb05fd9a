"""docs/reference/settings.md lists every variable that the code reads: `python -m tests.settings_page` updates it.

The name, the type and the default come from the code, the meaning and the order from the page. A new variable is added
at the end, with the comment of its line.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "settings.md"
NAME = re.compile(r"ASSAY_[A-Z_]+|SECRET_KEY(_FALLBACKS)?|DATABASE_URL|REDIS_URL")
ROW = re.compile(r"\| `([A-Z_]+)` \| (.*?) \| (.*?) \| (.*) \|")
KINDS = {
    "bool": "true, false", "int": "number", "float": "number", "list": "list", "_names": "list",
    "retention_days": "days", "email_url": "URL", "db": "URL",
}  # fmt: skip


@dataclass(frozen=True)
class Variable:
    name: str
    kind: str
    default: str | None  # None: computed; the page says how
    comment: str


@cache
def variables() -> dict[str, Variable]:
    """Every variable that the service reads, in the order of the code."""
    files = [ROOT / "advisor" / "settings.py"]
    files += [path for folder in ("advisor", "catalog", "probes") for path in sorted((ROOT / folder).rglob("*.py"))]
    found: dict[str, Variable] = {}
    for path in files:
        if not path.is_relative_to(ROOT / "probes" / "agent"):
            for each in read_in(path.read_text(encoding="utf-8")):
                found.setdefault(each.name, each)
    return found


def read_in(source: str) -> Iterator[Variable]:
    """The variables that calls such as `env.int("ASSAY_X", default=1)` read."""
    if not NAME.search(source):
        return
    lines = source.splitlines()
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args)
    for call in sorted(calls, key=lambda call: call.lineno):
        first = call.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and NAME.fullmatch(first.value):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            given = [word.value for word in call.keywords if word.arg == "default"] + call.args[1:]
            comment = lines[(call.end_lineno or call.lineno) - 1].partition("  # ")[2]
            yield Variable(first.value, KINDS.get(called, "text"), default_text(given), comment)


def default_text(given: list[ast.expr]) -> str | None:
    try:
        value = ast.literal_eval(given[0]) if given else ""
    except ValueError:
        return None
    if value in ("", [], None):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (
        ", ".join(map(str, value))
        if isinstance(value, list)
        else f"`{value}`"
        if isinstance(value, str)
        else str(value)
    )


def updated(page: str) -> str:
    """The page with the types and defaults of the code, without variables that are gone; new ones are at the end."""
    known, lines = dict(variables()), []
    for line in page.splitlines():
        row = ROW.fullmatch(line)
        if row and row[1] in known:
            each = known.pop(row[1])
            lines.append(f"| `{each.name}` | {each.kind} | {each.default or row[3]} | {row[4]} |")
        elif not row:
            lines.append(line)
    lines += [f"| `{each.name}` | {each.kind} | {each.default or 'none'} | {each.comment} |" for each in known.values()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
