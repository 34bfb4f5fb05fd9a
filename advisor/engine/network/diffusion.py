"""Image generators: a diffusion transformer (DiT), its text encoders and the decoder of its latents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from advisor.engine.network.blocks import Block, block_of, block_shape, refuse_unknown, sparse
from advisor.engine.network.matrices import layer_weights

LATENT_PX = 8  # pixels per side of one latent: three doublings in the decoder


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEncoder:
    """An encoder of the prompt, which is padded to `tokens`."""

    hidden: int
    vocab: int
    tokens: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Convolution:
    """Convolutions with stride 1 of the decoder, at `scale` times the side of the latents."""

    inputs: int
    outputs: int
    kernel: int
    scale: int
    normed: bool  # behind a group norm and an activation

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.kernel**2


@dataclass(frozen=True, kw_only=True, slots=True)
class Diffusion:
    """What surrounds the blocks of a diffusion transformer. Everything but the blocks is in 16 bits."""

    patch: int  # latents per side of one token
    text_tokens: int  # that attend together with the image
    steps: int  # by default
    passes_per_step: int  # 2: classifier-free guidance runs the transformer with and without the prompt
    latent_channels: int
    decoder_channels: tuple[int, ...]  # of the VAE decoder, from the full resolution to the latents
    decoder_layers: int  # residual blocks of each resolution
    embedders: tuple[tuple[int, int], ...]  # matrices (inputs, outputs) of patches, text, time step, output
    text_encoders: tuple[TextEncoder, ...]

    def image_tokens(self, width_px: float, height_px: float) -> float:
        """Tokens of an image of this resolution."""
        side = LATENT_PX * self.patch
        return (width_px // side) * (height_px // side)


def decoder_convolutions(d: Diffusion) -> Iterator[Convolution]:
    """The convolutions of the VAE decoder (diffusers AutoencoderKL): middle block, then up to the full resolution."""
    widest, scale = d.decoder_channels[-1], 1
    yield Convolution(inputs=d.latent_channels, outputs=widest, kernel=3, scale=1, normed=False)
    for _ in range(4):  # two residual blocks of the middle
        yield Convolution(inputs=widest, outputs=widest, kernel=3, scale=1, normed=True)
    before = widest
    for level, outputs in enumerate(reversed(d.decoder_channels)):
        for layer in range(d.decoder_layers):
            inputs = before if layer == 0 else outputs
            yield Convolution(inputs=inputs, outputs=outputs, kernel=3, scale=scale, normed=True)
            yield Convolution(inputs=outputs, outputs=outputs, kernel=3, scale=scale, normed=True)
            if inputs != outputs:
                yield Convolution(inputs=inputs, outputs=outputs, kernel=1, scale=scale, normed=False)
        before = outputs
        if level < len(d.decoder_channels) - 1:
            scale *= 2
            yield Convolution(inputs=outputs, outputs=outputs, kernel=3, scale=scale, normed=False)
    yield Convolution(inputs=before, outputs=3, kernel=3, scale=scale, normed=True)


def diffusion_parameters(d: Diffusion) -> int:
    """Weights of text encoders, embedders and the VAE decoder: everything but the blocks."""
    text = sum(
        e.vocab * e.hidden + sum(b.count * layer_weights(b, e.hidden) for b in e.blocks) for e in d.text_encoders
    )
    return text + transformer_embedders(d) + decoder_parameters(d)


def transformer_embedders(d: Diffusion) -> int:
    """Weights of the transformer outside its blocks."""
    return sum(inputs * outputs for inputs, outputs in d.embedders)


def decoder_parameters(d: Diffusion) -> int:
    """Weights of the VAE decoder, with the attention of its middle block."""
    return sum(c.weights for c in decoder_convolutions(d)) + 4 * d.decoder_channels[-1] ** 2


def diffusion_of(stored: Mapping[str, Any] | None) -> Diffusion | None:
    """The image generator of a stored shape; None without one. ValueError names unknown keys."""
    if not stored:
        return None
    refuse_unknown("diffusion", stored, Diffusion)
    rest = {k: v for k, v in stored.items() if k not in ("embedders", "text_encoders", "decoder_channels")}
    return Diffusion(
        decoder_channels=tuple(stored["decoder_channels"]),
        embedders=tuple((a, b) for a, b in stored["embedders"]),
        text_encoders=tuple(_encoder_of(e) for e in stored["text_encoders"]),
        **rest,
    )


def _encoder_of(stored: Mapping[str, Any]) -> TextEncoder:
    refuse_unknown("text encoder", stored, TextEncoder)
    rest = {key: value for key, value in stored.items() if key != "blocks"}
    return TextEncoder(blocks=tuple(block_of(block) for block in stored["blocks"]), **rest)


def diffusion_shape(d: Diffusion) -> dict[str, Any]:
    """The stored shape of an image generator; the inverse of diffusion_of."""
    plain = {f.name: getattr(d, f.name) for f in fields(d) if f.name not in ("embedders", "text_encoders")}
    return plain | {
        "decoder_channels": list(d.decoder_channels),
        "embedders": [list(matrix) for matrix in d.embedders],
        "text_encoders": [
            sparse(e, skip=("blocks",)) | {"blocks": [block_shape(b) for b in e.blocks]} for e in d.text_encoders
        ],
    }
