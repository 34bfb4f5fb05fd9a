"""Rates off 16 bytes: made-up ones are found again, and a fit to one measured shape predicts the other shapes."""

import csv
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from advisor.engine.calibration.efficiency import efficiency_of
from advisor.engine.terms import Accelerator
from tests.engine.step.test_alignment import CHIPS, EFFICIENCY, errors, off, rows, time_s
from tests.probes.samples import entry

CSV = Path(__file__).resolve().parents[3] / "fixtures/measurements/gemm-alignment.csv"
TRUE = {
    "odd_matmul_fraction": 0.2, "odd_read_fraction": 0.4,
    "misaligned_matmul_fraction": 0.5, "misaligned_read_fraction": 0.7,
}  # fmt: skip
KNOWN = {name: getattr(EFFICIENCY, name) for name in
         ("roof_exponent", "wave_fraction", "kernel_s", "memory_fraction", "matmul_16_fraction")}  # fmt: skip
CHIP = CHIPS["h200-sxm"]


def gemm(m: int, n: int, k: int, seconds: float) -> Any:
    key = {"dtype": "bf16", "m": m, "n": n, "k": k, "off": "some"}
    return entry("gemm", key, seconds, 2.0 * m * n * k, 2.0 * (n * k + m * k + m * n))


def probed(off_by: tuple[int, ...] = (0, 1, 2), m: tuple[int, ...] = (16, 2048)) -> list[Any]:
    """The shapes of the quick suite, with times of a chip whose rates are TRUE."""
    e = replace(EFFICIENCY, **TRUE)
    shapes = [(4096 - a, 4096 - b) for less in off_by for a, b in {(less, 0), (0, less), (less, less)}]
    return [gemm(r, n, k, time_s(CHIP, e, r, n, k)) for r in m for n, k in shapes]


def fit(entries: list[Any], chip: Accelerator = CHIP) -> dict[str, float]:
    found = efficiency_of(entries, chip, KNOWN).as_values()
    return {name: value for name, value in found.items() if name in TRUE}


def test_the_rates_are_found_again() -> None:
    assert fit(probed()) == pytest.approx(TRUE, rel=0.05)


def test_too_few_rows_round_sizes_or_shapes_determine_nothing() -> None:
    assert fit(probed(off_by=(1, 2))) == {}
    assert fit(probed(m=(16,))) == {} and fit(probed(m=(2048,))) == {}
    assert set(fit(probed(off_by=(0, 1)))) == {"odd_matmul_fraction", "odd_read_fraction"}


@pytest.mark.parametrize("slug", ["h200-sxm", "h100-sxm"])
def test_a_fit_to_one_shape_predicts_the_slowdown_of_the_others(slug: str) -> None:
    own = []
    with CSV.open() as file:
        for r in csv.DictReader(file):
            if r["accelerator"] == slug and r["dtype"] == "bf16" and (r["base_n"], r["base_k"]) == ("4096", "4096"):
                own.append(gemm(int(r["m"]), int(r["n"]), int(r["k"]), float(r["ms"]) / 1e3))
    found = fit(own, CHIPS[slug])
    assert set(found) == set(TRUE)
    others = [r for r in rows(slug) if off(r) and (r["base_n"], r["base_k"]) != ("4096", "4096")]
    assert len(others) > 200 and median(errors(others, replace(EFFICIENCY, **found))) < 0.15
