"""What people call a precision, a method and a model code, as the engine's Recipe and Code."""

from dataclasses import replace
from typing import Literal

from advisor.engine.kernels import rate_of
from advisor.engine.network import Model, embedding_parameters, parameters
from advisor.engine.terms import Accelerator
from advisor.engine.training.run import (
    AMP,
    BF16,
    BF16_MASTER,
    FSDP_MIXED,
    HF,
    LORA16,
    MEGATRON,
    MEGATRON_BF16,
    PLAIN,
    Code,
    Parallel,
    Recipe,
)

Precision = Literal["bf16", "bf16_master", "bf16_pure", "fp8", "mxfp8", "nvfp4", "amp", "fp32"]
MethodName = Literal["full", "lora", "qlora"]
OptimizerName = Literal["adamw", "adamw_8bit", "adafactor", "muon", "sgd"]
ModelCode = Literal["hf", "plain", "megatron"]

TRAINED_ON = ("gpu", "tpu", "npu")
INFERENCE_FAMILIES = ("inferentia", "cloud-ai-100", "rngd")  # whose makers sell them for inference alone

PRECISIONS: tuple[Precision, ...] = ("bf16", "bf16_master", "bf16_pure", "fp8", "mxfp8", "nvfp4", "amp", "fp32")
NARROW = ("fp8", "mxfp8", "nvfp4")
FP32 = Recipe(parameter_bytes=4.0, compute_bytes=4.0, gradient_bytes=4.0, state_bytes=8.0, matmul_dtype="fp32")
NF4_BYTES = 0.5 + 0.127 / 8  # 4 bits and double-quantized scales: 0.127 bits per parameter (QLoRA, arXiv 2305.14314)
ADAMW_8BIT_BYTES = 2.0 * (1.0 + 4.0 / 256)  # two 8-bit states, an FP32 scale per block of 256 (bitsandbytes)
ADAFACTOR_BYTES = 0.01  # row and column sums of the second moment, no momentum (arXiv 1804.04235)


DEFAULT_CODE: dict[str, ModelCode] = {"training": "megatron", "finetuning": "hf"}


def trains(chip: Accelerator) -> bool:
    """Whether the chip has a software stack for training."""
    return chip.kind in TRAINED_ON and chip.family not in INFERENCE_FAMILIES


def default_code(kind: str) -> ModelCode:
    return DEFAULT_CODE[kind]


def code_of(name: ModelCode, compiled: bool, p: Parallel) -> Code:
    """The model code; PyTorch's tensor parallelism uses DTensor and splits the loss over the vocabulary."""
    code = {"hf": HF, "plain": PLAIN, "megatron": MEGATRON}[name]
    if name == "megatron":
        return code
    if p.tp > 1:
        code = replace(code, loss="vocabulary_parallel", dtensor=True)
    if compiled:
        code = replace(code, compiled="block" if p.zero >= 2 or p.tp * p.pp > 1 else "full")
    return code


def recipe_of(
    precision: Precision, method: MethodName, rank: int, optimizer: OptimizerName, code: ModelCode, zero: int, of: Model
) -> Recipe:  # fmt: skip
    """The formats of a run.

    bf16 is what each code means by it: Megatron-Core keeps FP32 gradients, master and states; FSDP (ZeRO 2 and 3)
    shards FP32 weights and computes in BF16; else all is BF16. bf16_pure: all is BF16 with sharding too. Narrow
    formats are of the matrix multiplies alone.
    """
    recipe = adapters(method, rank, code, zero) if method != "full" else full(precision, code, zero)
    if precision in NARROW:
        recipe = replace(recipe, matmul_dtype=precision)
    return replace(recipe, optimizer=optimizer, state_bytes=state_bytes(optimizer, recipe.state_bytes, of, method))


def full(precision: Precision, code: ModelCode, zero: int) -> Recipe:
    """The recipe of all parameters, without the format of the matrix multiplies."""
    if precision in ("amp", "fp32"):
        return AMP if precision == "amp" else FP32
    if code == "megatron":
        return MEGATRON_BF16
    if precision == "bf16_master":
        return BF16_MASTER
    if precision == "bf16_pure":
        return BF16
    return FSDP_MIXED if zero >= 2 else BF16


def adapters(method: MethodName, rank: int, code: ModelCode, zero: int) -> Recipe:
    """LoRA or QLoRA on every matrix of the layers, which multiplies in BF16 although adapters are stored in FP32.

    Trainers run them under autocast (bf16: true); FSDP casts the adapters itself.
    """
    base = MEGATRON_BF16 if code == "megatron" else LORA16
    if code != "megatron":
        base = replace(base, parameter_bytes=2.0) if zero >= 2 else replace(base, autocast=True)
    frozen = NF4_BYTES if method == "qlora" else 2.0
    return replace(base, method=method, adapter_rank=rank, frozen_bytes=frozen)


def state_bytes(optimizer: OptimizerName, adamw_bytes: float, model: Model, method: MethodName) -> float:
    """Bytes of optimizer states per trained parameter, where AdamW has `adamw_bytes` for its two.

    Muon has one for each matrix of the layers and leaves embeddings and output head to AdamW (Moonlight, arXiv
    2502.16982).
    """
    if optimizer == "muon":
        outside = embedding_parameters(model) / parameters(model) if method == "full" else 0.0
        return adamw_bytes * (0.5 + 0.5 * outside)
    return {
        "adamw": adamw_bytes,
        "adamw_8bit": min(ADAMW_8BIT_BYTES, adamw_bytes),
        "adafactor": ADAFACTOR_BYTES,
        "sgd": adamw_bytes / 2,  # with momentum
    }[optimizer]


def unsupported_precision(chip: Accelerator, precision: Precision) -> tuple[str, str] | None:
    """Why the chip cannot train in it, and what it can; None: it can."""
    able = [name for name in PRECISIONS if has_precision(chip, name)]
    return None if precision in able else (f"{chip.name} has no {NAMES[precision]} matrix rate", ", ".join(able))


NAMES = {
    "bf16": "BF16",
    "bf16_master": "BF16",
    "bf16_pure": "BF16",
    "fp8": "FP8",
    "mxfp8": "MXFP8",
    "nvfp4": "NVFP4",
    "amp": "16-bit",
    "fp32": "FP32",
}


def has_precision(chip: Accelerator, precision: str) -> bool:
    """Chips scale blocks of an MX format since they have FP4; NVFP4 is NVIDIA's."""
    rates = chip.flops_per_s
    if precision in ("bf16", "bf16_master", "bf16_pure"):
        return "bf16" in rates
    if precision == "amp":
        return "bf16" in rates or "fp16" in rates
    if precision == "nvfp4":
        return "fp4" in rates and "cuda" in chip.stacks
    return rate_of(chip, "fp8" if precision == "mxfp8" else precision) is not None and (
        precision != "mxfp8" or "fp4" in rates
    )
