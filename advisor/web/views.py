"""The pages: ask, watch, read, share. Every one works without scripts."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

import structlog
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh
from pydantic import ValidationError

from advisor import advise, report
from advisor.answer import calibration_marks
from advisor.api import incomplete, is_program, unavailable
from advisor.fidelity import nearest_rows
from advisor.later import sections as later
from advisor.later.sections import Incomplete
from advisor.models import Advice
from advisor.report import documents
from advisor.result import Answer, ApiOption, TrainingOption
from advisor.web import comments, forms, load_test_views, share_links
from advisor.web.answers import kept, sections, training_page
from advisor.web.answers.page import csv_text, page, sections_of
from advisor.web.answers.page import option_context as page_of_option
from advisor.web.what_if import controls as what_if
from advisor.workload import PORTFOLIO, WorkloadError, unnamed, with_changes
from catalog import clock
from catalog.accounts import Caller, Right, caller_of, hashed, needs, organisation_of, refused
from catalog.models import Organisation
from catalog.pricing import reader
from catalog.rest import refusal

log = structlog.get_logger("assay.web")
SHARE_DAYS = (7, 30, 90)
THEN = "then"  # re-run at the prices of its day
ALL = "all"  # of a list; once also of the sections
GONE = "This recommendation was deleted."
UNREADABLE = "This answer was stored by another version and cannot be displayed. Re-run it."


def finished(organisation: Organisation, pk: Any) -> Advice:
    """A done advice of an organization, or 404."""
    return get_object_or_404(advise.visible(organisation).exclude(result=None).defer("result", "snapshot"), pk=pk)


def completed(organisation: Organisation, pk: Any) -> Advice:
    """The same. Raises Incomplete where sections are not computed."""
    advice = finished(organisation, pk)
    later.check_complete(advice)
    return advice


class UnreadableAnswer(Http404):
    """A stored answer that this version cannot read. Its JSON and its workload can still be exported."""

    def __init__(self, advice: Advice) -> None:
        super().__init__(UNREADABLE)
        self.advice = advice


def answer_of(advice: Advice) -> Answer:
    """The answer of a finished advice; UnreadableAnswer where another version stored it in another form."""
    try:
        return kept.read(advice)
    except Advice.DoesNotExist:
        raise Http404(GONE) from None
    except ValidationError as error:
        log.warning("unreadable_answer", advice=str(advice.pk), errors=error.error_count())
        raise UnreadableAnswer(advice) from error


def or_unreadable(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view, or a page that offers to re-run the request where its answer cannot be read."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except UnreadableAnswer as error:
            context = {"advice": error.advice, "detail": UNREADABLE, "shared": "token" in kwargs}
            return render(request, "advisor/unreadable.html", context)

    return shown


def or_incomplete(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view, or a page that says that what it needs is still being computed, and asks again."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Incomplete as error:
            if is_program(request):
                return incomplete(error)
            context = {"detail": str(error), "is_due": error.is_due, "shared": "token" in kwargs}
            response = render(request, "advisor/incomplete.html", context, status=202 if error.is_due else 409)
            if error.is_due:
                response["Retry-After"] = "1"
            return unlisted(response) if "token" in kwargs else response

    return shown


def one_section(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view; the address of all sections on one page, which older links have, leads to the first."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.GET.get("section") != ALL:
            return view(request, *args, **kwargs)
        rest = request.GET.copy()
        del rest["section"]
        return redirect(f"{request.path}?{rest.urlencode()}".removesuffix("?"))

    return shown


def hold_or_404(advice: Advice) -> None:
    """What is added to an advice in this transaction is not added to one that is being deleted."""
    try:
        advise.hold(advice.pk)
    except Advice.DoesNotExist:
        raise Http404(GONE) from None


# --- ask --------------------------------------------------------------------------------------------------------


def ask(request: HttpRequest) -> HttpResponse:
    """The form; a valid one becomes a queued advice for each model that it names."""
    caller = caller_of(request)
    if request.method == "POST":
        if sent := refused(request, Right.PLAN, "ask"):
            return sent
        form = forms.WorkloadForm(request.POST, request.FILES, organisation=caller.organisation)
        earlier = earlier_of(request, request.POST.get("from", ""))
    else:
        earlier = earlier_of(request, request.GET.get("from", ""))
        spec = started_from(request, earlier)
        if spec and spec.get("kind") == PORTFOLIO:
            return redirect(f"{reverse('portfolio')}?{request.GET.urlencode()}")
        initial = forms.from_spec(spec) if spec else forms.defaults()
        form = forms.WorkloadForm(initial=initial, organisation=caller.organisation)
    if form.is_bound and form.is_valid():
        try:
            with transaction.atomic():  # all of them, or none if the queue has no room for one
                queued = [asked(spec, caller, earlier) for spec in form.specs]
        except advise.QueueFull as error:
            form.add_error(None, str(error))
        else:
            if len(queued) == 1:
                return redirect("advice", queued[0].pk)
            messages.success(request, f"{len(queued)} requests were queued, one for each model.")
            return redirect("advice-list")
    if form.is_bound and form.is_in_english:
        form = form.in_english()
        translation.activate(reader.ENGLISH)  # until the end of the request
    context = {
        "form": form,
        "earlier": earlier,
        "presets": forms.presets(),
        "chosen": request.GET.get("preset", ""),
        "error_count": sum(map(len, form.errors.values())) if form.is_bound else 0,
    }
    return render(request, "advisor/ask.html", context, status=422 if form.is_bound else 200)


def asked(spec: dict[str, Any], caller: Caller, earlier: Advice | None) -> Advice:
    """The queued question; one that was changed from an earlier answer keeps its lineage."""
    try:
        return advise.request(spec, caller.organisation, supersedes=earlier, made_by=caller.name)
    except Advice.DoesNotExist:  # the earlier one has been deleted since
        return advise.request(spec, caller.organisation, made_by=caller.name)


def earlier_of(request: HttpRequest, text: str) -> Advice | None:
    """The answer whose question is changed; None where the caller sees none of that ID."""
    return advise.visible(organisation_of(request)).defer("result").filter(pk=text).first() if is_uuid(text) else None


def started_from(request: HttpRequest, earlier: Advice | None) -> dict[str, Any] | None:
    """The question of ?preset=slug or of ?from=an advice; None for a fresh form.

    ?change=an accelerator that the advice rejected: with the change that its rejection names.
    """
    spec = forms.preset(request.GET["preset"]) if "preset" in request.GET else None
    if "from" in request.GET:
        spec = earlier.workload.spec if earlier else None
        if earlier and "change" in request.GET and earlier.is_done:
            spec = with_changes(unnamed(earlier.workload.spec), change_for(answer_of(earlier), request.GET["change"]))
    if spec is None and request.GET.keys() & {"preset", "from"}:
        raise Http404("That workload does not exist.")
    return spec


def change_for(answer: Answer, accelerator: str) -> dict[str, Any]:
    """The change with which a rejected accelerator would pass; empty if there is none."""
    return next((item.change for item in answer.rejected if item.accelerator == accelerator), {})


def is_uuid(text: str) -> bool:
    try:
        return bool(UUID(text))
    except ValueError:
        return False


# --- read -------------------------------------------------------------------------------------------------------


@never_cache
@require_safe
@or_unreadable
@one_section
def advice(request: HttpRequest, pk: Any) -> HttpResponse:
    """The answer, or how far it is."""
    advice = get_object_or_404(advise.visible(organisation_of(request)).defer("result", "snapshot"), pk=pk)
    if advice.state in advise.FINISHED:
        if is_poll(request):
            return still_due(request, advice)
        return render(request, "advisor/advice.html", advice_context(request, advice))
    template = "advisor/progress.html" if is_poll(request) else "advisor/waiting.html"
    return render(request, template, {"advice": advice, **progress(advice)})


def still_due(request: HttpRequest, advice: Advice) -> HttpResponse:
    """The line that says that sections are being computed, or the whole page again once they are."""
    return render(request, "advisor/_due.html", due(request)) if advice.is_due else HttpResponseClientRefresh()


def due(request: HttpRequest) -> dict[str, Any]:
    return {"is_due": True, "poll_url": request.get_full_path(), "poll_s": 1}


def is_poll(request: HttpRequest) -> bool:
    return bool(getattr(request, "htmx", False))


def progress(advice: Advice) -> dict[str, Any]:
    """Elapsed time, seconds until the next poll (often at first, then less often), and how many are ahead."""
    elapsed_s = (clock.read() - advice.created_at).total_seconds()
    ahead = advise.ahead().get(advice.pk) if advice.state == Advice.State.QUEUED else None
    return {"elapsed_s": elapsed_s, "poll_s": 1 if elapsed_s < 20 else 2 if elapsed_s < 60 else 5, "ahead": ahead}


def advice_context(request: HttpRequest, advice: Advice) -> dict[str, Any]:
    base = reverse("advice", args=[advice.pk]) + "/options/"
    context = {
        "advice": advice,
        "spec": advice.workload.spec,
        "share_days": SHARE_DAYS,
        "may_delete": caller_of(request).may_administer,
    }
    if advice.is_done:
        context |= answer_context(request, advice, base)
    context["shares"] = share_links.live(advice.shares.all()).order_by("expires_at")
    context["comments"] = comments.shown(advice, caller_of(request))
    if advice.reused_from:
        earlier = advise.visible(advice.organisation).filter(pk=advice.reused_from["id"])
        context["reused"] = {"on": parse_datetime(advice.reused_from["finished_at"]), "is_stored": earlier.exists()}
    context |= what_if.lineage(advice)
    if advice.is_done and what_if.can_change(advice.workload.spec, advice.organisation):
        context |= what_if.form_context(advice.workload.spec, reverse("what-if", args=[advice.pk]))
    return context


def answer_context(request: HttpRequest, advice: Advice, base: str, *, shared: bool = False) -> dict[str, Any]:
    """What the page of an answer shows; its sections are kept, for every reader of the organization alike."""
    answer, spec = answer_of(advice), advice.workload.spec
    section, sort = section_of(request), request.GET.get("sort", "")
    absent = bool(later.absent(advice))
    opened = [name for name in ("ranked", "hosted") if request.GET.get(name) == ALL]
    papers = base.removesuffix("options/") + "documents/"

    def draw() -> kept.Html:
        found = page(answer, spec, base, sort, section, opened)
        found |= {"advice": advice, "spec": spec, "shared": shared, "option_base": base, "sort": sort}
        if sections.needs(found["parts"], "run") and found.get("best"):
            found |= {"exports": exports(answer, found["best"]["option"].rank, papers)}
        screen = "advisor/_screen.html" if found["is_first"] else "advisor/_screen_line.html"
        pieces = {"screen": screen, "chart": "advisor/_over_time.html", "notes": "advisor/_notes.html"}
        if not absent or found["section"] not in sections.EXPLAINING:
            pieces |= {"parts": "advisor/_parts.html"}
        return kept.rendered(request, pieces, found)

    return {
        **(due(request) if advice.is_due else {"missing": later.missing(advice)}),
        "result": answer,
        "documents": papers,
        "has_documents": documents.has_papers(answer),
        "undone": calibration_marks.undone(answer),
        "title": report.title_of(answer),
        "question": report.question_of(answer),
        **sections.context(sections_of(answer, spec), section),
        "drawn": kept.drawn(advice, ["answer", base, shared, sort, section, *opened], draw),
    }


def exports(answer: Answer, rank: int, base: str) -> list[tuple[str, str]]:
    """Address and system of each file that starts the option in another system; `base`: of the documents."""
    return [(f"{base}{name}?rank={rank}", release) for name, release in report.exports_of(answer, rank).items()]


def section_of(request: HttpRequest) -> str:
    """The section that is asked for; a sorted ranking is among the alternatives."""
    return request.GET.get("section", "alternatives" if "sort" in request.GET else "")


@require_safe
@or_unreadable
@one_section
def option(request: HttpRequest, pk: Any, rank: int) -> HttpResponse:
    advice = finished(organisation_of(request), pk)
    context = {**option_context(request, advice, rank), "may_delete": caller_of(request).may_administer}
    return render(request, template_of(context["option"]), context)


def template_of(option: Any) -> str:
    return "advisor/api_option.html" if isinstance(option, ApiOption) else "advisor/option.html"


def option_context(request: HttpRequest, advice: Advice, rank: int, token: str = "") -> dict[str, Any]:
    """What the page of an option shows; `token`: of the link that shares it. Its sections are kept."""
    answer, spec = answer_of(advice), advice.workload.spec
    option = answer.option(rank)
    if option is None:
        raise Http404("This answer has no option of that rank.")
    ranks = [each.rank for each in answer.recommendations]
    context = {"advice": advice, "option": option, "ranks": ranks, "spec": spec, "shared": bool(token), "token": token}
    if isinstance(option, ApiOption):
        return context | {"changing_traffic": report.has_changing_traffic(answer)}
    context["trains"] = trains = isinstance(option, TrainingOption)
    section = section_of(request)
    context |= sections.context(sections.RUN if trains else sections.OPTION, section)

    def draw() -> kept.Html:
        if isinstance(option, TrainingOption):
            found = training_page.option_context(option, spec)
        else:
            evidence = nearest_rows.shown(nearest_rows.of_option(option, spec))
            keys = option.correction.row_keys if option.correction else []
            rows = [key for key in keys if not key.startswith(calibration_marks.OWN)]
            link = nearest_rows.address(rows, option.correction.imported) if option.correction and rows else ""
            found = {**page_of_option(option, answer, spec), "evidence": evidence, "correction_url": link}
        if sections.needs(context["parts"], "run"):
            base = reverse("shared", args=[token]) if token else reverse("advice", args=[advice.pk])
            found |= {"exports": exports(answer, rank, f"{base}/documents/")}
        tiles = {"tiles": "advisor/_tiles.html"} if context["is_first"] else {}
        pieces = tiles | {part.slug: part.template for part in context["parts"]}
        return kept.rendered(request, pieces, {**found, **context})

    drawn = kept.drawn(advice, ["option", rank, token, section], draw)
    context |= {"tiles": drawn.get("tiles", ""), "drawn_parts": [(part, drawn[part.slug]) for part in context["parts"]]}
    context["undone"] = calibration_marks.undone(answer)
    return context if trains else {**context, **load_test_views.shown(advice, rank)}


# --- change -----------------------------------------------------------------------------------------------------


@require_POST
@needs(Right.PLAN, "advice-list")
def cancel(request: HttpRequest, pk: Any) -> HttpResponse:
    advise.cancel(get_object_or_404(advise.visible(organisation_of(request)), pk=pk))
    return redirect("advice", pk)


@require_POST
@needs(Right.PLAN, "advice-list")
def rescore(request: HttpRequest, pk: Any) -> HttpResponse:
    advice = get_object_or_404(advise.visible(organisation_of(request)), pk=pk)
    try:
        return redirect("advice", again(advice, request.POST.get("prices") == THEN, caller_of(request).name).pk)
    except advise.QueueFull as error:
        messages.error(request, str(error))
        return redirect("advice", pk)
    except Advice.DoesNotExist:
        raise Http404(GONE) from None
    except WorkloadError as trouble:  # the catalog has changed since
        messages.error(request, f"This request cannot be re-run as it is: {trouble}. Change it in the form.")
        return redirect("advice", pk)


def again(advice: Advice, at_its_prices: bool, by: str) -> Advice:
    """The same question once more, at the prices of its day or at today's; an unfinished one is returned unchanged.

    Raises QueueFull, Advice.DoesNotExist (deleted meanwhile) and WorkloadError (the catalog has changed since).
    """
    if at_its_prices and advice.state in advise.FINISHED:
        return advise.again_at_its_prices(advice, by)
    advise.check_room(advice.organisation, by)
    return advise.rescore(advice, by)


@require_POST
@needs(Right.PLAN, "advice-list")
def share(request: HttpRequest, pk: Any) -> HttpResponse:
    """Make a link that anyone who has it can read, until it expires."""
    advice = finished(organisation_of(request), pk)
    days_text = request.POST.get("days", "")
    days = int(days_text) if days_text in map(str, SHARE_DAYS) else 30
    caller = caller_of(request)
    with transaction.atomic():
        hold_or_404(advice)
        token = share_links.create(advice, days, caller.name)
    url = request.build_absolute_uri(reverse("shared", args=[token]))
    text = f"Link created. It is valid for {days} days. Copy it now; it is not shown again:"
    messages.success(request, format_html('{} <a href="{}">{}</a>', text, url, url))
    return redirect(reverse("advice", args=[pk]) + "#share")


@require_POST
@needs(Right.PLAN, "advice-list")
def unshare(request: HttpRequest, pk: Any) -> HttpResponse:
    """End a link now."""
    advice = finished(organisation_of(request), pk)
    which, token = request.POST.get("link", ""), request.POST.get("token", "")
    by = {"pk": which} if which.isdecimal() else {"token_hash": hashed(token)}
    ended = share_links.end(advice, caller_of(request).name, **by)
    messages.success(request, "Link revoked." if ended else "That link does not exist.")
    return redirect(reverse("advice", args=[pk]) + "#share")


# --- export -----------------------------------------------------------------------------------------------------


def download(advice: Advice, extension: str, content_type: str, text: str) -> HttpResponse:
    name = slugify(advice.workload.name) or "advice"
    disposition = f'attachment; filename="{name}.{extension}"'
    return HttpResponse(text, content_type=content_type, headers={"Content-Disposition": disposition})


@require_safe
@reader.in_english
@or_incomplete
def export_json(request: HttpRequest, pk: Any) -> HttpResponse:
    advice = completed(organisation_of(request), pk)
    result = advice.answer or {}  # as stored: readable or not
    marked = {"calibrations": calibration_marks.used(result)} if "calibrations" in result else {}
    response = JsonResponse(result | marked, json_dumps_params={"indent": 1})
    response["Content-Disposition"] = f'attachment; filename="{slugify(advice.workload.name) or "advice"}.json"'
    return response


@reader.in_english
def workload_file(advice: Advice) -> HttpResponse:
    """The workload file of any advice, finished or not; `advise` and the form accept it."""
    return download(advice, "yaml", "application/yaml; charset=utf-8", forms.as_file(advice.workload.spec))


@reader.in_english
def csv_file(advice: Advice) -> HttpResponse:
    later.check_complete(advice)
    return download(advice, "csv", "text/csv; charset=utf-8", csv_text(answer_of(advice)))


@reader.in_english
def markdown_file(advice: Advice) -> HttpResponse:
    later.check_complete(advice)
    answer = answer_of(advice)
    undone = [f"> {calibration_marks.undone_notice(c)}\n" for c in calibration_marks.undone(answer)]
    text = "\n".join([*undone, report.markdown(answer)])
    return download(advice, "md", "text/markdown; charset=utf-8", text)


@require_safe
def export_workload(request: HttpRequest, pk: Any) -> HttpResponse:
    return workload_file(get_object_or_404(advise.visible(organisation_of(request)), pk=pk))


@require_safe
@or_incomplete
def export_csv(request: HttpRequest, pk: Any) -> HttpResponse:
    return csv_file(finished(organisation_of(request), pk))


@require_safe
@or_incomplete
def export_markdown(request: HttpRequest, pk: Any) -> HttpResponse:
    return markdown_file(finished(organisation_of(request), pk))


# --- shared -----------------------------------------------------------------------------------------------------


def shared_advice(token: str) -> Advice:
    link = share_links.by_token(token)
    if link is None or not link.advice.is_done:
        raise Http404("This link is invalid or has expired. Ask the sender for a new one.")
    return link.advice


def unlisted(response: HttpResponse) -> HttpResponse:
    """Keep the token out of search engines and out of other sites' logs."""
    response["X-Robots-Tag"] = "noindex, nofollow"
    response["Referrer-Policy"] = "no-referrer"
    return response


@login_not_required
@never_cache
@require_safe
@or_unreadable
@one_section
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """The advice page without its controls."""
    advice = shared_advice(token)
    if is_poll(request):
        return unlisted(still_due(request, advice))
    base = reverse("shared", args=[token]) + "/options/"
    context = {"advice": advice, "spec": advice.workload.spec, "shared": True}
    context |= answer_context(request, advice, base, shared=True)
    if what_if.can_change(advice.workload.spec, None):
        context["what_if_url"] = reverse("shared-what-if", args=[token])
    return unlisted(render(request, "advisor/advice.html", context))


@login_not_required
@never_cache
@require_safe
@or_unreadable
@one_section
def shared_option(request: HttpRequest, token: str, rank: int) -> HttpResponse:
    advice = shared_advice(token)
    context = option_context(request, advice, rank, token)
    return unlisted(render(request, template_of(context["option"]), context))


# --- errors -----------------------------------------------------------------------------------------------------

TROUBLE = {
    400: ("Bad request", "Go back and submit it again."),
    403: ("Not allowed", "Sign in, or ask an administrator for permission."),
    404: ("Page not found", "Check the address. The page may have been deleted."),
    411: ("Length required", "Send the request again with a Content-Length header."),
    413: ("Too large", "A workload is at most 1 MB of text. Send less."),
    503: ("Not available right now", "Try again in a moment."),
    500: ("Something went wrong here", "The error was logged. Try again in a moment; nothing you sent is lost."),
}


def trouble(request: HttpRequest, status: int, detail: str = "") -> HttpResponse:
    """An error as a page, or as problem details for callers of the API."""
    title, advice_text = TROUBLE[status]
    if request.path.startswith("/api/") or is_program(request):
        return refusal(status, detail or advice_text, title=title)
    context = {"status": status, "title": title, "detail": detail, "what_to_do": advice_text}
    translation.activate(reader.ENGLISH)  # until the end of the request
    return HttpResponse(render_to_string("advisor/trouble.html", context), status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return trouble(request, 413 if isinstance(exception, RequestDataTooBig) else 400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    return trouble(request, 403, str(exception))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    detail = exception.args[0] if exception.args else ""
    detail = str(detail) if isinstance(detail, Promise) else detail
    return trouble(request, 404, detail if isinstance(detail, str) and not detail.startswith("No ") else "")


def server_error(request: HttpRequest) -> HttpResponse:
    """500, or 503 when the database, the broker or space on the disk is missing."""
    missing = unavailable(sys.exc_info()[1])
    if missing is None:
        return trouble(request, 500)
    response = trouble(request, 503, missing.detail)
    response["Retry-After"] = str(missing.retry_after_s)
    return response
