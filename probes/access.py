"""Access control for machines, jobs and results, in pages and REST. catalog/access.py has the rule."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from rest_framework import permissions
from rest_framework.request import Request

from catalog.access import may_change

View = Callable[..., HttpResponse]


def for_staff(view: View) -> View:
    """Restricts a page to those who may change data. Others are redirected to the login, or get 403 if signed in."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if may_change(request.user):
            return view(request, *args, **kwargs)
        if request.user.is_authenticated:
            raise PermissionDenied
        return redirect_to_login(request.get_full_path() if request.method == "GET" else reverse("workers"))

    return checked


class StaffChanges(permissions.BasePermission):
    """Anyone with access may read; only staff may change."""

    message = "Only staff and tokens with the scope admin may change machines, jobs and results."

    def has_permission(self, request: Request, view: Any) -> bool:
        return request.method in permissions.SAFE_METHODS or may_change(request.user)
