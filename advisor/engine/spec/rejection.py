"""Why a chip or a plan is not among the answers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """Why a chip (or plan) is not among the answers: number against limit, and what would change it."""

    accelerator: str
    reason: str  # does_not_fit | misses_slo | unsupported | unpriced | excluded | too_expensive | too_many
    detail: str
    limit: float | None = None
    reached: float | None = None
    smallest_change: str = ""
