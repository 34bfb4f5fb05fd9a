"""Every refusal of the API as application/problem+json (RFC 9457): what is wrong, where, and what is allowed."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import JsonResponse, UnreadablePostError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from advisor.advise import KeyReused
from advisor.models import Advice
from advisor.workload import WorkloadError

CONTENT_TYPE = "application/problem+json"


NOTHING_HERE = "Nothing is at this address: its id or name may be mistyped, or what it named is gone."


class TooLarge(exceptions.APIException):
    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body is larger than 1 MB."


class Unprocessable(exceptions.ValidationError):
    """Well formed, and yet it names what is not there or contradicts itself."""

    status_code = HTTPStatus.UNPROCESSABLE_ENTITY


class Conflict(exceptions.APIException):
    status_code = HTTPStatus.CONFLICT
    default_detail = "The state of this advice does not allow it."


def body(
    status: int, title: str = "", detail: str = "", errors: Sequence[Mapping[str, str]] = (), kind: str = "about:blank"
) -> dict[str, Any]:
    """The members of a problem document."""
    title = title or HTTPStatus(status).phrase
    said = [{name: sayable(text) for name, text in each.items()} for each in errors]
    return {"type": kind, "title": title, "status": int(status), "detail": sayable(detail), "errors": said}


def sayable(text: str) -> str:
    """What was sent may hold half of a surrogate pair, which no answer can repeat."""
    return text.encode(errors="replace").decode()


def problem_response(status: int, title: str, detail: str) -> JsonResponse:
    """For errors outside of the API's views: unknown addresses, bodies refused early, failures."""
    return JsonResponse(body(status, title, detail), status=status, content_type=CONTENT_TYPE)


def problem(exc: Exception, context: dict[str, Any]) -> Response | None:
    """The REST framework's exception handler; None for what nobody foresaw (a 500, by views.server_error)."""
    if isinstance(exc, WorkloadError):
        return refusal(422, str(exc), exc.errors, "urn:assay:problem:invalid-workload", "The workload cannot be used")
    if isinstance(exc, KeyReused):
        return refusal(409, str(exc), kind="urn:assay:problem:key-reused", title="Idempotency key reused")
    if isinstance(exc, RequestDataTooBig):
        exc = TooLarge()
    if isinstance(exc, UnreadablePostError):
        return refusal(408, "The body did not arrive.")
    if isinstance(exc, OperationalError | InterfaceError):
        return refusal(503, "The database does not answer; try again in a few seconds.", headers={"Retry-After": "5"})
    response = exception_handler(exc, context)
    if response is None:
        return None
    errors = flat(response.data) if isinstance(exc, exceptions.ValidationError) else []
    detail = "Some fields are not valid." if errors else str(getattr(exc, "detail", exc))
    said = isinstance(exc, exceptions.NotFound) and exc.detail != exceptions.NotFound.default_detail
    if response.status_code == HTTPStatus.NOT_FOUND and not said:
        detail = NOTHING_HERE
    kept = {name: value for name, value in response.headers.items() if name != "Content-Type"}
    return refusal(response.status_code, detail, errors, headers=kept)


def refusal(
    status: int,
    detail: str,
    errors: Sequence[Mapping[str, str]] = (),
    kind: str = "about:blank",
    title: str = "",
    headers: Mapping[str, str] | None = None,
) -> Response:
    document = body(status, title, detail, errors, kind)
    return Response(document, status=status, headers=dict(headers or {}), content_type=CONTENT_TYPE)


def flat(data: Any, field: str = "") -> list[dict[str, str]]:
    """A serializer's nested errors as a list of {field, message, allowed}."""
    if isinstance(data, Mapping):
        return [found for key, item in data.items() for found in flat(item, joined(field, str(key)))]
    if isinstance(data, list):
        numbered = any(isinstance(item, Mapping) for item in data)
        pairs = [(f"{field}[{n}]" if numbered else field, item) for n, item in enumerate(data)]
        return [found for name, item in pairs for found in flat(item, name)]
    return [{"field": field, "message": str(data), "allowed": ""}]


def joined(field: str, key: str) -> str:
    return field if key == "non_field_errors" else f"{field}.{key}".lstrip(".")


def queue_is_full() -> bool:
    """Whether more questions wait than this installation accepts."""
    return Advice.objects.filter(state=Advice.State.QUEUED).count() >= settings.ADVICE_MAX_QUEUED
