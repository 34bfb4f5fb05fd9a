"""Sign-in at an OpenID Connect provider, by mozilla-django-oidc: authorization code with PKCE, state and nonce.

Added to the library: discovery of the provider's addresses, the checks of issuer, audience and lifetime of an ID token,
accounts by issuer and subject, and a page that says why somebody cannot sign in.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt
import requests
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.utils import import_from_settings
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView
from structlog import get_logger

from advisor.accounts import emails, records
from advisor.api import tokens
from catalog.accounts import audit, identities, organizations

log = get_logger("assay.accounts")
LEEWAY_S = 60  # clocks of the provider and of this server differ
DISCOVERED_S = 600
NOT_STARTED = "This sign-in was not started here."
ENDPOINTS = {  # names of the library's settings, and of the provider's document
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
}
Json = dict[str, Any]


# --- the provider -----------------------------------------------------------------------------------------------


def provider() -> Json:
    """The provider's own description (OpenID Connect Discovery), read every DISCOVERED_S at most.

    Raises requests.RequestException: it cannot be read. SuspiciousOperation: it describes another issuer.
    """
    cache, key = caches["pages"], f"oidc.{settings.OIDC_ISSUER}"
    if (kept := cache.get(key)) is not None:
        return dict(kept)
    address = f"{settings.OIDC_ISSUER.rstrip('/')}/.well-known/openid-configuration"
    response = requests.get(address, timeout=settings.OIDC_TIMEOUT)
    response.raise_for_status()
    found: Json = response.json()
    if str(found.get("issuer", "")).rstrip("/") != settings.OIDC_ISSUER.rstrip("/"):
        raise SuspiciousOperation(f"the provider describes the issuer {found.get('issuer')!r}")
    scheme = urlsplit(settings.OIDC_ISSUER).scheme
    if wrong := [
        name for name in ENDPOINTS.values() if urlsplit(found.get(name) or "https:").scheme not in {"https", scheme}
    ]:
        raise SuspiciousOperation(f"the provider's {wrong[0]} is not an https:// URL")
    cache.set(key, found, DISCOVERED_S)
    return found


def setting(name: str, *default: Any) -> Any:
    """A setting of the library; addresses are the provider's."""
    return provider().get(ENDPOINTS[name]) if name in ENDPOINTS else import_from_settings(name, *default)


def sign_out_address() -> str:
    """Where to sign out at the provider, too; empty: it has no such page, or does not answer."""
    try:
        address = provider().get("end_session_endpoint")
    except (requests.RequestException, SuspiciousOperation):
        return ""
    back = {"client_id": settings.OIDC_RP_CLIENT_ID, "post_logout_redirect_uri": emails.link("/login")}
    return f"{address}?{urlencode(back)}" if address else ""


# --- from a code to an account ----------------------------------------------------------------------------------


class Backend(OIDCAuthenticationBackend):
    """Exchanges the code, verifies the ID token and finds the account. Every failure raises; none is silent."""

    get_settings = staticmethod(setting)
    OIDC_OP_TOKEN_ENDPOINT = property(lambda self: setting("OIDC_OP_TOKEN_ENDPOINT"))
    OIDC_OP_USER_ENDPOINT = property(lambda self: setting("OIDC_OP_USER_ENDPOINT"))
    OIDC_OP_JWKS_ENDPOINT = property(lambda self: setting("OIDC_OP_JWKS_ENDPOINT"))

    def __init__(self) -> None:
        # Not the library's, which asks for all addresses: Django makes a backend for every request.
        self.UserModel = get_user_model()
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO = settings.OIDC_RP_SIGN_ALGO
        self.OIDC_RP_IDP_SIGN_KEY = None

    def authenticate(self, request: Any, nonce: str, code_verifier: str | None = None) -> Any:
        # These parameters only, so that Django does not call it with a name and a password.
        return super().authenticate(request, nonce=nonce, code_verifier=code_verifier)

    def verify_token(self, token: str, **kwargs: Any) -> Json:
        """The claims of an ID token with a valid signature, audience, issuer, lifetime and nonce. Raises PyJWTError."""
        claims: Json = jwt.decode(
            token,
            self.retrieve_matching_jwk(token),
            algorithms=[settings.OIDC_RP_SIGN_ALGO],
            audience=settings.OIDC_RP_CLIENT_ID,
            issuer=provider()["issuer"],
            leeway=LEEWAY_S,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
        if not kwargs.get("nonce") or claims.get("nonce") != kwargs["nonce"]:
            raise jwt.InvalidTokenError("the nonce does not match")
        if claims.get("azp", settings.OIDC_RP_CLIENT_ID) != settings.OIDC_RP_CLIENT_ID:
            raise jwt.InvalidTokenError("the token was issued to another client")
        return claims

    def get_or_create_user(self, access_token: str, id_token: str, payload: Json) -> User:
        claims = payload
        if self.OIDC_OP_USER_ENDPOINT:
            more = self.get_userinfo(access_token, id_token, payload)
            if more.get("sub") != payload["sub"]:
                raise jwt.InvalidTokenError("the user information is about another subject")
            claims = more | payload
        return identities.signed_in(
            person_of(claims), settings.OIDC_GROUPS, settings.OIDC_GROUPS_CLAIM, tokens.revoke_made_by
        )


def person_of(claims: Json) -> identities.Person:
    email = str(claims.get("email") or "")
    is_verified = claims.get("email_verified", settings.OIDC_TRUST_EMAIL) in (True, "true")
    return identities.Person(
        issuer=claims["iss"],
        subject=str(claims["sub"]),
        email=email if is_verified and "@" in email and len(email) <= 150 else "",
        name=str(claims.get("name") or ""),
        groups=groups_of(claims, settings.OIDC_GROUPS_CLAIM),
    )


def groups_of(claims: Json, claim: str) -> tuple[str, ...] | None:
    """The groups in a claim, also one inside others (`realm_access.roles`). None: there is no such claim."""
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, str):
        return (found,)
    return tuple(str(each) for each in found) if isinstance(found, list) else None


# --- pages ------------------------------------------------------------------------------------------------------


class Begin(OIDCAuthenticationRequestView):
    get_settings = staticmethod(setting)


class Callback(OIDCAuthenticationCallbackView):
    get_settings = staticmethod(setting)

    def login_success(self) -> HttpResponse:
        with transaction.atomic():
            response = super().login_success()
            self.request.session.set_expiry(int(settings.OIDC_SESSION_HOURS * 3600))
            records.of_user(self.user, audit.Action.SIGN_IN, settings.OIDC_NAME)
        return response

    def get(self, request: HttpRequest) -> HttpResponse:
        """The library's, but an error without a sign-in that began here signs nobody out and shows no foreign text."""
        if request.GET.get("error") and request.GET.get("state") not in request.session.get("oidc_states", {}):
            return trouble(request, 403, NOT_STARTED)
        response: HttpResponse = super().get(request)
        return response

    def login_failure(self) -> HttpResponse:
        stated = self.request.GET.get("error_description") or self.request.GET.get("error") or ""
        text = f"The provider refused the sign-in: {stated[:300]}" if stated else NOT_STARTED
        return trouble(self.request, 403, text)


@login_not_required
@never_cache
def begin(request: HttpRequest) -> HttpResponse:
    return guarded(request, Begin.as_view())


@login_not_required
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    return guarded(request, Callback.as_view())


def guarded(request: HttpRequest, view: Callable[[HttpRequest], HttpResponse]) -> HttpResponse:
    """The view's response, or a page that says why the sign-in failed and what to do."""
    if not settings.OIDC_ISSUER:
        raise Http404("Single sign-on is off on this server. Set ASSAY_OIDC_ISSUER.")
    try:
        return view(request)
    except organizations.Refused as error:
        return trouble(request, 403, str(error))
    except requests.HTTPError as error:
        status = error.response.status_code if error.response is not None else "unknown"
        log.warning("sign-in refused by the provider", error=str(status))
        return trouble(request, 502, f"The provider answered with the status {status}.")
    except requests.RequestException as error:
        log.warning("provider of sign-in away", error=type(error).__name__)
        return trouble(request, 503, "The identity provider does not respond. Try again in a few minutes.")
    except (jwt.PyJWTError, SuspiciousOperation, KeyError, TypeError, ValueError) as error:
        log.warning("sign-in invalid", error=f"{type(error).__name__}: {error}")
        return trouble(request, 400, "The provider's answer is not valid, or this sign-in is too old. Start again.")


def trouble(request: HttpRequest, status: int, text: str) -> HttpResponse:
    return render(request, "accounts/sign_in_refused.html", {"text": text}, status=status)
