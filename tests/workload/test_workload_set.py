"""`--set path=value` changes one value of a workload."""

import pytest

from advisor.workload.text import WorkloadError, set_path


def test_sets_a_nested_value_and_leaves_the_original() -> None:
    original = {"traffic": {"requests_per_s": {"mean": 4}}}
    changed = set_path(original, "traffic.requests_per_s.peak", "12")
    assert changed == {"traffic": {"requests_per_s": {"mean": 4, "peak": 12}}}
    assert original == {"traffic": {"requests_per_s": {"mean": 4}}}


@pytest.mark.parametrize(
    ("text", "value"), [("no", "no"), ("1e3", 1000.0), ("[rent, own]", ["rent", "own"]), ("null", None), ("", "")]
)
def test_reads_the_value_as_the_file_would(text: str, value: object) -> None:
    assert set_path({}, "a.b", text) == {"a": {"b": value}}


@pytest.mark.parametrize("path", ["", ".a", "a..b", "a.b"])
def test_refuses_a_path_that_leads_nowhere(path: str) -> None:
    with pytest.raises(WorkloadError):
        set_path({"a": 5}, path, "1")
