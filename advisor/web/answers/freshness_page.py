"""Which saved answers rest on data that is newer now, and which of them change with it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from advisor import refresh
from catalog.accounts import Right, caller_of, organisation_of, refused
from catalog.models import PriceRefresh

HERE = "advice-freshness"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """The newest saved answers of the organization; a POST computes them again in the background."""
    own = organisation_of(request)
    if request.method == "POST":
        if sent := refused(request, Right.PLAN, HERE):
            return sent
        if why := refresh.start_comparison(own, caller_of(request).name):
            messages.error(request, why)
        else:
            messages.success(request, "The comparison has started. Reload this page in a few minutes.")
        return redirect(HERE)
    last = PriceRefresh.objects.exclude(finished_at=None).first()
    changes = refresh.changes_for(last.report, own) if last else []
    context: dict[str, Any] = {
        "answers": refresh.resting(own),
        "last": last,
        "changes": [(change, refresh.change_line(change)) for change in changes],
    }
    return render(request, "advisor/answers_freshness.html", context)
