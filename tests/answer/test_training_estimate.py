"""One training step with the shipped catalog: memory and FLOPs against hand arithmetic, what would make it fit."""

from typing import Any

import pytest

from advisor.answer.estimates import training_estimate
from advisor.result import TrainingEstimate
from advisor.workload import TrainingRun, parse_estimate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
GIB = 2.0**30
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, INNER, VOCAB = 4096, 32, 32, 8, 128, 14336, 128256  # Llama 3.1 8B
LAYER_WEIGHTS = HIDDEN * HEAD * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * INNER + 2 * HIDDEN
PARAMETERS = LAYERS * LAYER_WEIGHTS + 2 * VOCAB * HIDDEN + HIDDEN
COUNTED = LAYERS * LAYER_WEIGHTS + VOCAB * HIDDEN  # with the output head, without the input embedding
LENGTH = 4096
ATTENTION = LAYERS * 4 * HEADS * HEAD * LENGTH / 2  # FLOPs of a token in the forward pass: half of all pairs
FSDP = {
    "kind": "finetuning", "model": "meta-llama/Llama-3.1-8B", "accelerator": "h200-sxm", "count": 4,
    "sequence_length": LENGTH, "global_batch": 4,
}  # fmt: skip
TOO_LARGE = {**FSDP, "sequence_length": 8192, "micro_batch": 8, "global_batch": 32}


def estimated(**changes: Any) -> TrainingEstimate:
    run = parse_estimate({k: v for k, v in (FSDP | changes).items() if v is not None})
    assert isinstance(run, TrainingRun)
    return training_estimate.answer(run)


def phase_s(e: TrainingEstimate, *phases: str) -> float:
    return sum(row.time_s or 0.0 for row in e.step or [] if row.phase in phases)


# --- memory -----------------------------------------------------------------------------------------------------


def test_fsdp_stores_twelve_bytes_of_a_parameter_on_a_fourth_of_the_ranks() -> None:
    e = estimated()
    assert e.parameters == e.trained_parameters == pytest.approx(PARAMETERS, rel=1e-5)
    assert e.memory.weights_gib == pytest.approx(4 * PARAMETERS / 4 / GIB, rel=1e-4)
    assert e.memory.optimizer_gib == pytest.approx(8 * PARAMETERS / 4 / GIB, rel=1e-4)
    assert e.memory.master_gib == 0 and e.zero == 3


def test_the_distributed_optimizer_of_megatron_shares_states_and_master_alone() -> None:
    e = estimated(kind="training")
    parts = e.memory
    assert (e.zero, e.code) == (1, "megatron")
    assert parts.weights_gib == pytest.approx(2 * PARAMETERS / GIB, rel=1e-4)
    assert parts.optimizer_gib == pytest.approx(8 * PARAMETERS / 4 / GIB, rel=1e-4)
    assert parts.master_gib == pytest.approx(4 * PARAMETERS / 4 / GIB, rel=1e-4)


@pytest.mark.parametrize("changes", [{}, {"recompute": "full"}, {"tp": 4, "code": "plain"}, TOO_LARGE])
def test_the_parts_add_up_to_the_memory_of_the_accelerator(changes: dict[str, Any]) -> None:
    e = estimated(**changes)
    assert sum(e.memory.parts().values()) == pytest.approx(e.usable_gib, rel=1e-4)
    assert e.fits is (e.memory.free_gib >= 0)
    used = sum(gib for name, gib in e.memory.parts().items() if name not in ("overhead_gib", "free_gib"))
    assert e.peak_allocated_gib == pytest.approx(used, rel=1e-4) and e.peak_reserved_gib >= e.peak_allocated_gib


def test_recomputation_gives_memory_for_time() -> None:
    plain, full = estimated(), estimated(recompute="full")
    assert full.memory.activations_gib < plain.memory.activations_gib / 4
    assert (full.step_s or 0) > (plain.step_s or 0)


# --- FLOPs ------------------------------------------------------------------------------------------------------


def test_model_flops_are_six_for_each_parameter_and_token_and_causal_attention() -> None:
    e = estimated()
    each = 6 * COUNTED + 3 * ATTENTION
    assert each == pytest.approx(
        48.25e9, rel=1e-3
    )  # ../shared/data/h200_x4_train_open.csv: 370.6 TFLOP/s, 7,681 tokens/s
    assert e.model_flops_per_step == pytest.approx(each * 4 * LENGTH, rel=1e-5)
    assert e.hardware_flops_per_step == e.model_flops_per_step
    assert e.mfu == e.hfu == pytest.approx(each * 4 * LENGTH / (e.step_s or 1) / (4 * 989.4e12), rel=1e-3)
    assert e.flop_convention.startswith("model FLOPs of a token: 6 x parameters, plus 3 x the forward pass of causal")


def test_full_recomputation_repeats_the_layers_but_for_their_last_product() -> None:
    """PyTorch's checkpoint stops once it has every saved tensor: the last product's output is not one."""
    e = estimated(recompute="full")
    again = 2 * LAYERS * (LAYER_WEIGHTS - 2 * HIDDEN - HIDDEN * INNER) + ATTENTION
    needed = 6 * COUNTED + 3 * ATTENTION
    assert e.hardware_flops_per_step / e.model_flops_per_step == pytest.approx(1 + again / needed, rel=1e-4)
    assert (e.hfu or 0) / (e.mfu or 1) == pytest.approx(1 + again / needed, rel=1e-4)


def test_selective_recomputation_repeats_attention() -> None:
    e = estimated(recompute="selective")
    needed = 6 * COUNTED + 3 * ATTENTION
    assert e.hardware_flops_per_step / e.model_flops_per_step == pytest.approx(1 + ATTENTION / needed, rel=1e-4)


def test_a_frozen_base_needs_four_for_each_parameter() -> None:
    e = estimated(method="lora")
    each = 4 * COUNTED + 6 * e.trained_parameters + 3 * ATTENTION
    assert e.model_flops_per_step == pytest.approx(each * 4 * LENGTH, rel=1e-5)
    assert e.flop_convention.startswith("model FLOPs of a token: 4 x frozen parameters")
    assert e.adapter_rank == 16 and e.trained_parameters < PARAMETERS / 100


def test_narrow_formats_refer_to_their_own_peak() -> None:
    assert estimated(kind="training", precision="fp8").peak_tflops == pytest.approx(
        2 * estimated().peak_tflops, rel=0.01
    )


# --- the step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [
    {}, {"recompute": "full"}, {"count": 1, "zero": 0}, {"tp": 4, "code": "plain"}, {"method": "lora"},
    {"pp": 4, "code": "plain", "global_batch": 8}, {"kind": "training", "tp": 2, "pp": 2, "global_batch": 16},
])  # fmt: skip
def test_the_ledger_adds_up_to_the_step(changes: dict[str, Any]) -> None:
    e = estimated(**changes)
    assert sum(row.time_s or 0.0 for row in e.step or []) == pytest.approx(e.step_s, rel=1e-4)
    compute = phase_s(e, "forward", "backward", "recompute", "overlap")
    assert compute == pytest.approx(e.compute_s, rel=1e-4)
    assert phase_s(e, "communication") == pytest.approx(e.exposed_communication_s, rel=1e-4, abs=1e-9)
    assert phase_s(e, "bubble") == pytest.approx(e.bubble_s, rel=1e-4, abs=1e-9)
    assert phase_s(e, "optimizer") == pytest.approx(e.update_s, rel=1e-4)
    assert phase_s(e, "host") == pytest.approx(e.host_s, rel=1e-3, abs=1e-6)


def test_tokens_are_those_of_the_global_batch() -> None:
    e = estimated(global_batch=32, micro_batch=2)
    assert (e.global_batch, e.micro_batches, e.global_batch_tokens) == (32, 4, 32 * LENGTH)
    assert e.tokens_per_s == pytest.approx(32 * LENGTH / (e.step_s or 1), rel=1e-4)
    assert e.tokens_per_s_per_accelerator == pytest.approx((e.tokens_per_s or 0) / 4, rel=1e-4)
    assert e.tflops_per_accelerator == pytest.approx((e.mfu or 0) * e.peak_tflops, rel=1e-4)


def test_one_accelerator_communicates_nothing_and_has_no_bubble() -> None:
    e = estimated(count=1, global_batch=1)
    assert e.communication_s == e.exposed_communication_s == e.bubble_s == 0


def test_more_micro_batches_shrink_the_bubble() -> None:
    few, many = (estimated(pp=4, kind="training", global_batch=n) for n in (4, 32))
    assert (many.bubble_fraction or 0) < (few.bubble_fraction or 0) < 1


def test_a_measured_step_is_near() -> None:
    """FSDP2 on four H200s, h200xt_f8_4k_1: 0.5333 s and a peak of 59.46 GB."""
    e = estimated()
    assert e.step_s == pytest.approx(0.5333, rel=0.12)
    assert e.peak_allocated_gib * GIB == pytest.approx(59.46e9, rel=0.03)
    assert e.basis == "measured"


def test_other_chips_say_what_their_rates_rest_on() -> None:
    e = estimated(accelerator="b200")
    assert e.basis == "relative" and "not measured on this one" in e.warnings[-1]


# --- what would fit ---------------------------------------------------------------------------------------------


def applied(change: str) -> dict[str, Any]:
    """The arguments of a change in words."""
    pairs = [part.partition(" ")[::2] for part in change.replace(" and ", ", ").split(", ")]
    return {name: int(value) if value.isdecimal() else value or True for name, value in pairs}


@pytest.mark.parametrize("changes", [
    {"sequence_length": 8192, "micro_batch": 4, "global_batch": 16},
    {"kind": "training", "zero": 0},
    {"model": "meta-llama/Llama-3.3-70B-Instruct", "count": 32, "micro_batch": 8, "global_batch": 256},
    {"model": "meta-llama/Llama-3.3-70B-Instruct", "kind": "training", "count": 8, "global_batch": 64},
    {"accelerator": "rtx-4090", "count": 2, "global_batch": 2},
    TOO_LARGE,
])  # fmt: skip
def test_every_change_that_is_named_fits(changes: dict[str, Any]) -> None:
    e = estimated(**changes)
    assert not e.fits and e.step_s is None and e.mfu is None and e.step is None
    assert e.smallest_change
    for change in e.smallest_change:
        changed = estimated(**changes | applied(change))
        assert changed.fits, change
        assert changed.global_batch == e.global_batch


def test_tensor_parallelism_is_tried_with_and_without_sequence_parallelism() -> None:
    e = estimated(
        kind="training", accelerator="h100-sxm", count=8, sequence_length=8192, micro_batch=2, global_batch=64
    )
    assert e.smallest_change == ["recompute full", "tp 2, dp 4 and sequence_parallel"]


def test_the_gentlest_change_of_each_kind_is_named() -> None:
    e = estimated(sequence_length=8192, micro_batch=4, global_batch=16)
    kinds = [change.split()[0] for change in e.smallest_change or []]
    assert len(kinds) == len(set(kinds)) and "micro_batch" in kinds
    sizes = [c.split()[1] for c in e.smallest_change or [] if c.startswith("micro_batch")]
    larger = int(sizes[0]) * 2
    assert larger == 4 or not estimated(sequence_length=8192, micro_batch=larger, global_batch=16).fits


def test_what_no_change_can_help_says_so() -> None:
    e = estimated(model="deepseek-ai/DeepSeek-V3", accelerator="t4", count=1, global_batch=1, precision="amp")
    assert e.smallest_change == [
        "no change of recompute, micro_batch, precision, zero, tp, pp and dp: choose accelerators with more memory"
    ]
