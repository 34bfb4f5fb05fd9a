"""Amounts in words: how a dollar is written, and pairs of figures that read differently.

Every amount that people read is written here; the filters of pages add the reader's currency. `amount_digits` is the
rule: whole from 100 up, cents from 1 up, below 1 three significant digits and at least cents; never 0 for what is not
zero. Two others have a reason to differ: `cents_digits`, for bills whose lines add up, and `exact_digits`, for list
prices. `tick_text` labels the axis of a chart.
"""

import math
from collections.abc import Callable
from typing import SupportsFloat

from advisor.engine.terms.workloads.workload import Workload

HOURS_PER_MONTH = 730.0
MORE_DIGITS = 8
WHOLE_FROM = 99.995  # what rounds to 100.00 is written as 100
CENTS_TO = 1000.0  # list prices from here up show cents only if they have any
TICKS = ((1e6, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))


def amount_digits(amount: SupportsFloat, more: int = 0) -> str:
    """An amount without its currency: 1,234, 12.35, 0.0453; with `more` further decimals."""
    size = abs(float(amount))
    if not size:
        return "0"
    if size >= WHOLE_FROM:
        return _signed(amount, f"{size:,.{more}f}")
    decimals = 2 if size >= 1 else max(2, 2 - _decade(float(f"{size:.2e}")))
    return _signed(amount, _at_least_cents(f"{size:.{decimals + more}f}", 2 + more))


def cents_digits(amount: SupportsFloat) -> str:
    """An amount to the cent: 1,234.00; below one cent as above."""
    size = abs(float(amount))
    return amount_digits(amount) if 0 < size < 0.01 else _signed(amount, f"{size:,.2f}")


def exact_digits(amount: SupportsFloat) -> str:
    """A list price: all decimals up to four (below 1, five digits); cents at least, except 0 cents from 1,000 up."""
    size = abs(float(amount))
    if not size:
        return "0"
    decimals = 2 if size >= CENTS_TO else 4 if size >= 1 else 4 - _decade(size)
    text = _at_least_cents(f"{size:,.{decimals}f}", 2)
    return _signed(amount, text.removesuffix(".00") if size >= CENTS_TO else text)


def _decade(size: float) -> int:
    return math.floor(math.log10(size))


def _at_least_cents(text: str, least: int) -> str:
    """Without zeros at the end, except for the first `least` decimals."""
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals[:least]}{decimals[least:].rstrip('0')}"


def _signed(amount: SupportsFloat, digits: str) -> str:
    return f"-{digits}" if float(amount) < 0 else digits


def usd_text(usd: SupportsFloat, more: int = 0) -> str:
    """$1,234, $12.35, $0.0453, -$1.90; "an unknown price" if it is not finite."""
    return _in_usd(usd, lambda size: amount_digits(size, more))


def exact_text(usd: SupportsFloat) -> str:
    """A list price: $32,500, $98.32, $0.0453."""
    return _in_usd(usd, exact_digits)


def _in_usd(usd: SupportsFloat, digits: Callable[[float], str]) -> str:
    size = abs(float(usd))
    return _signed(usd, f"${digits(size)}") if math.isfinite(size) else "an unknown price"


def tick_text(usd: float) -> str:
    """A label of an axis: $0.5, $70, $150k, $2M."""
    unit, letter = next((unit, letter) for least, unit, letter in TICKS if usd >= least)
    text = f"{float(f'{usd / unit:.3g}'):,.9f}"
    return f"${text.rstrip('0').rstrip('.')}{letter}"


def unlike(written: Callable[[int], tuple[str, str]]) -> tuple[str, str]:
    """Two figures with as many more digits (the argument) as tell them apart; equal figures stay as they are."""
    pairs = (written(more) for more in range(MORE_DIGITS))
    return next((pair for pair in pairs if pair[0] != pair[1]), written(0))


def cost_text(workload: Workload, usd_per_hour: float) -> str:
    """The cost of a run for workloads that run and end, else of a month."""
    if workload.kind.has_deadline and workload.deadline_s is not None:
        every_s = workload.deadline_s * workload.requests_per_s_peak / workload.requests_per_s_mean
        return f"{usd_text(usd_per_hour * every_s / 3600.0)} a run"
    return f"{usd_text(usd_per_hour * HOURS_PER_MONTH)} a month"
