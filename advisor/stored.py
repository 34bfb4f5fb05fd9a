"""How a row keeps an answer: packed to a fortieth of its text, and readable whichever version computed it."""

import json
import lzma
from collections.abc import Mapping
from typing import Any

from django.db import models

Json = dict[str, Any]
RESULT_VERSION = 2  # of Advice.result; a change of its form raises it and adds a step to UPGRADES
# zlib sees 32 KiB back, which is less than one option: similar options are found only with a window over all of them.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 3, "dict_size": 8 << 20}]


# --- packing ----------------------------------------------------------------------------------------------------


def packed(value: Any) -> bytes:
    """JSON, compressed. NaN and infinity are refused: JSON has neither."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return lzma.compress(text.encode(), format=lzma.FORMAT_XZ, filters=FILTERS)


def unpacked(content: bytes) -> Any:
    return json.loads(lzma.decompress(content))


class PackedJSONField(models.BinaryField):
    """JSON that no query looks into, compressed with the standard library, the same in SQLite and PostgreSQL."""

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


# --- reading what an earlier version stored ---------------------------------------------------------------------


def upgraded(result: Mapping[str, Any], version: int) -> Json:
    """The result in today's form. Its figures stay as stored: what was not computed then is None now."""
    found = dict(result)
    for step in range(version, RESULT_VERSION):
        found = UPGRADES[step](found)
    return found


def from_1(result: Json) -> Json:
    """Answers from before November 2026 have no bill in parts."""
    return {**result, "recommendations": [{"money": None} | r for r in result["recommendations"]]}


UPGRADES = {1: from_1}
