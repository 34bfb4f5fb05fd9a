"""Why an accelerator or a plan is not recommended."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """Why an accelerator (or a plan) is not recommended: its value, the limit, and the smallest change that helps."""

    accelerator: str
    reason: str  # does_not_fit | misses_slo | unsupported | unpriced | excluded | too_expensive | too_many
    detail: str
    limit: float | None = None
    reached: float | None = None
    smallest_change: str = ""
