"""Rates that kernels reach, from datasheet rates and shares of them, by hand."""

from dataclasses import fields, replace
from typing import Any

import pytest

from advisor.engine.kernels import rate_of
from advisor.engine.network.blocks import Block, Ffn
from advisor.engine.network.model import Model
from advisor.engine.step.compatibility.checkpoints import experts_only
from advisor.engine.step.layout import (
    Choice,
    layouts,
    unsupported,
)
from advisor.engine.terms.conditioned import Correction
from advisor.engine.terms.machines.hardware import Accelerator, Efficiency, Link, Overhead, Partition, cut_into
from advisor.engine.terms.software import Quantization
from tests.engine.catalog_sample import BF16, FP8, INT4, chip, format_of, ideal
from tests.engine.step.test_operators import ATTENTION, LATENT, model

EFFICIENCY = replace(
    ideal(Efficiency), memory_fraction=0.9, matmul_16_fraction=0.8, matmul_8_fraction=0.7, matmul_4_fraction=0.6,
    matrix_factor=0.5, block_8_fraction=0.25, weight_only_fraction=0.4, expert_fraction=0.3, attention_fraction=0.2,
    link_fraction=0.75, far_link_fraction=0.65, quantize_kernels=1.5, quantize_bytes=2.5, routing_evenness=6.0,
    collective_s=1e-5, far_collective_s=3e-5, hop_s=2e-6, kernel_s=4e-6, collective_knee_bytes=1e5,
)  # fmt: skip
OVERHEAD = replace(
    ideal(Overhead), matmul_factor=0.95, memory_factor=0.85, prefill_factor=0.55, expert_factor=0.45,
    collective_factor=0.5, one_shot_s=7e-6, kv_8_fraction=0.8, adapter_kernel_s=8e-6, further_adapter_s=9e-7,
)  # fmt: skip
CHIP = chip(
    "one", memory_bytes_per_s=1e12, cores=100, pcie_bytes_per_s=6e10,
    flops_per_s={"bf16": 1e15, "fp8": 2e15, "fp4": 4e15, "fp32": 1e14},
    links=(Link(name="near", bytes_per_s=4e11, latency_s=1e-6, chips=8),
           Link(name="far", bytes_per_s=5e10, latency_s=1e-5, chips=1024)),
)  # fmt: skip
MIXED = model(ATTENTION, Ffn(inner=10, experts=8, top_k=2))


def rates(form: Quantization = BF16, m: Model = MIXED, a: Accelerator = CHIP, **changes: Any) -> dict[str, float]:
    overhead = replace(OVERHEAD, **changes.pop("overhead", {}))
    values = {"accelerator": a, "efficiency": EFFICIENCY, "overhead": overhead, "kv_dtype": "bf16"} | changes
    found = layouts(m, [Choice(quantization=form, **values)])
    return {name: float(getattr(found, name)[0]) for name in (f.name for f in fields(found))}


def test_sixteen_bit_formats_stand_in_for_each_other_and_nothing_else_does():
    assert rate_of(CHIP, "fp16") == rate_of(CHIP, "bf16") == 1e15
    assert rate_of(chip("old", flops_per_s={"fp16": 3.0}), "bf16") == 3.0
    assert rate_of(chip("cpu", flops_per_s={"fp32": 2.0}), "fp16") == 2.0
    assert rate_of(CHIP, "int8") is None


def test_a_format_needs_a_matrix_rate_and_a_stack_with_its_kernels():
    assert "no int8 matrix rate" in unsupported(CHIP, format_of("w8", 8, "int8"))
    assert unsupported(CHIP, FP8) == ""


def test_a_matrix_rate_is_the_datasheets_times_the_share_of_its_width():
    assert rates(BF16)["matmul_flops_per_s"] == pytest.approx(1e15 * 0.8 * 0.5 * 0.95)
    assert rates(FP8)["matmul_flops_per_s"] == pytest.approx(2e15 * 0.7 * 0.5 * 0.95)
    assert rates(format_of("nvfp4", 4.5, "fp4"))["matmul_flops_per_s"] == pytest.approx(4e15 * 0.6 * 0.5 * 0.95)
    assert rates(format_of("fp32", 32, "fp32"))["matmul_flops_per_s"] == pytest.approx(1e14 * 0.8 * 0.5 * 0.95)
    assert rates(format_of("w8", 8, "int8"))["matmul_flops_per_s"] == 0


def test_block_scales_and_widened_weights_slow_the_multiply():
    blocks, widened = replace(FP8, block_scaled=True), replace(INT4, weight_only=True)
    assert rates(blocks)["matmul_flops_per_s"] == pytest.approx(2e15 * 0.7 * 0.5 * 0.25 * 0.95)
    assert rates(widened)["matmul_flops_per_s"] == pytest.approx(1e15 * 0.8 * 0.5 * 0.4 * 0.95)
    assert rates(widened)["weight_bytes"] == pytest.approx(4.25 / 8)
    assert rates(widened)["weight_read_bytes"] == pytest.approx(4.25 / 8 / 0.4)
    assert rates(INT4)["weight_read_bytes"] == pytest.approx(4.25 / 8)


def test_rates_of_experts_attention_and_unquantized_matrices():
    found = rates(FP8)
    assert found["expert_flops_per_s"] == pytest.approx(2e15 * 0.7 * 0.5 * 0.3 * 0.95 * 0.45)
    assert found["half_flops_per_s"] == pytest.approx(1e15 * 0.8 * 0.5 * 0.95)
    assert found["attention_flops_per_s"] == pytest.approx(1e15 * 0.2 * 0.5 * 0.55)


@pytest.mark.parametrize(("form", "each"), [
    (BF16, 2.0), (FP8, 1.0), (format_of("nvfp4", 4.5, "fp4"), 0.5), (format_of("fp32", 32, "fp32"), 4.0),
    (format_of("w4a4", 4, "int4"), 0.5), (format_of("w8a8", 8, "int8"), 1.0),
])  # fmt: skip
def test_inputs_are_as_wide_as_the_multiply_and_narrow_ones_are_quantized_first(form, each):
    found = rates(form)
    assert found["activation_bytes"] == each
    assert (found["quantize_kernels"], found["quantize_bytes"]) == ((1.5, 2.5) if each < 2 else (0, 0))


def test_a_few_cores_cannot_ask_for_all_that_the_memory_has():
    """7.65e11 bytes/s reached; where cores ask for as much, the meeting takes 2^(1/4) from both."""
    reached = 1e12 * 0.9 * 0.85
    assert rates()["memory_bytes_per_s"] == pytest.approx(reached)
    even = rates(overhead={"core_bytes_per_s": reached / 100})["memory_bytes_per_s"]
    assert even == pytest.approx(reached / 2**0.25)
    few = rates(overhead={"core_bytes_per_s": 1e7})["memory_bytes_per_s"]
    assert few == pytest.approx(1e9)
    uncounted = rates(a=replace(CHIP, cores=0), overhead={"core_bytes_per_s": 1e7})
    assert uncounted["memory_bytes_per_s"] == pytest.approx(1e7)


def test_the_near_and_the_far_link_and_pci_express_without_any():
    found = rates()
    assert (found["near_bytes_per_s"], found["near_chips"]) == pytest.approx((4e11 * 0.75, 8))
    assert found["far_bytes_per_s"] == pytest.approx(5e10 * 0.65)
    single = rates(a=replace(CHIP, links=CHIP.links[:1]))
    assert single["far_bytes_per_s"] == pytest.approx(4e11 * 0.65)
    none = rates(a=replace(CHIP, links=()))
    assert (none["near_bytes_per_s"], none["near_chips"]) == pytest.approx((6e10 * 0.75, 1))
    assert none["far_bytes_per_s"] == pytest.approx(6e10 * 0.65)
    assert none["collective_s"] == pytest.approx(0.5e-5)
    assert none["exchange_s"] == pytest.approx(1e-5)


def test_a_fused_collective_starts_faster_and_an_exchange_does_not():
    found = rates()
    assert found["collective_s"] == pytest.approx(1e-5 * 0.5 + 1e-6)
    assert found["exchange_s"] == pytest.approx(1e-5 + 1e-6)
    assert found["hop_s"] == pytest.approx(2e-6 * 0.5)
    assert (found["far_collective_s"], found["one_shot_s"]) == (3e-5, 7e-6)


def test_an_eight_bit_cache_is_read_at_its_own_rate_and_others_at_the_memorys():
    found = {kv: rates(kv_dtype=kv) for kv in ("bf16", "fp8", "int8", "fp4")}
    assert [found[kv]["kv_bytes"] for kv in found] == [2, 1, 1, 0.5625]
    assert [found[kv]["kv_read_bytes"] for kv in found] == pytest.approx([2, 1 / 0.8, 1 / 0.8, 0.5625])


def test_slow_attention_kernels_read_every_cache_slower():
    found = rates(kv_dtype="fp8", overhead={"kv_fraction": 0.5})
    assert found["kv_read_bytes"] == pytest.approx(1 / 0.8 / 0.5)
    assert found["latent_read_bytes"] == pytest.approx(1 / 0.5)


def test_times_over_hosts_are_less_certain():
    values = {"accelerator": CHIP, "efficiency": EFFICIENCY, "quantization": BF16, "kv_dtype": "bf16"}
    near, far = (
        Choice(overhead=replace(OVERHEAD, uncertain_ratio=1.5), tp=tp, **values).uncertain_ratio for tp in (8, 16)
    )
    assert near == 1.5
    assert far > near


@pytest.mark.parametrize(("level", "imported", "unsure"), [
    ("", False, 1.5), ("model", False, 1.5), ("stack", False, 1.0), ("layout", False, 1.0), ("layout", True, 1.5),
])  # fmt: skip
def test_what_is_not_known_of_an_engine_is_known_of_a_model_that_was_measured_there(level, imported, unsure):
    measured = Correction(rows=1, log_sd=0.1, level=level, imported=imported)
    values = {"accelerator": CHIP, "efficiency": EFFICIENCY, "quantization": BF16, "kv_dtype": "bf16"}
    choice = Choice(overhead=replace(OVERHEAD, uncertain_ratio=1.5), correction=measured, **values)
    assert choice.uncertain_ratio == unsure


def test_experts_fill_what_tensor_and_attention_parallelism_leave():
    assert rates(tp=4, dp=2, ep=2)["moe_tp"] == 4
    assert rates(tp=4, dp=2, ep=16)["moe_tp"] == 1
    assert rates(tp=4, ep=2, moe_tp=3)["moe_tp"] == 3


def test_a_checkpoint_may_keep_its_experts_in_another_format():
    """Where a format leaves attention in 16 bits, all but the experts is multiplied so."""
    own = rates(BF16, experts=FP8)
    assert (own["weight_bytes"], own["expert_weight_bytes"]) == (2, 1)
    always = replace(FP8, experts_only="always")
    left = rates(always)
    assert (left["weight_bytes"], left["expert_weight_bytes"], left["activation_bytes"]) == (2, 1, 2)
    assert left["matmul_flops_per_s"] == pytest.approx(1e15 * 0.8 * 0.5 * 0.95)
    assert left["weight_read_bytes"] == 2
    stated = rates(always, experts=FP8)
    assert (stated["weight_bytes"], stated["activation_bytes"]) == (1, 1)


def test_a_format_for_experts_only_needs_experts_and_sometimes_a_latent():
    always, latent = replace(FP8, experts_only="always"), replace(FP8, experts_only="latent")
    dense = model(ATTENTION, Ffn(inner=10))
    deep = replace(MIXED, blocks=(*MIXED.blocks, Block(count=1, mixer=LATENT, ffn=None)))
    assert [experts_only(m, always) for m in (MIXED, dense, deep)] == [True, False, True]
    assert [experts_only(m, latent) for m in (MIXED, dense, deep)] == [False, False, True]
    assert not experts_only(deep, FP8)


def test_evenness_of_routing_is_the_chips_unless_the_router_was_not_trained():
    assert rates()["routing_evenness"] == 6
    assert rates(routing_evenness=50.0)["routing_evenness"] == 50


def test_a_replica_schedules_once_for_each_stage_attention_rank_and_instance():
    part = Partition(
        way="MIG", profile="1g", instances=7, memory_bytes=1e10, bandwidth_fraction=0.125, compute_fraction=0.14,
        cores=16, sram_fraction=0.125,
    )  # fmt: skip
    choice = Choice(
        accelerator=CHIP, efficiency=EFFICIENCY, overhead=OVERHEAD, quantization=BF16, kv_dtype="bf16", tp=8, pp=2, dp=3
    )
    assert choice.lanes == 6
    assert replace(choice, pp=1, dp=1, accelerator=cut_into(CHIP, part)).lanes == 7
