"""Pages that ask before they delete: the confirmation page, and the page of a model."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from catalog.accounts import Right, caller_of, needs, refused
from catalog.deletion import NotDeletable, delete_model
from catalog.models import ServedModel


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


@needs(Right.READ)
def model_page(request: HttpRequest, slug: str) -> HttpResponse:
    caller = caller_of(request)
    row: Any = ServedModel.objects.first_named(caller.own, Q(slug=slug))
    if row is None or row.organisation_id is None:
        if sent := refused(request, Right.MAINTAIN):
            return sent
    if row is None:
        raise Http404(f"Model {slug} is not in the catalog.")
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
