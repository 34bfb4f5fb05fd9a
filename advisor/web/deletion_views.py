"""Pages that delete: each asks first, and works without scripts."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache

from advisor import advise, deletion
from advisor.models import Advice, ApiToken, LoadTest
from advisor.web import load_test_views
from catalog.deleting import confirmed, refused, who


def counted(number: int, noun: str) -> list[str]:
    return [f"{number} {noun}{'s' * (number > 1)}"] if number else []


@never_cache
def advice(request: HttpRequest, pk: Any) -> HttpResponse:
    found = get_object_or_404(advise.visible().defer("snapshot", "result"), pk=pk)
    goes = [
        *counted(found.options.count(), "option"),
        *counted(found.shares.count(), "link"),
        *counted(LoadTest.objects.filter(option__advice=found).count(), "load test"),
    ]
    if found.state == Advice.State.RUNNING:
        goes.append("It is still running; deleting it stops the run.")
    if successors := found.successors.count():
        goes.append(f"{successors} newer answer{'s' * (successors > 1)} to this request will be kept.")
    return confirmed(
        request,
        f"the advice “{found.workload.name}”",
        goes,
        back=reverse("advice", args=[pk]),
        then=reverse("advice-list"),
        delete=lambda: deletion.delete_advice(found, who(request.user)),
    )


@never_cache
def share(request: HttpRequest, pk: Any, share: int) -> HttpResponse:
    found = get_object_or_404(get_object_or_404(advise.visible().defer("result"), pk=pk).shares, pk=share)
    page = reverse("advice", args=[pk]) + "#share"
    return confirmed(
        request,
        f"the link that expires on {found.expires_at:%Y-%m-%d}",
        ["People with the link can no longer read the answer."],
        back=page,
        then=page,
        delete=lambda: deletion.delete_share(found, who(request.user)),
    )


@never_cache
def load_test(request: HttpRequest, pk: Any, rank: int, test: int) -> HttpResponse:
    found = get_object_or_404(load_test_views.option_of(pk, rank).load_tests, pk=test)
    page = reverse("advice-option", args=[pk, rank]) + "#load-test"
    marked = ["It is marked as calibration; later exports will not include it."] if found.calibrates else []
    return confirmed(
        request,
        f"the load test of {found.created_at:%Y-%m-%d %H:%M}",
        ["its measurements", *marked],
        back=page,
        then=page,
        delete=lambda: deletion.delete_load_test(found, who(request.user)),
    )


def tokens_visible() -> Any:
    return ApiToken.objects.filter(organisation=advise.default_organisation())


@never_cache
def tokens(request: HttpRequest) -> HttpResponse:
    """Every token with its scope, state and last use; the tokens themselves are not kept."""
    return refused(request) or render(request, "advisor/tokens.html", {"tokens": tokens_visible()})


@never_cache
def token(request: HttpRequest, pk: int) -> HttpResponse:
    if sent := refused(request):
        return sent
    found = get_object_or_404(tokens_visible(), pk=pk)
    return confirmed(
        request,
        f"the token {found.token_prefix}… ({found.name})",
        ["Its next call will be refused."] if found.status == "live" else [],
        back=reverse("tokens"),
        then=reverse("tokens"),
        delete=lambda: deletion.delete_token(found, who(request.user)),
    )
