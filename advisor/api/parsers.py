"""Strict parsers of request bodies in JSON or YAML, with a size limit."""

from collections.abc import Mapping
from typing import Any

from rest_framework import exceptions, parsers
from rest_framework.request import Request

from advisor import workload
from advisor.api import limits
from advisor.result import extras_named
from advisor.workload import MAX_TEXT_BYTES, check_size
from catalog.rest import StrictJSONParser, read_body

KEY_LENGTH = 80


class JSONParser(StrictJSONParser):
    """JSON with at most as many values, and as long keys, as a workload. Validation refuses NaN, naming the field."""

    finite = False

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        data = super().parse(stream, media_type, parser_context)
        try:
            check_size(data)
        except workload.WorkloadError as error:
            first = error.errors[0]
            raise exceptions.ParseError(f"The JSON {first['message']}: {first['allowed']}.") from None
        return data


class YAMLParser(parsers.BaseParser):
    media_type = "application/yaml"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            return workload.load(read_body(stream, MAX_TEXT_BYTES))
        except workload.WorkloadError as error:
            raise exceptions.ParseError(f"Malformed YAML: {error}.") from None


class XYAMLParser(YAMLParser):
    media_type = "application/x-yaml"


class TextYAMLParser(YAMLParser):
    media_type = "text/yaml"


PARSERS = [JSONParser, YAMLParser, XYAMLParser, TextYAMLParser]


def workload_in(data: Any) -> dict[str, Any]:
    """The validated workload in a body: the workload itself or {"workload": ...}. Raises WorkloadError."""
    if isinstance(data, Mapping) and set(data) == {"workload"}:
        data = data["workload"]
    if not isinstance(data, dict):
        raise workload.WorkloadError([workload.error("", "must be an object of keys", "a workload, or {workload}")])
    return workload.parse(data)


def included(request: Request) -> frozenset[str]:
    """The parts of an answer that `?include=` names. ValidationError: there is no such part."""
    try:
        return extras_named(request.query_params.get("include", ""))
    except ValueError as error:
        raise exceptions.ValidationError({"include": [str(error)]}) from None


REPLAYED = "Idempotency-Replayed"  # true: the response is that of an earlier request with the same key


def replayed(row: Any) -> dict[str, str]:
    """The header of a response to a repeated request."""
    return {REPLAYED: "true"} if row.is_replay else {}


def key_owner(request: Request) -> str:
    """Whose idempotency keys a call uses: those of its token or account; empty: the organization's."""
    named = limits.caller_key(request)
    return named if named.startswith(("token-", "account-")) else ""


def idempotency_key(request: Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise exceptions.ParseError(f"Idempotency-Key: at most {KEY_LENGTH} printable ASCII characters.")
    return key
