"""Fields of request bodies that take exactly the type they are described with, where REST framework would convert:
no 5 for a text, no "5" for a number, no "yes" for true."""

from typing import Any

from rest_framework import serializers


class Text(serializers.CharField):
    """Text as it is, blanks at its ends included: what was measured and what is kept have the same length."""

    default_error_messages = {"invalid": "Enter a text in quotes."}

    def __init__(self, **given: Any) -> None:
        if not given.get("allow_blank"):
            given.setdefault("min_length", 1)  # so that the description says it, too
        super().__init__(trim_whitespace=False, **given)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    default_error_messages = {"invalid": "Enter a whole number."}

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int | float) or data % 1:  # 5.0 is whole in JSON
            self.fail("invalid")
        return super().to_internal_value(int(data))


class Number(serializers.FloatField):
    default_error_messages = {"invalid": "Enter a finite number."}

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float) or abs(data) > 1e300:
            self.fail("invalid")
        return super().to_internal_value(data)


class YesNo(serializers.BooleanField):
    default_error_messages = {"invalid": "Enter true or false."}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data
