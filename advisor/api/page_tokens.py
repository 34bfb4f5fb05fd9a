"""API tokens on pages: exports and other pages that read take a bearer token; programs never get a sign-in form.

Without credentials, browsers are redirected to the sign-in page; other clients get 401 and a problem document.
"""

import re
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from rest_framework import exceptions
from rest_framework.request import Request

from advisor.api import limits
from advisor.api.limits import has_bearer
from advisor.api.problems import MISSING_CREDENTIALS

DATA_FILE = re.compile(r"\.(csv|json|yaml|md|xlsx|html)$")
DATA_FORMATS = ("csv", "json")  # of ?format=, in lists
READING = ("GET", "HEAD", "OPTIONS")
READS_ONLY = (
    "A token can read pages and files. To change something with a token, use the REST API, which /api/docs/ describes."
)
SESSION_ONLY = "This page works only in a browser in which somebody has signed in; a token does not open it."
Respond = Callable[[HttpRequest], HttpResponse]


class AcceptTokens:
    """Middleware, after AuthenticationMiddleware: the holder of a valid token reads pages as its organization's caller.

    REST views authenticate tokens themselves; pages that need no account ignore them.
    """

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if has_bearer(request) and request.method not in READING and not request.path.startswith("/api/"):
            return refusal(403, READS_ONLY)
        response = self.get_response(request)
        if is_sign_in(response) and is_program(request):
            return refusal(403, SESSION_ONLY) if has_bearer(request) else unauthorized(MISSING_CREDENTIALS)
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """A problem document, or None: then the holder of the token, if there is one, is the request's user."""
        if not has_bearer(request) or not getattr(view, "login_required", True):
            return None
        from advisor.api.tokens import PersonToken  # here, because middleware is created before the apps are ready

        try:
            found = PersonToken().authenticate(Request(request))
        except exceptions.AuthenticationFailed as error:
            return unauthorized(str(error.detail))
        except limits.Exceeded as error:
            return limits.refusal(error)
        if found is not None:
            request.user = found[0]  # type: ignore[assignment]
        return None


def is_program(request: HttpRequest) -> bool:
    """Whether a problem document suits the client: it sends a token, or asks for data rather than for a page."""
    if has_bearer(request):
        return True
    accepted = request.headers.get("Accept", "")
    if "text/html" in accepted or request.headers.get("HX-Request"):
        return False
    asks_for_data = bool(DATA_FILE.search(request.path)) or request.GET.get("format") in DATA_FORMATS
    return asks_for_data or bool(accepted and "*/*" not in accepted)


def is_sign_in(response: HttpResponse) -> bool:
    to = response.get("Location", "").partition("?")[0]
    return response.status_code == 302 and to in (resolve_url(settings.LOGIN_URL), "/admin/login/")


def unauthorized(detail: str) -> HttpResponse:
    return refusal(401, detail, headers={"WWW-Authenticate": 'Bearer realm="assay"'})


def refusal(status: int, detail: str, headers: dict[str, str] | None = None) -> HttpResponse:
    from catalog.rest import refusal  # here, because middleware is created before the apps are ready

    return refusal(status, detail, headers=headers)
