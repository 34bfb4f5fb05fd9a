"""Who may change machines and results: staff, as soon as this installation has a user; before that, everybody."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from rest_framework import permissions
from rest_framework.request import Request

View = Callable[..., HttpResponse]


def may_change(user: Any) -> bool:
    return bool(getattr(user, "is_staff", False)) or not User.objects.exists()


def for_staff(view: View) -> View:
    """A page for those who may change; others are asked to sign in."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if may_change(request.user):
            return view(request, *args, **kwargs)
        if request.user.is_authenticated:
            raise PermissionDenied
        return redirect_to_login(request.get_full_path() if request.method == "GET" else reverse("workers"))

    return checked


class StaffChanges(permissions.BasePermission):
    """Reading as everywhere else; changing as the pages do."""

    message = "Sign in as staff: this installation has users, so not everybody may change machines and results."

    def has_permission(self, request: Request, view: Any) -> bool:
        return request.method in permissions.SAFE_METHODS or may_change(request.user)
