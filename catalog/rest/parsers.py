"""The strict parser of JSON request bodies."""

from typing import Any, ClassVar

from rest_framework import exceptions, parsers

from catalog.loading.bounded import BoundedError, Bounds, read_json
from catalog.rest.errors import TooLarge


def read_body(stream: Any, max_bytes: int, too_large: exceptions.APIException | None = None) -> bytes:
    """The whole body. Raises `too_large`, by default TooLarge (413), if it has more bytes."""
    text = stream.read(max_bytes + 1)
    if len(text) > max_bytes:
        raise too_large or TooLarge
    return bytes(text)


class StrictJSONParser(parsers.BaseParser):
    """UTF-8 JSON without duplicate keys, limited in bytes and values."""

    media_type = "application/json"
    bounds: ClassVar = Bounds(max_bytes=1_000_000, max_values=500_000)
    finite = True  # False: a validation refuses NaN, with all else that is wrong, or reads it
    too_large: exceptions.APIException | None = None

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        text = read_body(stream, self.bounds.max_bytes, self.too_large)
        try:
            return read_json(text, self.bounds, finite=self.finite)
        except BoundedError as error:
            raise exceptions.ParseError(f"Malformed JSON: the body {error}.") from None
