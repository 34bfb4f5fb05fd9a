"""How the form's fields, groups and errors look. HTML that depends on a field and its value alone is rendered once."""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as known

from advisor.engine.terms import KINDS, Kind
from advisor.web.form_fields import (
    ADVANCED,
    COUNTS,
    CURVE,
    FIELDS,
    FILE,
    LINES,
    LIST,
    NUMBER,
    QUESTION,
    SECTIONS,
    SOME_OF,
    WHOLE,
    YAML,
    Field,
    Group,
    in_field,
    is_asked,
    is_of_fleet,
    is_share,
    is_shown,
)
from advisor.workload import PORTFOLIO

LONG = 200  # characters; longer values are rendered each time
SHOWN_CHARACTERS = 40  # of a value in a summary
ROWS = {LINES: 4} | dict.fromkeys(SECTIONS, 3)
SEVERAL = (LIST, COUNTS)  # values separated by commas

# What a section that is missing asks for
NEEDED = {
    "traffic": ("traffic.input_tokens", "traffic.output_tokens", "traffic.requests_per_s"),
    "traffic.input_tokens": ("traffic.input_tokens.mean",),
    "traffic.output_tokens": ("traffic.output_tokens.mean",),
    "traffic.image_output": ("traffic.image_output.width_px",),
    "batch": ("batch.requests", "batch.deadline_hours"),
    "training": ("training.tokens",),
    "finetuning": ("finetuning.tokens",),
}
SECTIONS = {  # what readers call sections of the file
    "traffic": known("Traffic"),
    "traffic.requests_per_s": known("Requests per second"),
    "traffic.users": known("Active users"),
    "traffic.trace": known("Recorded trace"),
    "traffic.turns": known("Turns per conversation"),
    "traffic.audio": known("Audio"),
    "traffic.images": known("Images"),
    "traffic.image_output": known("Generated images"),
    "traffic.input_tokens": known("Input tokens"),
    "traffic.output_tokens": known("Output tokens"),
}
SNAKE = re.compile(r"(?<![\w.])[a-z]+(?:_[a-z]+)+(?![\w.])")
DOTTED = re.compile(r"\b[a-z_]+(?:\.[a-z_0-9-]+)+\b")


# --- fields and groups ------------------------------------------------------------------------------------------


def shown_group(
    group: Group,
    values: Mapping[str, Any],
    errors: Mapping[str, Sequence[str]],
    usual: Mapping[str, Any],
    prefix: str = "",
) -> dict[str, Any]:
    """A group with the HTML of its fields and what the summary of the closed group says."""
    fields = [
        field_html(
            f.path,
            as_texts(values[f.path]),
            tuple(map(str, errors.get(f.path, ()))),
            as_texts(usual.get(f.path)),
            prefix,
        )
        for f in group.fields
    ]
    changed = [f for f in group.fields if is_set(values[f.path], usual.get(f.path))]
    return {
        "title": group.title,
        "help": group.help,
        "says": group.says,
        "not_for": not_for(*group.fields),
        "fields": fields,
        "wrong": bool(errors),
        "set": [f"{f.label}: {value_text(f, values[f.path])}" for f in changed],
    }


def as_texts(value: Any) -> tuple[str, ...]:
    """A value of a form as texts: several for checkboxes."""
    if value in (None, ""):
        return ()
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)


def is_set(value: Any, usual: Any) -> bool:
    return bool(as_texts(value)) and sorted(as_texts(value)) != sorted(as_texts(usual))


def value_text(field: Field, value: Any) -> str:
    """A value as a summary shows it."""
    texts = [str(dict(field.choices).get(text, in_field(field, text))) for text in as_texts(value)]
    said = " ".join(", ".join(texts).split())
    return said if len(said) <= SHOWN_CHARACTERS else f"{said[: SHOWN_CHARACTERS - 1]}…"


@cache
def not_for(*fields: Field) -> str:
    """The kinds of workload for which the page shows none of the fields."""
    kinds = [name for name, kind in KINDS.items() if not any(is_shown(f.path, kind) for f in fields)]
    return " ".join([*kinds, *([PORTFOLIO] if not any(is_of_fleet(f.path) for f in fields) else [])])


def field_html(
    path: str, values: tuple[str, ...], errors: tuple[str, ...], usual: tuple[str, ...], prefix: str
) -> SafeString:
    short = not errors and sum(map(len, values)) <= LONG
    return (kept_html if short else rendered)(path, values, errors, usual, prefix, get_language())


def rendered(
    path: str,
    values: tuple[str, ...],
    errors: tuple[str, ...],
    usual: tuple[str, ...],
    prefix: str,
    language: str | None,
) -> SafeString:
    """The field as HTML; `prefix`: of its name, where a page has several forms."""
    field = ALL_FIELDS[path]
    name = f"id_{prefix}{path}"
    described = [f"{name}_helptext"] * bool(field.help) + [f"{name}_error"] * bool(errors)
    return render_to_string(
        "advisor/_field.html",
        {
            "field": field,
            "id": name,
            "name": f"{prefix}{path}",
            "control": control_of(field),
            "choices": [
                {
                    "value": value,
                    "label": label,
                    "chosen": value in values,
                    "streams": path == "kind" and value in KINDS and KINDS[value].generates_tokens,
                }
                for value, label in field.choices
            ],
            "value": in_field(field, values[0]) if values and not errors else values[0] if values else "",
            "usual": ",".join(in_field(field, each) for each in usual),
            "errors": errors,
            "described": " ".join(described),
            "not_for": not_for(field),
            "rows": 12 if path == YAML else ROWS.get(field.reads, 0),
            # shares end in a percent sign, numbers of tokens in a letter
            "inputmode": "" if is_share(field) else {NUMBER: "decimal", WHOLE: "numeric"}.get(field.reads, ""),
            "max_length": 8000 if field.reads in (CURVE, *SECTIONS) else 900_000 if field.reads == LINES else 2000,
            "several": field.reads in SEVERAL or path == "model",
        },
    )


kept_html = lru_cache(maxsize=4096)(rendered)


def control_of(field: Field) -> str:
    """Which control of _field.html reads the field."""
    if field.choices:
        return {SOME_OF: "checkbox", "switch": "radio"}.get(field.reads, "select")
    return "file" if field.reads == FILE else "textarea" if field.reads in ROWS else "text"


ALL_FIELDS = {field.path: field for group in (*QUESTION, *ADVANCED) for field in group.fields}


# --- errors -----------------------------------------------------------------------------------------------------


def required_of(path: str, kind: Kind, *, by_users: bool) -> list[str]:
    """The fields that a missing section needs, for this kind of workload."""
    if path == "traffic.requests_per_s":
        users = ["traffic.users.active", "traffic.users.think_s"]
        return users if by_users else ["traffic.requests_per_s.mean"]
    if path in NEEDED:
        inner = [name for part in NEEDED[path] for name in required_of(part, kind, by_users=by_users)]
        return [name for name in inner if is_asked(name, kind)]
    return [path] if path in FIELDS else []


# Messages of the workload file that readers of the form meet most. A form with another one is in English as a whole.
PATTERNS = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"is required(?: for kind \w+)?", known("is required")),
        (r"must be greater than (.+)", known("must be greater than %s")),
        (r"must be less than (.+)", known("must be less than %s")),
        (r"must be at least (.+)", known("must be at least %s")),
        (r"must be at most (.+)", known("must be at most %s")),
        (r"must be a number(?: or \{.*?\})?, not (.+)", known("must be a number, not %s")),
        (r"must be a whole number, not (.+)", known("must be a whole number, not %s")),
        (r"must be text, not (.+)", known("must be text, not %s")),
        (r"is not a valid choice", known("is not a valid choice")),
        (r"is too long", known("is too long")),
        (r"is empty", known("is empty")),
        (r"(.+) is not in the catalog", known("%s is not in the catalog")),
        (r"p95 (.+) is below the mean (.+)", known("p95 %s is below the mean %s")),
        (r"peak (.+) is below the mean (.+)", known("peak %s is below the mean %s")),
        (r"contradicts (.+)", known("contradicts %s")),
        (r"cannot be used with (.+)", known("cannot be used with %s")),
        (r"(.+) is both allowed and denied", known("%s is both allowed and denied")),
    )
)


PROSE = re.compile(r"(?<![\w-])[a-z]{2,} [a-z]{2,}(?![\w-])")  # two words in a row, unlike names, numbers and labels
TYPED = re.compile(r"“.*?”|\".*\"|, not .*|^\S+(?= is not in the catalog)")  # labels, and what the reader wrote


def is_translated(item: Mapping[str, str], field: str) -> bool:
    """Whether `error_text` has this error in every language, and not in English alone."""
    if field in ("", YAML):
        return False
    said, _, allowed = parts_of(labeled(item))
    found = next((found for pattern, _ in PATTERNS if (found := pattern.fullmatch(said))), None)
    return found is not None and not any(PROSE.search(TYPED.sub("", part)) for part in (*found.groups(), allowed))


def parts_of(message: str) -> tuple[str, str, str]:
    """A message, the name that it suggests, and what it says is allowed."""
    said, _, allowed = (
        message.removesuffix(")").partition(" (allowed: ") if message.endswith(")") else (message, "", "")
    )
    said, _, hint = said.partition("; did you mean ")
    return said, hint.removesuffix("?"), allowed


def in_words(message: str) -> str:
    """A message in the language of the page, if it is one of PATTERNS."""
    said, hint, allowed = parts_of(message)
    for pattern, text in PATTERNS:
        if found := pattern.fullmatch(said):
            said = gettext(text) % found.groups()
            break
    said += gettext("; did you mean %s?") % hint.replace(" or ", gettext(" or ")) if hint else ""
    return said + (gettext(" (allowed: %s)") % allowed if allowed else "")


def with_allowed(item: Mapping[str, str]) -> str:
    allowed = item["allowed"]
    shown = len(allowed) in range(1, 200) and allowed not in item["message"]
    return item["message"] + (f" (allowed: {allowed})" if shown else "")


def labeled(item: Mapping[str, str]) -> str:
    """The message in English, with the labels of the form for paths."""
    message = DOTTED.sub(lambda match: label_of(match[0]), with_allowed(item))
    return re.sub(r"^is required for kind \w+", "is required", message)


def error_text(item: Mapping[str, str], field: str) -> str:
    """An error of the workload file in the words of the form: labels for paths; `field`: where it is shown."""
    if field in ("", YAML):
        message = with_allowed(item)
        return f"{item['field']}: {message}" if item["field"] else message
    message = in_words(labeled(item))
    section = item["field"].rpartition(".")[0]
    message = SNAKE.sub(lambda match: sibling(section, match[0]), message)
    inside = item["field"].removeprefix(field) if item["field"].startswith(field) else ""
    at = re.match(r"\[(\d+)\](?:\.(\w+))?", inside)
    if at and at[2]:  # a part of a line
        return gettext("line %(n)s, %(key)s: %(message)s") % {
            "n": int(at[1]) + 1,
            "key": at[2].replace("_", " "),
            "message": message,
        }
    return f"{inside.lstrip('.')}: {message}" if inside and not at else message


def sibling(section: str, key: str) -> str:
    """What the form calls another key of the section; the key itself if no field asks for it."""
    path = f"{section}.{key}"
    return label_of(path) if path in FIELDS else key


def label_of(path: str) -> str:
    """What the form calls a path of the workload file; the path itself if no field asks for it."""
    said = (gettext(SECTIONS[path]) if path in SECTIONS else "") or (
        FIELDS[path].label.removeprefix(gettext("Or: ")) if path in FIELDS else ""
    )
    return f"“{said}”" if said else path
