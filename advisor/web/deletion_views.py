"""Pages that delete: each asks first, and works without scripts."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.cache import never_cache

from advisor import advise, deletion
from advisor.models import Advice, LoadTest
from advisor.web import load_test_views
from catalog.accounts import caller_of, organisation_of
from catalog.pages import confirmed


def counted(number: int, noun: str) -> list[str]:
    return [f"{number} {noun}{'s' * (number > 1)}"] if number else []


@never_cache
def advice(request: HttpRequest, pk: Any) -> HttpResponse:
    row = get_object_or_404(advise.visible(organisation_of(request)).defer("snapshot", "result"), pk=pk)
    goes = [
        *counted(row.options.count(), "option"),
        *counted(row.shares.count(), "link"),
        *counted(LoadTest.objects.filter(option__advice=row).count(), "load test"),
    ]
    if row.state == Advice.State.RUNNING:
        goes.append("It is still running; deleting it stops the run.")
    if successors := row.successors.count():
        goes.append(f"{successors} newer answer{'s' * (successors > 1)} to this request will be kept.")
    return confirmed(
        request,
        f"the recommendation “{row.workload.name}”",
        goes,
        back=reverse("advice", args=[pk]),
        then=reverse("advice-list"),
        delete=lambda: deletion.delete_advice(row, caller_of(request).name),
    )


@never_cache
def share(request: HttpRequest, pk: Any, share: int) -> HttpResponse:
    row = get_object_or_404(
        get_object_or_404(advise.visible(organisation_of(request)).defer("result"), pk=pk).shares, pk=share
    )
    page = reverse("advice", args=[pk]) + "#share"
    return confirmed(
        request,
        f"the link that expires on {row.expires_at:%Y-%m-%d}",
        ["People with the link can no longer read the answer."],
        back=page,
        then=page,
        delete=lambda: deletion.delete_share(row, caller_of(request).name),
    )


@never_cache
def load_test(request: HttpRequest, pk: Any, rank: int, test: int) -> HttpResponse:
    row = get_object_or_404(load_test_views.option_of(organisation_of(request), pk, rank).load_tests, pk=test)
    page = reverse("advice-option", args=[pk, rank]) + "?section=run#load-test"
    marked = ["It is marked as calibration; later exports will not include it."] if row.calibrates else []
    return confirmed(
        request,
        f"the load test of {row.created_at:%Y-%m-%d %H:%M}",
        ["its measurements", *marked],
        back=page,
        then=page,
        delete=lambda: deletion.delete_load_test(row, caller_of(request).name),
    )
