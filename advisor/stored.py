"""Stores answers compressed to about 1/40, and upgrades those of earlier versions when they are read."""

import json
import lzma
from collections.abc import Mapping
from typing import Any

from django.db import models

Json = dict[str, Any]
RESULT_VERSION = 2  # of Advice.result; raise it when the format changes, and add a step to UPGRADES
# zlib's window of 32 KiB is smaller than one option; a window over all options compresses their similarities.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 3, "dict_size": 8 << 20}]


# --- packing ----------------------------------------------------------------------------------------------------


def packed(value: Any) -> bytes:
    """`value` as compressed JSON. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return lzma.compress(text.encode(), format=lzma.FORMAT_XZ, filters=FILTERS)


def unpacked(content: bytes) -> Any:
    return json.loads(lzma.decompress(content))


class PackedJSONField(models.BinaryField):
    """Compressed JSON, which queries cannot search."""

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else packed(value)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else unpacked(bytes(value))

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))


# --- upgrades ---------------------------------------------------------------------------------------------------


def upgraded(result: Mapping[str, Any], version: int) -> Json:
    """The result in the current format. Stored figures do not change; figures that were not computed are None."""
    upgraded_result = dict(result)
    for step in range(version, RESULT_VERSION):
        upgraded_result = UPGRADES[step](upgraded_result)
    return upgraded_result


def from_1(result: Json) -> Json:
    """Version 1 (before November 2026) has no itemized costs."""
    return {**result, "recommendations": [{"money": None} | r for r in result["recommendations"]]}


UPGRADES = {1: from_1}
