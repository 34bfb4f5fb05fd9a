"""Formats money of plans and probabilities for people."""

from collections.abc import Sequence

from django import template

from advisor.engine.terms import exact_digits
from advisor.templatetags.units import (
    UNKNOWN,
    dollars,
    localized,
    money_text,
    number,
    percent_text,
    span,
)

register = template.Library()


@register.filter
def unit_price(value: object) -> str:
    """A list price."""
    return money_text(value, exact_digits)


@register.filter
def low_to_high(value: object) -> str:
    """The first and the last of some amounts: $12,000–$24,600; empty when there are none."""
    ends = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    return span(dollars(ends[0]), dollars(ends[-1])) if len(ends) > 1 and None not in ends else ""


@register.filter
def chance(value: object) -> str:
    """A probability as whole percent: 71%; "< 1%" and "> 99%" near the ends."""
    figure = number(value)
    if figure is None:
        return UNKNOWN
    if 0 < figure < 0.005:
        return f"<\u00a0{percent_text('1')}"
    return f">\u00a0{percent_text('99')}" if 0.995 <= figure < 1 else percent_text(f"{figure * 100 + 0.0:.0f}")


@register.filter
def rate(value: object) -> str:
    """A rate as percent with the digits that it has, at most one decimal: 8%, 7.5%."""
    figure = number(value)
    return UNKNOWN if figure is None else percent_text(localized(f"{round(figure * 100, 1) + 0.0:,.10g}"))
