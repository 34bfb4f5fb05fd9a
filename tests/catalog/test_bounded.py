"""Whatever is uploaded or sent is counted before it is built, in one place, so that no body costs much memory."""

import io
import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from rest_framework.exceptions import APIException

from advisor.api import JSONParser
from advisor.load_results import LoadResultError
from advisor.workload import WorkloadError, load
from advisor.workload.traces.requests import requests_of
from catalog.api.own_prices import PricesParser
from catalog.importers.models import hf
from catalog.loading.bounded import FILES, WEB, BoundedError, Bounds, TooLarge, check_json, read_csv, read_json
from catalog.loading.fixtures import FixtureError
from catalog.pricing import own
from probes.received import intake
from tests.sample_load_results import parse

MIB = 2**20
ROOT = Path(__file__).parents[2]
MOST_BYTES = 64 * MIB  # of memory for one text; the largest may have 4 MiB
TABLE = "arrival_s,input_tokens,output_tokens"
JSON = {
    "lists": "[" + "[]," * (MIB - 9) + "[]]",
    "deep": "[" * (2 * MIB - 9) + "]" * (2 * MIB - 9),
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "objects": "[" + '{"a":{}},' * 400_000 + "1]",
    "keys": "{" + ",".join(f'"{n}":1' for n in range(300_000)) + "}",
    "numbers": "[" + "1," * (2 * MIB - 9) + "1]",
    "one number": "[1" + "0" * (3 * MIB) + "]",
    "one fraction": "[0." + "1" * (3 * MIB) + "]",
    "one text": '["' + "\U0001f600" * (MIB - 9) + '"]',
    "escapes": '["' + "\\u0041" * (MIB // 2) + '"]',
    "an open text": '"\\' * (2 * MIB - 9),
    "quotes": '"' * (4 * MIB - 9),
    "too large": " " * (4 * MIB + 1),
}
YAML = {
    "anchors": "a: &a [1,1]\n"
    + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "merges": "a: &a {x: 1}\nb: {<<: *a}\n",
    "flow": "[" * 900_000,
    "items": "a:\n" + "- 1\n" * 200_000,
    "keys": "".join(f"k{n}: 1\n" for n in range(90_000)),
    "dashes": "- " * 400_000,
}
CSV = {
    "columns": TABLE + "," * 400_000 + "\n" + "1,1,1\n" * 50_000,
    "cells": TABLE + "\n" + "1,1,1" + ",1" * 400_000,
    "lines": TABLE + "\n" * 900_000,
    "one cell": TABLE + '\n"' + "1" * 900_000 + '",1,1',
    "rows": TABLE + "\n" + "1,1,1\n" * 150_000,
}
READERS: dict[str, Callable[[str], object]] = {
    "load test": lambda text: parse(text.encode()),
    "REST": lambda text: JSONParser().parse(io.BytesIO(text.encode())),
    "own prices": lambda text: PricesParser().parse(io.BytesIO(text.encode())),
    "probe result": lambda text: intake.read(text.encode(), 4 * MIB),
    "config.json": lambda text: hf.parsed(text, "config.json"),
}


def peak_bytes(read: Callable[[], object]) -> int:
    """The memory that reading takes, which ends in an error of the reader's own."""
    tracemalloc.start()
    try:
        with pytest.raises(
            (BoundedError, LoadResultError, WorkloadError, FixtureError, APIException, intake.IntakeError)
        ):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", sorted(JSON))
@pytest.mark.parametrize("reader", sorted(READERS))
def test_no_json_takes_much_memory(reader: str, what: str) -> None:
    assert peak_bytes(lambda: READERS[reader](JSON[what])) < MOST_BYTES


@pytest.mark.parametrize("what", sorted(YAML))
def test_no_yaml_takes_much_memory(what: str) -> None:
    assert peak_bytes(lambda: load(YAML[what])) < MOST_BYTES


@pytest.mark.parametrize("what", sorted(CSV))
def test_no_trace_takes_much_memory(what: str) -> None:
    assert peak_bytes(lambda: requests_of(CSV[what])) < MOST_BYTES


@pytest.mark.parametrize("text", [*CSV.values(), *(f"benchmarks:\n{text}" for text in YAML.values())])
def test_no_table_or_yaml_of_a_load_test_takes_much_memory(text: str) -> None:
    assert peak_bytes(lambda: parse(text.encode())) < MOST_BYTES


@pytest.mark.parametrize("what", sorted(CSV))
def test_no_table_of_prices_takes_much_memory(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "RowForm", None)  # no row is examined: each table is refused before
    tracemalloc.start()
    found = own.read_table(None, CSV[what])  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.wrong and not found.lines
    assert peak < MOST_BYTES


@pytest.mark.parametrize("values", [10, 200])
def test_the_count_is_at_least_the_number_of_values_and_keys(values: int) -> None:
    """Texts with brackets, commas and escapes inside strings are counted by what json.loads builds of them."""

    def built(value: object) -> int:
        if isinstance(value, dict):
            return 1 + sum(1 + built(item) for item in value.values())
        return 1 + sum(map(built, value)) if isinstance(value, list) else 1

    texts = [
        json.dumps({"a,b": ["[", '"', "\\", 'x\\"],{', None, True] * values}),
        json.dumps([[], {}, {"k": {"k": [1, 2]}}] * values),
        json.dumps(["\\" * n for n in range(values)]),
        json.dumps({str(n): n for n in range(values)}, ensure_ascii=False),
    ]
    for text in texts:
        count = built(json.loads(text))
        check_json(text, Bounds(max_values=2 * count + 2))
        with pytest.raises(BoundedError, match="more than"):
            check_json(text, Bounds(max_values=count // 2))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe[\x00]\x00", "not UTF-8"),
        ("[1]".encode("utf-16"), "not UTF-8"),
        ('{"a": 1, "a": 2}', "'a' is set twice"),
        ("[1, 2", "not JSON"),
        ("[" * 65 + "]" * 65, "nested too deeply: at most 64"),
        ("[" + "9" * 501 + "]", "more than 500 digits"),
    ],
)
def test_a_text_beyond_a_bound_is_refused_with_the_bound(content: bytes | str, said: str) -> None:
    with pytest.raises(BoundedError, match=said):
        read_json(content)


def test_python_writes_numbers_that_json_does_not_have() -> None:
    assert read_json("[Infinity]") == [float("inf")]
    for number in ("NaN", "Infinity", "-Infinity", "1e999"):
        with pytest.raises(BoundedError, match=r"has a number that is not finite: a\.b\[1\];"):
            read_json(f'{{"a": {{"b": [1, {number}]}}}}', finite=True)


def test_the_command_line_reads_larger_files() -> None:
    text = "[" + "1," * 300_000 + "1]"
    assert len(read_json(text, FILES)) == 300_001
    with pytest.raises(TooLarge, match="larger than 4 MiB"):
        read_json(b" " * (WEB.max_bytes + 1))


def test_a_csv_has_as_many_rows_and_columns_as_it_may() -> None:
    assert list(read_csv("a,b\n\n1,2", max_rows=3)) == [(1, ["a", "b"]), (2, []), (3, ["1", "2"])]
    for text, said in (
        ("a\n" * 9, "more than 3 rows"),
        ("," * 101, "line 1 has more than 100 columns"),
        ('"' + "a" * 200_000, "CSV"),
    ):
        with pytest.raises(BoundedError, match=said):
            list(read_csv(text, max_rows=3))


# Where a text of somebody else could be parsed without bounds. Each file below reads only what this program wrote, what
# the repository holds, or what the command line was given.
OWN_TEXTS = {
    # Bills and tokens are read within bounds of their own; the others read what Assay itself wrote or its server sent.
    "advisor/actuals/bill.py", "advisor/actuals/files.py", "advisor/client/calls.py", "advisor/client/shown.py",
    "advisor/later/asked_before.py", "catalog/rest/cursors.py",
    "advisor/answer/options/launch_flags.py",
    "advisor/inputs/measured.py", "advisor/report/documents/exports/pods.py",
    "advisor/stored.py", "advisor/web/answers/kept.py", "advisor/workload/text.py", "advisor/workload/traces/files.py",
    "catalog/bundles/applied.py",
    "catalog/importers/prices/names.py",
    "catalog/importers/prices/offers.py", "catalog/importers/prices/gpu_price_index.py",
    "catalog/importers/prices/gpuhunt.py", "catalog/importers/prices/litellm.py",
    "catalog/importers/prices/skypilot.py", "catalog/loading/bounded.py", "catalog/loading/fixtures.py",
    "catalog/loading/places.py", "catalog/pricing/finding.py", "probes/machines/jobs.py",
}  # fmt: skip
PARSES = re.compile(r"json\.loads?\(|csv\.(?:reader|DictReader)\(|yaml\.(?:safe_)?load\(|(?<!\.)json\.load\b")


def test_no_other_module_of_the_service_parses_texts() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("advisor", "catalog", "probes")
        for path in (ROOT / folder).rglob("*.py")
        if PARSES.search(path.read_text())
    }
    elsewhere = {name for name in found if not re.match(r"advisor/(?:management|fidelity|engine)/|probes/agent/", name)}
    assert elsewhere <= OWN_TEXTS
