"""A complete answer never changes: each web process reads it once, and draws each of its sections once."""

import hashlib
import json
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.core.cache import caches
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

from advisor.later import sections
from advisor.models import Advice
from advisor.result import Answer
from catalog import clock
from catalog.pricing import reader
from catalog.revision import program, revision

ANSWERS = 8  # kept in memory, each about 10 MB

Html = dict[str, str]


def read(advice: Advice) -> Answer:
    """The answer of a finished advice. Reading one takes about 30 ms of CPU time.

    Raises Advice.DoesNotExist if it was deleted, pydantic.ValidationError where another version stored it.
    """
    return _read(advice.pk, advice.finished_at, advice.result_version, tuple(sections.absent(advice)))


@lru_cache(maxsize=ANSWERS)
def _read(pk: Any, finished_at: Any, result_version: int, absent: tuple[str, ...]) -> Answer:
    return Answer.read(Advice.objects.only("result", "result_version").get(pk=pk).answer)


def forget() -> None:
    _read.cache_clear()


def drawn(advice: Advice, about: list[Any], make: Callable[[], Html]) -> dict[str, SafeString]:
    """Named pieces of a page of a finished advice, made once for each state of what they depend on.

    Besides the advice and `about`, that is the catalog, the day (prices age) and the currency. `make` must not
    depend on who reads the page.
    """
    state = [
        str(advice.pk),
        str(advice.finished_at),
        *sections.absent(advice),
        revision(),
        program(),
        str(clock.today()),
        reader.code(),
    ]
    key = hashlib.sha256(json.dumps([*state, *about]).encode()).hexdigest()[:32]
    packed = caches["pages"].get(key)
    if packed is None:
        pieces = make()
        caches["pages"].set(key, zlib.compress(json.dumps(pieces).encode(), 1))
    else:
        pieces = json.loads(zlib.decompress(packed))
    return {name: mark_safe(html) for name, html in pieces.items()}


class Page:
    """What included templates share while a page is drawn without a request: which terms are linked already."""

    terms_used: set[str]

    def __init__(self) -> None:
        self.terms_used = set()


def rendered(request: HttpRequest, templates: dict[str, str], context: dict[str, Any]) -> Html:
    """Each template as HTML, in this order; a glossary term is linked at its first use in all of them.

    Of the context processors, only the one of the reader's currency is asked.
    """
    whole = {**context, **reader.for_templates(request), "request": Page()}
    return {name: render_to_string(template, whole) for name, template in templates.items()}
