"""API errors as application/problem+json (RFC 9457), with the field, the reason and what is allowed."""

from collections.abc import Mapping, Sequence
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
from advisor.workload import MAX_ERRORS, WorkloadError, cut, error

CONTENT_TYPE = "application/problem+json"
MAX_DETAIL_CHARACTERS = 2000
QUEUE_WAIT_S = 30  # Retry-After where the queue is full

MISSING_CREDENTIALS = (
    "This call needs credentials: sign in, or send a token (Authorization: Bearer aat_...). "
    "Create one with manage.py token make NAME."
)
NOTHING_HERE = "Nothing was found at this URL: the ID or name may be wrong, or the object was deleted."


class TooLarge(exceptions.APIException):
    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body is larger than 1 MB."


class Unprocessable(exceptions.ValidationError):
    """Well-formed, but it names unknown objects or contradicts itself."""

    status_code = HTTPStatus.UNPROCESSABLE_ENTITY


class Conflict(exceptions.APIException):
    status_code = HTTPStatus.CONFLICT
    default_detail = "The state of this recommendation does not allow this."


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Something the server needs is not available: 503 with Retry-After."""

    detail: str
    retry_after_s: int = 5


def unavailable(exc: BaseException | None) -> Unavailable | None:
    """The reason if the error means that something is not available; else None."""
    if storage.is_full(exc):
        return Unavailable("The server's disk is full and nothing was stored. Send the request again later.", 60)
    if isinstance(exc, OperationalError | InterfaceError):
        return Unavailable("The database is not available; try again in a few seconds.")
    if isinstance(exc, RedisError):
        return Unavailable("The broker (Redis) is not available; try again in a few seconds.")
    return None


def body(
    status: int, title: str = "", detail: str = "", errors: Sequence[Mapping[str, str]] = (), kind: str = "about:blank"
) -> dict[str, Any]:
    """A problem document with at most MAX_ERRORS errors and their total number."""
    reported = [{name: printable(text) for name, text in each.items()} for each in errors[:MAX_ERRORS]]
    return {
        "type": kind,
        "title": title or HTTPStatus(status).phrase,
        "status": int(status),
        "detail": cut(printable(detail), MAX_DETAIL_CHARACTERS),
        "errors": reported,
        "error_count": len(errors),
    }


def printable(text: str) -> str:
    """The text with lone surrogates, which cannot be encoded, replaced."""
    return text.encode(errors="replace").decode()


def problem_response(status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """A problem document for errors outside of API views: unknown URLs, refused bodies, failures."""
    return JsonResponse(body(status, title, detail), status=status, content_type=CONTENT_TYPE, headers=headers)


def problem(exc: Exception, context: dict[str, Any]) -> JsonResponse | None:
    """The REST framework's exception handler; None for unexpected errors (500 by views.server_error)."""
    if isinstance(exc, WorkloadError):
        return refusal(422, str(exc), exc.errors, "urn:assay:problem:invalid-workload", "The workload is not valid")
    if isinstance(exc, KeyReused):
        return refusal(409, str(exc), kind="urn:assay:problem:key-reused", title="Idempotency key reused")
    if isinstance(exc, QueueFull):
        exc = exceptions.Throttled(QUEUE_WAIT_S, str(exc))
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


def refusal(
    status: int,
    detail: str,
    errors: Sequence[Mapping[str, str]] = (),
    kind: str = "about:blank",
    title: str = "",
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """A problem document. Not a REST framework Response, whose renderer may not write JSON."""
    document = body(status, title, detail, errors, kind)
    return JsonResponse(document, status=status, headers=dict(headers or {}), content_type=CONTENT_TYPE)


def flat(data: Any, field: str = "") -> list[dict[str, str]]:
    """A serializer's nested errors as a list of {field, message, allowed}."""
    if isinstance(data, Mapping):
        return [entry for key, item in data.items() for entry in flat(item, joined(field, str(key)))]
    if isinstance(data, list):
        numbered = any(isinstance(item, Mapping) for item in data)
        pairs = [(f"{field}[{n}]" if numbered else field, item) for n, item in enumerate(data)]
        return [entry for name, item in pairs for entry in flat(item, name)]
    return [error(field, str(data))]


def joined(field: str, key: str) -> str:
    return field if key == "non_field_errors" else f"{field}.{key}".lstrip(".")
