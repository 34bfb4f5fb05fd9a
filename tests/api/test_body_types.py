"""Every field of every request body takes only the JSON type that the API's description gives it."""

from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

import advisor.urls  # noqa: F401  # so that every body is defined
from advisor.api import bulk_estimates  # noqa: F401

VALUES = (
    0,
    1,
    5,
    5.5,
    12345678,
    True,
    False,
    "",
    "true",
    "1",
    "5",
    "2026-11-02",
    "12345678",
    None,
    [],
    {},
    [1],
    {"a": 1},
)
TYPES: tuple[tuple[type, Any], ...] = (  # a field's class, and what may be given to it
    (serializers.BooleanField, lambda value: isinstance(value, bool)),
    (serializers.IntegerField, lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    (serializers.FloatField, lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    (serializers.CharField, lambda value: isinstance(value, str)),
    (serializers.ChoiceField, lambda value: isinstance(value, str)),
    (serializers.DictField, lambda value: isinstance(value, dict)),
    (serializers.ListField, lambda value: isinstance(value, list)),
)


def bodies(of: type[Any] = serializers.Serializer) -> Iterator[type[Any]]:
    for each in of.__subclasses__():
        if each.__module__.startswith(("advisor", "catalog", "probes")) and "Body" in each.__name__:
            yield each
        yield from bodies(each)


def fields() -> dict[str, Any]:
    found = {body.__name__: body().fields for body in bodies()}
    return {f"{name}.{key}": field for name, own in found.items() for key, field in own.items()}


@pytest.mark.parametrize("name", fields())
def test_a_field_takes_its_own_type_alone(name: str) -> None:
    field = fields()[name]
    fits = next((check for kind, check in TYPES if isinstance(field, kind)), None)
    if fits is None:
        assert isinstance(field, serializers.JSONField | serializers.Serializer), name
        return
    for value in VALUES:
        try:
            field.run_validation(value)
        except ValidationError:
            continue
        assert fits(value) or (value is None and field.allow_null), (name, value)


def test_there_are_bodies() -> None:
    assert len(fields()) > 40
