"""LoRA adapters: memory of the resident ones, and the extra kernels of each adapted matrix in a step."""

from collections.abc import Iterator

import numpy as np

from advisor.engine.kernels import Array, roof
from advisor.engine.network import Attention, Block, Matrix, Model, decoder_blocks, ffn_matrices, mixer_matrices
from advisor.engine.step.operators import (
    Layouts,
    Operator,
    bound_of,
    distinct_experts,
    rank_columns,
    rank_inner,
)

ELEMENT_BYTES = 2.0  # of A and B: the 16-bit dtype of the base model (vLLM, --lora-dtype auto)
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # accepted by servers (vLLM 0.14, LoRAConfig.max_lora_rank)
KERNELS = 2  # per matrix: shrink to the rank, expand from it


def adapters_unsupported(model: Model) -> str:
    """Why adapters on this model are not modeled; empty: they are, or the model has none."""
    if model.adapters is None:
        return ""
    if model.encoder_only or any(b.stage == "encoder" for b in model.blocks):
        return "LoRA adapters on encoders are not modeled; leave out adapters"
    if not all(isinstance(b.mixer, Attention) for b in model.blocks):
        return "LoRA adapters on latent attention and recurrent layers are not modeled; leave out adapters"
    return ""


def served_rank(rank: int) -> int:
    """The smallest rank that servers accept and that is at least this one; it sets the size of a slot."""
    return next((r for r in RANKS if r >= rank), rank)


def adapted(model: Model, block: Block) -> list[Matrix]:
    """The matrices of one layer that adapters change; servers do not adapt experts."""
    if not isinstance(block.mixer, Attention) or model.adapters is None:
        return []
    found = [*mixer_matrices(block.mixer, model.hidden)]
    if not model.adapters.attention_only and not (block.ffn and block.ffn.experts > 1):
        found += ffn_matrices(block.ffn, model.hidden)
    return found


def launched_kernels(model: Model) -> int:
    """Adapter kernels that the host launches for one step.

    Matrices that read the same input share a pair of launches (vLLM, vllm/lora/layers/column_parallel_linear.py: merged
    projections; vllm/lora/ops/triton_ops: slices of one grid), so there are two pairs for each matrix that is split by
    rows, the last of attention or of a feed-forward part.
    """
    rows = (b.count * sum(m.split == "rows" for m in adapted(model, b)) for b in decoder_blocks(model))
    return 2 * KERNELS * sum(rows)


def adapter_bytes(model: Model, x: Layouts) -> Array:
    """Bytes of one adapter on one chip, shape (N,).

    With tensor parallelism, one of A and B is sharded like its matrix, the other is on every rank (vLLM's default,
    without --fully-sharded-loras).
    """
    rank = served_rank(model.adapters.rank) if model.adapters else 0
    total = np.zeros(len(x))
    for block in decoder_blocks(model):
        for matrix in adapted(model, block):
            width = rank_inner(matrix, x.tp) + rank_columns(matrix, x.tp)
            total = total + block.count * rank * width * ELEMENT_BYTES
    return total / x.pp


def resident_bytes(model: Model, x: Layouts) -> Array:
    """Bytes of all adapter slots on one chip, shape (N,); 0 without adapters."""
    return adapter_bytes(model, x) * model.adapters.active if model.adapters else np.zeros(len(x))


def swap_s(model: Model, x: Layouts, pcie_bytes_per_s: Array) -> Array:
    """Mean seconds that a request waits for its adapter to be copied from the host, shape (N,).

    All adapters are equally popular (the worst case), so one is resident with probability active / count. A link of
    unknown rate adds no time.
    """
    if model.adapters is None:
        return np.zeros(len(x))
    missing = 1.0 - model.adapters.active / model.adapters.count
    return np.nan_to_num(missing * adapter_bytes(model, x) / pcie_bytes_per_s)


def adapters_s(model: Model, layouts: Layouts, tokens: Array) -> Array:
    """Seconds of all adapter kernels of a step, shape (N, G) for tokens of shape (G,); 0 without adapters."""
    total = np.zeros((len(layouts), len(tokens)))
    for operator in adapter_operators(model, layouts, tokens):
        total += operator.time_s
    return total


def adapter_operators(model: Model, layouts: Layouts, tokens: Array) -> Iterator[Operator]:
    """Shrink and expand kernels of every adapted matrix, shape (N, G) for tokens of shape (G,).

    Each adapter in use is read once (SGMV kernels of Punica and later ones). Their fixed cost comes from the framework
    (host_times) and is at least that of any kernel on the chip.
    """
    if model.adapters is None:
        return
    x, m = layouts.column(), np.asarray(tokens, dtype=float)[None, :]
    rank, slots = float(model.adapters.rank), float(model.adapters.active)
    touched = distinct_experts(slots, 1.0, m) if slots > 1 else np.minimum(m, 1.0)
    launch_s = np.maximum(x.kernel_s, x.adapter_kernel_s) + x.further_adapter_s * np.maximum(touched - 1.0, 0.0)
    for block in decoder_blocks(model):
        for matrix in adapted(model, block):
            wide, narrow = rank_inner(matrix, x.tp), rank_columns(matrix, x.tp)
            flops = 2.0 * m * rank * (wide + narrow)
            # shrink reads the activations; expand reads, adds to and writes the outputs
            moved = ELEMENT_BYTES * (touched * rank * (wide + narrow) + m * (wide + 2.0 * narrow + 2.0 * rank))
            flops_s, bytes_s = flops / x.half_flops_per_s, moved / x.memory_bytes_per_s
            yield Operator(
                name="adapters",
                flops=block.count * flops,
                bytes=block.count * moved,
                time_s=block.count * (roof(flops_s, bytes_s, x.roof_exponent) + KERNELS * launch_s),
                bound=bound_of(flops_s, bytes_s, launch_s),
            )
