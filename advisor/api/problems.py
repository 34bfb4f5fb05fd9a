"""Every refusal of the API as application/problem+json (RFC 9457): what is wrong, where, and what is allowed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import JsonResponse, UnreadablePostError
from redis import RedisError
from rest_framework import exceptions
from rest_framework.views import exception_handler

from advisor import storage
from advisor.advise import KeyReused
from advisor.models import Advice
from advisor.workload import MAX_ERRORS, WorkloadError, cut, error

CONTENT_TYPE = "application/problem+json"
MOST_DETAIL = 2000  # characters

MISSING_CREDENTIALS = (
    "This call needs credentials: sign in, or send a token (Authorization: Bearer aat_...). "
    "The command manage.py token make NAME makes one."
)
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


@dataclass(frozen=True, slots=True)
class Unavailable:
    """What the server needs and does not have now: 503, and when to try again."""

    detail: str
    retry_after_s: int = 5


def unavailable(exc: BaseException | None) -> Unavailable | None:
    """The reason why a call cannot be answered now; None when the error is of another kind."""
    if storage.is_full(exc):
        return Unavailable("The server's disk is full. Nothing of this request was stored: send it again later.", 60)
    if isinstance(exc, OperationalError | InterfaceError):
        return Unavailable("The database does not answer; try again in a few seconds.")
    if isinstance(exc, RedisError):
        return Unavailable("The broker (Redis) does not answer; try again in a few seconds.")
    return None


def body(
    status: int, title: str = "", detail: str = "", errors: Sequence[Mapping[str, str]] = (), kind: str = "about:blank"
) -> dict[str, Any]:
    """The members of a problem document: at most MAX_ERRORS errors, and how many there are."""
    said = [{name: sayable(text) for name, text in each.items()} for each in errors[:MAX_ERRORS]]
    return {
        "type": kind,
        "title": title or HTTPStatus(status).phrase,
        "status": int(status),
        "detail": cut(sayable(detail), MOST_DETAIL),
        "errors": said,
        "error_count": len(errors),
    }


def sayable(text: str) -> str:
    """What was sent may hold half of a surrogate pair, which no answer can repeat."""
    return text.encode(errors="replace").decode()


def problem_response(status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """For errors outside of the API's views: unknown addresses, bodies refused early, failures."""
    return JsonResponse(body(status, title, detail), status=status, content_type=CONTENT_TYPE, headers=headers)


def problem(exc: Exception, context: dict[str, Any]) -> JsonResponse | None:
    """The REST framework's exception handler; None for what nobody foresaw (a 500, by views.server_error)."""
    if isinstance(exc, WorkloadError):
        return refusal(422, str(exc), exc.errors, "urn:assay:problem:invalid-workload", "The workload cannot be used")
    if isinstance(exc, KeyReused):
        return refusal(409, str(exc), kind="urn:assay:problem:key-reused", title="Idempotency key reused")
    if isinstance(exc, RequestDataTooBig):
        exc = TooLarge()
    if isinstance(exc, UnreadablePostError):
        return refusal(408, "The body did not arrive.")
    if missing := unavailable(exc):
        return refusal(503, missing.detail, headers={"Retry-After": str(missing.retry_after_s)})
    response = exception_handler(exc, context)
    if response is None:
        return None
    errors = flat(response.data) if isinstance(exc, exceptions.ValidationError) else []
    detail = "Some fields are not valid." if errors else str(getattr(exc, "detail", exc))
    if isinstance(exc, exceptions.NotAuthenticated):
        detail = getattr(context.get("view"), "missing_credentials", MISSING_CREDENTIALS)
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
) -> JsonResponse:
    """Not a Response of the REST framework: the renderer that the caller accepts may not write JSON."""
    document = body(status, title, detail, errors, kind)
    return JsonResponse(document, status=status, headers=dict(headers or {}), content_type=CONTENT_TYPE)


def flat(data: Any, field: str = "") -> list[dict[str, str]]:
    """A serializer's nested errors as a list of {field, message, allowed}."""
    if isinstance(data, Mapping):
        return [found for key, item in data.items() for found in flat(item, joined(field, str(key)))]
    if isinstance(data, list):
        numbered = any(isinstance(item, Mapping) for item in data)
        pairs = [(f"{field}[{n}]" if numbered else field, item) for n, item in enumerate(data)]
        return [found for name, item in pairs for found in flat(item, name)]
    return [error(field, str(data))]


def joined(field: str, key: str) -> str:
    return field if key == "non_field_errors" else f"{field}.{key}".lstrip(".")


def queue_is_full() -> bool:
    """Whether more questions wait than this installation accepts."""
    return Advice.objects.filter(state=Advice.State.QUEUED).count() >= settings.ADVICE_MAX_QUEUED
