"""Rounds engine figures for JSON answers."""

import math


def number(value: float, digits: int = 6) -> float | None:
    """`value` rounded to `digits` significant digits; None if it is not finite."""
    value = float(value)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
