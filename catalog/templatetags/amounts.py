"""Amounts of pages in columns that name their currency."""

from django import template

from advisor.engine.terms import amount_digits
from catalog.texts import localized

register = template.Library()


@register.filter
def amount(usd: float) -> str:
    return localized(amount_digits(float(usd)))
