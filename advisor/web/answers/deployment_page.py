"""A running deployment beside an option that was its plan, as a page. Nothing of what is uploaded is stored."""

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from rest_framework.exceptions import APIException

from advisor import load_tests
from advisor.api import limits
from advisor.load_tests import LoadResultError
from advisor.web import load_test_views
from advisor.workload import WorkloadError
from catalog.accounts import Right, needs, organisation_of
from catalog.loading.bounded import WEB
from catalog.rest import Unprocessable

PASTED = "pasted text"


class DeploymentForm(forms.Form):
    accelerator = forms.CharField(required=False, max_length=100)
    servers = forms.IntegerField(required=False, min_value=1, max_value=4096)
    window_s = forms.FloatField(required=False, min_value=0.001, max_value=1e9)


@never_cache
@needs(Right.PLAN, "advice-list")
def page(request: HttpRequest, pk: Any, rank: int) -> HttpResponse:
    organisation = organisation_of(request)
    option = load_test_views.option_of(organisation, pk, rank)
    context: dict[str, Any] = {"advice": option.advice, "option": option, "form": request.POST, "trouble": ""}
    status = 200
    try:
        context["label"] = load_tests.predicted(option).label
        if request.method == "POST":
            context["found"] = _found(request, {"advice": pk, "option": rank}, organisation)
    except (Unprocessable, WorkloadError, LoadResultError, APIException) as error:
        context["trouble"], status = _said(error), getattr(error, "status_code", 422)
    return render(request, "advisor/deployment.html", context, status=status)


def _found(request: HttpRequest, asked: dict[str, Any], organisation: Any) -> list[dict[str, Any]]:
    from advisor import deployments  # here, so that web workers load the engine only for comparisons

    form = DeploymentForm(request.POST)
    if not form.is_valid():
        raise Unprocessable({name: [str(each) for each in errors] for name, errors in form.errors.items()})
    files: list[tuple[str, str | bytes, float | None]] = [
        (each.name or "file", each.read(WEB.max_bytes + 1), None) for each in request.FILES.getlist("files")
    ]
    if pasted := request.POST.get("text", "").strip():
        files.append((PASTED, pasted, None))
    limits.of_estimate(request)
    asked = asked | {key: value for key, value in form.cleaned_data.items() if value not in (None, "")}
    reports = load_test_views.compared(asked, files, organisation)["deployments"]
    return [{"name": d["name"], "answer": d["answer"], "parts": deployments.parts(d)} for d in reports]


def _said(error: Exception) -> str:
    if isinstance(error, APIException) and isinstance(error.detail, dict):
        return "; ".join(
            f"{name}: {each}" if name != "files" else str(each)
            for name, said in error.detail.items() for each in (said if isinstance(said, list) else [said])
        )  # fmt: skip
    return str(error)
