"""Sizes slightly off round ones cost what was measured on an H200; other shapes and an H100 check the fit."""

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import yaml

from advisor.engine.network import Ffn
from advisor.engine.optimisation.pitfalls import better_sizes, rounded_up
from advisor.engine.step.lane import lanes
from advisor.engine.step.lane_times import prefill_s
from advisor.engine.step.layout import Choice, layouts
from advisor.engine.step.operators import gemm
from advisor.engine.terms import Accelerator, Efficiency, efficiency
from advisor.engine.terms.machines.hardware import Overhead
from tests.engine.catalog_sample import BF16, LLAMA_8B, chip, ideal, lane

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
FITTED_ON = {("4096", "4096"), ("14336", "4096")}  # (N, K) of the round sizes of the H200 rows that were fitted
FILES = ("default", "family-hopper")
SCOPES = {
    d["name"]: d["values"] for f in FILES if (d := yaml.safe_load((FIXTURES / f"calibration/{f}.yaml").read_text()))
}
EFFICIENCY = efficiency(SCOPES, "h200-sxm", "hopper", "gpu")
CHIPS = {  # datasheets: fixtures/accelerators/
    "h200-sxm": chip("h200-sxm", flops_per_s={"bf16": 989.5e12}, memory_bytes_per_s=4.8e12, cores=132),
    "h100-sxm": chip("h100-sxm", flops_per_s={"bf16": 989.5e12}, memory_bytes_per_s=3.35e12, cores=132),
}


def rows(accelerator: str) -> list[dict[str, str]]:
    with (FIXTURES / "measurements/gemm-alignment.csv").open() as file:
        return [r for r in csv.DictReader(file) if r["accelerator"] == accelerator and r["dtype"] == "bf16"]


def time_s(a: Accelerator, e: Efficiency, m: float, n: float, k: float) -> float:
    choice = Choice(accelerator=a, efficiency=e, overhead=ideal(Overhead), quantization=BF16, kv_dtype="bf16")
    x = layouts(LLAMA_8B, [choice]).column()
    return float(np.ravel(gemm(x, "one", 1, np.array([[m]]), np.array([[n]]), k, "half").time_s)[0])


def errors(some: Iterable[dict[str, str]], e: Efficiency = EFFICIENCY) -> list[float]:
    """Relative errors of the predicted slowdown against the round size."""
    found = []
    for r in some:
        a, m = CHIPS[r["accelerator"]], float(r["m"])
        slow = time_s(a, e, m, float(r["n"]), float(r["k"])) / time_s(a, e, m, float(r["base_n"]), float(r["base_k"]))
        found.append(float(np.exp(abs(np.log(slow / float(r["ratio"])))) - 1))
    return found


def off(r: dict[str, str]) -> bool:
    return int(r["n"]) % 8 > 0 or int(r["k"]) % 8 > 0


def held_out() -> list[dict[str, str]]:
    return [r for r in rows("h200-sxm") if off(r) and (r["base_n"], r["base_k"]) not in FITTED_ON]


def test_the_slowdown_of_shapes_that_were_not_fitted():
    checked = held_out()
    assert len(checked) >= 150 and median(errors(checked)) < 0.15
    unaware = replace(EFFICIENCY, odd_matmul_fraction=1.0, odd_read_fraction=1.0, misaligned_matmul_fraction=1.0,
                      misaligned_read_fraction=1.0)  # fmt: skip
    assert median(errors(checked, unaware)) > 1.5  # without the factors, times are wrong by more than twice


def test_the_slowdown_on_a_chip_that_was_not_fitted():
    checked = [r for r in rows("h100-sxm") if off(r)]
    assert len(checked) >= 300 and median(errors(checked)) < 0.25


def test_multiples_of_eight_cost_nothing_extra():
    even = [r for r in rows("h200-sxm") if not off(r)]
    assert len(even) > 200 and median(float(r["ratio"]) for r in even) == pytest.approx(1.0, abs=0.02)
    assert median(errors(even)) < 0.03


@pytest.mark.parametrize("wanted", ["14331", "14332", "14334", "14335"])
def test_sizes_off_the_round_one_are_slower(wanted: str):
    checked = [r for r in rows("h200-sxm") if r["n"] == wanted and r["k"] == "4096"]
    assert len(checked) == 5
    for r in checked:
        e = time_s(CHIPS["h200-sxm"], EFFICIENCY, float(r["m"]), float(wanted), 4096.0)
        assert e > 1.3 * time_s(CHIPS["h200-sxm"], EFFICIENCY, float(r["m"]), 14336.0, 4096.0)


def with_inner(inner: int) -> Any:
    return replace(LLAMA_8B, blocks=tuple(replace(b, ffn=Ffn(inner=inner)) for b in LLAMA_8B.blocks))


def test_model_designers_are_told_the_better_size():
    asked = lane(CHIPS["h200-sxm"])
    choice = replace(asked.choice, efficiency=EFFICIENCY, quantization=BF16)
    odd, round_one = with_inner(14331), with_inner(14336)
    assert better_sizes(odd, choice) == [("intermediate size", 14331, 14336)]
    assert better_sizes(round_one, choice) == [] and rounded_up(odd, choice) == round_one
    times = [prefill_s(lanes(m, [replace(asked, choice=choice)]), 0, 2000) for m in (odd, round_one)]
    assert times[0] > 2 * times[1]


def test_sizes_are_those_of_a_chip_after_the_split():
    choice = lane(CHIPS["h200-sxm"]).choice
    assert better_sizes(with_inner(14336), replace(choice, tp=8)) == []  # 1,792 a chip
    assert better_sizes(with_inner(14368), replace(choice, tp=8)) == [("intermediate size", 14368, 14848)]  # 1,796
