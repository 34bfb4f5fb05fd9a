"""The checkpoint that a launch command serves: the published one, a published conversion, or one to make first."""

from dataclasses import dataclass

from advisor.engine.kernels import HALF
from advisor.engine.network import Model
from advisor.engine.step import (
    is_published,
    published_conversion,
)
from advisor.engine.terms import LaunchFacts, Quantization

PUBLISHED, CONVERSION, ON_LOAD, CAST, TO_MAKE = "published", "conversion", "on_load", "cast", "to_make"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedCheckpoint:
    """One checkpoint. `repository` is a Hugging Face ID, or a placeholder in < > for a checkpoint to make or find."""

    repository: str
    origin: str  # published | conversion | on_load | cast | to_make
    step: str  # what it is and what has to be done first, as one sentence

    @property
    def made_on_load(self) -> bool:
        """Whether the framework quantizes it while loading."""
        return self.origin == ON_LOAD

    @property
    def to_make(self) -> bool:
        """Whether a person has to make or find it."""
        return self.origin == TO_MAKE


def served_checkpoint(
    name: str, model: Model, quantization: Quantization, facts: LaunchFacts | None
) -> ServedCheckpoint:
    """The checkpoint of the model `name` in this format, for a framework with these launch facts (None: unknown)."""
    q = quantization
    published, conversion = is_published(model, q), published_conversion(model, q)
    if facts is not None and facts.checkpoint_file:
        source = conversion.hf_id if conversion and not published else name
        file = f"{facts.checkpoint_file} of {name} in {q.name}"
        return ServedCheckpoint(
            repository=f"<{file}>",
            origin=TO_MAKE,
            step=f"convert {source} to a {facts.checkpoint_file} in {q.name} first",
        )
    if published:
        repository = (model.published.hf_id if model.published else "") or name
        return ServedCheckpoint(repository=repository, origin=PUBLISHED, step=f"{repository} as published, in {q.name}")
    if conversion is not None:
        step = f"{conversion.hf_id}, a published conversion of {name} to {q.name}"
        return ServedCheckpoint(repository=conversion.hf_id, origin=CONVERSION, step=step)
    if facts is not None and q.slug in facts.formats_on_load:
        return ServedCheckpoint(
            repository=name, origin=ON_LOAD, step=f"{name}, converted to {q.name} each time the server loads it"
        )
    if q.weights_dtype in HALF:
        return ServedCheckpoint(repository=name, origin=CAST, step=f"{name}, cast to {q.name} while loading")
    return ServedCheckpoint(
        repository=f"<checkpoint of {name} in {q.name}>",
        origin=TO_MAKE,
        step=f"convert {name} to {q.name} first; the catalog knows no published checkpoint in this format",
    )
