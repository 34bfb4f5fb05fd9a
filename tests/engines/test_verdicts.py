"""Assay's checks of start commands against verdicts that engines' own parsers and configuration classes gave.

README.md beside this file says how the verdicts were recorded, with which versions, and when.
"""

import csv
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from advisor.engine.network import Model, from_hf_config
from advisor.engine.terms import Accelerator, Framework, rules_of, start_rules_of
from tests.engine.catalog_sample import FIXTURES, VLLM, chip, shipped
from tests.engine.network.test_config_keys import PUBLISHED
from tests.engines.judge import refusals

FOLDER = Path(__file__).parent
ENGINES = {path.stem.removeprefix("verdicts-"): path for path in sorted(FOLDER.glob("verdicts-*.csv"))}
OWN = json.loads((FOLDER / "configs.json").read_text())
SLUGS = {  # models that need options of their own
    "Qwen/Qwen3-Reranker-8B": "qwen-qwen3-reranker-8b",
    "XiaomiMiMo/MiMo-7B-Base": "xiaomimimo-mimo-7b-base",
}
MOST_DIFFERENCES = 0.02  # of the rows of an engine


class Row(NamedTuple):
    kind: str  # layout | printed | bad
    model: str
    chip: str
    options: str
    accepted: str
    said: str
    differs: str


@cache
def rows(engine: str) -> tuple[Row, ...]:
    with ENGINES[engine].open(newline="") as file:
        return tuple(Row(**each) for each in csv.DictReader(file))


@cache
def model_of(name: str) -> Model:
    config = PUBLISHED[name]["config"] if name in PUBLISHED else OWN[name]
    return from_hf_config(config, SLUGS.get(name, name))


@cache
def chip_of(slug: str) -> Accelerator:
    row = yaml.safe_load((FIXTURES / "accelerators" / f"{slug}.yaml").read_text())
    rates = {name: 1e12 for name, rate in row["dense_tflops"].items() if isinstance(rate, int | float)}
    return chip(
        slug, family=row["family"].replace(" ", "-"), stacks=tuple(row["stacks"]), flops_per_s=rates, chips_per_host=8
    )


@cache
def framework_of(engine: str) -> Framework:
    slug = engine.partition("-")[0]
    row = shipped()[slug]
    return replace(VLLM, slug=slug, start_checks=start_rules_of(row), weights=rules_of(row, "weights"))


def judged(engine: str, row: Row) -> list[str]:
    return refusals(f"serve {row.options}", engine, framework_of(engine), chip_of(row.chip), model_of(row.model))


@pytest.mark.parametrize("engine", ENGINES)
def test_assay_refuses_what_the_engine_refuses_and_nothing_else(engine: str) -> None:
    different = [(row, said) for row in rows(engine) if bool(said := judged(engine, row)) != (row.accepted == "no")]
    unlisted = [(row.model, row.chip, row.options, row.said, said) for row, said in different if not row.differs]
    assert unlisted == []
    agree = [row for row in rows(engine) if row.differs and (row, judged(engine, row)) not in different]
    assert agree == [], "these rows agree: remove their reason"
    assert len(different) <= MOST_DIFFERENCES * len(rows(engine)), Counter(row.differs for row, _ in different)


@pytest.mark.parametrize("engine", ENGINES)
def test_bad_commands_are_refused_by_both(engine: str) -> None:
    bad = [row for row in rows(engine) if row.kind == "bad"]
    assert len(bad) >= 20 and {row.accepted for row in bad} == {"no"}
    assert [row.options for row in bad if not judged(engine, row)] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_printed_commands_were_accepted(engine: str) -> None:
    printed = [row for row in rows(engine) if row.kind == "printed"]
    assert printed and [row.options for row in printed if row.accepted == "no"] == []
