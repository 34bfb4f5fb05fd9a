"""Which checkpoint holds a model in a weight format, and what the format costs in quality against the published one."""

from advisor.engine.kernels import HALF
from advisor.engine.network import LatentAttention, Model, Release
from advisor.engine.terms import Quantization

MIN_SAVING_FRACTION = 0.1  # of the weight bits: our limit; a conversion that saves less is not worth its quality check


def is_published(model: Model, quantization: Quantization) -> bool:
    """Whether the method loads the published checkpoint as it is."""
    if model.published is None:
        return model.native_dtype in (quantization.slug, quantization.weights_dtype)
    return quantization.loads == model.published.format


def published_conversion(model: Model, quantization: Quantization) -> Release | None:
    """The checkpoint that somebody else published in the format of this method; None if none is known."""
    return next((release for release in model.conversions if release.format == quantization.loads), None)


def quality_of(model: Model, quantization: Quantization) -> str:
    """Quality against the published model: lossless | near_lossless | lossy.

    The published checkpoint loses nothing, unless the method also quantizes activations that its authors did not.
    """
    return quantization.published_quality if is_published(model, quantization) else quantization.quality


def worth_converting(model: Model, quantization: Quantization, published_bits_per_weight: float) -> bool:
    """Whether a checkpoint in this format is smaller than the published one, already exists, or is a cast at load."""
    if is_cast(model, quantization):
        return True
    limit = (1.0 - MIN_SAVING_FRACTION) * published_bits_per_weight
    return quantization.bits_per_weight <= limit or published_conversion(model, quantization) is not None


def is_cast(model: Model, quantization: Quantization) -> bool:
    """Whether an engine casts the published checkpoint to this format while it loads: between BF16 and FP16."""
    return quantization.weights_dtype in HALF and model.native_dtype in HALF and not quantization.weight_only


def experts_only(model: Model, quantization: Quantization) -> bool:
    """Whether only the routed experts are stored in this format: as the checkpoint states, else as usual for it."""
    if not any(block.ffn is not None and block.ffn.experts > 1 for block in model.blocks):
        return False
    stated = model.published if is_published(model, quantization) else published_conversion(model, quantization)
    if stated is not None and stated.experts_only is not None:
        return stated.experts_only
    latent = any(isinstance(block.mixer, LatentAttention) for block in model.blocks)
    return quantization.experts_only == "always" or (quantization.experts_only == "latent" and latent)


def kept_formats(model: Model, quantization: Quantization) -> tuple[tuple[str, float], ...]:
    """(dtype, fraction) of the weights outside routed experts that a known checkpoint stores in another format."""
    stated = model.published if is_published(model, quantization) else published_conversion(model, quantization)
    return stated.others if stated is not None else ()


def broken_shard(model: Model, quantization: Quantization, tp: int, moe_tp: int) -> str:
    """Why weights in this format cannot be split this way; empty: they can.

    tp: of dense feed-forward parts and shared experts; moe_tp: of the routed experts.
    """
    unit = quantization.shard_elements
    for f in (block.ffn for block in model.blocks if block.ffn is not None):
        routed = f.experts > 1
        for what, width, split in (
            ("the intermediate size", 0 if routed else f.inner, tp),
            ("the width of an expert", f.inner if routed else 0, moe_tp),
            ("the width of the shared experts", f.shared_inner, tp),
        ):
            if split > 1 and width % (unit * split):
                return f"{what} of {width:,} on {split} chips is not in whole blocks of {unit} ({quantization.name})"
    return ""
