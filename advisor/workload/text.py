"""YAML or JSON text as plain values, safely: bounded, no aliases, no duplicate keys, errors that name the field."""

import datetime
import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

MAX_TEXT_BYTES = 1_000_000
MAX_DEPTH = 24
MAX_NODES = 20_000
MAX_KEY = 200  # characters
MOST_ERRORS = 50  # that are explained and reported; the rest is counted
MOST_DIGITS = 20  # of a whole number


class WorkloadError(ValueError):
    """The workload cannot be used; `errors` says where, why and what is allowed."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        self.errors = errors
        said = [f"{error['field'] or 'workload'}: {error['message']}" for error in errors[:MOST_ERRORS]]
        super().__init__("; ".join([*said, *more_errors(errors)]))


def error(field: str, message: str, allowed: str = "") -> dict[str, str]:
    """One entry of `WorkloadError.errors`; what was sent is repeated in part only."""
    return {"field": cut(field, 200), "message": cut(message, 1000), "allowed": cut(allowed, 4000)}


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def more_errors(errors: Sequence[object]) -> list[str]:
    """A last line that counts the errors beyond those reported, where there are any."""
    return [f"and {len(errors) - MOST_ERRORS:,} more errors"] if len(errors) > MOST_ERRORS else []


class Loader(yaml.SafeLoader):
    """Safe YAML with 1.2 scalars (`no` is a word, 2.0e12 a number), no aliases, no duplicate keys, bounded size."""

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
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(rf"^[-+]?[0-9]{{1,{MOST_DIGITS}}}$"), None)
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
    except yaml.MarkedYAMLError as trouble:
        mark = trouble.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise WorkloadError([error("", f"not valid YAML{where}: {trouble.problem}", "YAML or JSON")]) from None
    except (yaml.YAMLError, ValueError) as trouble:
        if isinstance(trouble, WorkloadError):
            raise
        raise WorkloadError([error("", "not readable as UTF-8 YAML text", "YAML or JSON")]) from None
    if not isinstance(data, dict):
        raise WorkloadError([error("", "a workload must be a mapping of keys to values", "a mapping")])
    return data


def check_plain(value: Any) -> None:
    """Refuses what cannot be stored: NaN, NUL characters, lone surrogates, keys that are not text, depth."""
    check_size(value)
    if found := list(unstorable(value)):
        raise WorkloadError(found)


def check_size(value: Any) -> None:
    """Refuses more values or longer keys than any workload has, before each of them becomes an error."""
    todo, nodes = [value], 0
    while todo:
        found = todo.pop()
        if isinstance(found, Mapping):
            if long := next((key for key in found if isinstance(key, str) and len(key) > MAX_KEY), None):
                allowed = f"at most {MAX_KEY} characters"
                raise WorkloadError([error(cut(long, 40), "has a key that is too long", allowed)])
            found = found.values()
        elif not isinstance(found, list):
            continue
        nodes += len(found)
        if nodes > MAX_NODES:
            raise WorkloadError([error("", "has too many values", f"at most {MAX_NODES:,} values")])
        todo.extend(found)


def unstorable(value: Any, field: str = "", depth: int = 0) -> Iterator[dict[str, str]]:
    """An error for each value that cannot be stored."""
    if depth > MAX_DEPTH:
        yield error(field, "nested too deeply", f"at most {MAX_DEPTH} levels")
    elif isinstance(value, float) and not math.isfinite(value):
        yield error(field, "is not a finite number", "a finite number")
    elif isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        yield error(field, "has too many digits", f"at most {MOST_DIGITS} digits")
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
    """A copy of `spec` with `value` (read as YAML) at the dotted `path`; missing sections are made."""
    head, _, rest = path.partition(".")
    if not head:
        raise WorkloadError([error(path, "not a path", "path.to.key=value")])
    if not rest:
        return {**spec, head: load_value(path, value)}
    inner = spec.get(head)
    if inner is not None and not isinstance(inner, Mapping):
        raise WorkloadError([error(path, f"{head} is {json.dumps(inner)[:60]}, not a section", f"{head}=value")])
    return {**spec, head: set_path(inner or {}, rest, value)}


def load_value(path: str, value: str) -> Any:
    """The value of one `--set`, read by the same YAML rules as the file."""
    return load("value: " + value if value.strip() else "value: ''")["value"]


def past_day(value: str) -> str:
    """A real day that is not ahead; ValueError with the reason and, after it, what is allowed."""
    try:
        day = datetime.datetime.strptime(value, "%Y-%m-%d").date()
        if value != day.isoformat():  # strptime takes 2026-1-5
            raise ValueError
    except ValueError:
        raise ValueError("is not a date", "a date such as 2026-10-21") from None
    if day > datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1):
        raise ValueError("is in the future, so its prices are not known", "a date up to today")
    return day.isoformat()


def near(given: object, known: Iterable[str], most: int = 1, cutoff: float = 0.65) -> str:
    """'; did you mean x?' for the closest of `known`, or nothing."""
    found = nearest(given, known, most, cutoff)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def nearest(given: object, known: Iterable[str], most: int, cutoff: float) -> list[str]:
    """The closest of `known` in any case: the name itself, names that begin with or hold it, then similar ones."""
    by_fold = {name.casefold(): name for name in sorted(known)}
    typed = str(given).strip().casefold()[:200]
    holding = [name for name in by_fold if len(typed) > 1 and typed in name]
    holding.sort(key=lambda name: (not name.startswith(typed), len(name)))
    similar = difflib.get_close_matches(typed, by_fold, n=most, cutoff=cutoff)
    return [by_fold[name] for name in dict.fromkeys([*holding, *similar])][:most]


def listed(given: object, known: Iterable[str], where: str, most: int = 40) -> str:
    """Names of `known`, those close to `given` first; a cut list says of how many and where they all stand."""
    names = sorted(known)
    shown = list(dict.fromkeys([*nearest(given, names, most=8, cutoff=0.45), *names]))[:most]
    more = f", ... ({len(names)} in all{f'; see {where}' if where else ''})" if len(shown) < len(names) else ""
    return ", ".join(shown) + more


def either(names: Iterable[str]) -> str:
    """serving, embedding or batch"""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def dotted(loc: Iterable[Any]) -> str:
    """traffic.load_curve[3] from its parts."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
