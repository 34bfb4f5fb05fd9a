"""Formats money of plans and probabilities for people."""

from collections.abc import Sequence

from django import template
from django.utils.translation import gettext_noop as known

from advisor.templatetags.units import (
    UNKNOWN,
    converted,
    localized,
    money_text,
    number,
    percent_text,
    span,
    usd,
)

register = template.Library()
PARTS = (  # of a bill, as the engine names them; pages show them with `translated`
    *(known("accelerators"), known("instances"), known("host"), known("network"), known("spares"), known("energy")),
    *(known("electricity"), known("cooling"), known("colocation"), known("staff"), known("minimum team")),
    *(known("maintenance and support"), known("insurance"), known("licences"), known("egress"), known("running")),
    *(known("storage of weights"), known("cloud services"), known("interruptions"), known("cost of capital")),
    *(known("commitment after the horizon"), known("resale"), known("idle hours and headroom")),
    *(known("chips left over in whole instances"), known("spare replicas"), known("spare hosts")),
)


@register.filter
def dollars(value: object) -> str:
    """An amount in USD, in the reader's currency without cents: $604,105; below 100 with cents."""
    figure = converted(value)
    if figure is None:
        return UNKNOWN
    if 0 < abs(figure) < 100:
        return money_text(f"{abs(figure):,.2f}", below_zero=figure < 0)
    return money_text(f"{abs(figure):,.0f}", below_zero=figure <= -0.5)


@register.filter
def cash(value: object) -> str:
    """An amount in USD, in the reader's currency with cents, without a sign before zero."""
    figure = converted(value)
    return UNKNOWN if figure is None else money_text(f"{abs(figure):,.2f}", below_zero=figure < 0)


@register.filter
def unit_price(value: object) -> str:
    """A list price: whole from 1,000, else with the two to four decimals that it has."""
    figure = converted(value)
    if figure is None:
        return UNKNOWN
    if figure >= 1000:
        return money_text(f"{figure:,.0f}", below_zero=False)
    whole, _, decimals = f"{figure:,.4f}".partition(".")
    return money_text(f"{whole}.{decimals[:2]}{decimals[2:].rstrip('0')}", below_zero=False)


@register.filter
def low_to_high(value: object) -> str:
    """The first and the last of some amounts: $12,000–$24,600; empty when there are none."""
    ends = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    return span(usd(ends[0]), usd(ends[-1])) if len(ends) > 1 and None not in ends else ""


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
