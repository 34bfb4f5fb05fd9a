"""The page of price updates: sources, the last report, imports, and the prices that wait for a decision."""

from typing import Any

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from advisor import refresh
from catalog.accounts import Caller, Right, caller_of, organisation_of, refused
from catalog.loading.fixtures import FixtureError
from catalog.models import HeldPrice, Organisation, PriceImport, PriceRefresh
from catalog.pricing import imports

SHOWN = 20  # imports, and earlier refreshes


@never_cache
def updates(request: HttpRequest) -> HttpResponse:
    """The page, or with `?format=json` the newest report."""
    finished = PriceRefresh.objects.exclude(finished_at=None)
    last = finished.first()
    own = organisation_of(request)
    if request.GET.get("format") == "json":
        return JsonResponse(newest_report(own))
    caller = caller_of(request)
    changes = refresh.changes_for(last.report, own) if last else []
    context: dict[str, Any] = {
        "status": refresh.status(),
        "last": last,
        "report": last.report if last else {},
        "changes": [(change, refresh.change_line(change)) for change in changes],
        "refreshes": finished[1:SHOWN],
        "held": [(row, caller.may(right_to_decide(row))) for row in waiting(caller)],
        "imports": seen(PriceImport.objects.all(), "organisation", caller)[:SHOWN],
    }
    return render(request, "advisor/price_updates.html", context)


def newest_report(own: Organisation) -> dict[str, Any]:
    """The last finished refresh, with the changes of an organization's answers."""
    last = PriceRefresh.objects.exclude(finished_at=None).first()
    if last is None:
        return {"report": None}
    body = {"state": last.state, "started_at": last.started_at.isoformat(), "error": last.error}
    changes = {"answers_changed": refresh.changes_for(last.report, own)} if last.report else {}
    return {**body, "report": {**last.report, **changes}}


def held_prices(caller: Caller) -> QuerySet[HeldPrice]:
    """Those that the caller sees, decided or not."""
    return seen(HeldPrice.objects.select_related("price_import"), "price_import__organisation", caller)


def waiting(caller: Caller) -> QuerySet[HeldPrice]:
    return held_prices(caller).filter(state=HeldPrice.State.HELD)


def seen(rows: QuerySet[Any], owner: str, caller: Caller) -> QuerySet[Any]:
    """The public rows, and those of the caller's organization; `owner`: the field that names it."""
    own = Q(**{owner: caller.organisation}) if caller.is_member else Q()
    return rows.filter(Q(**{owner: None}) | own) if own else rows.filter(**{owner: None})


def right_to_decide(row: HeldPrice) -> Right:
    return Right.MAINTAIN if row.price_import.organisation is None else Right.PRICE


@never_cache
@require_POST
def decide(request: HttpRequest, pk: int) -> HttpResponse:
    """Releases or discards one held price."""
    caller = caller_of(request)
    if sent := refused(request, right_to_decide(get_object_or_404(held_prices(caller), pk=pk)), "price-updates"):
        return sent
    release = request.POST.get("decision") == "release"
    try:
        (imports.release if release else imports.discard)(pk, caller.name)
    except (imports.NotHeld, FixtureError) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, "The price was added." if release else "The price was discarded.")
    return redirect("price-updates")
