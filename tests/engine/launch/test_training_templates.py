"""Templates of launch files: conditions, values in the form of each file, and files that are left out."""

from pathlib import Path

import pytest

from advisor.engine.launch.training_runs import templates
from advisor.engine.launch.training_runs.templates import files_of, holds, lines_of

FACTS = {"name": 'a "b"', "size": 2, "rate": 3e-4, "on": True, "none": None}
TEMPLATE = """== run
--name $name
[size>2] --large
== a.yaml
#: not written
name: $name
rate: $rate
[on]
on: $on
[size=1] one: 1
[size=2|3] some: ${size<3, not none}
[end]
last: $$x
== b.json
{
  "name": $name,
  "none": $none,
}
== c.py
[not on] x = $name
== d.py < e.txt
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.txt").write_text(TEMPLATE)
    (tmp_path / "e.txt").write_text("[as it is] $x\n")
    monkeypatch.setattr(templates, "FOLDER", tmp_path)
    templates.sections.cache_clear()


def test_lines_apply_under_their_conditions_and_values_have_the_form_of_their_file() -> None:
    assert files_of("t.txt", FACTS) == {
        "a.yaml": 'name: "a \\"b\\""\nrate: 0.0003\non: true\nsome: true\nlast: $x\n',
        "b.json": '{\n  "name": "a \\"b\\"",\n  "none": null\n}\n',
        "d.py": "[as it is] $x\n",
    }
    assert lines_of("t.txt", "run", FACTS) == ["--name 'a \"b\"'"]


@pytest.mark.parametrize(
    ("condition", "true"),
    [
        ("size>=2, on", True), ("size<2", False), ("size!=2", False), ("size=1|2", True), ("not on", False),
        ("none", False), ("not none, size>1", True), ("size>3 or on", True), ("size>3, on or none", False),
    ],
)  # fmt: skip
def test_conditions(condition: str, true: bool) -> None:
    assert holds([condition], FACTS) is true


@pytest.mark.parametrize(("condition", "error"), [("size >= 2", ValueError), ("sizes>2", KeyError)])
def test_a_condition_that_cannot_be_read_stops(condition: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        holds([condition], FACTS)
