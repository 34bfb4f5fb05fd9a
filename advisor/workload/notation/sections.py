"""Reads the texts that stand for numbers in a section of the workload file or in the options of an estimate."""

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from advisor.workload.notation.machines import machines
from advisor.workload.notation.quantities import Quantity, Unclear, quantity_of, read, within
from advisor.workload.text import error

Errors = list[dict[str, str]]
UNBOUNDED = (float("-inf"), float("inf"))
EXTRA = "*"
COUNTS = ("owned", "inventory")


def with_numbers(raw: Mapping[str, Any], model: type[BaseModel]) -> tuple[dict[str, Any], Errors]:
    """`raw` with the numbers that its texts stand for, and an error for each text that has two readings.

    Numbers stay as they are; so does text that no number can be read from, for validation to report.
    """
    errors: Errors = []
    return dict(section(raw, model, "", errors)), errors


def clear_of(unclear: Errors, errors: Errors) -> Errors:
    """The errors of fields that have no error yet."""
    fields = {item["field"] for item in unclear}
    return [item for item in errors if item["field"] not in fields]


def section(raw: Mapping[str, Any], model: type[BaseModel], path: str, errors: Errors) -> dict[str, Any]:
    read_values = {}
    for key, value in raw.items():
        annotation = annotation_of(model, key)
        inside = f"{path}.{key}".lstrip(".") if isinstance(key, str) else path
        if annotation is not None and isinstance(value, str) and inside not in COUNTS:
            value = as_number(value, number_at(model, key, inside), inside, errors)
        elif annotation is not None:
            value = converted(value, annotation, inside, inside, errors)
        read_values[key] = value
    return read_values


@lru_cache(1024)
def number_at(model: type[BaseModel], key: str, path: str) -> Quantity | None:
    return number_in(annotation_of(model, key), path)


def converted(value: Any, annotation: Any, path: str, name: str, errors: Errors) -> Any:
    """One value as the field takes it; `name`: the path that says which quantity it is."""
    if isinstance(value, str) and name in COUNTS:
        return machines(value) or value
    if isinstance(value, str):
        return as_number(value, number_in(annotation, name), path, errors)
    if isinstance(value, list):
        items = [inner for kind, args in parts(annotation) if kind is list for inner in args]
        return [converted(v, items[0], f"{path}[{i}]", name, errors) for i, v in enumerate(value)] if items else value
    if isinstance(value, Mapping):
        for kind, args in parts(annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                return section(value, kind, path, errors)
            if kind is dict and len(args) == 2:
                return {key: converted(v, args[1], f"{path}.{key}", name, errors) for key, v in value.items()}
    return value


def as_number(text: str, quantity: Quantity | None, path: str, errors: Errors) -> Any:
    """The number that a text stands for, else the text."""
    if quantity is None:
        return text
    try:
        number = read(text, quantity)
    except Unclear as unclear:
        errors.append(error(path, str(unclear)))
        return text
    return text if number is None else number


def annotation_of(model: type[BaseModel], key: str) -> Any:
    """The annotation of a field, with what its metadata says; None for a key that the section does not have."""
    known = annotations(model)
    return known.get(key, known.get(EXTRA))


@cache
def annotations(model: type[BaseModel]) -> dict[str, Any]:
    """Annotations by name and alias; under EXTRA that of the other keys that a section takes."""
    known: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        known |= dict.fromkeys([name, *map(str, getattr(field.validation_alias, "choices", ()))], annotation)
    extra = model.__annotations__.get("__pydantic_extra__")
    return known | ({EXTRA: get_args(extra)[1]} if extra is not None else {})


@lru_cache(1024)
def quantity_at(model: type[BaseModel], path: str) -> Quantity | None:
    """The quantity at a dotted path of the section, with the field's range; None where no number stands there."""
    annotation: Any = model
    for key in path.split("."):
        inner = [kind for kind, _ in parts(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        items = [args[1] for kind, args in parts(annotation) if kind is dict and len(args) == 2]
        annotation = annotation_of(inner[0], key) if inner else items[0] if items else None
    listed = [args[0] for kind, args in parts(annotation) if kind is list]
    mapped = [args[1] for kind, args in parts(annotation) if kind is dict and len(args) == 2]
    return number_in([annotation, *listed, *mapped][-1], path) if annotation is not None else None


def parts(annotation: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(type, its arguments) of each member of an annotation: of a union, or inside Annotated."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from parts(args[0])
    elif origin in (Union, UnionType):
        for each in args:
            yield from parts(each)
    else:
        yield (origin or annotation), args


def number_in(annotation: Any, path: str) -> Quantity | None:
    """The quantity that a text there could stand for; None where the field holds text, or no number."""
    kinds = list(parts(annotation))
    if any(kind is str for kind, _ in kinds):
        return None
    means = [kind for kind, _ in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    if found := [kind for kind in means if "mean" in kind.model_fields and kind.__name__ != "NoTokens"]:
        return number_in(annotation_of(found[0], "mean"), path)
    whole = any(kind is int for kind, _ in kinds)
    if not whole and not any(kind is float for kind, _ in kinds):
        return None
    low, high, above_low = range_of(annotation)
    return within(quantity_of(path), low, high, above_low=above_low, whole=whole)


def range_of(annotation: Any) -> tuple[float, float, bool]:
    """Lowest and highest value of the numbers of an annotation, and whether the lowest is excluded."""
    low, high = UNBOUNDED
    above_low = False
    for rule in rules(annotation):
        if isinstance(rule, annotated_types.Ge):
            low = float(rule.ge)  # type: ignore[arg-type]
        elif isinstance(rule, annotated_types.Gt):
            low, above_low = float(rule.gt), True  # type: ignore[arg-type]
        elif isinstance(rule, annotated_types.Le):
            high = float(rule.le)  # type: ignore[arg-type]
        elif isinstance(rule, annotated_types.Lt):
            high = float(rule.lt)  # type: ignore[arg-type]
    return low, high, above_low


def rules(annotation: Any) -> Iterator[Any]:
    """The constraints of an annotation's numbers, also inside unions; not those of lists and mappings."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        for meta in args[1:]:
            yield from meta.metadata if isinstance(meta, FieldInfo) else (meta,)
        yield from rules(args[0])
    elif origin in (Union, UnionType):
        for each in args:
            yield from rules(each)
