"""API tokens for people (`aat_...`), with a scope and an expiration date, stored as hashes; and permissions.

Worker agents have other tokens (`agt_...`), which are valid for the agent API only.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions, permissions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from advisor.api import limits
from advisor.models import ApiToken
from catalog import clock
from catalog.accounts import Right, audit, caller_of, hashed, new_token, rights_behind, why_not
from catalog.models import Organisation, ServiceAccount, default_organisation

Scope = ApiToken.Scope
PREFIX = 12
GRACE_S = 3600  # a rotated token still works for this time
USED_EVERY_S = 60


def make(
    name: str,
    scope: str,
    days: int | None = None,
    made_by: str = "",
    organisation: Organisation | None = None,
    holder: User | ServiceAccount | None = None,
) -> tuple[str, ApiToken]:
    """Creates a token of an organization (default: the default one).

    `holder`: whose role bounds its rights; None: the organization's own, with the rights of the scope.
    Returns (the token, to be shown once, and its row). Raises ValueError.
    """
    days = settings.TOKEN_DAYS if days is None else days
    if scope not in Scope.values or not 1 <= days <= settings.TOKEN_MAX_DAYS:
        allowed = f"{', '.join(Scope.values)}, and days from 1 to {settings.TOKEN_MAX_DAYS}"
        raise ValueError(f"the scope must be one of {allowed}")
    token, owner = new_token("aat"), organisation or default_organisation()
    with transaction.atomic():
        row = ApiToken.objects.create(
            organisation=owner,
            name=name,
            scope=scope,
            token_hash=hashed(token),
            token_prefix=token[:PREFIX],
            user=holder if isinstance(holder, User) else None,
            service_account=holder if isinstance(holder, ServiceAccount) else None,
            made_by=made_by[:150],
            expires_at=clock.read() + timedelta(days=days),
            before_accounts=not User.objects.exists(),
        )
        whose = f" for {holder}" if holder else ""
        audit.record(owner, made_by, audit.Action.TOKEN, named(row), f"scope {scope}, {days} days{whose}")
    return token, row


def named(row: ApiToken) -> str:
    return f"{row.name} ({row.token_prefix}…)"


@transaction.atomic
def rotate(row: ApiToken) -> tuple[str, ApiToken]:
    """Creates a successor with the same name, scope, holder and lifetime; the old token expires within an hour."""
    days = max(round((row.expires_at - row.made_at) / timedelta(days=1)), 1)
    days = min(days, settings.TOKEN_MAX_DAYS)
    token, fresh = make(row.name, row.scope, days, row.made_by, row.organisation, row.user or row.service_account)
    ends_at = clock.read() + timedelta(seconds=GRACE_S)
    ApiToken.objects.filter(pk=row.pk, expires_at__gt=ends_at).update(expires_at=ends_at)
    return token, fresh


@transaction.atomic
def revoke(row: ApiToken, by: str = "") -> bool:
    """Ends a token now. False if it was revoked before."""
    done = bool(ApiToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=clock.now()))
    if done:
        audit.record(row.organisation, by, audit.Action.TOKEN_REVOKED, named(row))
    return done


def revoke_made_by(organisation: Organisation, name: str) -> int:
    """Ends the valid tokens that a user made for an organization; how many."""
    rows = ApiToken.objects.filter(organisation=organisation, made_by=name, revoked_at=None)
    return rows.filter(expires_at__gt=clock.now()).update(revoked_at=clock.now())


def by_token(token: str) -> ApiToken | None:
    """The valid token; also one from before the first account, which `is_outdated` tells."""
    rows = ApiToken.objects.filter(token_hash=hashed(token), revoked_at=None, expires_at__gt=clock.now())
    return rows.select_related("organisation", "user", "service_account").first()


def has_holder(row: ApiToken) -> bool:
    """Whether its holder still has rights: an active member, or a service account that is not disabled."""
    if row.service_account is not None:
        return row.service_account.disabled_at is None
    return row.user is None or bool(rights_behind(row))


def record_use(row: ApiToken) -> None:
    """Records the use, at most once a minute, because reads should not write."""
    now = timezone.now()  # of each host: only shown
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

    is_staff = False

    def get_username(self) -> str:
        """Who asks, in the audit log and the queue: a person's tokens count as the person."""
        if self.token.service_account is not None:
            return f"service {self.token.service_account.name}"
        return self.token.user.get_username() if self.token.user else f"token {self.token.name}"


class TokenRefused(exceptions.AuthenticationFailed):
    default_detail = "This token is unknown, revoked or expired. Create a new one with manage.py token make NAME."


class HolderGone(exceptions.AuthenticationFailed):
    default_detail = (
        "The holder of this token is no longer a member, or the service account is disabled. Ask an admin of the "
        "organization."
    )


class TokenOutdated(exceptions.AuthenticationFailed):
    default_detail = (
        "This token was created before this installation had accounts and stopped working when the first account was "
        "created. Sign in as an admin and create a new one at /tokens, or with manage.py token make NAME."
    )


class PersonToken(BaseAuthentication):
    """Authorization: Bearer aat_... Without it, the caller is the session's user or a visitor."""

    def authenticate(self, request: Request) -> tuple[Holder, ApiToken] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        row = by_token(token.strip())
        if row is None:
            raise TokenRefused
        if row.is_outdated:
            raise TokenOutdated
        if not has_holder(row):
            raise HolderGone
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
    """Whether the caller has the right that a call needs: `rights` of the view, by method.

    By default, reading needs Right.READ and everything else Right.PLAN. GET stands for all methods that read.
    """

    message = ""

    def has_permission(self, request: Request, view: Any) -> bool:
        reads = request.method in permissions.SAFE_METHODS
        rights = getattr(view, "rights", {})
        right = rights.get("GET", Right.READ) if reads else rights.get(request.method, Right.PLAN)
        caller, holder = caller_of(request), request.user
        if isinstance(holder, Holder):
            self.message = why_not(caller, right)
        elif not (settings.OPEN or holder.is_authenticated):
            return False
        elif not (reads or same_site(request)):  # 403, because credentials would not help
            raise exceptions.PermissionDenied("Refused: this request came from a page of another site.")
        elif not caller.may(right):
            self.message = why_not(caller, right)
        return caller.may(right)


def same_site(request: Request) -> bool:
    """Whether the browser's headers say that the request comes from this site, or from no page.

    Visitors have no CSRF cookie. Without this check, any web page could make a visitor's browser send a form to an API
    URL that needs no body.
    """
    origin = request.headers.get("Origin")
    if origin and origin not in settings.CSRF_TRUSTED_ORIGINS and urlsplit(origin).netloc != request.get_host():
        return False
    return request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
