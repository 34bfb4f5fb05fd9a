"""What a measured training row says about its run, and what stands in for what it does not say."""

from dataclasses import replace

import pytest

from advisor.engine.training import Run
from advisor.fidelity.rows import COLUMNS, Row, Skip
from advisor.fidelity.training.rows import TrainingCase, Unstated, predicted, training_case

BLANK = Row(value=1.0, **{name: "" for name in COLUMNS if name != "value"})
BRIDGE = replace(
    BLANK, id="1", task="training", metric="tokens_per_s_per_accelerator", model_id="Qwen/Qwen3-235B-A22B",
    accelerator_slug="gb200", n_accelerators="256", tp="1", pp="8", ep="32", weights_dtype="mxfp8", isl="4096",
    framework="Megatron-Bridge (NeMo 26.06)", concurrency_or_batch="GBS=8192 MBS=1", source_key="megatron_bridge",
    notes="GBS 8192 MBS 1 TP 1 PP 8 CP 1 VP 3 EP 32; per GPU",
)  # fmt: skip
MLPERF = replace(
    BLANK, id="2", task="training", metric="tokens_per_s_per_accelerator", model_id="meta-llama/Llama-2-70b-hf",
    accelerator_slug="b200", n_accelerators="8", isl="8192", concurrency_or_batch="GBS=8",
    params_note="llama2_70b_lora (LoRA finetune)", source_key="mlperf_train_5.0",
)  # fmt: skip


def case_of(row: Row) -> TrainingCase:
    case = training_case(row)
    assert isinstance(case, TrainingCase)
    return case


def test_the_layout_of_a_row_is_the_layout_of_its_run() -> None:
    run = case_of(BRIDGE).run
    assert isinstance(run, Run)
    p = run.parallel
    assert (p.dp, p.tp, p.pp, p.ep, p.virtual_stages, run.micro_batches) == (32, 1, 8, 32, 3, 256)
    assert run.global_tokens == 8192 * 4096


def test_a_release_says_which_features_are_on() -> None:
    codes = [
        case_of(replace(BRIDGE, framework=f"Megatron-Bridge (NeMo {r})")).run.code for r in ("25.09", "26.04", "26.08")
    ]
    assert [c.graphs for c in codes] == ["none", "partial", "full"]
    assert [c.dispatch for c in codes] == ["alltoall", "one_copy", "one_copy"]
    assert [c.exchange_overlap for c in codes] == [False, False, True]


def test_lora_of_nvidias_recipes_is_on_queries_keys_and_values() -> None:
    recipe = case_of(replace(BRIDGE, params_note="LLAMA3_70B / LoRA Performance", ep="")).run.recipe
    assert (recipe.method, recipe.adapter_rank, recipe.adapter_matrices) == ("lora", 16, "query_value")


@pytest.mark.parametrize(("source", "slug", "dtype"), [
    ("mlperf_train_5.0", "b200", "fp8"), ("mlperf_train_5.1", "b200", "nvfp4"), ("mlperf_train_5.1", "mi325x", "fp8"),
    ("mlperf_train_4.1", "tpu-v6e", "bf16"),
])  # fmt: skip
def test_a_submission_without_layout_asks_the_search(source: str, slug: str, dtype: str) -> None:
    case = case_of(replace(MLPERF, source_key=source, accelerator_slug=slug))
    assert isinstance(case.run, Unstated)
    assert (case.run.global_batch, case.run.recipe.matmul_dtype) == (8, dtype)
    assert case.step_tokens == 8 * 8192
    assert predicted(MLPERF, case, 2.0) == pytest.approx(8 * 8192 / 2.0 / 8)


def test_tokens_for_each_chip_and_step_are_a_batch() -> None:
    batch = "24577 tokens/step/chip (derived tokens/s x step s)"
    row = replace(MLPERF, source_key="tpu_recipes_train", accelerator_slug="tpu-v6e", weights_dtype="bf16")
    row = replace(row, n_accelerators="16", concurrency_or_batch=batch)
    run = case_of(row).run
    assert isinstance(run, Unstated) and run.global_batch == 48


def test_time_to_train_is_skipped_without_tokens_to_convergence() -> None:
    skipped = training_case(replace(MLPERF, metric="time_to_train_min"))
    assert isinstance(skipped, Skip) and "tokens to convergence" in skipped.reason


@pytest.mark.parametrize(("row", "reason"), [
    (replace(BRIDGE, weights_dtype=""), "precision not stated"),
    (replace(BRIDGE, n_accelerators="4"), "the layout needs more chips than the row has"),
    (replace(MLPERF, concurrency_or_batch=""), "the batch is not stated"),
    (replace(MLPERF, source_key="intel_gaudi_train"), "precision or batch not stated"),
    (replace(MLPERF, source_key="h200x4_train", params_note="recipe=unknown"), "recipe not known"),
    (replace(MLPERF, source_key="neuron_train", tp="64"), "the layout needs more chips than the row has"),
    (replace(MLPERF, source_key="nobody"), "the layout is not stated"),
    (replace(MLPERF, metric="mfu"), "mfu follows from other rows of the same run"),
])  # fmt: skip
def test_a_row_that_says_too_little_is_skipped_with_the_reason(row: Row, reason: str) -> None:
    skipped = training_case(row)
    assert isinstance(skipped, Skip) and skipped.reason == f"training: {reason}"
