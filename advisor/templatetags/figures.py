"""Formats the figures of options for people, by their unit."""

from collections.abc import Callable
from typing import Any

from advisor.result import ApiOption, Figure, Option, TrainingOption, interval
from advisor.templatetags.finance import chance, low_to_high
from advisor.templatetags.training import run_time, scientific, share, times_beside
from advisor.templatetags.units import (
    UNKNOWN,
    bare,
    basis,
    dollars,
    gib,
    large,
    ms,
    per_second,
    percent,
    plain,
    sig,
    tokens_per_s,
    watts,
    with_unit,
)

Ranked = Option | ApiOption | TrainingOption


SHOWN: dict[str, Callable[[Any], str]] = {
    "": plain,
    "items": lambda value: plain(len(value)),
    "basis": basis,
    "USD": dollars,
    "USD/h": dollars,
    "USD per million tokens": dollars,
    "ms": ms,
    "days": run_time,
    "tokens/s": tokens_per_s,
    "requests/s": per_second,
    "tokens": large,
    "FLOP": scientific,
    "GiB": gib,
    "W": watts,
    "kWh": lambda value: f"{large(value)}\u00a0kWh",
    "fraction": percent,
    "share": share,
    "probability": chance,
}


def shown(figure: Figure, value: Any) -> str:
    """With its unit; a dash where it is not known."""
    if value in (None, ""):
        return UNKNOWN
    unit = figure.unit.replace("CO2e", "CO₂e")
    return SHOWN[unit](value) if unit in SHOWN else with_unit(value, unit)


def alone(figure: Figure, value: Any) -> str:
    """The same in a column whose title has the unit."""
    names = (figure.title or figure.label).lower().replace(",", "").split()
    return sig(value) if figure.unit != "USD" and figure.unit.lower() in names else shown(figure, value)


def ends(figure: Figure, option: Ranked) -> tuple[float, float] | None:
    """Its 90% interval, where the option has one."""
    low, high = interval(option, figure)
    return None if low is None or high is None else (low, high)


def spread(figure: Figure, pair: tuple[float, float] | None) -> str:
    """low–high beside the figure; empty where there is no interval."""
    if pair is None:
        return ""
    if figure.unit == "days":
        return times_beside(pair)
    if figure.unit.startswith("USD"):
        return low_to_high(pair)
    return f"{bare(shown(figure, pair[0]))}–{bare(shown(figure, pair[1]))}"
