"""The training run that a measured row describes: layout, formats and model code from its columns and notes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine import training
from advisor.engine.training import Code, Parallel, Recipe, Run
from advisor.fidelity.rows import Row, Skip, count

RECIPES: Mapping[str, Recipe] = {
    "amp": training.AMP,
    "bf16": training.BF16,
    "fp32m": training.FSDP_MIXED,
    "bf16_master": training.BF16_MASTER,
    "lora16": training.LORA16,
}
DTYPES = {"fp8-cs": "fp8", "fp8-mx": "mxfp8", "fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "bf16": "bf16"}
TIMES = ("tokens_per_s_per_accelerator", "tokens_per_s", "step_time_s", "samples_per_s")
MEMORY = ("peak_memory_bytes", "peak_memory_gb", "peak_reserved_bytes", "fits_in_memory")
RESERVED_GIB = ("torchtitan",)  # sources whose peak is what the allocator reserved, printed in GiB
LAYOUT_MISSING = "training: the layout is not stated"
TOO_FEW_CHIPS = "training: the layout needs more chips than the row has"
# the performance recipes of NeMo and Megatron-Bridge add and reduce gradients in 16 bits (grad_reduce_in_fp32 = False)
MEGATRON_RECIPE = replace(training.MEGATRON_BF16, gradient_bytes=2.0, reduce_bytes=2.0)
LORA: Mapping[str, Any] = {
    "method": "lora", "adapter_rank": 16, "adapter_matrices": "query_value", "parameter_bytes": 2.0,
}  # fmt: skip
XLA_RECIPE = replace(training.FSDP_MIXED, reduce_bytes=2.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unstated:
    """A run whose layout the source does not state: the fastest that the search finds stands for it."""

    sequence_tokens: int
    global_batch: int  # sequences of one step
    recipe: Recipe
    code: Code
    zeros: tuple[int, ...] = (1, 3)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCase:
    """A run on so many chips."""

    model_id: str
    accelerator_slug: str
    chips: int
    run: Run | Unstated

    @property
    def step_tokens(self) -> int:
        """Tokens of one step on all chips."""
        run = self.run
        return run.global_tokens if isinstance(run, Run) else run.global_batch * run.sequence_tokens


def training_case(row: Row) -> TrainingCase | Skip:
    """The training run that a row measured, or why it cannot be predicted."""
    if row.metric == "time_to_train_min":
        return Skip(reason="training: the tokens to convergence are not stated")
    if row.metric not in TIMES + MEMORY:
        return Skip(reason=f"training: {row.metric} follows from other rows of the same run")
    read = SOURCES.get(row.source_key)
    if read is None:
        return Skip(reason=LAYOUT_MISSING)
    chips, length = count(row.n_accelerators), count(row.isl)
    if not chips or not length:
        return Skip(reason="training: chips or sequence length not stated")
    run = read(row, chips, length)
    if isinstance(run, Skip):
        return run
    return TrainingCase(model_id=row.model_id, accelerator_slug=row.accelerator_slug, chips=chips, run=run)


def noted(text: str, name: str, default: int = 1) -> int:
    """The number after a name, as in `GBS=256 MBS=1` or `CP 2 VP 5`."""
    match = re.search(rf"\b{name}[ =](\d+)", text)
    return int(match[1]) if match else default


def megatron(row: Row, chips: int, length: int) -> Run | Skip:
    """Megatron-Core: distributed optimizer (ZeRO 1), sequence parallelism with TP, 16-bit gradient reduction.

    LoRA is of rank 16 and on the matrix of queries, keys and values only, as in the llama3 recipes of NeMo and
    Megatron-Bridge (target_modules: linear_qkv).
    """
    if row.weights_dtype not in DTYPES:
        return Skip(reason="training: precision not stated")
    tp, pp, ep = (count(text) or 1 for text in (row.tp, row.pp, row.ep))
    cp, stages = noted(row.notes, "CP"), noted(row.notes, "VP")
    batch, micro = noted(row.concurrency_or_batch, "GBS"), noted(row.concurrency_or_batch, "MBS")
    if not micro:
        raise ValueError("MBS must be at least 1")
    dp = chips // (tp * pp * cp)
    if not dp:
        return Skip(reason=TOO_FEW_CHIPS)
    sharded = noted(row.notes, "FSDP", 0) > 0
    recipe = replace(MEGATRON_RECIPE, matmul_dtype=DTYPES[row.weights_dtype])
    if "lora" in row.params_note.lower():
        recipe = replace(recipe, **LORA)
    return Run(
        sequence_tokens=length,
        micro_batch=micro,
        micro_batches=max(batch // (micro * dp), 1),
        recipe=recipe,
        code=megatron_code(row),
        offloaded_layers=OFFLOADED.get((row.model_id.split("/")[-1], row.accelerator_slug), 0) if sharded else 0,
        parallel=Parallel(
            dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, zero=3 if sharded else 1,
            sequence_parallel=tp > 1, virtual_stages=stages,
        ),
    )  # fmt: skip


# layers whose activations the FSDP recipes in FP8 keep in host memory (cpu_offloading_num_layers, in the same place)
OFFLOADED = {
    ("Meta-Llama-3-70B", "gb200"): 40, ("Meta-Llama-3-70B", "gb300"): 20, ("Meta-Llama-3-70B", "b200"): 5,
    ("Llama-3.1-405B", "gb200"): 95,
}  # fmt: skip
# Megatron-Bridge releases from which a feature is on (scripts/performance/configs of its repository, read 2026-11-25)
ONE_COPY_FROM, PARTIAL_GRAPHS_FROM, FULL_GRAPHS_FROM = "25.11", "25.11", "26.06"


def megatron_code(row: Row) -> Code:
    """What the published recipes switch on for this model, chip and release.

    Collectives of tensor parallelism always run in parts (tp_comm_overlap). Tokens go to experts by HybridEP on GB200
    and GB300, and for DeepSeek-V3, Kimi K2 and Qwen3-30B everywhere; else by NCCL. The exchange overlaps for Qwen3-235B
    on H100, and with MXFP8 from 26.06 on, where also the whole step is one CUDA graph.
    """
    release = (re.findall(r"NeMo ([\d.]+)", row.framework) or ["24.07"])[0]
    rack = row.accelerator_slug.startswith("gb")
    small = any(name in row.model_id for name in ("DeepSeek", "Qwen3-30B", "Kimi"))
    captured = rack and row.weights_dtype == "mxfp8" and release >= FULL_GRAPHS_FROM
    partial = rack and release >= PARTIAL_GRAPHS_FROM
    return replace(
        training.MEGATRON,
        tp_overlap=True,
        gradient_overlap=True,
        dispatch="one_copy" if release >= ONE_COPY_FROM and (rack or small) else "alltoall",
        exchange_overlap=captured or (row.accelerator_slug == "h100-sxm" and "235B" in row.model_id),
        graphs="full" if captured else "partial" if partial else "none",
    )


def llm_foundry(row: Row, chips: int, length: int) -> Run | Skip:
    """llm-foundry of mid-2023: FSDP FULL_SHARD in pure 16-bit mixed precision, fused MPT layers, FlashAttention 1."""
    batch, micro = noted(row.concurrency_or_batch, "GBS"), noted(row.concurrency_or_batch, "MBS")
    return Run(
        sequence_tokens=length,
        micro_batch=micro,
        micro_batches=max(batch // (micro * chips), 1),
        recipe=replace(
            training.FSDP_MIXED, reduce_bytes=2.0, matmul_dtype=DTYPES.get(row.weights_dtype, row.weights_dtype)
        ),
        code=Code(norm="fused", rotary="fused", gate="fused", loss="vocabulary_parallel", attention="flash1"),
        recompute="full" if "checkpointing True" in row.notes else "none",
        parallel=Parallel(dp=chips, zero=3),
    )


def torchtitan(row: Row, chips: int, length: int) -> Run | Skip:
    """torchtitan: FSDP2 with 32-bit gradient reduction; its selective recomputation keeps every second product."""
    tp, cp = count(row.tp) or 1, noted(row.notes, "CP")
    compiled = "compile" in row.notes
    return Run(
        sequence_tokens=length,
        micro_batch=noted(row.concurrency_or_batch, "batch"),
        recipe=replace(training.FSDP_MIXED, matmul_dtype=DTYPES.get(row.weights_dtype, row.weights_dtype)),
        code=replace(
            training.PLAIN,
            compiled="block" if compiled else "",
            selective="operators",
            attention="flash2",  # of PyTorch in December 2024
            context="gather",
            dtensor=tp > 1,
            loss="vocabulary_parallel" if tp > 1 else "upcast",
        ),
        recompute="full" if "full AC" in row.notes else "selective",
        parallel=Parallel(dp=chips // (tp * cp), tp=tp, cp=cp, zero=3, sequence_parallel=tp > 1),
    )


def own_runs(row: Row, chips: int, length: int) -> Run | Skip:
    """Runs measured for this project, which state everything in key=value pairs."""
    said = dict(pair.split("=", 1) for pair in row.params_note.split(";") if "=" in pair)

    def number(key: str, default: int = 1) -> int:
        text = said.get(key, str(default))
        if not text.strip().isdecimal():
            raise ValueError(f"{key}={text} is not a whole number")
        return int(text)

    if said.get("recipe") not in RECIPES:
        return Skip(reason="training: recipe not known")
    tensor = said.get("parallel") == "tp"
    code = training.HF if "transformers" in row.framework else training.PLAIN
    recipe = RECIPES[said["recipe"]]
    if "bf16 gradient reduce" in row.weights_dtype:
        recipe = replace(recipe, reduce_bytes=2.0)
    if recipe.method == "lora" and said.get("parallel") == "fsdp":
        recipe = replace(recipe, parameter_bytes=2.0)  # FSDP casts the adapters to BF16 for the forward pass
    return Run(
        sequence_tokens=length,
        micro_batch=number("micro_batch"),
        micro_batches=number("micro_batches"),
        recipe=recipe,
        code=replace(
            code, compiled="full" if number("compile", 0) else "",
            loss="vocabulary_parallel" if tensor else code.loss, dtensor=tensor,
        ),
        recompute="full" if said.get("recompute") == "full" else "none",
        parallel=Parallel(
            dp=number("dp"), tp=number("tp"), pp=number("pp"), zero=number("zero", 0),
            sequence_parallel=bool(number("sequence_parallel", 0)),
        ),
    )  # fmt: skip


def mlperf(row: Row, chips: int, length: int) -> Unstated | Skip:
    """MLPerf Training: layout and format are in the submissions' code, not in their results.

    8-bit products, from round 5.1 on NVFP4 on NVIDIA's Blackwell; 16 bits on TPUs. LoRA has rank 16 on all matrices of
    attention (mlcommons/training, llama2_70b_lora/run_llama_70B_scrolls_r16.sh). Submitters of NVIDIA and AMD use NeMo
    or Megatron-Core, Google MaxText.
    """
    batch = noted(row.concurrency_or_batch, "GBS", 0)
    if not batch:
        return Skip(reason="training: the batch is not stated")
    if row.accelerator_slug.startswith("tpu"):
        return Unstated(sequence_tokens=length, global_batch=batch, recipe=XLA_RECIPE, code=training.XLA, zeros=(3,))
    narrow = row.source_key >= "mlperf_train_5.1" and row.accelerator_slug in ("b200", "b300", "gb200", "gb300")
    recipe = replace(MEGATRON_RECIPE, matmul_dtype="nvfp4" if narrow else "fp8")
    if "lora" in row.params_note:
        recipe = replace(recipe, **{**LORA, "adapter_matrices": "attention"})
    code = replace(training.MEGATRON, tp_overlap=True, gradient_overlap=True)
    return Unstated(sequence_tokens=length, global_batch=batch, recipe=recipe, code=code)


def maxtext(row: Row, chips: int, length: int) -> Unstated | Skip:
    """MaxText: XLA compiles the step; layouts are FSDP, tensor and context parallelism by the recipe."""
    each = re.match(r"(\d+) tokens/step/chip", row.concurrency_or_batch)
    batch = round(int(each[1]) * chips / length) if each else noted(row.concurrency_or_batch, "GBS", 0)
    if not batch:
        return Skip(reason="training: the batch is not stated")
    recipe = replace(XLA_RECIPE, matmul_dtype="fp8") if row.weights_dtype == "fp8_full" else XLA_RECIPE
    if row.weights_dtype not in ("bf16", "fp8_full"):
        return Skip(reason="training: precision not stated")
    return Unstated(sequence_tokens=length, global_batch=batch, recipe=recipe, code=training.XLA, zeros=(3,))


def gaudi(row: Row, chips: int, length: int) -> Run | Unstated | Skip:
    """Megatron-DeepSpeed on Gaudi: with the stated layout, micro-batches of 1, or with the fastest."""
    batch = noted(row.concurrency_or_batch, "GBS", 0)
    if row.weights_dtype not in DTYPES or not batch:
        return Skip(reason="training: precision or batch not stated")
    if row.tp:
        return megatron(row, chips, length)
    recipe = replace(MEGATRON_RECIPE, matmul_dtype=DTYPES[row.weights_dtype])
    return Unstated(sequence_tokens=length, global_batch=batch, recipe=recipe, code=training.MEGATRON)


def neuron(row: Row, chips: int, length: int) -> Run | Skip:
    """NeuronX Distributed: ZeRO 1, FP32 optimizer; TP counts cores, two a chip."""
    tp, pp = max((count(row.tp) or 1) // 2, 1), count(row.pp) or 1
    dp = chips // (tp * pp)
    if not dp:
        return Skip(reason=TOO_FEW_CHIPS)
    return Run(
        sequence_tokens=length,
        micro_batch=1,
        micro_batches=max(noted(row.concurrency_or_batch, "GBS") // dp, 1),
        recipe=replace(MEGATRON_RECIPE, reduce_bytes=4.0),
        code=replace(training.XLA, tp_overlap=False),
        recompute="selective",
        parallel=Parallel(dp=dp, tp=tp, pp=pp, zero=1, sequence_parallel=tp > 1),
    )


SOURCES = {
    "intel_gaudi_train": gaudi,
    "mlperf_train_4.1": mlperf,
    "mlperf_train_5.0": mlperf,
    "mlperf_train_5.1": mlperf,
    "neuron_train": neuron,
    "tpu_recipes_train": maxtext,
    "megatron_bridge": megatron,
    "megatron_lm": megatron,
    "nemo_24.07": megatron,
    "llm_foundry": llm_foundry,
    "torchtitan": torchtitan,
    "h200_train": own_runs,
    "h200x4_train": own_runs,
}


def predicted(row: Row, case: TrainingCase, step_s: float) -> float:
    """The row's figure for a step of this duration, in the row's unit."""
    if row.metric == "step_time_s":
        return step_s
    tokens_per_s = case.step_tokens / step_s
    if row.metric == "samples_per_s":
        return tokens_per_s / case.run.sequence_tokens
    return tokens_per_s if row.metric == "tokens_per_s" else tokens_per_s / case.chips
