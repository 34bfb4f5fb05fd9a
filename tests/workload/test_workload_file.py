"""The workload file becomes a full specification: shorthands spelled out, defaults filled in."""

import json

import pytest

from advisor.web.forms import preset, presets
from advisor.workload.schema import RUNNABLE_KINDS, parse

LEAST = """
model: meta-llama/Llama-3.1-8B
traffic: {input_tokens: 500, output_tokens: {mean: 100}, requests_per_s: 2}
"""


def test_one_number_is_a_constant_length_and_a_flat_rate() -> None:
    traffic = parse(LEAST)["traffic"]
    assert traffic["input_tokens"] == {"mean": 500, "p95": 500}
    assert traffic["output_tokens"] == {"mean": 100, "p95": 100}
    assert traffic["requests_per_s"] == {"mean": 2, "peak": 2}


def test_defaults_are_visible() -> None:
    spec = parse(LEAST)
    assert (spec["kind"], spec["objective"], spec["probe"]) == ("serving", "cost", "no")
    assert spec["constraints"]["acquisition"] == ["rent", "own", "api"]
    shown = {"horizon_months": 36, "discount_rate": 0.08, "power_cap_fraction": 1.0, "grid_kgco2e_per_kwh": []}
    assert spec["tco"] == {**shown, "price_paths": None, "scenarios": [], "currency": "USD"}


def test_a_specification_is_its_own_workload_file() -> None:
    spec = parse(LEAST)
    assert parse(spec) == spec == parse(json.dumps(spec))


def test_users_ask_at_most_once_per_think_time() -> None:
    spec = parse("model: m\ntraffic: {input_tokens: 1, output_tokens: 1, users: {active: 60, think_s: 30}}")
    assert spec["traffic"]["requests_per_s"] == {"mean": 2, "peak": 2}
    assert parse(spec) == spec


def test_exponents_are_numbers_and_no_is_a_word() -> None:
    text = "{kind: training, model: m, probe: no, training: {tokens: 2.0e12, sequence_length: 8192, "
    spec = parse(text + "global_batch_tokens: 4e6}}")
    assert (spec["training"]["tokens"], spec["probe"]) == (2e12, "no")
    assert parse(LEAST + "probe: false")["probe"] == "no"


def test_a_further_tco_key_is_kept_as_an_override() -> None:
    assert parse(LEAST + "tco: {pue: 1.2}")["tco"]["pue"] == 1.2


@pytest.mark.parametrize("slug", [item["slug"] for item in presets()])
def test_every_preset_is_a_workload_that_can_be_asked_with_a_description(slug: str) -> None:
    assert preset(slug)["kind"] in RUNNABLE_KINDS
    assert all(item["about"] for item in presets())
