"""One place says which day it is, so that tests can pin it and answers of one moment agree."""

import ast
from pathlib import Path

import pytest

from tests.test_layers import MODULES

ALLOWED = ("catalog.clock", "probes.agent")  # the agent runs on other machines, without Django


def days_asked(path: Path) -> list[str]:
    """Where a file reads the day from the host's clock. `timezone.now()` is allowed: it stamps a row."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    of_a_time = {id(node.func) for node in nodes if isinstance(node, ast.Call) and node.args}  # localdate(created_at)
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and {"today", "localdate"} & {alias.name for alias in node.names}:
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            today = node.attr in ("today", "utcnow") and owner != "clock"
            day = node.attr == "localdate" and id(node) not in of_a_time
            now = node.attr == "now" and owner.split(".")[-1] == "datetime"
            stamp = node.attr == "date" and owner.endswith("timezone.now()")
            found.extend([f"{node.lineno}: {ast.unparse(node)}"] if today or day or now or stamp else [])
    return found


def test_only_the_clock_says_which_day_it_is() -> None:
    asked = {name: days_asked(path) for name, path in MODULES.items() if not name.startswith(ALLOWED)}
    assert {name: found for name, found in asked.items() if found} == {}


@pytest.mark.parametrize(
    "line", ["date.today()", "datetime.datetime.now(UTC)", "timezone.localdate()", "timezone.now().date()",
             "from catalog.clock import today"],
)  # fmt: skip
def test_another_way_to_ask_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "loose.py").write_text(line)
    assert days_asked(tmp_path / "loose.py")


def test_a_time_of_a_row_and_the_clock_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "loose.py").write_text(
        "made_at = timezone.now()\nday = clock.today()\ndue = timezone.localdate(made_at)\n"
    )
    assert days_asked(tmp_path / "loose.py") == []
