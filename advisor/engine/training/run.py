"""A training run: what is trained and stored, how it is spread over chips, and how the model code computes it."""

from dataclasses import dataclass, field
from typing import Literal

Method = Literal["full", "lora", "qlora"]
Recompute = Literal["none", "selective", "full"]
Offload = Literal["none", "optimizer", "all"]
Optimizer = Literal["adamw", "adamw_8bit", "adafactor", "muon", "sgd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What is trained and in which formats; bytes are per trained parameter unless a comment says otherwise."""

    method: Method = "full"
    adapter_rank: int = 0  # of LoRA and QLoRA
    adapter_matrices: Literal["all", "attention", "query_value"] = "all"  # of the layers
    adapter_dropout: bool = False  # of the input of each adapter
    parameter_bytes: float = 4.0  # as stored between steps
    compute_bytes: float = 2.0  # of a weight as the matrix multiplies read it
    gradient_bytes: float = 4.0
    state_bytes: float = 8.0  # optimizer states, without a master copy
    master_bytes: float = 0.0  # FP32 copy beside the stored weights; 0: the stored weights are the master
    reduce_bytes: float = 4.0  # of a gradient in the reduction between ranks
    update_bytes: float = 0.0  # transient copy of the gradients in the optimizer's step
    frozen_bytes: float = 2.0  # of a frozen parameter of the base model (LoRA: 2, QLoRA in NF4: 0.5 and scales)
    autocast: bool = False  # matrix multiplies cast FP32 weights and their inputs; see `wide`
    matmul_dtype: str = "bf16"  # of the matrix multiplies: bf16 | fp8 | mxfp8 | nvfp4 | fp32
    optimizer: Optimizer = "adamw"

    @property
    def wide(self) -> bool:
        """Whether weights and residual stream are FP32 under autocast; the frozen base of adapters stays in 16 bits."""
        return self.autocast and self.method == "full"

    @property
    def adapter_bytes(self) -> float:
        """Of an input and a weight as the products of adapters read them."""
        return self.compute_bytes if self.autocast else self.parameter_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """How one model is spread over chips; dp x tp x pp x cp chips in all."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1  # context parallel: each rank has a part of every sequence
    ep: int = 1  # expert parallel, inside dp x cp x tp
    zero: int = 0  # ZeRO stage; 3 is FSDP with resharding after the forward pass, 2 without
    shard: int = 0  # ranks that the state is sharded over; 0: all dp x cp ranks
    sequence_parallel: bool = False  # norms and residuals are split over the tp ranks
    virtual_stages: int = 1  # of each pipeline rank (interleaved schedule)

    @property
    def chips(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def shards(self) -> int:
        """Ranks that hold a part of the state each."""
        return self.shard or self.dp * self.cp


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """How the model code computes a layer: which results it keeps for the backward pass and which kernels it fuses."""

    norm: Literal["eager_fp32", "fused"] = "fused"  # eager_fp32: cast, square, mean, multiply, each a kernel
    rotary: Literal["eager", "fused"] = "fused"
    gate: Literal["eager", "fused"] = "fused"  # SwiGLU: activation and product
    loss: Literal["upcast", "chunked", "fused_linear", "vocabulary_parallel"] = "upcast"
    # PyTorch 2.11 prefers cuDNN's; flash1: FlashAttention before July 2023; math: scores are stored
    attention: Literal["cudnn", "flash2", "flash1", "math"] = "cudnn"
    compiled: Literal["", "block", "full"] = ""  # torch.compile: of each layer, or of the whole model
    selective: Literal["attention", "operators"] = "attention"  # what selective recomputation repeats: the attention
    # core (Megatron-Core), or every second product and all element-wise operators (torchtitan)
    # PyTorch's checkpoint since 2.1: recomputation of a layer ends before its last product, whose result nothing needs
    # (torch.utils.checkpoint, set_checkpoint_early_stop)
    stops_early: bool = False
    gradient_buffer: bool = False  # one permanent buffer of all gradients (Megatron-Core), reduced in place
    dtensor: bool = False  # tensor parallelism through PyTorch's DTensor, whose dispatch takes host time
    tp_overlap: bool = False  # collectives of tensor parallelism run in parts beside the products (Transformer Engine)
    dispatch: Literal["alltoall", "one_copy"] = "alltoall"  # of tokens to experts: NCCL, or DeepEP and HybridEP
    gradient_overlap: bool = True  # data parallelism gathers and reduces beside the computation
    exchange_overlap: bool = False  # that of one micro-batch beside the computation of another
    context: Literal["ring", "gather"] = "ring"  # keys and values beside attention, or all of them before it
    graphs: Literal["none", "partial", "full"] = (
        "none"  # CUDA graphs: of attention and the router, or of the whole step
    )


# transformers' Llama and its relatives, without and with torch.compile; a short model with nn.RMSNorm; Megatron-Core,
# whose overlaps are off unless asked for (tp_comm_overlap, overlap_grad_reduce, overlap_param_gather)
HF = Code(norm="eager_fp32", rotary="eager", gate="eager", loss="upcast", stops_early=True)
PLAIN = Code(norm="fused", rotary="eager", gate="eager", loss="upcast", stops_early=True)
MEGATRON = Code(
    norm="fused", rotary="fused", gate="fused", loss="vocabulary_parallel", gradient_buffer=True,
    gradient_overlap=False, dispatch="one_copy",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One step of training: every rank of dp processes micro_batch x micro_batches sequences."""

    sequence_tokens: int
    longest_tokens: int = 0  # of a sequence, which memory must hold, where sequence_tokens is the mean; 0: all alike
    varied_lengths: bool = False  # batches of different lengths follow one another, neither packed nor padded to one
    micro_batch: int = 1  # sequences of one forward pass on one dp rank
    micro_batches: int = 1  # accumulated, or in the pipeline, before the optimizer's step
    recipe: Recipe = field(default_factory=Recipe)
    parallel: Parallel = field(default_factory=Parallel)
    code: Code = MEGATRON
    recompute: Recompute = "none"
    offload: Offload = "none"
    offloaded_layers: int = 0  # whose kept activations wait in the host's memory for the backward pass

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one dp rank."""
        return self.micro_batch * self.sequence_tokens

    @property
    def global_tokens(self) -> int:
        """Tokens of one step on all ranks."""
        return self.tokens * self.micro_batches * self.parallel.dp


# Formats that people name. Sources: PyTorch autocast and FSDP2 documentation, Megatron-Core's distributed optimizer
# (docs/source/user-guide/features/dist_optimizer), ZeRO (arXiv 1910.02054).
AMP = Recipe(parameter_bytes=4.0, gradient_bytes=4.0, state_bytes=8.0, autocast=True)
BF16 = Recipe(parameter_bytes=2.0, gradient_bytes=2.0, state_bytes=4.0, reduce_bytes=2.0)
FSDP_MIXED = Recipe(parameter_bytes=4.0, gradient_bytes=4.0, state_bytes=8.0, reduce_bytes=4.0)
BF16_MASTER = Recipe(
    parameter_bytes=2.0, gradient_bytes=2.0, master_bytes=4.0, state_bytes=8.0, reduce_bytes=2.0, update_bytes=4.0
)
MEGATRON_BF16 = Recipe(parameter_bytes=2.0, gradient_bytes=4.0, master_bytes=4.0, state_bytes=8.0, reduce_bytes=4.0)
LORA16 = Recipe(
    method="lora", adapter_rank=16, parameter_bytes=4.0, gradient_bytes=4.0, state_bytes=8.0, frozen_bytes=2.0
)
