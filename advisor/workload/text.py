"""Reads YAML or JSON text safely: limited in size, without aliases and duplicate keys."""

import datetime
import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from catalog import clock
from catalog.field_errors import MAX_ERRORS, cut, error

MAX_TEXT_BYTES = 1_000_000
MAX_DEPTH = 24
MAX_NODES = 20_000
MAX_KEY_CHARACTERS = 200
MAX_DIGITS = 20  # of an integer


class WorkloadError(ValueError):
    """The workload is not valid. Each of `errors` has the field, a message and what is allowed."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        self.errors = errors
        messages = [f"{error['field'] or 'workload'}: {error['message']}" for error in errors[:MAX_ERRORS]]
        super().__init__("; ".join([*messages, *more_errors(errors)]))


def more_errors(errors: Sequence[object]) -> list[str]:
    """A line with the number of errors beyond those reported; empty if there are none."""
    return [f"and {len(errors) - MAX_ERRORS:,} more errors"] if len(errors) > MAX_ERRORS else []


class Loader(yaml.SafeLoader):
    """Safe YAML with 1.2 scalars (`no` is text, 2.0e12 a number), of limited size, no aliases, no duplicate keys."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = self.nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise WorkloadError([error("", "YAML aliases are not allowed", "plain values")])
        self.depth, self.nodes = self.depth + 1, self.nodes + 1
        if self.depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise WorkloadError(
                [error("", "nested too deeply or too many values", f"depth {MAX_DEPTH}, {MAX_NODES} values")]
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        seen = set[str]()
        for position, key in enumerate(keys):
            if not isinstance(key, str):
                raise WorkloadError([error(str(key), "keys must be text", "a text key")])
            if key in seen:
                line = node.value[position][0].start_mark.line + 1
                raise WorkloadError([error(key, f"is set twice (line {line})", "each key once")])
            seen.add(key)
        return super().construct_mapping(node, deep)


Loader.yaml_implicit_resolvers = {}
Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), None)
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), None)
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(rf"^[-+]?[0-9]{{1,{MAX_DIGITS}}}$"), None)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,4})?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    None,
)


def whole(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


Loader.add_constructor("tag:yaml.org,2002:int", whole)


def load(text: str | bytes) -> dict[str, Any]:
    """YAML (or JSON) text as a raw mapping, not yet validated. Raises WorkloadError."""
    if len(text) > MAX_TEXT_BYTES:
        raise WorkloadError([error("", f"is {len(text)} bytes long", f"at most {MAX_TEXT_BYTES} bytes")])
    try:
        data = yaml.load(text.decode() if isinstance(text, bytes) else text, Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise WorkloadError([error("", f"not valid YAML{where}: {e.problem}", "YAML or JSON")]) from None
    except (yaml.YAMLError, ValueError) as e:
        if isinstance(e, WorkloadError):
            raise
        raise WorkloadError([error("", "not readable as UTF-8 YAML text", "YAML or JSON")]) from None
    if not isinstance(data, dict):
        raise WorkloadError([error("", "must be a mapping of keys to values", "a mapping")])
    return data


def check_plain(value: Any) -> None:
    """Raises WorkloadError for values that cannot be stored; see `unstorable`."""
    check_size(value)
    if errors := list(unstorable(value)):
        raise WorkloadError(errors)


def check_size(value: Any) -> None:
    """Raises WorkloadError for too many values or too long keys, before each could become an error of its own."""
    pending, nodes = [value], 0
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            if long := next((key for key in item if isinstance(key, str) and len(key) > MAX_KEY_CHARACTERS), None):
                allowed = f"at most {MAX_KEY_CHARACTERS} characters"
                raise WorkloadError([error(cut(long, 40), "has a key that is too long", allowed)])
            item = item.values()
        elif not isinstance(item, list):
            continue
        nodes += len(item)
        if nodes > MAX_NODES:
            raise WorkloadError([error("", "has too many values", f"at most {MAX_NODES:,} values")])
        pending.extend(item)


def unstorable(value: Any, field: str = "", depth: int = 0) -> Iterator[dict[str, str]]:
    """An error for each value that cannot be stored: NaN, NUL, lone surrogates, non-text keys, too deep nesting."""
    if depth > MAX_DEPTH:
        yield error(field, "nested too deeply", f"at most {MAX_DEPTH} levels")
    elif isinstance(value, float) and not math.isfinite(value):
        yield error(field, "is not a finite number", "a finite number")
    elif isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        yield error(field, "has too many digits", f"at most {MAX_DIGITS} digits")
    elif isinstance(value, str) and ("\x00" in value or not value.isascii() and has_surrogate(value)):
        yield error(field, "contains characters that cannot be stored", "plain Unicode text")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield error(field, "keys must be text", "a text key")
            else:
                yield from unstorable(key, field, depth)
                yield from unstorable(item, f"{field}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from unstorable(item, f"{field}[{position}]", depth + 1)


def has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def set_path(spec: Mapping[str, Any], path: str, value: str) -> dict[str, Any]:
    """A copy of `spec` with `value` (read as YAML) at the dotted `path`; missing sections are created."""
    head, _, rest = path.partition(".")
    if not head:
        raise WorkloadError([error(path, "not a path", "path.to.key=value")])
    if not rest:
        return {**spec, head: load_value(path, value)}
    inner = spec.get(head)
    if inner is not None and not isinstance(inner, Mapping):
        raise WorkloadError([error(path, f"{head} is {json.dumps(inner)[:60]}, not a section", f"{head}=value")])
    return {**spec, head: set_path(inner or {}, rest, value)}


def with_changes(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `spec` with each value at its dotted path, as a rejection names them; missing sections are created."""
    changed = dict(spec)
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        changed[head] = with_changes(changed.get(head) or {}, {rest: value}) if rest else value
    return changed


def load_value(path: str, value: str) -> Any:
    """The value of one `--set`, read like a value in the file."""
    return load("value: " + value if value.strip() else "value: ''")["value"]


def past_day(value: str) -> str:
    """`value` if it is a date up to today. Raises ValueError(message, what is allowed)."""
    try:
        day = datetime.datetime.strptime(value, "%Y-%m-%d").date()
        if value != day.isoformat():  # strptime takes 2026-1-5
            raise ValueError
    except ValueError:
        raise ValueError("is not a date", "a date such as 2026-10-21") from None
    if day > clock.today() + datetime.timedelta(days=1):
        raise ValueError("is in the future", "a date up to today")
    return day.isoformat()


def fold(name: str) -> str:
    """Lower case, with spaces, underscores and hyphens alike."""
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())


def near(given: object, known: Iterable[str], limit: int = 1, cutoff: float = 0.65) -> str:
    """'; did you mean x?' with the most similar of `known`; empty if none is similar."""
    names = nearest(given, known, limit, cutoff)
    return f"; did you mean {' or '.join(names)}?" if names else ""


def nearest(given: object, known: Iterable[str], limit: int, cutoff: float) -> list[str]:
    """The most similar of `known`, ignoring case: names that start with or contain it, then others that are close."""
    by_fold = {name.casefold(): name for name in sorted(known)}
    typed = str(given).strip().casefold()[:200]
    containing = [name for name in by_fold if len(typed) > 1 and typed in name]
    containing.sort(key=lambda name: (not name.startswith(typed), len(name)))
    similar = difflib.get_close_matches(typed, by_fold, n=limit, cutoff=cutoff)
    return [by_fold[name] for name in dict.fromkeys([*containing, *similar])][:limit]


def listed(given: object, known: Iterable[str], url: str, limit: int = 40) -> str:
    """Up to `limit` of `known`, similar ones first; a cut list ends with the total and the URL of the rest."""
    names = sorted(known)
    shown = list(dict.fromkeys([*nearest(given, names, limit=8, cutoff=0.45), *names]))[:limit]
    more = f", ... ({len(names)} in total{f'; see {url}' if url else ''})" if len(shown) < len(names) else ""
    return ", ".join(shown) + more


def either(names: Iterable[str]) -> str:
    """serving, embedding or batch"""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def dotted(loc: Iterable[Any]) -> str:
    """`traffic.load_curve[3]` from the parts of a path."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
