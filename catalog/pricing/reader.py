"""The currency in which a reader sees amounts. Stored amounts, documents and the REST API stay in USD."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from functools import wraps
from typing import Any, TypeVar, cast

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation
from django.utils.functional import SimpleLazyObject

from catalog.loading.fixtures import USD
from catalog.pricing import finding
from catalog.revision import CURRENCY as NAME  # of the cookie and of the parameter

ENGLISH = "en"
View = TypeVar("View")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """What one US dollar costs in the reader's currency on one day."""

    code: str
    per_usd: float
    as_of: date
    source: str


READERS: ContextVar[Rate | None] = ContextVar("readers_rate", default=None)


def rate() -> Rate | None:
    """The exchange rate of this page; None: amounts are in USD."""
    return READERS.get()


def code() -> str:
    """The currency of this page."""
    chosen = READERS.get()
    return chosen.code if chosen else USD


@contextmanager
def using(chosen: Rate | None) -> Iterator[None]:
    token = READERS.set(chosen)
    try:
        yield
    finally:
        READERS.reset(token)


def in_usd(draw: View) -> View:
    """A function whose amounts are always in USD: charts, whose data are."""

    @wraps(cast(Any, draw))
    def drawn(*args: Any, **kwargs: Any) -> Any:
        with using(None):
            return cast(Any, draw)(*args, **kwargs)

    return cast(View, drawn)


def in_english(view: View) -> View:
    """A view whose text is the same for every reader: English, with plain numbers and USD."""

    @wraps(cast(Any, view))
    def respond(*args: Any, **kwargs: Any) -> Any:
        with translation.override(ENGLISH), using(None):
            return cast(Any, view)(*args, **kwargs)

    return cast(View, respond)


def language_for(request: HttpRequest) -> str:
    """The language that a reader chose: ?language= for this page, else the cookie, else the browser's."""
    asked = request.GET.get("language", "")
    return asked if asked in dict(settings.LANGUAGES) else translation.get_language_from_request(request)


def chosen_by(request: HttpRequest) -> Rate | None:
    """The newest rate of the currency that a request names: ?currency= for this page, else the cookie."""
    asked = (request.GET.get(NAME) or request.COOKIES.get(NAME) or USD).strip().upper()
    found = None if asked == USD else finding.newest_rates().get(asked)
    if found is None:
        return None
    return Rate(code=found.currency, per_usd=float(found.per_usd), as_of=found.as_of, source=found.source)


def for_templates(request: HttpRequest) -> dict[str, Any]:
    """Context processor: the chosen language, the currency of amounts, its rate, and those that can be chosen."""
    choices = SimpleLazyObject(lambda: sorted({USD, *finding.newest_rates()}))
    return {
        "chosen_language": language_for(request),
        "money_in": code(),
        "money_rate": rate(),
        "money_choices": choices,
    }
