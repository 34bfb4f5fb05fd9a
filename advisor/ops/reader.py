"""The language and the currency of pages, as their reader chose them. Everything else is in English and USD."""

from collections.abc import Callable

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

Respond = Callable[[HttpRequest], HttpResponse]


def show_to_reader(get_response: Respond) -> Respond:
    """Middleware, in place of Django's LocaleMiddleware, which leaves its language to the thread's next request."""
    plain = reader.in_english(get_response)

    def respond(request: HttpRequest) -> HttpResponse:
        if request.path.startswith(ALWAYS_ENGLISH):
            return plain(request)
        language = translation.get_language_from_request(request)
        with translation.override(language), reader.using(reader.chosen_by(request)):
            request.LANGUAGE_CODE = language
            response = get_response(request)
        patch_vary_headers(response, ("Accept-Language", "Cookie"))
        response.headers.setdefault("Content-Language", language)
        return response

    return respond


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
