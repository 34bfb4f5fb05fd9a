"""The vision tower of a vision-language model: its operators for the images of one request, and its memory.

The tower runs once per image, in the step that computes the image's tokens, before the language model. It is in 16
bits whatever the format of the language model (checkpoints exclude it from quantization), and is sharded by tensor
parallelism like the layers of the model. Attention is bidirectional within an image, or within windows of it. Loading,
decoding and resizing an image on the host are not included.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.engine.kernels import Array
from advisor.engine.network import Attention, Block, Model, pictures_of, vision_parameters
from advisor.engine.step.operators import (
    Layouts,
    Operator,
    block_operators,
    bound_of,
    context_token,
    elementwise,
    gemm,
)

HALF_BYTES = 2.0
LARGEST_PX = 20_000.0  # a side that every model scales down


def sixteen_bits(x: Layouts) -> Layouts:
    """The same layouts with 16-bit weights and activations."""
    none = np.zeros(len(x))
    return replace(
        x,
        matmul_flops_per_s=x.half_flops_per_s,
        weight_bytes=none + HALF_BYTES,
        weight_read_bytes=none + HALF_BYTES,
        activation_bytes=none + HALF_BYTES,
        kv_bytes=none + HALF_BYTES,
        kv_read_bytes=none + HALF_BYTES,
        latent_read_bytes=none + HALF_BYTES,
        quantize_kernels=none,
        quantize_bytes=none,
    )


def image_operators(model: Model, x: Layouts) -> Iterator[Operator]:
    """Operators for the images of one request on one chip, of shape (N, 1); none without images."""
    vision, pictures = model.vision, model.pictures
    if vision is None or pictures is None:
        return
    column = sixteen_bits(x).column()
    m = np.full((len(x), 1), pictures.passes * pictures.patches)
    tower = Model(slug=f"{model.slug}-vision", hidden=vision.hidden, vocab=1, blocks=vision.blocks)
    yield _named(gemm(column, "patches", 1, m, vision.hidden + 0 * column.tp, float(vision.patch_inputs), "half"))
    for block in vision.blocks:
        yield from (_named(op) for op in block_operators(tower, block, column, m))
        yield bidirectional_scores(block, column, m, pictures.patches)
    for inputs, outputs in vision.projector:
        columns = np.ceil(outputs / column.tp)
        yield _named(gemm(column, "projector", 1, m / vision.merge**2, columns, float(inputs), "half"))
    yield _named(elementwise(column, "to_prompt", 1, m / vision.merge**2 * model.hidden * 4.0 + 0 * column.tp, 1))


def _named(op: Operator) -> Operator:
    return replace(op, name=f"vision/{op.name.replace('/', '_')}")


def bidirectional_scores(
    block: Block, x: Layouts, m: Array, sequence: Array | float, prefix: str = "vision"
) -> Operator:
    """Scores and values of `m` tokens that each attend to their sequence, or to their window of it.

    m: shape (N, 1), all tokens; sequence: tokens that attend to each other.
    """
    assert isinstance(block.mixer, Attention)
    _, pair_s, heads = context_token(block.mixer, x)
    window, width = block.mixer.window_tokens, block.mixer.key_value_dim
    keys = np.minimum(sequence, window) if window else sequence
    flops, moved = block.count * 2.0 * heads * width * m * keys, block.count * 2.0 * HALF_BYTES * heads * width * m
    compute_s, memory_s = block.count * pair_s * m * keys, moved / x.memory_bytes_per_s
    return Operator(
        name=f"{prefix}/attention_scores",
        flops=flops,
        bytes=moved,
        time_s=np.maximum(compute_s, memory_s),
        bound=bound_of(compute_s, memory_s, 0 * m),
    )


def images_s(model: Model, x: Layouts) -> Array:
    """Seconds of the vision tower for the images of one request, shape (N,); 0 without images."""
    total = np.zeros((len(x), 1))
    for operator in image_operators(model, x):
        total = total + operator.time_s
    return np.asarray(total[:, 0])


def vision_bytes(model: Model, x: Layouts) -> Array:
    """Weights of the vision tower per chip, shape (N,). It is on the first pipeline stage."""
    return vision_parameters(model.vision) * HALF_BYTES / x.tp if model.vision else np.zeros(len(x))


def images_workspace_bytes(model: Model, x: Layouts) -> Array:
    """Workspace of the tower for the largest image that the model takes, per chip, shape (N,).

    A server keeps it free whatever images come: it runs such an image before it sizes the cache. Every rank gathers the
    queries, keys and values of all heads. vLLM kept about 1.3 GiB for it with Qwen3.5-27B on two cards
    (mitchross/talos-argocd-proxmox#1995) and 1.8 GiB with Qwen2.5-VL-72B on four (vllm-project/vllm#16570); this says
    1.6 and 2.0.
    """
    vision = model.vision
    if vision is None:
        return np.zeros(len(x))
    largest = pictures_of(vision, 1.0, LARGEST_PX, LARGEST_PX)
    widest = max(
        max(b.mixer.heads * b.mixer.key_value_dim if isinstance(b.mixer, Attention) else 0, _inner(b))
        for b in vision.blocks
    )
    tower = largest.passes * largest.patches * (HALF_BYTES * widest + 6.0 * vision.hidden)
    return np.full(len(x), tower + largest.tokens * model.hidden * HALF_BYTES)


def _inner(block: Block) -> int:
    return block.ffn.inner * block.ffn.matrices if block.ffn else 0
