"""The views of what-if: the catalog ranked again in closed form as the controls change."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from advisor import advise
from advisor.api import Exceeded, limits
from advisor.inputs import what_if
from advisor.models import Advice
from advisor.result import ApiOption
from advisor.result import Option as Recommended
from advisor.templatetags.units import typed_number
from advisor.web import views
from advisor.web.what_if.controls import NUMERIC, applies, form_context, key_of, rows_of
from advisor.workload import WorkloadError
from catalog.accounts import Right, caller_of, organisation_of, refused
from catalog.pricing import reader
from catalog.rest import refusal

RUN = "run"  # the full answer whose figures replace the estimates
NOT_CONTROLS = (RUN, reader.NAME, "csrfmiddlewaretoken")
NUMBERS = {c.name for c in what_if.CONTROLS if c.reads in NUMERIC}
ROWS = 20
BUSY = "The server is computing other rankings. Try again in a moment."
NOT_SERVED = "What-if ranks one served model. Training runs and portfolios have none yet."
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request for a what-if: the original, the controls given, and the question that they make."""

    advice: Advice
    given: dict[str, list[str]]
    spec: Json
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def query(self) -> str:
        return urlencode(self.given, doseq=True)


def asked(advice: Advice, query: Any) -> Asked:
    given = {name: query.getlist(name) for name in query if name not in NOT_CONTROLS}
    errors = {}
    typed = dict(given)
    for name in given.keys() & NUMBERS:
        try:
            typed[name] = [typed_number(word) for word in given[name]]
        except ValueError as unclear:
            errors[name] = str(unclear)
    if errors:
        return Asked(advice=advice, given=given, spec=advice.workload.spec, errors=errors)
    try:
        return Asked(advice=advice, given=given, spec=what_if.changed(advice.workload.spec, typed))
    except WorkloadError as trouble:
        errors = {item["field"]: said(item) for item in reversed(trouble.errors)}
        return Asked(advice=advice, given=given, spec=advice.workload.spec, errors=errors)


def said(item: Mapping[str, str]) -> str:
    allowed = item["allowed"]
    return item["message"] + (f" (allowed: {allowed})" if 0 < len(allowed) < 160 else "")


def full_answer(request: HttpRequest, a: Asked) -> tuple[Advice | None, list[Recommended | ApiOption]]:
    """(the full answer to this question that was asked for, its options once it has finished)."""
    named = request.GET.get(RUN, "")
    found = None
    if a.spec == a.advice.workload.spec:
        found = a.advice
    elif named and views.is_uuid(named):
        found = advise.visible(a.advice.organisation).defer("result", "snapshot").filter(pk=uuid.UUID(named)).first()
        found = found if found and found.workload.spec == a.spec else None
    if found is None or not found.is_done:
        return found, []
    return found, views.answer_of(found).serving_options


def results_context(request: HttpRequest, a: Asked, url: str, shared: bool) -> Json:
    from advisor.answer import quick  # here, so that web workers load the engine only for estimates

    seen_by = None if shared else a.advice.organisation  # a link must not reveal other prices of its owner
    ranking = quick.quick_answer(a.spec, seen_by)
    before = quick.quick_answer(a.advice.workload.spec, seen_by)
    is_open = not shared or a.spec == a.advice.workload.spec  # a link shows one answer and no other
    run, simulated = full_answer(request, a) if is_open else (None, [])
    gone = {key_of(o): o for o in before.options}
    for option in ranking.options:
        gone.pop(key_of(option), None)
    rows = rows_of(ranking, before, simulated)
    waiting = run is not None and run.state not in advise.FINISHED
    return {
        "ranking": ranking,
        "rows": rows[:ROWS],
        "more_rows": len(rows) - ROWS,
        "gone": list(gone.values())[:ROWS],
        "changes": what_if.differences(a.advice.workload.spec, a.spec),
        "run": run if run is not None and run.pk != a.advice.pk else None,
        "waiting": waiting,
        "poll_url": f"{url}?{a.query}&{RUN}={run.pk}" if waiting and run else "",
        "given": [(name, word) for name, words in a.given.items() for word in words],
    }


def respond(request: HttpRequest, advice: Advice, url: str, *, shared: bool = False) -> HttpResponse:
    """The results as a fragment (htmx), a page, or JSON; 422 with the errors beside their controls."""
    from advisor.answer import quick

    a = asked(advice, request.GET)
    as_json = wants_json(request)
    context: Json = {"advice": advice, "spec": advice.workload.spec, "shared": shared, "errors": a.errors}
    status = 422 if a.errors else 200
    if not a.errors:
        try:
            limits.of_quick(request)
            context |= results_context(request, a, url, shared)
        except Exceeded as error:
            status, context["trouble"] = 429, str(error.detail)
        except quick.Busy:
            status, context["trouble"] = 503, BUSY
    if as_json:
        return json_of(a, context, status)
    context |= form_context(advice.workload.spec, url, a.given, a.errors)
    context["other_errors"] = {
        name: said for name, said in a.errors.items() if name not in {c["name"] for c in context["what_if_controls"]}
    }
    htmx = getattr(request, "htmx", None)
    fragment = htmx is not None and bool(htmx) and not htmx.history_restore_request
    context["fragment"] = fragment
    template = "advisor/_what_if_results.html" if fragment else "advisor/what_if.html"
    response = render(request, template, context, status=status)
    response["Vary"] = "HX-Request, Accept"
    return response


def wants_json(request: HttpRequest) -> bool:
    return request.headers.get("Accept", "").split(",")[0].split(";")[0].strip() == "application/json"


def json_of(a: Asked, context: Json, status: int) -> HttpResponse:
    if a.errors:
        kind, title = "urn:assay:problem:invalid-workload", "The question is not valid"
        errors = [{"field": name, "message": said, "allowed": ""} for name, said in a.errors.items()]
        return refusal(422, "; ".join(f"{e['field']}: {e['message']}" for e in errors), errors, kind, title)
    if status != 200:
        return refusal(status, context["trouble"], headers={"Retry-After": "5"})
    return JsonResponse(
        {
            "changes": context["changes"],
            "ranking": context["ranking"].to_json(),
            "compared": [
                {
                    "rank": row.option.rank,
                    "accelerator": row.option.accelerator,
                    "provider": row.option.provider,
                    "rank_before": row.before_rank,
                    "cost_difference_fraction": row.more_fraction,
                }
                for row in context["rows"]
            ],
        }
    )


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@views.or_unreadable
def page(request: HttpRequest, pk: Any) -> HttpResponse:
    """The what-if of an answer; POST asks the changed question in full."""
    advice = views.finished(organisation_of(request), pk)
    if not applies(advice.workload.spec):
        raise Http404(NOT_SERVED)
    url = reverse("what-if", args=[pk])
    if request.method == "POST":
        return refused(request, Right.PLAN, "advice-list") or run_in_full(request, advice, url)
    return respond(request, advice, url)


def run_in_full(request: HttpRequest, advice: Advice, url: str) -> HttpResponse:
    """Queues the changed question as a successor, and shows its progress beside the estimates."""
    a = asked(advice, request.POST)
    back = f"{url}?{a.query}"
    if a.errors:
        return redirect(back)
    if a.spec == advice.workload.spec:
        return redirect("advice", advice.pk)
    try:
        found = advise.request(a.spec, advice.organisation, supersedes=advice, made_by=caller_of(request).name)
    except Advice.DoesNotExist:
        raise Http404(views.GONE) from None
    except (WorkloadError, advise.QueueFull) as trouble:
        messages.error(request, str(trouble))
        return redirect(back)
    return redirect(f"{back}&{RUN}={found.pk}")


@login_not_required
@never_cache
@require_safe
@views.or_unreadable
def shared_page(request: HttpRequest, token: str) -> HttpResponse:
    """The same behind a share link, without the button that asks the question in full."""
    advice = views.shared_advice(token)
    if not applies(advice.workload.spec):
        raise Http404(NOT_SERVED)
    return views.unlisted(respond(request, advice, reverse("shared-what-if", args=[token]), shared=True))
