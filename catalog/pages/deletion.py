"""Deletion: the confirmation page, and deleting a model of the catalog."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from catalog.accounts import Right, audit, caller_of, needs, refused
from catalog.models import ServedModel, default_organisation

log = structlog.get_logger("assay.deleted")


class NotDeletable(Exception):
    """The row cannot be deleted; the message gives the reason and what to do instead."""


# --- the confirmation page --------------------------------------------------------------------------------------


def confirmed(
    request: HttpRequest, what: str, goes: list[str], back: str, then: str, delete: Callable[[], Any]
) -> HttpResponse:
    """The confirmation page on GET; deletes on POST.

    Only for admins. `goes` lists what is lost with it. `back` is the page of the row, `then` the page to show
    after deletion.
    """
    if redirect_to_sign_in := refused(request, Right.ADMINISTER):
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
        audit.record(default_organisation(), by, audit.Action.DELETE, f"model {row.hf_id}")
    log.info("deleted", kind="model", slug=row.slug, by=by)


@needs(Right.MAINTAIN)
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
        delete=lambda: delete_model(row, caller_of(request).name),
    )
