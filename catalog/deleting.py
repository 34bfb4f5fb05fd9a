"""Deletion in pages and REST: permissions, the confirmation page, and deleting a model of the catalog."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from rest_framework import permissions
from rest_framework.request import Request

from catalog.access import may_change
from catalog.models import ServedModel

log = structlog.get_logger("assay.deleted")


class NotDeletable(Exception):
    """The row cannot be deleted; the message gives the reason and what to do instead."""


# --- permissions ------------------------------------------------------------------------------------------------


def may_delete(caller: Any) -> bool:
    """Whether the caller is staff or an `admin` token, or anonymous while the installation has no user.

    Tokens with a smaller scope never may, not even on such an installation.
    """
    return may_change(caller) and (getattr(caller, "is_staff", False) or not caller.is_authenticated)


def who(caller: Any) -> str:
    """The caller's name for the log."""
    return caller.get_username() or "visitor"


class StaffOnly(permissions.BasePermission):
    """Permission for deletions, and for lists that only staff need."""

    message = "Only staff and tokens with the scope admin may do this."

    def has_permission(self, request: Request, view: Any) -> bool:
        return may_delete(request.user)


class StaffDeletes(StaffOnly):
    """Only staff may delete; other methods are not restricted here."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return request.method != "DELETE" or super().has_permission(request, view)


# --- the confirmation page --------------------------------------------------------------------------------------


def refused(request: HttpRequest) -> HttpResponse | None:
    """A redirect to the login for anonymous visitors without the right; None if deletion is allowed.

    Raises PermissionDenied for signed-in users without the right.
    """
    if may_delete(request.user):
        return None
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.get_full_path())


def confirmed(
    request: HttpRequest, what: str, goes: list[str], back: str, then: str, delete: Callable[[], Any]
) -> HttpResponse:
    """The confirmation page on GET; deletes on POST.

    `goes` lists what is lost with it. `back` is the page of the row, `then` the page to show after deletion.
    """
    if redirect_to_sign_in := refused(request):
        return redirect_to_sign_in
    if request.method != "POST":
        return render(request, "catalog/delete.html", {"what": what, "goes": goes, "back": back})
    try:
        delete()
    except NotDeletable as error:
        messages.error(request, str(error))
        return redirect(back)
    messages.success(request, f"Deleted: {what}.")
    return redirect(then)


# --- models of the catalog --------------------------------------------------------------------------------------


def delete_model(row: ServedModel, by: str) -> None:
    """Deletes an imported model with its hosted API prices and its history. Saved answers keep their own copy.

    Raises NotDeletable for a model that ships with Assay: the next `load_catalog` would restore it.
    """
    if (Path(settings.BASE_DIR) / "fixtures" / "models" / f"{row.slug}.yaml").exists():
        raise NotDeletable(
            f"{row.hf_id} ships with Assay, and load_catalog would restore it. Only imported models can be deleted."
        )
    pk = row.pk
    row._history_user = None  # type: ignore[attr-defined]  # else simple_history reads request.user, which may be a token
    with transaction.atomic():
        row.api_prices.all().delete()
        row.delete()
        ServedModel.history.filter(id=pk).delete()  # including the record of this deletion
    log.info("deleted", kind="model", slug=row.slug, by=by)


def model_page(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(ServedModel, slug=slug)
    goes = ["its architecture and change history", "Answers that used it are kept; each has its own copy."]
    if offers := row.api_prices.count():
        goes.insert(1, f"{offers} hosted API price{'s' * (offers > 1)}")
    return confirmed(
        request,
        f"the model {row.hf_id}",
        goes,
        back=reverse("catalog:model", args=[slug]),
        then=reverse("catalog:list", args=["models"]),
        delete=lambda: delete_model(row, who(request.user)),
    )
