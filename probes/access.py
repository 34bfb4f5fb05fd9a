"""Changing machines and results, on pages and over REST: who may is said in catalog/access.py."""

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

    message = "Only staff and tokens with the scope admin may change machines, jobs and results."

    def has_permission(self, request: Request, view: Any) -> bool:
        return request.method in permissions.SAFE_METHODS or may_change(request.user)
