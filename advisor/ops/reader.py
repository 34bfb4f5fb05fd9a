"""The language and the currency of pages, as their reader chose them. Everything else is in English and USD."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from django.views.i18n import set_language

from catalog.accounts import for_any_account
from catalog.pricing import finding, reader

ALWAYS_ENGLISH = ("/api/", "/admin/", "/docs/", "/static/", "/healthz", "/readyz")
# The pages, by the name of their URL, of which everything that a reader sees is translated; forms that lead to them;
# and the live estimate, which is a part of the first. All other pages are in English as a whole.
TRANSLATED = frozenset(
    (
        "ask", "quick-estimate",
        "login", "password-reset", "password-reset-sent", "password-reset-confirm", "password-reset-done", "join",
        "account", "account-organization",
        "members", "member-role", "member-remove", "invitation-revoke",
    )
)  # fmt: skip

Respond = Callable[[HttpRequest], HttpResponse]


class ShowToReader:
    """Middleware, in place of Django's LocaleMiddleware, which has one language for all pages."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response
        self.plain = reader.in_english(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(ALWAYS_ENGLISH):
            return self.plain(request)
        with translation.override(reader.ENGLISH), reader.using(reader.chosen_by(request)):
            response = self.get_response(request)
            response.headers.setdefault("Content-Language", translation.get_language() or reader.ENGLISH)
        patch_vary_headers(response, ("Accept-Language", "Cookie"))
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        """Chooses the language of a translated page; `__call__` ends it."""
        match = request.resolver_match
        if match is not None and match.view_name in TRANSLATED:
            translation.activate(reader.language_for(request))


# A token would give every page a cookie of its own, so that none could be kept. Another site could change the language.
@csrf_exempt
@login_not_required
@for_any_account
@require_POST
def choose(request: HttpRequest) -> HttpResponse:
    """Remembers the language and the currency in cookies, and goes back to the page."""
    response: HttpResponse = set_language(request)
    currency = request.POST.get(reader.NAME, "").strip().upper()
    if currency in {finding.USD, *finding.newest_rates()}:
        response.set_cookie(
            reader.NAME,
            currency,
            max_age=settings.LANGUAGE_COOKIE_AGE,
            secure=settings.LANGUAGE_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
    return response
