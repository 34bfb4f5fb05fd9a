"""What templates ask of a workload's kind."""

from django import template

from advisor.engine.terms import kind_named

register = template.Library()


@register.filter
def generates_tokens(kind: object) -> bool:
    """Of the kind's name in a workload file; false for embeddings."""
    return kind_named(kind).generates_tokens
