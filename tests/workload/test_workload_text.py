"""Text is read safely: bounded, without aliases, duplicate keys or anything that runs."""

import pytest

from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError, load


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\na: 2", "set twice (line 2)"),
        ('{"a": {"b": 1, "b": 2}}', "set twice"),
        ("x: &a 1\ny: *a", "aliases"),
        ("[1, 2]", "mapping"),
        ("", "mapping"),
        ("a: {b", "line 1"),
        ("x: " + "[" * 60 + "]" * 60, "too deep"),
        ("x: [" + "1, " * 30_000 + "1]", "too many"),
        ("x: " + "a" * 1_000_001, "bytes"),
        (b"\xff\xfe\xfd", "UTF-8"),
        ("? [1, 2]\n: 3", "keys must be text"),
        ("!!python/object/apply:os.system [echo]", "tag"),
        ("1: 2", "keys must be text"),
    ],
)
def test_unsafe_or_malformed_text_is_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(WorkloadError, match=says.replace("(", r"\(").replace(")", r"\)")):
        load(text)


def test_dates_and_yes_stay_words() -> None:
    assert load("a: 2026-11-01\nb: yes\nc: 1_000\nd: 0o7") == {"a": "2026-11-01", "b": "yes", "c": "1_000", "d": "0o7"}


@pytest.mark.parametrize("word", [".nan", ".inf", "-.inf"])
def test_numbers_are_finite(word: str) -> None:
    with pytest.raises(WorkloadError, match="finite"):
        parse(f"slo: {{ttft_ms_p95: {word}}}")
