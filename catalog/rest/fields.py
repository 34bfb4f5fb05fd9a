"""Serializer fields that accept only their documented type.

REST framework's own fields convert: 5 to text, "5" to a number, "yes" to true.
"""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers


class Text(serializers.CharField):
    """Text that is stored unchanged, with leading and trailing blanks."""

    default_error_messages = {"invalid": "Enter text in quotes."}

    def __init__(self, **options: Any) -> None:
        if not options.get("allow_blank"):
            options.setdefault("min_length", 1)  # so that the API schema has it, too
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Pattern(Text, serializers.RegexField):
    """Text of one form."""

    def __init__(self, regex: str, **options: Any) -> None:
        super().__init__(regex=regex, **options)


class Body(serializers.Serializer[Any]):
    """An object without unknown keys. REST framework's own serializers drop them, and what was asked for with them."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping) and (unknown := sorted(map(str, set(data) - set(self.fields)))):
            allowed = ", ".join(self.fields)
            raise serializers.ValidationError(
                {key[:200]: [f"Unknown key; allowed are {allowed}."] for key in unknown[:20]}
            )
        return super().to_internal_value(data)


class Whole(serializers.IntegerField):
    default_error_messages = {"invalid": "Enter a whole number."}

    def to_internal_value(self, data: Any) -> int:
        if (
            isinstance(data, bool) or not isinstance(data, int | float) or data % 1
        ):  # JSON writers may write the integer 5 as 5.0
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


class OneOf(serializers.ChoiceField):
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return str(super().to_internal_value(data))
