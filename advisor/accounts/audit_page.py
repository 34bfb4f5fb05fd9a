"""The audit log of an organization, for its admins: filters, pages and CSV."""

import csv
import io
from collections.abc import Iterable

from django import forms
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from catalog.accounts import Right, audit, needs, organisation_of
from catalog.lists import export
from catalog.models import AuditEvent, Organisation

PAGE_SIZE = 50
MAX_CSV_ROWS = 10_000
COLUMNS = ("at", "who", "action", "what", "detail")


class Filter(forms.Form):
    who = forms.CharField(label="User or token", required=False, max_length=150)
    action = forms.ChoiceField(label="Action", required=False, choices=[("", "all"), *audit.Action.choices])
    since = forms.DateField(label="From", required=False, widget=forms.DateInput({"type": "date"}))
    until = forms.DateField(label="Until", required=False, widget=forms.DateInput({"type": "date"}))


@never_cache
@require_safe
@needs(Right.ADMINISTER)
def page(request: HttpRequest) -> HttpResponse:
    form = Filter(request.GET)
    organisation = organisation_of(request)
    rows = found(organisation, form)
    if request.GET.get("format") == "csv":
        response = HttpResponse(csv_text(rows[:MAX_CSV_ROWS]), content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="audit.csv"'
        return response
    shown = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    labels = dict(audit.Action.choices)
    context = {
        "form": form,
        "organisation": organisation,
        "page": shown,
        "events": [(event, labels.get(event.action, event.action)) for event in shown],
        "max_csv_rows": MAX_CSV_ROWS,
    }
    return render(request, "accounts/audit.html", context, status=422 if form.errors else 200)


def found(organisation: Organisation, form: Filter) -> QuerySet[AuditEvent]:
    """The organization's events, newest first, by the valid fields of the filter."""
    form.is_valid()
    given = form.cleaned_data
    wanted = {
        "who__iexact": given.get("who"),
        "action": given.get("action"),
        "at__date__gte": given.get("since"),
        "at__date__lte": given.get("until"),
    }
    rows = AuditEvent.objects.filter(organisation=organisation)
    return rows.filter(**{name: value for name, value in wanted.items() if value})


def csv_text(rows: Iterable[AuditEvent]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([f"{row.at:%Y-%m-%dT%H:%M:%SZ}", *(export.cell(getattr(row, name)) for name in COLUMNS[1:])])
    return out.getvalue()
