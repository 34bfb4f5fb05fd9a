"""The list of studies, and the form that creates one from a study file."""

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache

from advisor.advise import QueueFull
from advisor.studies import pieces
from advisor.workload import MAX_ERRORS, WorkloadError, load, more_errors
from catalog.accounts import Right, caller_of, organisation_of, refused

ROWS = 50
EXAMPLE = """kind: grid
workload:
  model: meta-llama/Llama-3.3-70B-Instruct
  traffic: {input_tokens: 2000, output_tokens: 300, requests_per_s: {mean: 4}}
grid:
  traffic.requests_per_s.mean: [2, 4, 8]
"""


@never_cache
def page(request: HttpRequest) -> HttpResponse:
    """All studies, newest first; a posted study file becomes one."""
    text, errors = EXAMPLE, list[str]()
    if request.method == "POST":
        if sent := refused(request, Right.PLAN, "studies"):
            return sent
        text, caller = request.POST.get("file", ""), caller_of(request)
        try:
            study = pieces.request(load(text), organisation_of(request), caller.name)
            return redirect("study", study.pk)
        except WorkloadError as failure:
            errors = [said(each) for each in failure.errors[:MAX_ERRORS]] + more_errors(failure.errors)
        except QueueFull as full:
            errors = [str(full)]
    found = Paginator(pieces.visible(organisation_of(request)), ROWS).get_page(request.GET.get("page"))
    context = {"page": found, "rows": [(each, pieces.progress(each)) for each in found]}
    return render(
        request, "advisor/studies.html", context | {"text": text, "errors": errors}, status=422 if errors else 200
    )


def said(error: dict[str, Any]) -> str:
    allowed = f" (allowed: {error['allowed']})" if error.get("allowed") else ""
    return f"{error['field'] or 'study'}: {error['message']}{allowed}"
