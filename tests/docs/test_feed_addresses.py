"""The page on refreshing prices names every source, with the address that the code reads and what it needs."""

import re
from pathlib import Path

import pytest

from catalog.pricing import sources
from catalog.pricing.sources import SOURCES, Source

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "refresh-prices.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


def rows_of(name: str) -> str:
    return "\n".join(row for row in ROWS if f"`{name}`" in row.split("|")[1])


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_each_source_has_a_row_with_its_address_and_its_variables(source: Source) -> None:
    said = rows_of(source.name)
    assert said.count("\n") >= 1, "one row on what it reads, one on its address"
    assert not source.address or f"`{source.address}`" in said
    for variable in re.findall(r"ASSAY_\w+", source.title + source.needs):
        assert f"`{variable}`" in said


def test_every_address_in_the_code_is_one_of_a_source() -> None:
    code = Path(sources.__file__).read_text()
    hosts = set(re.findall(r"https://([^/\"]+)", code))
    assert hosts == {re.split("/", source.address)[2] for source in SOURCES.values() if source.address}
