"""What validation found wrong, in words: the field, why, and what is allowed instead."""

import json
from collections.abc import Callable, Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from advisor.workload.text import MOST_ERRORS, dotted, error, listed, near

BOUNDS = {
    "greater_than": ("gt", "must be greater than {}", "> {}"),
    "greater_than_equal": ("ge", "must be at least {}", ">= {}"),
    "less_than_equal": ("le", "must be at most {}", "<= {}"),
    "literal_error": ("expected", "is not a valid choice", "{}"),
    "string_pattern_mismatch": ("pattern", "contains invalid characters", "printable text"),
    "string_too_long": ("max_length", "is too long", "at most {} characters"),
    "string_too_short": ("min_length", "is empty", "at least {} character"),
    "too_long": ("max_length", "has too many entries", "at most {}"),
    "too_short": ("min_length", "has too few entries", "at least {}"),
    "one_of": ("expected", "must use exactly one form", "{}"),
}
SAID = ("day",)  # kinds of error that come with their own words
TYPES = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a section of keys",
    "model_type": "a section of keys",
    "model_attributes_type": "a section of keys",
    "finite_number": "a finite number",
}

FORMS = {
    "input_tokens": "a number or {mean, p95}",
    "output_tokens": "a number or {mean, p95}",
    "requests_per_s": "a number or {mean, peak}",
}


def explained(
    trouble: ValidationError, root: type[BaseModel], one: Callable[[Any, type[BaseModel]], dict[str, str]] | None = None
) -> list[dict[str, str]]:
    """Every pydantic error; `one` (by default `explain`) describes those that are reported, the rest is brief."""
    found = trouble.errors(include_url=False)
    brief = [error(dotted(place(item)), "is not valid") for item in found[MOST_ERRORS:]]
    return [(one or explain)(item, root) for item in found[:MOST_ERRORS]] + brief


def place(item: Any) -> tuple[Any, ...]:
    return tuple(part for part in item["loc"] if not str(part).startswith(("~", "[key]")))


def explain(item: Any, root: type[BaseModel]) -> dict[str, str]:
    """A pydantic error as field, message and what is allowed in a section like `root` (a workload)."""
    loc = place(item)
    kind, context, given = item["type"], item.get("ctx", {}), item["input"]
    field = dotted(loc)
    if kind == "missing":
        return error(field, "is required")
    if kind == "extra_forbidden":
        keys = allowed_keys(loc[:-1], root)
        return error(field, f"unknown key{near(str(loc[-1]), keys)}", ", ".join(keys))
    if kind == "below_mean":
        return error(f"{field}.{context['at']}", item["msg"], f">= {context['mean']:g}")
    if kind == "beyond_log_normal":
        return error(f"{field}.{context['at']}", item["msg"], f"<= {context['mean'] * float(context['most']):g}")
    if kind in SAID:
        return error(field, item["msg"], context["expected"])
    if kind in BOUNDS:
        key, message, allowed = BOUNDS[kind]
        limit = context.get(key, "")
        limit = f"{limit:g}" if isinstance(limit, float) else limit
        hint = near(given, str(limit).replace("'", "").replace(" or ", ", ").split(", ")) if key == "expected" else ""
        return error(field, message.format(limit) + hint, allowed.format(limit).replace("'", ""))
    wanted = FORMS.get(str(loc[-1]) if loc else "", TYPES.get(kind, ""))
    shown = json.dumps(given, default=str, ensure_ascii=False)[:60]
    return error(field, f"must be {wanted}, not {shown}" if wanted else item["msg"], wanted)


def allowed_keys(loc: Iterable[Any], root: type[BaseModel]) -> list[str]:
    """The keys of the section at `loc` in `root`."""
    section = root
    for part in loc:
        field = section.model_fields.get(str(part))
        section = next(iter(sections_in(field.annotation)), section) if field else section
    return list(section.model_fields)


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections_in(part)]


# --- names that the catalog does not hold -----------------------------------------------------------------------


def unknown(
    field: str, names: Iterable[str], known: Callable[[], Iterable[str]], before: int = 0
) -> list[dict[str, str]]:
    """An error for each of `names` that is not known; the catalog is asked only when there is a name.

    Looking for near names is slow: only errors that will be reported (`before` came first) name them.
    """
    names = list(names)
    there = set(filter(None, known())) if names else set()
    empty = "none: the catalog is empty; run load_catalog"
    absent = [name for name in names if name not in there]
    full = max(MOST_ERRORS - before, 0)
    return [
        error(
            field,
            f"{name} is not in the catalog{near(name, there, most=3, cutoff=0.45)}",
            listed(name, there, LISTS.get(kind_of(field), "")) or empty,
        )
        for name in absent[:full]
    ] + [error(field, f"{name} is not in the catalog") for name in absent[full:]]


LISTS = {
    "model": "/api/v1/models",
    "accelerators": "/api/v1/accelerators",
    "vendors": "/api/v1/accelerators",
    "owned": "/api/v1/accelerators",
    "inventory": "/api/v1/accelerators",
}


def kind_of(field: str) -> str:
    """accelerators of constraints.accelerators.allow."""
    return field.removeprefix("constraints.").partition(".")[0]
