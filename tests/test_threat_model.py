"""The threat model names the tests that prove each defense: they must exist."""

import re

from tests.test_layers import ROOT

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)?::(test_\w+)`")


def named() -> list[tuple[str, str]]:
    """(file, test) of every mention; `::test_x` means the file named before it."""
    found, file = [], ""
    for path, test in NAMED.findall(PAGE.read_text()):
        file = path or file
        found.append((file, test))
    return found


def test_every_test_that_the_threat_model_names_exists() -> None:
    missing = [
        f"{file}::{test}"
        for file, test in named()
        if not (ROOT / file).is_file() or f"def {test}(" not in (ROOT / file).read_text()
    ]
    assert missing == []


def test_every_attack_names_a_test() -> None:
    entries = re.findall(r"^\*\*([^*]+)\*\*(.*?)(?=^\*\*|^## |\Z)", PAGE.read_text(), re.M | re.S)
    assert len(entries) > 30
    assert [title for title, text in entries if "Test:" not in text] == []
