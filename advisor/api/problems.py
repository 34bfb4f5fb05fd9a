"""The REST framework's exception handler: what each error of advice means to a client, as a problem document."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import JsonResponse, UnreadablePostError
from redis import RedisError
from rest_framework import exceptions

from advisor import storage
from advisor.advise import KeyReused, QueueFull
from advisor.later import sections
from advisor.workload import WorkloadError
from catalog.rest import TooLarge, flat, problem_document, refusal

MISSING_CREDENTIALS = (
    "This call needs credentials: sign in, or send a token (Authorization: Bearer aat_...). "
    "Create one with manage.py token make NAME."
)
LATER = {"Retry-After": "1"}
NOTHING_HERE = "Nothing was found at this URL: the ID or name may be wrong, or the object was deleted."


INVALID_WORKLOAD = ("urn:assay:problem:invalid-workload", "The workload is not valid")  # type and title


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Something the server needs is not available: 503 with Retry-After."""

    detail: str
    retry_after_s: int = 5


def workload_problem(error: WorkloadError) -> dict[str, Any]:
    """The problem document of a workload or an estimate that is not valid."""
    kind, title = INVALID_WORKLOAD
    return problem_document(422, title, str(error), error.errors, kind)


def unavailable(exc: BaseException | None) -> Unavailable | None:
    """The reason if the error means that something is not available; else None."""
    if storage.is_full(exc):
        return Unavailable("The server's disk is full and nothing was stored. Send the request again later.", 60)
    if isinstance(exc, OperationalError | InterfaceError):
        return Unavailable("The database is not available; try again in a few seconds.")
    if isinstance(exc, RedisError):
        return Unavailable("The broker (Redis) is not available; try again in a few seconds.")
    return None


def incomplete(exc: sections.Incomplete) -> JsonResponse:
    """202 while the sections that are asked for are being computed, else 409."""
    if not exc.is_due:
        return refusal(409, str(exc))
    return refusal(202, str(exc), kind="urn:assay:problem:incomplete", title="Not complete yet", headers=LATER)


def problem(exc: Exception, context: dict[str, Any]) -> JsonResponse | None:
    """The REST framework's exception handler; None for unexpected errors (500 by views.server_error)."""
    if isinstance(exc, WorkloadError):
        return refusal(422, str(exc), exc.errors, *INVALID_WORKLOAD)
    if isinstance(exc, KeyReused):
        return refusal(409, str(exc), kind="urn:assay:problem:key-reused", title="Idempotency key reused")
    if isinstance(exc, QueueFull):
        wait = {"Retry-After": str(exc.wait_s)} if exc.status == HTTPStatus.TOO_MANY_REQUESTS else {}
        return refusal(exc.status, str(exc), kind="urn:assay:problem:quota", title="Quota reached", headers=wait)
    if isinstance(exc, sections.Incomplete):
        return incomplete(exc)
    if isinstance(exc, RequestDataTooBig):
        exc = TooLarge()
    if isinstance(exc, UnreadablePostError):
        return refusal(408, "The body was not received.")
    if missing := unavailable(exc):
        return refusal(503, missing.detail, headers={"Retry-After": str(missing.retry_after_s)})
    from rest_framework.views import exception_handler  # here, because views read settings that name this package

    response = exception_handler(exc, context)
    if response is None:
        return None
    errors = flat(response.data) if isinstance(exc, exceptions.ValidationError) else []
    detail = "Some fields are not valid." if errors else str(getattr(exc, "detail", exc))
    if isinstance(exc, exceptions.NotAuthenticated):
        detail = getattr(context.get("view"), "missing_credentials", MISSING_CREDENTIALS)
    has_detail = isinstance(exc, exceptions.NotFound) and exc.detail != exceptions.NotFound.default_detail
    if response.status_code == HTTPStatus.NOT_FOUND and not has_detail:
        detail = NOTHING_HERE
    kept = {name: value for name, value in response.headers.items() if name != "Content-Type"}
    return refusal(response.status_code, detail, errors, headers=kept)
