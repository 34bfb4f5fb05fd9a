"""Sign-in by a link that `manage.py sign_in_link` prints, for staff when the provider of sign-in does not work.

The link works once, for ten minutes: it is signed with the time of the last sign-in, which it changes.
"""

from typing import Any

from django.contrib.auth import authenticate, login
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.crypto import salted_hmac
from django.views.decorators.cache import never_cache

from advisor.accounts import records
from catalog.accounts import audit

SALT = "assay.sign-in-link"
MINUTES = 10


def token_of(user: User) -> str:
    return signing.dumps([user.pk, state_of(user)], salt=SALT)


def state_of(user: User) -> str:
    """Changes with the next sign-in or password."""
    return salted_hmac(SALT, f"{user.last_login} {user.password}").hexdigest()


def user_of(token: str) -> User | None:
    """The staff account of a link that was not used; None: there is none, or it is older than ten minutes."""
    try:
        pk, state = signing.loads(token, salt=SALT, max_age=MINUTES * 60)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    user = User.objects.filter(pk=pk, is_active=True, is_staff=True).first()
    return user if user and state_of(user) == state else None


class Backend(ModelBackend):
    """Permissions as Django's, but no passwords."""

    def authenticate(self, request: Any, sign_in_link: str) -> User | None:  # type: ignore[override]
        return user_of(sign_in_link)


@login_not_required
@never_cache
def page(request: HttpRequest, token: str) -> HttpResponse:
    """Asks, because mail scanners and browsers open links in advance; a POST signs in."""
    user = user_of(token)
    if user is None:
        raise Http404("This link is invalid, used or older than ten minutes. Run manage.py sign_in_link again.")
    if request.method != "POST":
        return render(request, "accounts/sign_in_link.html", {"account": user})
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        found = authenticate(request, sign_in_link=token)
        if found is None:
            raise Http404("This link has already been used.")
        login(request, found)
        records.of_user(user, audit.Action.SIGN_IN, "by a link of manage.py sign_in_link")
    return redirect("ask")
