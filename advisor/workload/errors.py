"""Turns pydantic errors and unknown names into messages: the field, the reason and what is allowed."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from advisor.workload.notation.names import several
from advisor.workload.notation.sections import COUNTS, quantity_at
from advisor.workload.text import MAX_ERRORS, dotted, error, listed, near

BOUNDS = {
    "greater_than": ("gt", "must be greater than {}", "> {}"),
    "greater_than_equal": ("ge", "must be at least {}", ">= {}"),
    "less_than": ("lt", "must be less than {}", "< {}"),
    "less_than_equal": ("le", "must be at most {}", "<= {}"),
    "literal_error": ("expected", "is not a valid choice", "{}"),
    "string_pattern_mismatch": ("pattern", "contains invalid characters", "printable text"),
    "string_too_long": ("max_length", "is too long", "at most {} characters"),
    "string_too_short": ("min_length", "is empty", "at least {} character"),
    "too_long": ("max_length", "has too many entries", "at most {}"),
    "too_short": ("min_length", "has too few entries", "at least {}"),
    "one_of": ("expected", "must use exactly one form", "{}"),
}
OWN_MESSAGE = ("day",)  # error types that carry their own message
SECTION = "a section of keys"
TYPES = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": SECTION,
    "model_type": SECTION,
    "model_attributes_type": SECTION,
    "finite_number": "a finite number",
}

MACHINES = "accelerators with their number, such as 2 x 8 h100-sxm or h100-sxm: 16"
FORMS = {
    "input_tokens": "a number or {mean, p95}",
    "output_tokens": "a number or {mean, p95}",
    "requests_per_s": "a number or {mean, peak}",
}


def explained(
    failure: ValidationError,
    root: type[BaseModel],
    describe: Callable[[Any, type[BaseModel]], dict[str, str]] | None = None,
) -> list[dict[str, str]]:
    """All pydantic errors as messages. Only the first MAX_ERRORS are described, with `describe` (default `explain`)."""
    every = failure.errors(include_url=False)
    numbers = {location(item) for item in every if not is_word(item)}
    words = {location(item): item["ctx"]["expected"].replace("'", "") for item in every if is_word(item)}
    errors = [item for item in every if not is_word(item) or location(item) not in numbers]
    brief = [error(dotted(location(item)), "is not valid") for item in errors[MAX_ERRORS:]]
    said = [(location(item), (describe or explain)(item, root)) for item in errors[:MAX_ERRORS]]
    return [
        {**e, "allowed": f"{e['allowed']} or {words[at]}"} if at in words and at in numbers else e for at, e in said
    ] + brief


def is_word(item: Any) -> bool:
    """Whether this is the error of the fixed words of a union, as in `a number or none`."""
    return item["type"] == "literal_error" and str(item["loc"][-1]).startswith("literal[")


def location(item: Any) -> tuple[Any, ...]:
    """The keys that lead to the value, without what pydantic adds for the members of a union."""
    parts = [part for part in item["loc"] if not str(part).startswith(("~", "[key]"))]
    return tuple(parts[:-1] if parts and re.fullmatch(r"constrained-\w+|literal\[.*\]", str(parts[-1])) else parts)


def explain(item: Any, root: type[BaseModel]) -> dict[str, str]:
    """One pydantic error as field, message and what is allowed; `root` is the model that was validated."""
    loc = location(item)
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
    if kind in OWN_MESSAGE:
        return error(field, item["msg"], context["expected"])
    if kind in BOUNDS:
        key, message, allowed = BOUNDS[kind]
        limit = context.get(key, "")
        limit = f"{limit:g}" if isinstance(limit, float) else limit
        hint = near(given, str(limit).replace("'", "").replace(" or ", ", ").split(", ")) if key == "expected" else ""
        return error(field, message.format(limit) + hint, allowed.format(limit).replace("'", ""))
    expected = FORMS.get(str(loc[-1]) if loc else "", TYPES.get(kind, ""))
    if isinstance(given, str) and field in COUNTS:
        expected = MACHINES
    shown = json.dumps(given, default=str, ensure_ascii=False)[:60]
    if expected == SECTION and kind.startswith("model_"):
        return error(field, f"must be {SECTION}, not {shown}", f"keys {', '.join(allowed_keys(loc, root))}")
    quantity = quantity_at(root, unlisted(field)) if isinstance(given, str) else None
    allowed = quantity.examples if quantity and (not loc or loc[-1] not in FORMS) else expected
    return error(field, f"must be {expected}, not {shown}" if expected else item["msg"], allowed)


def unlisted(field: str) -> str:
    return re.sub(r"\[\d+\]", "", field)


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
    field: str,
    names: Iterable[str],
    known: Callable[[], Iterable[str]],
    before: int = 0,
    meant: Callable[[str], Iterable[str]] = lambda name: (),
) -> list[dict[str, str]]:
    """An error for each of `names` that is not in `known()`, which is called only if there are names.

    meant: the names that a text could mean; several make it ambiguous, and the error lists them.

    Finding similar names is slow, so only the errors that will be reported suggest them; `before` is the number of
    errors found earlier.
    """
    names = list(names)
    available = set(filter(None, known())) if names else set()
    empty = "none: the catalog is empty; run load_catalog"
    missing = [name for name in names if name not in available]
    explained_count = max(MAX_ERRORS - before, 0)

    def described(name: str) -> dict[str, str]:
        if len(candidates := list(meant(name))) > 1:
            return error(field, several(name, candidates))
        similar = near(name, available, limit=3, cutoff=0.45)
        allowed = listed(name, available, LIST_URLS.get(kind_of(field), "")) or empty
        return error(field, f"{name} is not in the catalog{similar}", allowed)

    return [described(name) for name in missing[:explained_count]] + [
        error(field, f"{name} is not in the catalog") for name in missing[explained_count:]
    ]


LIST_URLS = {
    "model": "/api/v1/models",
    "accelerators": "/api/v1/accelerators",
    "vendors": "/api/v1/accelerators",
    "owned": "/api/v1/accelerators",
    "inventory": "/api/v1/accelerators",
    "usd_per_accelerator_hour": "/api/v1/accelerators",
}


def kind_of(field: str) -> str:
    """`accelerators` for the field constraints.accelerators.allow."""
    return field.removeprefix("constraints.").partition(".")[0]
