"""The page of inputs names every key of the workload file, with a meaning, and no other."""

import re

import pytest

from advisor.web.form_fields import FIELDS
from advisor.workload import WorkloadError, parse, set_path
from tests.examples import ROOT
from tests.examples.assumed import ASSUMED
from tests.examples.inputs import MEANINGS, assumptions, leaves, meaning, section_of

PAGE = (ROOT / "docs" / "reference" / "inputs.md").read_text()
SHOWN = re.findall(r"^\| `([^`]+)` \|", PAGE.split("## The question")[1], flags=re.MULTILINE)
SMALL = {
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2},
}


def test_every_key_of_the_schema_is_on_the_page_with_a_meaning() -> None:
    keys = [path for path, _ in leaves()]
    assert [path for path in keys if path not in SHOWN] == []
    assert all(meaning(path) for path in keys)
    assert {section_of(path) for path in keys} <= set(re.findall(r"<!-- inputs (\S+) -->", PAGE))


def test_every_field_of_the_form_is_on_the_page() -> None:
    """Fields of the form alone have names such as form.latency; those of assumptions are tco.KEY."""
    listed = {"tco.scenarios", "traffic.prefixes"}  # the keys of one are on the page
    alone = {"yaml", "traffic.trace.file", "tco", *listed}
    kept = re.compile(r"form\.|weights\.|team\.|tco\.[a-z0-9]+-")
    assert [path for path in FIELDS if path not in SHOWN and path not in alone and not kept.match(path)] == []


def test_no_meaning_is_left_over() -> None:
    assert set(MEANINGS) <= {path for path, _ in leaves()}
    assert not set(MEANINGS) & set(FIELDS)


def test_every_assumption_has_a_meaning_and_no_meaning_is_left_over() -> None:
    rows = assumptions()
    assert [row[0] for row in rows if not row[4]] == []
    assert {f"`tco.{key}`" for key in ASSUMED} <= {row[0] for row in rows}


@pytest.mark.parametrize("path", [path for path in SHOWN if not re.search(r"[\[\]A-Z]|^tco\.[a-z0-9]+-", path)])
def test_the_parser_knows_every_key_on_the_page(path: str) -> None:
    try:
        parse(set_path(SMALL, path, "[[not, {a: value}]]"))
    except WorkloadError as error:
        assert not [item for item in error.errors if "unknown" in item["message"] and item["field"] == path]
