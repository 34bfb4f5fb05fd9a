"""{% term "TTFT" %} links a technical term to the glossary at its first use on a page."""

import re
from functools import lru_cache
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language

from advisor.templatetags import glossary
from catalog.pricing.reader import ENGLISH

register = template.Library()


@register.simple_tag(takes_context=True)
def term(context: template.Context, name: str, text: str = "") -> SafeString:
    """`text` (default: `name`), as a link to the glossary at its first use on the page."""
    entry, shown = glossary.terms().get(name.lower()), text or name
    used = _used(context)
    if entry is None or entry.name in used:
        return conditional_escape(shown)
    used.add(entry.name)
    return _link(entry, shown)


@register.simple_tag(takes_context=True)
def with_terms(context: template.Context, text: str) -> SafeString:
    """A sentence with its glossary terms linked at their first use on the page; a translated one as it is.

    Only terms that are not everyday words are linked: those with several words or capitals (KV cache, TTFT).
    """
    entries, used = glossary.terms(), _used(context)
    names = tuple(e.name for e in entries.values() if " " in e.name or e.name[1:] != e.name[1:].lower())
    escaped = str(conditional_escape(text))
    in_english = get_language() == ENGLISH  # as the glossary is
    if not names or not in_english or "<" in escaped:  # contains markup, and a term inside a tag must not change
        return mark_safe(escaped)

    def linked(match: re.Match[str]) -> str:
        entry = entries[match[0].lower()]
        if entry.name in used:
            return match[0]
        used.add(entry.name)
        return _link(entry, match[0])

    return mark_safe(_any_of(names).sub(linked, escaped))


@lru_cache(maxsize=4)
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Any of these names as a word by itself; the longest first."""
    longest_first = sorted(set(names), key=lambda name: (-len(name), name))
    pattern = r"(?<![\w-])(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w-])"
    return re.compile(pattern, flags=re.IGNORECASE)


def _link(entry: glossary.Term, shown: str) -> SafeString:
    address = f"{reverse('documentation', args=['glossary/'])}#{entry.anchor}"
    return format_html('<a class="term" href="{}" title="{}">{}</a>', address, entry.definition, shown)


def _used(context: template.Context) -> set[str]:
    """The terms linked so far on this page, kept in the request, which included templates share."""
    request: Any = context.get("request")
    used: set[str] = getattr(request, "terms_used", set())
    if request is not None:
        request.terms_used = used
    return used
