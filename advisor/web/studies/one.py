"""One study: its progress, its results so far, and what can be done with it."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from advisor import deletion
from advisor.advise import OPEN, QueueFull
from advisor.api import file_of
from advisor.models import Study
from advisor.studies import pieces, tables
from advisor.templatetags import units
from catalog import clock
from catalog.accounts import Right, caller_of, needs, organisation_of

SHOWN = 100  # rows of the results on a page
COLUMNS = {  # of the results that the page shows, and their headings; the files have all
    "answers": {
        "workload": "Workload", "option": "First choice", "usd_per_month": "Cost per month",
        "usd_per_mtok_output": "Per million output tokens", "usd_per_run": "Cost per run",
        "ttft_ms_p95": "TTFT p95, ms", "tpot_ms_p95": "TPOT p95, ms", "why_not": "Why not", "error": "Error",
    },
    "estimates": {
        "accelerator_count": "Accelerators", "framework": "Framework", "output_tokens_per_s": "Output tokens/s",
        "ttft_ms_mean": "Mean TTFT, ms", "tpot_ms_mean": "Mean TPOT, ms",
        "usd_per_mtok_output": "Per million output tokens", "free_gib": "Free GiB", "why_not": "Why not",
        "error": "Error",
    },
}  # fmt: skip


def own(request: HttpRequest, pk: Any) -> Study:
    return get_object_or_404(pieces.visible(organisation_of(request)), pk=pk)


@never_cache
@require_safe
def page(request: HttpRequest, pk: Any) -> HttpResponse:
    """The whole page, or the part that polls."""
    study = own(request, pk)
    polls = bool(getattr(request, "htmx", False))
    return render(request, "advisor/_study.html" if polls else "advisor/study.html", context(request, study))


def context(request: HttpRequest, study: Study) -> dict[str, Any]:
    found = pieces.Rows(study)
    first = page_start(request.GET.get("from", ""), len(found))
    names = {f"{tables.SET}{axis}": axis for axis, _ in study.axes}
    names |= COLUMNS["estimates" if study.kind == Study.Kind.ESTIMATES else "answers"]
    rows = tables.objects(pieces.table_of(study), found[first : first + SHOWN])
    used = {name: title for name, title in names.items() if any(row[name] is not None for row in rows)}
    numeric = {name: any(is_number(row[name]) for row in rows) for name in used}
    age_s = (clock.read() - study.created_at).total_seconds()
    return {
        "study": study,
        "progress": pieces.progress(study),
        "is_open": study.state in OPEN,
        "poll_s": 2 if age_s < 60 else 10,
        "headings": [(title, numeric[name]) for name, title in used.items()],
        "rows": [[(shown(name, row[name]), numeric[name]) for name in used] for row in rows],
        "first": first + 1,
        "last": first + len(rows),
        "count": len(found),
        "before": max(first - SHOWN, 0) if first else None,
        "after": first + SHOWN if first + SHOWN < len(found) else None,
        "may_delete": caller_of(request).may_administer,
    }


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(name: str, value: Any) -> str:
    """A cell of the page, in three digits; the files have all."""
    if value is None:
        return "–"
    if name.startswith(tables.SET):
        return units.given(value) if is_number(value) else str(value)
    if name.startswith("usd_"):
        return units.dollars(value)
    return units.sig(value) if isinstance(value, float) else str(value)


def page_start(text: str, count: int) -> int:
    """The first row of the page that `?from=` names."""
    asked = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
    return asked if asked < count else 0


@require_safe
def file(request: HttpRequest, pk: Any, ending: str) -> HttpResponse:
    if ending not in ("csv", "parquet"):
        raise Http404("Results are available as csv and parquet.")
    return file_of(own(request, pk), ending)


@require_POST
@needs(Right.PLAN, "studies")
def cancel(request: HttpRequest, pk: Any) -> HttpResponse:
    pieces.cancel(own(request, pk))
    return redirect("study", pk)


@require_POST
@needs(Right.PLAN, "studies")
def resume(request: HttpRequest, pk: Any) -> HttpResponse:
    try:
        pieces.resume(own(request, pk))
    except QueueFull as full:
        messages.error(request, str(full))
    return redirect("study", pk)


@require_POST
@needs(Right.ADMINISTER, "studies")
def delete(request: HttpRequest, pk: Any) -> HttpResponse:
    study = own(request, pk)
    deletion.delete_study(study, caller_of(request).name)
    messages.success(request, f"{study.name} was deleted.")
    return redirect("studies")
