"""The checkpoints of a model: the published one, published conversions, and what drafts tokens for it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One repository with the weights of a model."""

    hf_id: str  # empty: the repository of the model itself
    format: str  # slug of a quantization method: bf16, fp8-block, mxfp4 ...
    experts_only: bool | None = None  # only the routed experts have this format; None: as usual for the format
    others: tuple[tuple[str, float], ...] = ()  # (dtype, fraction) of the weights outside routed experts, if different


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftRelease:
    """A published checkpoint that drafts tokens for a model."""

    method: str  # eagle | medusa | draft
    hf_id: str
