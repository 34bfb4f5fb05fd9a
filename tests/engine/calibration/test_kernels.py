"""The fit of kernels timed alone finds the figures of the model that made them, and says nothing of the rest."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.engine.calibration.efficiency import efficiency_of
from advisor.engine.terms.machines.hardware import Accelerator, Link
from tests.probes import samples
from tests.probes.samples import TRUE

CHIP = Accelerator(
    slug="h200-sxm", name="H200", vendor="nvidia", family="hopper", kind="gpu", memory_bytes=140.4 * 2**30,
    memory_bytes_per_s=4800e9, flops_per_s={"bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12}, cores=132,
    links=(Link(name="nv", bytes_per_s=450e9, latency_s=0, chips=8),), sram_bytes=50 * 2.0**20, watts=700,
    idle_watts=80, stacks=("cuda",), chips_per_host=8, pcie_bytes_per_s=63e9,
)  # fmt: skip

LOOSE = {"roof_exponent": 0.05, "sequence_head_bytes": 0.05}  # a grid; the small rest of a large time


def noisy(entries: list[Any], share: float) -> list[Any]:
    chance = np.random.default_rng(3)
    for e in entries:
        factor = float(np.exp(chance.normal(0, share)))
        e["time_s"] = {k: v * factor if k != "n" else v for k, v in e["time_s"].items()}
    return entries


@pytest.fixture
def four() -> list[Any]:
    return samples.results({**samples.H200, "count": 4})


@pytest.mark.parametrize("name", TRUE)
def test_every_figure_of_the_model_is_found_again(name: str, four: list[Any]) -> None:
    found = efficiency_of(four, CHIP)
    assert found[name].value == pytest.approx(TRUE[name], rel=LOOSE.get(name, 0.02))
    assert found[name].count > 0 and found[name].source


@pytest.mark.parametrize("name", TRUE)
def test_with_two_per_cent_of_noise_the_interval_holds_the_truth(name: str, four: list[Any]) -> None:
    figure = efficiency_of(noisy(four, 0.02), CHIP)[name]
    wide = 0.05 * TRUE[name]  # two of them are shares of another figure of this fit
    assert figure.low - wide <= TRUE[name] <= figure.high + wide
    assert figure.low <= figure.value <= figure.high


def test_what_two_runs_measured_counts_once_by_their_mean(four: list[Any]) -> None:
    def times(e: Any, factor: float) -> Any:
        return {**e, "time_s": {k: v * factor if k != "n" else v for k, v in e["time_s"].items()}}

    alone = efficiency_of(four, CHIP)
    both = efficiency_of([times(e, factor) for factor in (1.1, 1 / 1.1) for e in four], CHIP)
    assert both.as_values() == pytest.approx(alone.as_values(), rel=1e-6)
    assert both["memory_fraction"].count == alone["memory_fraction"].count


def test_products_right_after_idling_say_nothing_of_what_lasts(four: list[Any]) -> None:
    fast = [{**e, "key": {**e["key"], "from_idle_s": 0.01}} for e in four if e["kind"] == "gemm"]
    for e in fast:
        e["time_s"] = {k: v / 2 if k != "n" else v for k, v in e["time_s"].items()}
    assert efficiency_of([*four, *fast], CHIP).as_values() == efficiency_of(four, CHIP).as_values()


def test_what_was_not_measured_stays_unset(four: list[Any]) -> None:
    found = efficiency_of([e for e in four if e["kind"] == "memory_read"], CHIP)
    assert set(found.as_values()) == {"memory_fraction"}
    assert efficiency_of([], CHIP).figures == ()


def test_one_chip_says_nothing_of_links_and_two_nothing_of_hops() -> None:
    one = efficiency_of(samples.results(samples.H200), CHIP)
    two = efficiency_of(samples.results({**samples.H200, "count": 2}), CHIP)
    assert "link_fraction" not in one and "link_fraction" in two
    assert "hop_s" not in two and two["collective_s"].value == pytest.approx(TRUE["collective_s"], rel=0.1)


@pytest.mark.parametrize(
    "spoilt", [{"path": "reference"}, {"throttled": True}, {"check": None}, {"check": {"ok": False}}], ids=str
)
def test_what_may_not_count_does_not(spoilt: dict[str, Any], four: list[Any]) -> None:
    assert efficiency_of([{**e, **spoilt} for e in four], CHIP).figures == ()


def test_unsteady_kernels_do_not_count(four: list[Any]) -> None:
    for e in four:
        e["time_s"]["p90"] = 1.2 * e["time_s"]["median"]
    found = efficiency_of(four, CHIP)
    assert not {"memory_fraction", "matmul_16_fraction", "attention_fraction"} & set(found.as_values())


def test_long_runs_decide_over_short_bursts(four: list[Any]) -> None:
    for e in four:
        if e["kind"] == "gemm" and "sustained_s" not in e["key"] and e["key"]["m"] >= 2048:
            e["time_s"] = {k: v / 1.15 if k != "n" else v for k, v in e["time_s"].items()}
    figure = efficiency_of(four, CHIP)["matmul_16_fraction"]
    assert figure.value == pytest.approx(0.70, rel=0.02) and figure.high > 0.78
    assert "sustained" in figure.source


def test_the_best_back_end_counts(four: list[Any]) -> None:
    slow = [e for e in four if e["key"].get("backend") == "math"]
    assert slow and efficiency_of(four, CHIP)["attention_fraction"].value > 0.5
    assert efficiency_of(slow, CHIP)["attention_fraction"].value < 0.1


def test_block_scales_are_compared_shape_by_shape(four: list[Any]) -> None:
    plain = [e for e in four if e["kind"] == "gemm" and e["key"]["dtype"] == "fp8"]
    blocks = [
        {**e, "key": {**e["key"], "scaling": "block128"}, "time_s": {k: v / 0.6 for k, v in e["time_s"].items()}}
        for e in plain
    ]
    assert efficiency_of([*plain, *blocks], CHIP)["block_8_fraction"].value == pytest.approx(0.6, rel=0.01)


def test_a_chip_without_a_rate_in_the_dtype_gets_no_share_of_it(four: list[Any]) -> None:
    found = efficiency_of(four, replace(CHIP, flops_per_s={"bf16": 989.4e12}))
    assert "matmul_8_fraction" not in found and "matmul_16_fraction" in found
