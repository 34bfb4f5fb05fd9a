"""API tokens for people (`aat_...`), with a scope and an expiration date, stored as hashes; and permissions.

Worker agents have other tokens (`agt_...`), which are valid for the agent API only.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions, permissions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from advisor.advise import default_organisation
from advisor.api import limits
from advisor.models import ApiToken

Scope = ApiToken.Scope
PREFIX = 12
DAYS, MAX_DAYS = 90, 366
GRACE_S = 3600  # a rotated token still works for this time
USED_EVERY_S = 60


def hashed(token: str) -> str:
    """The SHA-256 hash. A token has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(kind: str) -> str:
    return f"{kind}_{secrets.token_urlsafe(32)}"


def make(name: str, scope: str, days: int = DAYS, made_by: str = "") -> tuple[str, ApiToken]:
    """Creates a token. Returns (the token, to be shown once, and its row). Raises ValueError."""
    if scope not in Scope.values or not 1 <= days <= MAX_DAYS:
        raise ValueError(f"the scope must be one of {', '.join(Scope.values)}, and days from 1 to {MAX_DAYS}")
    token = new_token("aat")
    row = ApiToken.objects.create(
        organisation=default_organisation(),
        name=name,
        scope=scope,
        token_hash=hashed(token),
        token_prefix=token[:PREFIX],
        made_by=made_by,
        expires_at=timezone.now() + timedelta(days=days),
    )
    return token, row


def rotate(row: ApiToken) -> tuple[str, ApiToken]:
    """Creates a successor with the same name, scope and lifetime; the old token expires within an hour."""
    days = max(round((row.expires_at - row.made_at) / timedelta(days=1)), 1)
    token, fresh = make(row.name, row.scope, days, row.made_by)
    ends_at = timezone.now() + timedelta(seconds=GRACE_S)
    ApiToken.objects.filter(pk=row.pk, expires_at__gt=ends_at).update(expires_at=ends_at)
    return token, fresh


def revoke(row: ApiToken) -> bool:
    return bool(ApiToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now()))


def by_token(token: str) -> ApiToken | None:
    rows = ApiToken.objects.filter(token_hash=hashed(token), revoked_at=None, expires_at__gt=timezone.now())
    return rows.first()


def record_use(row: ApiToken) -> None:
    """Records the use, at most once a minute, because reads should not write."""
    now = timezone.now()
    if row.last_used_at is None or (now - row.last_used_at).total_seconds() >= USED_EVERY_S:
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)


# --- authentication and permissions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holder:
    """The caller with a token, in place of a user."""

    token: ApiToken
    is_authenticated = True
    is_anonymous = False
    is_active = True
    pk = None

    @property
    def is_staff(self) -> bool:
        return self.token.scope == Scope.ADMIN

    def get_username(self) -> str:
        return f"token {self.token.name}"


class TokenRefused(exceptions.AuthenticationFailed):
    default_detail = "This token is unknown, revoked or expired. Create a new one with manage.py token make NAME."


class PersonToken(BaseAuthentication):
    """Authorization: Bearer aat_... Without it, the caller is the session's user or a visitor."""

    def authenticate(self, request: Request) -> tuple[Holder, ApiToken] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        row = by_token(token.strip())
        if row is None:
            raise TokenRefused
        limits.of_token(request, row.pk)
        record_use(row)
        return Holder(row), row

    def authenticate_header(self, request: Request) -> str:
        """The WWW-Authenticate header, without which the framework would respond 403 instead of 401."""
        return 'Bearer realm="assay"'


class PersonTokenScheme(OpenApiAuthenticationExtension):
    target_class = PersonToken
    name = "personToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        description = "`manage.py token make NAME --scope read|submit|prices|admin`: aat_..."
        return {"type": "http", "scheme": "bearer", "description": description}


class Allowed(permissions.BasePermission):
    """Whether the caller may read or change: by token, by session, or as a visitor of an open installation."""

    message = ""

    def has_permission(self, request: Request, view: Any) -> bool:
        caller, reads = request.user, request.method in permissions.SAFE_METHODS
        if isinstance(caller, Holder):
            needed = getattr(view, "token_scopes", None)  # of a view with other rules than requesting advice
            named = f" It needs the scope {' or '.join(needed)}." if needed else ""
            self.message = f"This token's scope is {caller.token.scope}, which does not allow this call.{named}"
            return reads or caller.token.scope in (needed or (Scope.SUBMIT, Scope.ADMIN))
        if not (settings.OPEN or caller.is_authenticated):
            return False
        if not (reads or same_site(request)):  # 403, because credentials would not help
            raise exceptions.PermissionDenied("Refused: this request came from a page of another site.")
        return True


def same_site(request: Request) -> bool:
    """Whether the browser's headers say that the request comes from this site, or from no page.

    Visitors have no CSRF cookie. Without this check, any web page could make a visitor's browser send a form to an API
    URL that needs no body.
    """
    origin = request.headers.get("Origin")
    if origin and origin not in settings.CSRF_TRUSTED_ORIGINS and urlsplit(origin).netloc != request.get_host():
        return False
    return request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
