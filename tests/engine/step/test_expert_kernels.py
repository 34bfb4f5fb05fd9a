"""Rates of expert kernels: those of the published tables where a format was timed on a chip, else the chip's own."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from advisor.engine.terms.machines.hardware import EXPERT_FORMATS, overhead
from advisor.engine.terms.software import Quantization
from tests.engine.catalog_sample import BF16, FP8, INT4, format_of
from tests.engine.step.test_layout import rates

FIXTURES = Path(__file__).parents[3] / "fixtures"
TABLES = FIXTURES / "measurements" / "expert-kernels.csv"
FORMATS = {
    "bf16": BF16,
    "fp8": FP8,
    "fp8_block": replace(FP8, block_scaled=True),
    "int4": replace(INT4, weights_dtype="int4", weight_only=True),
    "mxfp4": replace(INT4, weights_dtype="mxfp4", weight_only=True),
    "mxfp4_fp8": replace(FP8, weights_dtype="mxfp4", bits_per_weight=4.25),
    "nvfp4": replace(format_of("nvfp4", 4.5, "fp4"), weights_dtype="nvfp4"),
}
UNTIMED = {
    "fp6": format_of("w6", 6, "fp8"),
    "int8": format_of("w8", 8, "int8"),
    "w4a8": replace(INT4, activations_dtype="fp8"),
}


def timed(name: str, fraction: float = 0.5, core: float = 5e9, **others: float) -> dict[str, float]:
    return {f"expert_{name}_fraction": fraction, f"expert_{name}_core_bytes_per_s": core} | others


@pytest.mark.parametrize("name", EXPERT_FORMATS)
def test_a_timed_format_has_its_own_rates_and_changes_no_other(name: str):
    for other, form in FORMATS.items():
        before, after = rates(form), rates(form, overhead=timed(name))
        changed = {key for key in before if before[key] != after[key]}
        assert changed == ({"expert_flops_per_s", "expert_read_bytes"} if other == name else set()), other


@pytest.mark.parametrize("form", UNTIMED.values(), ids=UNTIMED)
def test_a_format_without_a_table_keeps_the_rates_of_the_chip(form: Quantization):
    every = {key: value for name in EXPERT_FORMATS for key, value in timed(name).items()}
    form = replace(form, weights_dtype=form.weights_dtype or "other")
    assert rates(form, overhead=every) == rates(form)


def test_the_share_is_of_the_datasheet_and_of_what_servers_reach():
    assert rates(overhead=timed("bf16", expert_served_factor=0.6))["expert_flops_per_s"] == pytest.approx(
        1e15 * 0.5 * 0.6
    )


def test_weights_are_read_at_the_rate_of_the_memory_or_of_all_cores():
    memory = 1e12 * 0.9 * 0.85
    fast = rates(overhead=timed("bf16", core=1e12))
    slow = rates(overhead=timed("bf16", core=1e9))
    assert fast["expert_read_bytes"] == pytest.approx(2.0)
    assert slow["expert_read_bytes"] == pytest.approx(2.0 * memory / (100 * 1e9), rel=1e-3)


def lines() -> list[dict[str, str]]:
    with TABLES.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def fit_of(scope: str) -> str:
    """The fit that gives a scope's rates: chips alike share one, and it is of the newest tables."""
    _, framework, *rest = scope.split(":")
    chip = rest[-1]
    families = {"b300": "blackwell-ultra", "gb300": "blackwell-ultra", "l40s": "ada"}
    own = families.get(chip) or (chip if rest in ([chip], ["0.24.0", chip]) else f"accelerator:{chip}")
    return f"framework:{framework}:{own}".replace("gb200", "b200")


def scopes() -> dict[str, dict[str, float]]:
    documents = [yaml.safe_load(p.read_text(encoding="utf-8")) for p in (FIXTURES / "calibration").glob("*.yaml")]
    return {d["name"]: {k: float(v) for k, v in d["values"].items()} for d in documents}


def test_the_calibration_has_the_rates_that_the_tables_give():
    fitted = {(each["scope"], each["format"]): each for each in lines() if each["scope"]}
    seen = 0
    for scope, values in scopes().items():
        for name in EXPERT_FORMATS:
            if f"expert_{name}_fraction" not in values:
                continue
            each = fitted[fit_of(scope), name]
            assert values[f"expert_{name}_fraction"] == pytest.approx(float(each["fraction"]), rel=0.01), (scope, name)
            core = values[f"expert_{name}_core_bytes_per_s"] / 1e9
            assert core == pytest.approx(float(each["core_gb_per_s"]), rel=0.01), (scope, name)
            seen += 1
    assert seen > 40


def test_rates_are_used_only_where_they_fit_models_and_chips_that_the_fit_did_not_see():
    used = {
        (fit_of(scope), name)
        for scope, values in scopes().items()
        for name in EXPERT_FORMATS
        if f"expert_{name}_fraction" in values
    }
    for each in (e for e in lines() if (e["scope"], e["format"]) in used):
        for error in ("error_fitted", "error_other_models", "error_other_chips"):
            if each[error]:
                assert float(each[error]) < 0.35, (each["scope"], each["format"], error)


def test_kernel_tables_do_not_count_as_host_times_measured_on_a_family():
    known = scopes()
    known = {**known, "framework": {**known["framework"], "eager_s_per_layer": 1e-4, "eager_s_per_expert_layer": 1e-4}}
    assert not overhead(known, "tensorrt-llm", "1.0", "hopper", "gpu", "h200-sxm").timed
    assert not overhead(known, "vllm", "0.33.0", "blackwell", "gpu", "b200").timed
    assert overhead(known, "vllm", "0.33.0", "hopper", "gpu", "h200-sxm").timed


def test_a_chip_with_tables_does_not_give_its_rates_to_its_family():
    known = scopes()
    known = {**known, "framework": {**known["framework"], "eager_s_per_layer": 1e-4, "eager_s_per_expert_layer": 1e-4}}
    b200 = overhead(known, "vllm", "0.33.0", "blackwell", "gpu", "b200")
    spark = overhead(known, "vllm", "0.33.0", "blackwell", "gpu", "gb10-dgx-spark")
    assert b200.expert_mxfp4_fraction and not spark.expert_mxfp4_fraction
