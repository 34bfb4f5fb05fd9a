"""Form fields for numbers and days that accept only the documented notation."""

import re
from typing import Any

from django import forms

MAX_NUMBER = 10**50  # the database needs minutes for much longer numbers


class NumberField(forms.DecimalField):
    """A number in ASCII digits. Django alone would also accept 5_0 and the digits of other scripts."""

    pattern, message = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", "Enter a number such as 80 or 1.5."

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=-MAX_NUMBER, max_value=MAX_NUMBER, **kwargs)

    def to_python(self, value: Any) -> Any:
        if value and not re.fullmatch(self.pattern, str(value).strip()):
            raise forms.ValidationError(self.message)
        return super().to_python(value)


class WholeField(NumberField):
    pattern, message = r"[+-]?[0-9]{1,51}", "Enter a whole number such as 2024."


class DayField(forms.DateField):
    message = "Enter a date such as 2026-10-21."

    def to_python(self, value: Any) -> Any:
        if value and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", str(value).strip()):
            raise forms.ValidationError(self.message)
        try:
            return super().to_python(value)
        except forms.ValidationError:
            raise forms.ValidationError(self.message) from None
