"""What chips reach under their power limit, by published figures."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from advisor.engine.terms import Accelerator, efficiency
from advisor.engine.training import MEGATRON, MEGATRON_BF16, PLAIN, rates_of
from advisor.engine.training.rates import power_factor
from tests.engine.training.test_step_time import EFFICIENCY, H200, scopes

A100 = replace(H200, slug="a100", name="A100", family="ampere", flops_per_s={"bf16": 312e12}, watts=400)
B200_FLOPS = {"bf16": 2250e12, "fp8": 4500e12, "fp4": 9000e12}
B200 = replace(H200, slug="b200", name="B200", family="blackwell", flops_per_s=B200_FLOPS, watts=1000)
FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


def reached(chip: Accelerator, dtype: str = "bf16") -> float:
    known = efficiency(scopes(), chip.slug, chip.family, chip.kind)
    return rates_of(chip, known, replace(MEGATRON_BF16, matmul_dtype=dtype), MEGATRON).matmul_flops_per_s


def test_the_chip_whose_products_were_measured_keeps_its_rate() -> None:
    assert power_factor(H200, EFFICIENCY.training) == pytest.approx(1.0)
    assert reached(H200) == pytest.approx(0.6872 * 989e12)


def test_a_card_of_500_watts_is_slower_than_one_of_700() -> None:
    """(500 - 80) / (700 - 80) of the power that sets the clock, to 0.75."""
    assert reached(replace(H200, watts=500)) == pytest.approx(reached(H200) * (420 / 620) ** 0.75)


def test_no_power_lifts_a_product_above_nine_tenths_of_its_peak() -> None:
    assert reached(replace(H200, watts=5000)) == pytest.approx(0.9 * 989e12)


def test_products_on_an_a100_reach_what_azure_measured_and_the_paper_of_flashattention_2_says() -> None:
    assert 250.8e12 <= reached(A100) <= 256.5e12
    assert 0.8 <= reached(A100) / 312e12 <= 0.9


def test_flashattention_2_is_faster_than_flashattention_1_and_slower_than_cudnn_on_hopper() -> None:
    kernels = ("flash1", "flash2", "cudnn")
    rates = [rates_of(H200, EFFICIENCY, MEGATRON_BF16, replace(PLAIN, attention=kernel)) for kernel in kernels]
    forward = [r.attention_forward_flops_per_s for r in rates]
    assert forward == sorted(forward) and forward[0] < forward[1] < forward[2]


def test_experts_outside_a_graph_are_slower_by_the_factor_of_training() -> None:
    factor = yaml.safe_load((FIXTURES / "calibration" / "training.yaml").read_text())["values"]["expert_factor"]
    eager, whole = (rates_of(H200, EFFICIENCY, MEGATRON_BF16, replace(MEGATRON, graphs=g)) for g in ("none", "full"))
    assert eager.expert_fraction == pytest.approx(factor * whole.expert_fraction)


def test_copies_to_the_host_are_as_fast_as_assumed_elsewhere() -> None:
    rows = yaml.safe_load((FIXTURES / "overheads.yaml").read_text())
    assumed = next(row["value"] for row in rows if row["key"] == "host-copy-fraction")
    assert scopes()["training"]["host_copy_fraction"] == assumed


def test_a_new_family_needs_data_alone() -> None:
    """Its own file beside the defaults sets products, attention and power; what it leaves out is as in serving."""
    chip = replace(H200, slug="acme-one", family="acme one", watts=500.0)
    plain = rates_of(chip, efficiency(scopes(), chip.slug, chip.family, chip.kind), MEGATRON_BF16, MEGATRON)
    figures = {
        "matmul_16_fraction": 0.75, "cudnn_forward_fraction": 0.6, "cudnn_backward_fraction": 0.5,
        "attention_reference_fraction": 0.0,
    }  # fmt: skip
    known = efficiency(scopes() | {"training:family:acme one": figures}, chip.slug, chip.family, chip.kind)
    own = rates_of(chip, known, MEGATRON_BF16, MEGATRON)
    assert plain.half_flops_per_s == pytest.approx(0.68 * 989e12)
    assert own.half_flops_per_s == pytest.approx(0.75 * 989e12)
    assert own.attention_forward_flops_per_s == pytest.approx(0.6 * 989e12)
    assert own.attention_backward_flops_per_s == pytest.approx(0.5 * 989e12)
    limits = {"power_peak_flops_per_s": 989e12, "power_limit_watts": 1000.0, "power_static_watts": 0.0}
    known = efficiency(scopes() | {"training:family:acme one": figures | limits}, chip.slug, chip.family, chip.kind)
    slower = rates_of(chip, known, MEGATRON_BF16, MEGATRON)
    assert slower.half_flops_per_s == pytest.approx(own.half_flops_per_s * 0.5**0.75)


def test_no_family_of_chips_is_named_in_the_training_engine() -> None:
    """What a family reaches is data: a chip of a new family needs no Python. Recipes name what trains nothing."""
    folder = FIXTURES.parent / "advisor" / "engine" / "training"
    families = {
        yaml.safe_load(file.read_text())["family"].replace(" ", "-")
        for file in (FIXTURES / "accelerators").glob("*.yaml")
    }
    named = {
        (path.name, family)
        for path in set(folder.rglob("*.py")) - {folder / "recipes.py"}
        for family in families
        if f'"{family}"' in path.read_text()
    }
    assert named == set()


def test_nvfp4_products_are_fast_and_their_inputs_slow_to_quantize() -> None:
    """Of the narrow formats, NVFP4 multiplies fastest and takes longest for an input."""
    known = efficiency(scopes(), "b200", "blackwell", "gpu")
    eight, four = (
        rates_of(B200, known, replace(MEGATRON_BF16, matmul_dtype=dtype), MEGATRON) for dtype in ("mxfp8", "nvfp4")
    )
    assert four.matmul_flops_per_s > 1.5 * eight.matmul_flops_per_s
    assert four.quantize_bytes > 2 * eight.quantize_bytes
