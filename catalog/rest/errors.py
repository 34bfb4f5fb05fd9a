"""Problem documents (RFC 9457): the field, the reason and what is allowed; and the errors that REST views raise."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.http import JsonResponse
from rest_framework import exceptions, serializers

from catalog.field_errors import MAX_ERRORS, cut, error

CONTENT_TYPE = "application/problem+json"
MAX_DETAIL_CHARACTERS = 2000


class TooLarge(exceptions.APIException):
    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body is larger than 1 MB."


class Unprocessable(exceptions.ValidationError):
    """Well-formed, but it names unknown objects or contradicts itself."""

    status_code = HTTPStatus.UNPROCESSABLE_ENTITY


class Conflict(exceptions.APIException):
    status_code = HTTPStatus.CONFLICT
    default_detail = "The state of this recommendation does not allow this."


class ErrorSerializer(serializers.Serializer[Any]):
    field = serializers.CharField(help_text="Path in the workload, such as traffic.input_tokens.mean; empty: the whole")
    message = serializers.CharField()
    allowed = serializers.CharField(allow_blank=True, help_text="What would be accepted")


class ProblemSerializer(serializers.Serializer[Any]):
    """A refusal as of RFC 9457."""

    type = serializers.CharField(help_text="about:blank, or a URN of Assay")
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(allow_blank=True)
    errors = ErrorSerializer(many=True, help_text="At most 50 of them")  # type: ignore[assignment]
    error_count = serializers.IntegerField(help_text="How many errors were found")


def problems(*statuses: int) -> dict[Any, Any]:
    """These statuses in a view's description."""
    return {(status, CONTENT_TYPE): ProblemSerializer for status in statuses}


def document(
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


def refusal(
    status: int,
    detail: str,
    errors: Sequence[Mapping[str, str]] = (),
    kind: str = "about:blank",
    title: str = "",
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """A response with a problem document. Not a REST framework Response, whose renderer may not write JSON."""
    body = document(status, title, detail, errors, kind)
    return JsonResponse(body, status=status, headers=dict(headers or {}), content_type=CONTENT_TYPE)


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
