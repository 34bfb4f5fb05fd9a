"""Engine figures as the numbers of a JSON answer."""

import math


def number(value: float, digits: int = 6) -> float | None:
    """A finite float at `digits` significant digits; unknown figures are null."""
    value = float(value)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
