"""A training run: what it becomes, what is filled in, and what is refused with which words."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.engine import training
from advisor.engine.network import Attention, Block, Ffn, Model
from advisor.engine.terms import Accelerator
from advisor.workload import Deployment, FixedRun, TrainingRun, WorkloadError, fixed_run, parse_estimate
from tests.engine.catalog_sample import LLAMA_8B, chip

ASKED = {
    "kind": "training", "model": "llama", "accelerator": "h100", "count": 8, "sequence_length": 4096,
    "global_batch": 32,
}  # fmt: skip
FINE = {"kind": "finetuning", "method": "lora"}
H100 = chip("h100", name="H100")
B200 = replace(H100, name="B200", flops_per_s={**H100.flops_per_s, "fp4": 9e15})
ATTENTION = Attention(heads=32, kv_heads=8, head_dim=128)
EXPERTS = Model(
    slug="experts", hidden=4096, vocab=32000,
    blocks=(Block(count=32, mixer=ATTENTION, ffn=Ffn(inner=14336, experts=8, top_k=2)),),
)  # fmt: skip
WIDE = replace(LLAMA_8B, blocks=(replace(LLAMA_8B.blocks[0], ffn=Ffn(inner=14340)),))
GROUPS = replace(LLAMA_8B, blocks=(replace(LLAMA_8B.blocks[0], mixer=Attention(heads=48, kv_heads=6, head_dim=128)),))


def built(model: Model = LLAMA_8B, on: Accelerator = H100, **changes: Any) -> FixedRun:
    asked = parse_estimate({k: v for k, v in (ASKED | changes).items() if v is not None})
    assert isinstance(asked, TrainingRun)
    return fixed_run(asked, "llama", model, on)


def refused(model: Model = LLAMA_8B, on: Accelerator = H100, **changes: Any) -> tuple[str, str, str]:
    with pytest.raises(WorkloadError) as caught:
        built(model, on, **changes)
    first = caught.value.errors[0]
    return first["field"], first["message"], first["allowed"]


# --- what it becomes --------------------------------------------------------------------------------------------


def test_the_rest_of_the_count_is_data_parallel() -> None:
    run = built(tp=2, pp=2).run
    assert (run.parallel.dp, run.parallel.chips, run.micro_batches) == (2, 8, 16)
    assert run.global_tokens == 32 * 4096


def test_without_a_count_the_sizes_say_how_many() -> None:
    assert built(count=None, dp=4, tp=2, cp=2).run.parallel.chips == 16
    assert built(count=None).run.parallel.chips == 1


def test_micro_batches_replace_the_global_batch() -> None:
    assert built(global_batch=None, micro_batches=3, micro_batch=2).run.global_tokens == 8 * 2 * 3 * 4096


def test_the_stage_of_zero_follows_the_code() -> None:
    assert built().run.parallel.zero == 1
    assert built(code="hf").run.parallel.zero == 3
    assert built(count=1).run.parallel.zero == 0
    assert built(code="hf", zero=0).run.parallel.zero == 0


def test_the_code_follows_the_kind() -> None:
    assert built().run.code == training.MEGATRON
    assert built(kind="finetuning").run.code == training.HF


@pytest.mark.parametrize(("changes", "recipe"), [
    ({}, training.MEGATRON_BF16),
    ({"code": "hf"}, training.FSDP_MIXED),
    ({"code": "hf", "zero": 0}, training.BF16),
    ({"code": "plain", "zero": 0, "precision": "bf16_master"}, training.BF16_MASTER),
    ({"precision": "amp"}, training.AMP),
    ({"precision": "fp8"}, replace(training.MEGATRON_BF16, matmul_dtype="fp8")),
    ({**FINE, "zero": 0}, replace(training.LORA16, autocast=True)),
    ({**FINE, "rank": 64}, replace(training.LORA16, adapter_rank=64, parameter_bytes=2.0)),
])  # fmt: skip
def test_a_precision_is_what_the_code_means_by_it(changes: dict[str, Any], recipe: training.Recipe) -> None:
    assert built(**changes).run.recipe == recipe


def test_qlora_stores_nf4_and_fp32_stores_four_bytes() -> None:
    assert built(**{**FINE, "method": "qlora"}).run.recipe.frozen_bytes == pytest.approx(4.127 / 8)
    fp32 = built(precision="fp32").run.recipe
    assert (fp32.parameter_bytes, fp32.compute_bytes, fp32.matmul_dtype) == (4.0, 4.0, "fp32")


@pytest.mark.parametrize(("optimizer", "of_bytes"), [
    ("adamw", 8.0), ("sgd", 4.0), ("adamw_8bit", 2 + 8 / 256), ("adafactor", 0.01),
    ("muon", 4 + 4 * 2 * 128256 * 4096 / 8.03e9),
])  # fmt: skip
def test_optimizers_differ_in_their_states(optimizer: str, of_bytes: float) -> None:
    assert built(optimizer=optimizer).run.recipe.state_bytes == pytest.approx(of_bytes, rel=1e-3)


def test_torch_compile_compiles_layers_where_the_model_is_split() -> None:
    assert built(code="hf", compile=True).run.code.compiled == "block"
    assert built(code="hf", compile=True, zero=0).run.code.compiled == "full"


def test_tensor_parallelism_of_pytorch_splits_the_loss() -> None:
    code = built(code="plain", tp=2).run.code
    assert (code.loss, code.dtensor) == ("vocabulary_parallel", True)


def test_kinds_choose_what_is_parsed() -> None:
    serving = {"model": "llama", "accelerator": "h100", "weights": "bf16", "isl": 10}
    assert isinstance(parse_estimate(serving), Deployment)
    assert isinstance(parse_estimate({**serving, "kind": "serving"}), Deployment)
    assert isinstance(parse_estimate(ASKED), TrainingRun)


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "field", "message", "allowed"), [
    ({"kind": "train"}, "kind", "is not a valid choice", "serving, training, finetuning"),
    ({"isl": 3}, "isl", "is not used with kind training", "remove it, or set kind to serving"),
    ({"count": 6, "tp": 4}, "count", "6 accelerators cannot be divided by tp x pp x cp = 4 x 1 x 1 = 4",
     "a multiple of 4, or other sizes"),
    ({"tp": 2, "dp": 2}, "count", "dp x tp x pp x cp = 2 x 2 x 1 x 1 = 4 must equal count, which is 8", "4, or dp 4"),
    ({"global_batch": 33}, "global_batch", "33 sequences are not a multiple of dp x micro_batch = 8 x 1 = 8",
     "40 or another multiple of 8"),
    ({"global_batch": None}, "global_batch", "is required: the sequences of one step",
     "a multiple of dp x micro_batch = 8 x 1 = 8"),
    ({"micro_batches": 3}, "micro_batches", "global_batch / (dp x micro_batch) is 4, not 3", "4, or remove it"),
    ({"count": 48, "global_batch": 96, "tp": 48}, "tp", "32 attention heads cannot be split 48 ways",
     "1, 2, 4, 8, 16, 32"),
    ({"pp": 64, "count": 64}, "pp", "the model has 32 layers, fewer than 64 pipeline stages", "at most 32"),
    ({"virtual_stages": 2}, "virtual_stages", "interleaves the stages of a pipeline, and pp is 1", "1, or raise pp"),
    ({"pp": 8, "virtual_stages": 8}, "virtual_stages", "32 layers cannot fill pp x virtual_stages = 64", "at most 4"),
    ({"pp": 4, "virtual_stages": 2, "global_batch": 4}, "micro_batches",
     "interleaved stages need a multiple of pp, not 2", "a multiple of 4, or virtual_stages 1"),
    ({"ep": 2}, "ep", "the model has no experts", "1"),
    ({"sequence_parallel": True}, "sequence_parallel", "splits over the tensor-parallel ranks, and tp is 1",
     "remove it, or raise tp"),
    ({"cp": 4, "sequence_length": 4100}, "sequence_length", "4100 tokens cannot be split into 2 x cp = 8 pieces",
     "a multiple of 8"),
    ({"tp": 8, "sequence_parallel": True, "sequence_length": 4100}, "sequence_length",
     "4100 tokens cannot be split into tp = 8 pieces", "a multiple of 8"),
    ({"precision": "nvfp4"}, "precision", "H100 has no NVFP4 matrix rate",
     "bf16, bf16_master, bf16_pure, fp8, amp, fp32"),
    ({"precision": "mxfp8"}, "precision", "H100 has no MXFP8 matrix rate",
     "bf16, bf16_master, bf16_pure, fp8, amp, fp32"),
    ({"method": "lora"}, "method", "kind training trains all parameters, not lora", "full, or kind finetuning"),
    ({"rank": 8}, "rank", "is of adapters, and method full has none", "remove it, or use method lora or qlora"),
    ({**FINE, "precision": "amp"}, "precision", "amp is not available with lora", "bf16, fp8, mxfp8, nvfp4"),
    ({"compile": True}, "compile", "Megatron-Core fuses its kernels without torch.compile",
     "remove it, or code hf or plain"),
    ({"zero": 4}, "zero", "must be at most 3", "<= 3"),
    ({"sequence_length": 0}, "sequence_length", "must be at least 16", ">= 16"),
    ({"recompute": "selectiv"}, "recompute", "is not a valid choice; did you mean selective?",
     "none, selective or full"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], field: str, message: str, allowed: str) -> None:
    assert refused(**changes) == (field, message, allowed)


def test_every_missing_key_is_named() -> None:
    with pytest.raises(WorkloadError) as caught:
        parse_estimate({"kind": "training"})
    assert {e["field"] for e in caught.value.errors} == {"model", "accelerator", "sequence_length"}


def test_training_flags_are_refused_for_serving() -> None:
    with pytest.raises(WorkloadError) as caught:
        parse_estimate({"model": "llama", "accelerator": "h100", "weights": "bf16", "isl": 1, "zero": 3})
    assert caught.value.errors[0]["message"] == "is not used with kind serving"
    assert caught.value.errors[0]["allowed"] == "remove it, or set kind to training or finetuning"


def test_what_the_model_does_not_allow_is_refused() -> None:
    assert refused(EXPERTS, ep=3)[1:] == ("8 experts cannot be split 3 ways", "1, 2, 4, 8")
    assert refused(EXPERTS, ep=8, count=4)[1:] == ("must divide dp x cp x tp = 4", "1, 2, 4")
    assert refused(WIDE, tp=8)[1:] == ("a feed-forward width of 14340 cannot be split 8 ways", "a smaller tp")
    assert refused(GROUPS, tp=4)[1:] == ("6 key-value heads cannot be split 4 ways", "1, 2, 3, 6")
    assert refused(replace(LLAMA_8B, encoder_only=True))[0] == "model"


@pytest.mark.parametrize(("changes", "words"), [
    ({"kind": "cpu"}, "training is not modeled on H100"),
    ({"family": "inferentia"}, "training is not modeled on H100"),
])  # fmt: skip
def test_chips_that_do_not_train_are_refused(changes: dict[str, Any], words: str) -> None:
    assert refused(on=replace(H100, **changes))[1] == words


def test_narrow_formats_need_the_chip() -> None:
    assert built(on=B200, precision="nvfp4").run.recipe.matmul_dtype == "nvfp4"
    assert built(on=B200, precision="mxfp8").run.recipe.matmul_dtype == "mxfp8"
    assert refused(on=replace(B200, stacks=("rocm",)), precision="nvfp4")[0] == "precision"
    old = replace(H100, flops_per_s={"fp16": 1e14, "fp32": 1e13})
    assert refused(on=old)[2] == "amp, fp32" and built(on=old, precision="amp").run.recipe.autocast


# --- what is noted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "words"), [
    ({"count": 6, "pp": 3, "global_batch": 4}, "32 layers do not divide evenly into 3 stages"),
    ({"tp": 16, "count": 16}, "8 key-value heads are copied to 16 tensor-parallel ranks"),
    ({"tp": 16, "count": 16}, "tp 16 is wider than the 8 accelerators of a scale-up domain"),
    ({"count": 1, "zero": 2}, "ZeRO has no effect with one data-parallel rank"),
    ({"code": "hf", "zero": 0}, "bf16_master keeps FP32 masters"),
    ({"offload": "optimizer"}, "no transfer to or from host memory is taken to be hidden"),
    ({"optimizer": "muon"}, "muon changes the memory alone"),
    ({"sequence_length": 262144}, "longer than the model's context"),
])  # fmt: skip
def test_doubts_are_noted(changes: dict[str, Any], words: str) -> None:
    assert any(words in note for note in built(**changes).notes)
    assert built().notes == ()


def test_a_chip_that_is_not_recommended_says_why() -> None:
    notes = built(on=replace(H100, served=False, not_served_reason="announced")).notes
    assert notes == ("H100 is not recommended to anyone: announced",)
