"""The page of price updates: sources, the last report, imports, and the prices that wait for a decision."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from advisor import advise, refresh
from catalog.access import may_change
from catalog.deleting import who
from catalog.loading.fixtures import FixtureError
from catalog.models import PriceImport, PriceRefresh
from catalog.pricing import imports

SHOWN = 20  # imports, and earlier refreshes


@never_cache
def updates(request: HttpRequest) -> HttpResponse:
    """The page, or with `?format=json` the newest report."""
    finished = PriceRefresh.objects.exclude(finished_at=None)
    last = finished.first()
    if request.GET.get("format") == "json":
        body = {"state": last.state, "started_at": last.started_at.isoformat(), "error": last.error} if last else {}
        return JsonResponse({**body, "report": last.report if last else None})
    own = advise.default_organisation()
    context: dict[str, Any] = {
        "status": refresh.status(),
        "last": last,
        "report": last.report if last else {},
        "changes": [(change, refresh.change_line(change)) for change in _changes(last)],
        "refreshes": finished[1:SHOWN],
        "held": [row for row in imports.waiting() if row.price_import.organisation in (None, own)],
        "imports": PriceImport.objects.filter(organisation=None) | PriceImport.objects.filter(organisation=own),
        "may_decide": may_change(request.user),
    }
    context["imports"] = context["imports"][:SHOWN]
    return render(request, "advisor/price_updates.html", context)


def _changes(last: PriceRefresh | None) -> list[dict[str, Any]]:
    """Changes of saved answers; those of this organization are linked."""
    if last is None:
        return []
    mine = {str(pk) for pk in advise.visible().values_list("pk", flat=True)}
    return [change for change in last.report.get("answers_changed", []) if change["advice"] in mine]


@never_cache
@require_POST
def decide(request: HttpRequest, pk: int) -> HttpResponse:
    """Releases or discards one held price."""
    if not may_change(request.user):
        if request.user.is_authenticated:
            raise PermissionDenied
        return redirect_to_login(request.get_full_path())
    release = request.POST.get("decision") == "release"
    try:
        (imports.release if release else imports.discard)(pk, who(request.user))
    except (imports.NotHeld, FixtureError) as error:
        messages.error(request, str(error))
    else:
        messages.success(request, "The price was added." if release else "The price was discarded.")
    return redirect("price-updates")
