"""Image generation with a diffusion transformer: what a request adds to the passes of its blocks.

A request is `images` sequences of image and text tokens that pass the transformer `passes` times: its steps, twice with
classifier-free guidance. The text encoders and the VAE decoder run once per image. Generation is compute-bound, so
images are not batched: a step of the server is one request. One image runs on one chip.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.engine.kernels import Array
from advisor.engine.network import (
    LATENT_PX,
    Attention,
    Drawing,
    Model,
    decoder_convolutions,
    diffusion_parameters,
)
from advisor.engine.step.media.images import HALF_BYTES, bidirectional_scores, sixteen_bits
from advisor.engine.step.operators import (
    Layouts,
    Operator,
    block_operators,
    elementwise,
    gemm,
)


def drawing_operators(model: Model, x: Layouts) -> Iterator[Operator]:
    """Operators that run once per request on one chip, shape (N, 1): text encoders and VAE decoder; none without."""
    if model.diffusion is None or model.drawing is None:
        return
    column, one = sixteen_bits(x).column(), np.ones((len(x), 1))
    for encoder in model.diffusion.text_encoders:
        tower = Model(slug=f"{model.slug}-text", hidden=encoder.hidden, vocab=1, blocks=encoder.blocks)
        m = one * encoder.tokens * model.drawing.images
        for block in encoder.blocks:
            yield from (_named(op, "text_encoder") for op in block_operators(tower, block, column, m))
            yield bidirectional_scores(block, column, m, float(encoder.tokens), "text_encoder")
    yield from _decoder(model, column, one)


def _decoder(model: Model, x: Layouts, one: Array) -> Iterator[Operator]:
    """The VAE decoder: every convolution as a GEMM over its pixels, with its group norm and activation."""
    assert model.diffusion is not None and model.drawing is not None
    d, drawn = model.diffusion, model.drawing
    latents = one * drawn.width_px * drawn.height_px / LATENT_PX**2 * drawn.images
    for c in decoder_convolutions(d):
        pixels = latents * c.scale**2
        yield _named(gemm(x, "convolutions", 1, pixels, one * c.outputs, float(c.inputs * c.kernel**2), "half"), "vae")
        if c.normed:
            yield elementwise(x, "vae/norms", 1, 6.0 * pixels * c.inputs, 2)
    widest = d.decoder_channels[-1]
    attention = Attention(heads=1, kv_heads=1, head_dim=widest, causal=False)
    block = replace(model.blocks[0], count=1, mixer=attention, ffn=None)
    yield bidirectional_scores(block, x, latents, drawn.width_px * drawn.height_px / LATENT_PX**2, "vae")


def _named(op: Operator, prefix: str) -> Operator:
    return replace(op, name=f"{prefix}/{op.name.replace('/', '_')}")


def diffusion_bytes(model: Model, x: Layouts) -> Array:
    """Weights of text encoders, embedders and VAE decoder per chip, shape (N,)."""
    return np.zeros(len(x)) + (diffusion_parameters(model.diffusion) * HALF_BYTES if model.diffusion else 0.0)


def drawing_workspace_bytes(model: Model, x: Layouts) -> Array:
    """Peak workspace of the VAE decoder, shape (N,): input, norm, output and residual of its widest block."""
    d, drawn = model.diffusion, model.drawing
    if d is None or drawn is None:
        return np.zeros(len(x))
    widest = max(c.inputs * c.scale**2 for c in decoder_convolutions(d))
    pixels = drawn.width_px * drawn.height_px / LATENT_PX**2
    return np.zeros(len(x)) + 4.0 * HALF_BYTES * widest * pixels


def drawn(model: Model, width_px: float, height_px: float, steps: int | None, images: float) -> Model:
    """The model with the images of a mean request; steps None: the model's default."""
    d = model.diffusion
    assert d is not None
    return replace(
        model,
        encoder_only=True,
        sequences=images,
        drawing=Drawing(
            images=images,
            width_px=width_px,
            height_px=height_px,
            passes=(steps or d.steps) * d.passes_per_step,
            tokens=d.image_tokens(width_px, height_px) + d.text_tokens,
        ),
    )
