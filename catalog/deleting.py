"""Deleting on pages and over REST: who may, the page that asks for confirmation, and models of the catalog."""

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
    """It cannot be deleted as things are; the text says why and what to do."""


# --- who may ----------------------------------------------------------------------------------------------------


def may_delete(caller: Any) -> bool:
    """Staff and `admin` tokens; visitors where the installation has no user. A smaller token never, whoever may ask."""
    return may_change(caller) and (getattr(caller, "is_staff", False) or not caller.is_authenticated)


def who(caller: Any) -> str:
    """For the log."""
    return caller.get_username() or "visitor"


class StaffOnly(permissions.BasePermission):
    """For calls that delete, and for lists that only those need who delete."""

    message = "Only staff and tokens with the scope admin may do this."

    def has_permission(self, request: Request, view: Any) -> bool:
        return may_delete(request.user)


class StaffDeletes(StaffOnly):
    def has_permission(self, request: Request, view: Any) -> bool:
        return request.method != "DELETE" or super().has_permission(request, view)


# --- the page that asks -----------------------------------------------------------------------------------------


def refused(request: HttpRequest) -> HttpResponse | None:
    """The way to the login for a visitor who may not; None for those who may."""
    if may_delete(request.user):
        return None
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.get_full_path())


def confirmed(
    request: HttpRequest, what: str, goes: list[str], back: str, then: str, delete: Callable[[], Any]
) -> HttpResponse:
    """GET asks, POST deletes. `goes`: what is lost with it; `back`: the page of the thing, `then`: the one after."""
    if sent := refused(request):
        return sent
    if request.method != "POST":
        return render(request, "catalog/delete.html", {"what": what, "goes": goes, "back": back})
    try:
        delete()
    except NotDeletable as reason:
        messages.error(request, str(reason))
        return redirect(back)
    messages.success(request, f"Deleted: {what}.")
    return redirect(then)


# --- models of the catalog --------------------------------------------------------------------------------------


def delete_model(row: ServedModel, by: str) -> None:
    """Deletes an imported model with its prices of hosted APIs and its history. Saved answers keep their own copy.

    NotDeletable: it comes with Assay, so the next `load_catalog` would bring it back.
    """
    if (Path(settings.BASE_DIR) / "fixtures" / "models" / f"{row.slug}.yaml").exists():
        raise NotDeletable(
            f"{row.hf_id} ships with Assay, and load_catalog would restore it. Only imported models can be deleted."
        )
    pk = row.pk
    row._history_user = None  # type: ignore[attr-defined]  # else the history asks the request, which may be a token's
    with transaction.atomic():
        row.api_prices.all().delete()
        row.delete()
        ServedModel.history.filter(id=pk).delete()  # with the entry that the deletion itself made
    log.info("deleted", kind="model", slug=row.slug, by=by)


def model_page(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(ServedModel, slug=slug)
    goes = ["its architecture and change history", "Answers that used it are kept; each has its own copy."]
    if offers := row.api_prices.count():
        goes.insert(1, f"{offers} price{'s' * (offers > 1)} of hosted APIs")
    return confirmed(
        request,
        f"the model {row.hf_id}",
        goes,
        back=reverse("catalog:model", args=[slug]),
        then=reverse("catalog:list", args=["models"]),
        delete=lambda: delete_model(row, who(request.user)),
    )
