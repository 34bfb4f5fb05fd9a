"""Strict parsers of request bodies in JSON or YAML, with a size limit."""

from collections.abc import Mapping
from typing import Any

from rest_framework import exceptions, parsers
from rest_framework.request import Request

from advisor import workload
from advisor.api.problems import TooLarge
from advisor.workload import MAX_TEXT_BYTES, check_size
from catalog.loading.bounded import BoundedError, Bounds, read_json

KEY_LENGTH = 80
BODY = Bounds(max_bytes=MAX_TEXT_BYTES, max_values=500_000)  # 40 MB of memory; check_size allows 20,000 values


def read_body(stream: Any) -> bytes:
    """The whole body. Raises TooLarge (413) if it is longer than a workload may be."""
    text = stream.read(MAX_TEXT_BYTES + 1)
    if len(text) > MAX_TEXT_BYTES:
        raise TooLarge
    return bytes(text)


class StrictJSONParser(parsers.BaseParser):
    """UTF-8 JSON without duplicate keys, limited in bytes and values. Validation refuses NaN, naming the field."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            data = read_json(read_body(stream), BODY)
            check_size(data)
            return data
        except workload.WorkloadError as error:
            raise exceptions.ParseError(
                f"The JSON {error.errors[0]['message']}: {error.errors[0]['allowed']}."
            ) from None
        except BoundedError as error:
            raise exceptions.ParseError(f"Malformed JSON: the body {error}.") from None


class YAMLParser(parsers.BaseParser):
    media_type = "application/yaml"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            return workload.load(read_body(stream))
        except workload.WorkloadError as error:
            raise exceptions.ParseError(f"Malformed YAML: {error}.") from None


class XYAMLParser(YAMLParser):
    media_type = "application/x-yaml"


class TextYAMLParser(YAMLParser):
    media_type = "text/yaml"


PARSERS = [StrictJSONParser, YAMLParser, XYAMLParser, TextYAMLParser]


def workload_in(data: Any) -> dict[str, Any]:
    """The validated workload in a body: the workload itself or {"workload": ...}. Raises WorkloadError."""
    if isinstance(data, Mapping) and set(data) == {"workload"}:
        data = data["workload"]
    if not isinstance(data, dict):
        raise workload.WorkloadError([workload.error("", "must be an object of keys", "a workload, or {workload}")])
    return workload.parse(data)


def idempotency_key(request: Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise exceptions.ParseError(f"Idempotency-Key: at most {KEY_LENGTH} printable ASCII characters.")
    return key
