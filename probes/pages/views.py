"""The worker pages: machines, jobs, results and calibrations. They work without scripts."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.paginator import Paginator
from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from catalog import clock
from catalog.accounts import Right, caller_of, needs, organisation_of, quotas, refused
from catalog.models import Organisation
from probes.agent import build
from probes.fitted import calibrations
from probes.machines import agents, jobs
from probes.models import Agent, Job, Result
from probes.pages import forms, result_figures
from probes.received import results

PAGE_SIZE = 50
COMPARABLE = 100


def who(request: HttpRequest) -> str:
    """The user name that is stored with changes."""
    return caller_of(request).name


# --- machines ---------------------------------------------------------------------------------------------------


@never_cache
@require_safe
def workers(request: HttpRequest) -> HttpResponse:
    """Machines, open jobs, and the latest results."""
    return render(
        request, "probes/workers.html", overview(request, forms.QueueForm(organisation=organisation_of(request)))
    )


def overview(request: HttpRequest, form: forms.QueueForm) -> dict[str, Any]:
    owner = organisation_of(request)
    newest = results.visible(owner).order_by("-received_at")
    rows = agents.visible(owner).prefetch_related(Prefetch("results", newest[:1], to_attr="recent"))
    now = clock.read()
    return {
        "machines": [(agent, agents.status(agent, now)) for agent in rows[:500]],
        "jobs": jobs.visible(owner).filter(state__in=jobs.OPEN)[:100],
        "ended": jobs.visible(owner).exclude(state__in=jobs.OPEN).order_by("-finished_at")[:10],
        "results": newest[:10],
        "form": form,
        "claims": agents.pending_claims(owner),
        "may_change": caller_of(request).may_operate,
    }


@require_POST
@needs(Right.OPERATE, "workers")
def queue(request: HttpRequest) -> HttpResponse:
    """Queues a suite for each selected machine."""
    owner = organisation_of(request)
    form = forms.QueueForm(request.POST, organisation=owner)
    if not form.is_valid():
        return render(request, "probes/workers.html", overview(request, form), status=422)
    for agent in form.cleaned_data["machines"]:
        jobs.request(form.spec(), wanted_agent=agent, requested_by=who(request), organisation=owner)
    count = len(form.cleaned_data["machines"])
    messages.success(request, "1 job queued." if count == 1 else f"{count} jobs queued.")
    return redirect("workers")


@require_POST
@needs(Right.OPERATE, "workers")
def cancel(request: HttpRequest, pk: Any) -> HttpResponse:
    cancelled = jobs.cancel(get_object_or_404(jobs.visible(organisation_of(request)), pk=pk))
    messages.success(request, "Job canceled." if cancelled else "The job had already finished.")
    return redirect("workers")


@never_cache
@needs(Right.OPERATE, "workers")
def enrol(request: HttpRequest) -> HttpResponse:
    """Creates a token for one machine and shows it once, with the commands to run there."""
    form = forms.EnrolForm(request.POST or None)
    context: dict[str, Any] = {"form": form}
    if request.method == "POST" and form.is_valid():
        labels, trusted = form.all_labels(), form.cleaned_data["trusted"]
        try:
            token, row = agents.enrol(labels, who(request), organisation_of(request), trusted=trusted)
        except quotas.QuotaReached as error:
            form.add_error(None, str(error))
        else:
            server = request.build_absolute_uri("/").rstrip("/")
            context |= {"row": row, "lines": build.lines(server, token, packed())}
    return render(request, "probes/enrol.html", context, status=422 if form.errors else 200)


@never_cache
@require_safe
def worker(request: HttpRequest, pk: int) -> HttpResponse:
    """One machine with its jobs, results and drift."""
    return render(
        request,
        "probes/worker.html",
        worker_context(request, get_object_or_404(agents.visible(organisation_of(request)), pk=pk)),
    )


def worker_context(request: HttpRequest, agent: Agent) -> dict[str, Any]:
    return {
        "agent": agent,
        "status": agents.status(agent),
        "claims": agents.pending_claims(agent.organisation, agent),
        "facts": facts(agent),
        "drift": result_figures.drift(agent),
        "results": results.visible(agent.organisation).filter(agent=agent)[:PAGE_SIZE],
        "jobs": Job.objects.filter(agent=agent).order_by("-requested_at")[:20],
        "may_change": caller_of(request).may_operate,
    }


def facts(agent: Agent) -> list[tuple[str, Any]]:
    device, memory = agent.device, agent.device.get("memory_bytes")
    shown = [
        ("Device", device.get("name")),
        ("Count", device.get("count")),
        ("Memory", f"{memory / 2**30:.1f} GiB" if isinstance(memory, int | float) else None),
        ("Driver", device.get("driver")),
        ("Power limit", f"{device['power_limit_w']:.0f} W" if device.get("power_limit_w") else None),
        ("Agent", agent.agent_version),
        ("Token", token_text(agent)),
        ("Results", trust_text(agent)),
        ("Registered", f"{agent.registered_at:%Y-%m-%d %H:%M} UTC"),
    ]
    return [(name, value) for name, value in shown if value]


def token_text(agent: Agent) -> str:
    ends = f", until {agent.token_expires_at:%Y-%m-%d}, renews automatically" if agent.token_expires_at else ""
    return f"{agent.token_prefix}…{ends}"


def trust_text(agent: Agent) -> str:
    if not agent.key_salt:
        return "not accepted: the agent is too old to sign results; run the newest agent.pyz on this machine"
    if agent.trusted_at:
        return f"signed, trusted since {agent.trusted_at:%Y-%m-%d} by {agent.trusted_by}; used immediately"
    return "signed; used once a second machine or a person confirms them"


@require_POST
@needs(Right.OPERATE, "workers")
def trust(request: HttpRequest, pk: int) -> HttpResponse:
    """Trusts a machine, or stops trusting it."""
    agent = get_object_or_404(agents.visible(organisation_of(request)), pk=pk)
    if request.POST.get("trusted") == "no":
        agents.distrust(agent, who(request))
        messages.success(
            request, "No longer trusted: new results wait for a second machine or a person to confirm them."
        )
    else:
        agents.trust(agent, who(request))
        refitted = results.refit_waiting(agent)
        messages.success(request, f"Trusted: {refitted} waiting results are now used." if refitted else "Trusted.")
    return redirect("worker", pk)


@require_POST
@needs(Right.OPERATE, "workers")
def approve(request: HttpRequest, pk: int, claim: int) -> HttpResponse:
    """Approves a registration without proof as coming from this machine."""
    owner = organisation_of(request)
    agent = get_object_or_404(agents.visible(owner), pk=pk)
    pending = get_object_or_404(agents.pending_claims(owner, agent), pk=claim)
    agents.approve(pending, who(request))
    messages.success(request, "Approved. Run the same command on the machine again within one hour.")
    return redirect("worker", pk)


@require_POST
@needs(Right.OPERATE, "workers")
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    agents.revoke(get_object_or_404(agents.visible(organisation_of(request)), pk=pk), who(request))
    messages.success(request, "Revoked. Its next call will be refused, and its running jobs return to the queue.")
    return redirect("worker", pk)


@never_cache
@require_POST
@needs(Right.OPERATE, "workers")
def rotate(request: HttpRequest, pk: int) -> HttpResponse:
    """Creates a new token and key, and shows the token once. Agents also rotate their token by themselves."""
    agent = get_object_or_404(agents.visible(organisation_of(request)).filter(revoked_at=None), pk=pk)
    token = agents.rotate(agent, new_key=True, by=who(request)).token
    agent.refresh_from_db()
    return render(request, "probes/worker.html", worker_context(request, agent) | {"token": token})


@login_not_required
@require_safe
def agent_file(request: HttpRequest) -> HttpResponse:
    """The agent as one file, built from the sources of this server."""
    response = HttpResponse(packed(), content_type="application/zip")
    response["Content-Disposition"] = 'attachment; filename="agent.pyz"'
    response["Repr-Digest"] = f"sha-256=:{b64encode(sha256(packed()).digest()).decode()}:"
    return response


@cache
def packed() -> bytes:
    return build.archive()


# --- results ----------------------------------------------------------------------------------------------------


@require_safe
def result_list(request: HttpRequest) -> HttpResponse:
    state = request.GET.get("state", "")
    rows = results.visible(organisation_of(request))
    rows = rows.filter(state=state) if state in Result.State.values else rows
    shown = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    return render(request, "probes/results.html", {"page": shown, "states": Result.State.values, "state": state})


def result_or_404(organisation: Organisation, pk: Any) -> Result:
    return get_object_or_404(results.visible(organisation).defer(None).select_related("calibration"), pk=pk)


@require_safe
def result(request: HttpRequest, pk: int) -> HttpResponse:
    """One result: measurements, fit, and whether it counts."""
    shown = result_or_404(organisation_of(request), pk)
    rows = list(shown.measurements.all())
    document, figures = shown.document or {}, result_figures.report_rows(shown.report)
    context = {
        "result": shown,
        "headlines": result_figures.headlines(shown),
        "pictures": result_figures.pictures(shown, rows),
        "determined": [row for row in figures if row["measured"]],
        "undetermined": [row for row in figures if not row["measured"]],
        "figures": [] if shown.report.get("figures") else result_figures.figures(shown.fit or {}),
        "rows": result_figures.table(rows),
        "skipped": [{**s, "key_text": result_figures.key_text(s["key"])} for s in document.get("skipped", [])],
        "versions": {k: v for k, v in document.get("versions", {}).items() if v},
        "device": {k: v for k, v in document.get("device", {}).items() if v not in (None, [], "")},
        "used": shown.state in results.USED and not shown.excluded_at,
        "standing": results.standing(shown),
        "may_change": caller_of(request).may_operate,
    }
    return render(request, "probes/result.html", context)


@require_POST
@needs(Right.OPERATE, "workers")
def release(request: HttpRequest, pk: int) -> HttpResponse:
    """Releases a result, so that it counts and calibrates."""
    released = results.release(get_object_or_404(results.visible(organisation_of(request)), pk=pk), who(request))
    messages.success(
        request, "The result is now used." if released else "The result was already in use, or cannot be used."
    )
    return redirect("probe-result", pk)


@require_safe
def result_json(request: HttpRequest, pk: int) -> HttpResponse:
    shown = result_or_404(organisation_of(request), pk)
    response = JsonResponse(shown.document or {}, json_dumps_params={"indent": 1})
    response["Content-Disposition"] = f'attachment; filename="result-{shown.pk}.json"'
    return response


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """Compares two results, such as two machines, or one machine with two drivers."""
    owner = organisation_of(request)
    every = results.visible(owner).exclude(state=Result.State.REJECTED)[:COMPARABLE]
    asked = [request.GET.get(side, "") for side in ("a", "b")]
    context: dict[str, Any] = {"every": every, "asked": asked}
    if all(text.isascii() and text.isdigit() and len(text) < 18 for text in asked):
        pair = [result_or_404(owner, int(text)) for text in asked]
        context |= {"pair": pair, **result_figures.comparison(*pair)}
    return render(request, "probes/compare.html", context)


# --- calibrations -----------------------------------------------------------------------------------------------


@never_cache
@require_safe
def calibration_list(request: HttpRequest) -> HttpResponse:
    """The calibrations from measurements."""
    shown = Paginator(calibrations.visible(caller_of(request).own), PAGE_SIZE).get_page(request.GET.get("page"))
    return render(request, "probes/calibrations.html", {"page": shown})


@never_cache
@require_safe
def calibration(request: HttpRequest, pk: int) -> HttpResponse:
    """One calibration: figures before and after, and affected answers."""
    row = get_object_or_404(calibrations.visible(caller_of(request).own), pk=pk)
    context = {
        "row": row,
        "slug": row.name.removeprefix(calibrations.SCOPE),
        "changes": result_figures.changes(row.changes),
        "rests_on": results.visible(organisation_of(request)).filter(pk__in=row.results),
        "affected": calibrations.affected(row, organisation_of(request)),
        "undone": calibrations.undone_by(row),
        "may_change": caller_of(request).may(calibrations.right_to_change(row)),
    }
    return render(request, "probes/calibration.html", context)


@require_POST
@needs(Right.READ, "probe-calibrations")
def undo(request: HttpRequest, pk: int) -> HttpResponse:
    row = calibrations.visible(caller_of(request).own).filter(pk=pk).first()
    right = calibrations.right_to_change(row) if row else Right.MAINTAIN
    if sent := refused(request, right, "probe-calibrations"):
        return sent
    if row is None:
        raise Http404(f"There is no calibration {pk} from measurements.")
    try:
        restored = calibrations.undo(row, who(request))
    except calibrations.CannotUndo as error:
        messages.error(request, str(error))
        return redirect("probe-calibration", pk)
    messages.success(request, "Undone. The previous figures are restored, and recent answers are being recomputed.")
    return redirect("probe-calibration", restored.pk)
