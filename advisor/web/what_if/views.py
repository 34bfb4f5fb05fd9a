"""The views of what-if: the catalog ranked again in closed form as the controls change."""

import uuid
from collections.abc import Mapping, Sequence
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
from advisor.templatetags.units import decimal_comma, sig
from advisor.web import views
from advisor.web.form_fields.values import unclear_text
from advisor.web.what_if.controls import NUMERIC, can_change, form_context, lineage, meant_by
from advisor.web.what_if.rows import (
    Key,
    Shown,
    answered_said,
    at_value,
    best_of_each,
    only_number,
    rows_of,
    shown,
    turning_point,
    verdict_said,
    winner_said,
)
from advisor.workload import Style, Unclear, WorkloadError, named, read_quantity, unnamed
from catalog.accounts import Right, caller_of, organisation_of, refused
from catalog.models import Organisation
from catalog.pricing import reader
from catalog.rest import refusal

RUN = "run"  # the full answer whose figures replace the estimates
TURN = "turn"  # asks where the winner changes
NAME = "name"  # of a what-if that is saved
NOT_CONTROLS = (RUN, TURN, NAME, reader.NAME, "csrfmiddlewaretoken", "fields", "format")
MOST_NAMED = 120  # characters of a name
NUMBERS = {c.name for c in what_if.CONTROLS if c.reads in NUMERIC}
ROWS = 20
RESULTS = "advisor/_what_if_results.html"
BUSY = "The server is computing other rankings. Try again in a moment."
NOT_SERVED = "What-if ranks one served model. Training runs and portfolios have none yet."
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request for a what-if: the original, the controls given, and the question that they make."""

    advice: Advice
    given: dict[str, list[str]]
    spec: Json
    typed: dict[str, list[str]] = field(default_factory=dict)  # the controls, with decimal points
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def query(self) -> str:
        return urlencode(self.given, doseq=True)


def asked(advice: Advice, query: Any, shared: bool = False) -> Asked:
    seen_by = None if shared else advice.organisation
    given = {name: query.getlist(name) for name in query if name not in NOT_CONTROLS}
    errors = {}
    typed = dict(given)
    for name in given.keys() & NUMBERS:
        try:
            typed[name] = [in_digits(name, word) for word in given[name]]
        except Unclear as unclear:
            errors[name] = unclear_text(unclear)
    if errors:
        return Asked(advice=advice, given=given, spec=advice.workload.spec, errors=errors)
    try:
        spec = what_if.changed(advice.workload.spec, typed, seen_by)
        return Asked(advice=advice, given=given, typed=typed, spec=spec)
    except WorkloadError as trouble:
        errors = {item["field"]: said(item) for item in reversed(trouble.errors)}
        return Asked(advice=advice, given=given, spec=advice.workload.spec, errors=errors)


def in_digits(name: str, word: str) -> str:
    """What was typed, in the control's unit: $10k as 10000, 0.5 s as 500; text that is no such number as it is."""
    found = read_quantity(word, meant_by(what_if.BY_NAME[name]), Style(comma=decimal_comma()))
    return word if found is None else f"{found:.12g}"


def said(item: Mapping[str, str]) -> str:
    allowed = item["allowed"]
    return item["message"] + (f" (allowed: {allowed})" if 0 < len(allowed) < 160 else "")


def full_answer(request: HttpRequest, a: Asked) -> Advice | None:
    """The full answer to this question: the original, or one that was saved."""
    named = request.GET.get(RUN, "")
    if what_if.same_question(a.spec, a.advice.workload.spec):
        return a.advice
    if not named or not views.is_uuid(named):
        return None
    found = advise.visible(a.advice.organisation).defer("result", "snapshot").filter(pk=uuid.UUID(named)).first()
    return found if found and what_if.same_question(found.workload.spec, a.spec) else None


def results_context(request: HttpRequest, a: Asked, url: str, shared: bool) -> Json:
    """Estimates of the changed and of the original question, or the full answers to both once there are two."""
    from advisor.answer import quick  # here, so that web workers load the engine only for estimates

    seen_by = None if shared else a.advice.organisation  # a link must not reveal other prices of its owner
    ranking = quick.quick_answer(a.spec, seen_by)
    before = quick.quick_answer(a.advice.workload.spec, seen_by)
    run = None if shared and a.spec != a.advice.workload.spec else full_answer(request, a)  # a link shows one answer
    is_full = run is not None and run.is_done
    compared = [views.answer_of(each).serving_options for each in (run, a.advice)] if run and is_full else None
    now, then = (best_of_each(each) for each in compared or (ranking.options, before.options))
    rows, changes = rows_of(now, then), what_if.differences(a.advice.workload.spec, a.spec)
    waiting = run is not None and run.state not in advise.FINISHED
    first, earlier = (each[0] if each else None for each in (now, then))
    turns = bool(changes and first and earlier and first.key != earlier.key and not is_full)
    return {
        "ranking": ranking,
        "estimated": rows_of(best_of_each(ranking.options), best_of_each(before.options)),
        "is_full": is_full,
        "rows": rows[:ROWS],
        "more_rows": len(rows) - ROWS,
        "gone": [each for each in then if each.key not in {row.option.key for row in rows}][:ROWS],
        "changes": changes,
        "winner": winner_said(first, earlier, changes) if changes else "",
        "verdict": verdict_said(first) if changes and first else "",
        "answered": answered_said(first_of(a.advice), earlier) if changes and earlier and not is_full else "",
        "turns_url": f"{url}?{a.query}&{TURN}=1" if turns and only_number(*numbers_of(a)) else "",
        "turn": turn_said(a, earlier, seen_by) if turns and earlier and TURN in request.GET else "",
        "run": run if run is not None and run.pk != a.advice.pk else None,
        "waiting": waiting,
        "poll_url": f"{url}?{a.query}&{RUN}={run.pk}" if waiting and run else "",
        "given": [(name, word) for name, words in a.given.items() for word in words],
        "name": name_of(a.spec, changes),
        "saved": [] if shared else lineage(a.advice)["what_ifs"],
    }


def name_of(spec: Json, changes: Sequence[str]) -> str:
    """The changed question's title and as many whole changes as fit: gpt-oss-120b, 24 requests/s: regions us"""
    title = str(named(unnamed(spec))["name"])[:MOST_NAMED]
    said = [at_value(change).partition(" (was ")[0] for change in changes]
    names = [f"{title}: {'; '.join(said[:count])}" for count in range(len(said), 0, -1)]
    return next((name for name in names if len(name) <= MOST_NAMED), title)


def first_of(advice: Advice) -> Shown | None:
    """The first choice of the full answer."""
    options = views.answer_of(advice).serving_options
    return shown(options[0]) if options else None


def numbers_of(a: Asked) -> tuple[what_if.Values, what_if.Values]:
    return what_if.values_of(a.advice.workload.spec), a.typed


def turn_said(a: Asked, first: Shown, seen_by: Organisation | None) -> str:
    """Where the original winner stops being first, if one number was changed."""
    from advisor.answer import quick

    moved = only_number(*numbers_of(a))
    if moved is None:
        return ""

    def winner(value: str) -> Key | None:
        options = quick.quick_answer(
            what_if.changed(a.advice.workload.spec, {moved.control: [value]}, seen_by), seen_by
        ).options
        return shown(options[0]).key if options else None

    value = turning_point(moved, first, winner)
    label = what_if.BY_NAME[moved.control].label
    if value is None:
        return ""
    return f"{first.name} stops being first at about {sig(value)} ({label})."


def respond(request: HttpRequest, advice: Advice, url: str, *, shared: bool = False) -> HttpResponse:
    """The results as a fragment (htmx), a page, or JSON; 422 with the errors beside their controls."""
    from advisor.answer import quick

    a = asked(advice, request.GET, shared)
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
    results = "advisor/_what_if_turn.html" if TURN in request.GET and "turn" in context else RESULTS
    template = results if fragment else "advisor/what_if.html"
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
    return JsonResponse(figures_of(context))


def figures_of(context: Json) -> Json:
    """What a results context says, for programs."""
    return {
        "changes": context["changes"],
        "ranking": context["ranking"].to_json(),
        "compared": [
            {
                "rank": row.rank,
                "accelerator": row.option.accelerator,
                "provider": row.option.provider,
                "rank_before": row.before_rank,
                "cost_difference_fraction": row.more_fraction,
            }
            for row in context["estimated"]
        ],
    }


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@views.or_unreadable
def page(request: HttpRequest, pk: Any) -> HttpResponse:
    """The what-if of an answer; POST saves it under a name, with a full answer."""
    advice = views.finished(organisation_of(request), pk)
    if not can_change(advice.workload.spec, advice.organisation):
        raise Http404(NOT_SERVED)
    url = reverse("what-if", args=[pk])
    if request.method == "POST":
        return refused(request, Right.PLAN, "advice-list") or save(request, advice, url)
    return respond(request, advice, url)


def save(request: HttpRequest, advice: Advice, url: str) -> HttpResponse:
    """Queues the changed question under its name as a successor, and shows its progress beside the estimates."""
    a = asked(advice, request.POST)
    back = f"{url}?{a.query}"
    if a.errors:
        return redirect(back)
    if a.spec == advice.workload.spec:
        return redirect("advice", advice.pk)
    try:
        found = queued(a, request.POST.get(NAME, ""), caller_of(request).name)
    except Advice.DoesNotExist:
        raise Http404(views.GONE) from None
    except (WorkloadError, advise.QueueFull) as trouble:
        messages.error(request, str(trouble))
        return redirect(back)
    return redirect(f"{back}&{RUN}={found.pk}")


def queued(a: Asked, name: str, by: str) -> Advice:
    """The changed question as a queued successor. Raises as advise.request, and Advice.DoesNotExist."""
    spec = {**a.spec, "name": name.strip()[:MOST_NAMED] or a.advice.workload.name}
    return advise.request(spec, a.advice.organisation, supersedes=a.advice, made_by=by)


@login_not_required
@never_cache
@require_safe
@views.or_unreadable
def shared_page(request: HttpRequest, token: str) -> HttpResponse:
    """The same behind a share link, without the button that asks the question in full."""
    advice = views.shared_advice(token)
    if not can_change(advice.workload.spec, None):
        raise Http404(NOT_SERVED)
    return views.unlisted(respond(request, advice, reverse("shared-what-if", args=[token]), shared=True))
