"""Engine figures as the numbers of an answer: six significant digits say all that an estimate knows."""

import math


def number(value: float, digits: int = 6) -> float | None:
    """`value` rounded to `digits` significant digits; None if it is not finite."""
    value = float(value)
    return rounded(value, digits) if math.isfinite(value) else None


def rounded(value: float, digits: int = 6) -> float:
    """A figure that is always known at `digits` significant digits."""
    return float(f"{float(value):.{digits}g}")
