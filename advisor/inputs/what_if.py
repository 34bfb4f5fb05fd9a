"""What-if questions: the controls of the form, the question that they make of another one, and what differs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.terms import kind_named
from advisor.inputs.check import check_catalog
from advisor.inputs.names import with_catalog_names
from advisor.workload import WorkloadError, error, parse, states_rate, unnamed
from advisor.workload import terms_of as workload_terms
from catalog.models import Accelerator, Organisation

Json = dict[str, Any]
CLASSES = {
    "data_center": "data center",
    "workstation": "workstation",
    "consumer": "consumer",
    "edge": "edge",
    "computer": "complete computer",
}
TERM_NAMES = {
    "on_demand": "on-demand",
    "spot": "spot",
    "reserved_1y": "1-year commitment",
    "reserved_3y": "3-year commitment",
    "capacity_block": "capacity block",
    "purchase": "purchase",
    "api": "hosted API",
}
OBJECTIVES = ("cost", "latency", "throughput", "energy", "carbon", "balanced")
PRICES_AS_OF = "prices_as_of"
GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
PRICE = "price_"  # control of a term's price


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """One control: its name in the URL, its label, and the field of the workload that it sets."""

    name: str
    label: str
    path: str
    reads: str = "number"  # number | ratio | list | choice
    help: str = ""


CONTROLS = (
    Control(name="budget", label="Budget, USD per month", path="constraints.max_usd_per_month"),
    Control(name="region", label="Regions", path="constraints.regions.allow", reads="list"),
    Control(name="vendor", label="Vendors", path="constraints.vendors.allow", reads="list"),
    Control(name="class", label="Classes", path="constraints.accelerators.allow", reads="list"),
    Control(name="chips", label="Accelerators", path="constraints.accelerators.allow", reads="list"),
    Control(name="max_chips", label="Maximum number of accelerators", path="constraints.max_accelerators"),
    Control(name="ttft", label="TTFT p95 limit, ms", path="slo.ttft_ms_p95"),
    Control(name="tpot", label="TPOT p95 limit, ms", path="slo.tpot_ms_p95"),
    Control(name="e2e", label="End-to-end p95 limit, ms", path="slo.e2e_ms_p95"),
    Control(name="load", label="Load, times today's", path="traffic", reads="ratio"),
    *(
        Control(name=f"{PRICE}{term}", label=f"{name[0].upper()}{name[1:]} prices, times today's",
                path=f"price_ratios.{term}", reads="ratio")
        for term, name in TERM_NAMES.items()
    ),
    Control(name="objective", label="Rank by", path="objective", reads="choice"),
)  # fmt: skip
BY_NAME = {c.name: c for c in CONTROLS}
Values = Mapping[str, Sequence[str]]  # of a query string


def classes_of(a: Accelerator) -> str:
    """The class of an accelerator, from where it is built in and for whom it is sold."""
    if a.kind == "edge":
        return "edge"
    if a.market.get("segment") == "consumer":
        return "consumer"
    return a.chassis if a.chassis in CLASSES else "data_center"


def terms_of(spec: Json) -> list[str]:
    """The terms whose prices matter to the question."""
    c = spec["constraints"]
    rents = [term for term in TERM_NAMES if term in workload_terms(spec)] if "rent" in c["acquisition"] else []
    return [
        *rents,
        *(["purchase"] if "own" in c["acquisition"] else []),
        *(["api"] if "api" in c["acquisition"] else []),
    ]


def shown_controls(spec: Json) -> list[Control]:
    """The controls that apply to the question."""
    terms = terms_of(spec)
    generates = kind_named(spec["kind"]).generates_tokens
    hidden = set() if generates else {"ttft", "tpot"}
    return [
        c
        for c in CONTROLS
        if c.name not in hidden and (not c.name.startswith(PRICE) or c.name.removeprefix(PRICE) in terms)
    ]


def values_of(spec: Json) -> dict[str, list[str]]:
    """What the controls show for a question as it stands."""
    found = {}
    for c in CONTROLS:
        if c.name in ("class", "load"):
            found[c.name] = [] if c.name == "class" else ["1"]
            continue
        value = spec.get("price_ratios", {}).get(c.path.partition(".")[2], 1) if c.name.startswith(PRICE) else None
        value = value if value is not None else at(spec, c.path)
        found[c.name] = [str(v) for v in value] if isinstance(value, list) else [] if value is None else [text(value)]
    return found


def text(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def at(spec: Any, path: str) -> Any:
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, Mapping) else None
    return spec


def changed(spec: Json, given: Values, organisation: Organisation | None = None) -> Json:
    """The question with the controls that `given` names; an empty value removes a limit. Raises WorkloadError.

    The `field` of each error is the name of a control.
    """
    unknown = [name for name in given if name not in BY_NAME]
    if unknown:
        raise WorkloadError([error(unknown[0], "is not a control", ", ".join(BY_NAME))])
    errors: list[dict[str, str]] = []
    raw = {key: value for key, value in spec.items()}
    before = values_of(spec)
    for name, words in given.items():
        kept = [word.strip() for each in words for word in each.split(",") if word.strip()]
        if kept == before[name] or (BY_NAME[name].reads == "ratio" and not kept):
            continue
        try:
            raw = SETTERS.get(name, set_value)(raw, BY_NAME[name], kept)
        except ValueError as e:
            errors.append(error(name, *e.args))
    if errors:
        raise WorkloadError(errors)
    raw = with_classes(raw, given)
    if raw == spec:
        return spec
    try:
        found = parse(without_derived({**raw, "name": unnamed(spec)["name"]}))
        if found["constraints"] != spec["constraints"]:
            found = with_catalog_names(found, organisation)
            check_catalog(found, organisation)
    except WorkloadError as e:
        raise WorkloadError([{**item, "field": control_of(item["field"])} for item in e.errors]) from None
    return found


def control_of(field: str) -> str:
    """The control that sets a field of the workload; the field itself if none does."""
    if field.startswith("price_ratios"):
        return PRICE + field.partition(".")[2]
    names = (c.name for c in CONTROLS if c.name != "class" and (field == c.path or field.startswith(f"{c.path}.")))
    bare = field.partition("[")[0]
    return next(names, next((c.name for c in CONTROLS if c.name != "class" and c.path == bare), field))


def put(spec: Json, path: str, value: Any) -> Json:
    head, _, rest = path.partition(".")
    return {**spec, head: put(spec.get(head) or {}, rest, value) if rest else value}


def set_value(raw: Json, c: Control, words: Sequence[str]) -> Json:
    if c.reads == "list":
        return put(raw, c.path, list(words))
    if c.reads == "choice":
        if len(words) != 1 or words[0] not in OBJECTIVES:
            raise ValueError("is not a valid choice", ", ".join(OBJECTIVES))
        return put(raw, c.path, words[0])
    return put(raw, c.path, number_of(words, whole=c.name == "max_chips"))


def number_of(words: Sequence[str], whole: bool = False) -> float | int | None:
    if not words:
        return None
    try:
        if len(words) > 1 and not GROUPED.fullmatch(",".join(words)):  # 0,5 is not 5
            raise ValueError
        value = float("".join(words).replace("_", "").replace(" ", ""))
    except ValueError:
        raise ValueError(f"{','.join(words)[:40]} is not a number", "a number, or nothing for no limit") from None
    if not 0 < value < 1e15:
        raise ValueError("must be greater than 0", "> 0")
    if whole and value != int(value):
        raise ValueError("must be a whole number", "1, 2, 3 and so on")
    return int(value) if whole else value


def set_price(raw: Json, c: Control, words: Sequence[str]) -> Json:
    ratio = number_of(words) or 1.0
    if not 0.01 <= ratio <= 100:
        raise ValueError("is out of range", "0.01 to 100")
    term = c.path.partition(".")[2]
    kept = {key: value for key, value in raw.get("price_ratios", {}).items() if key != term}
    return {**raw, "price_ratios": kept | ({term: ratio} if ratio != 1.0 else {})}


def set_load(raw: Json, c: Control, words: Sequence[str]) -> Json:
    """Every rate of the traffic times the ratio."""
    ratio = number_of(words) or 1.0
    if not 0.001 <= ratio <= 1000:
        raise ValueError("is out of range", "0.001 to 1000")
    if ratio == 1.0:
        return raw
    traffic = dict(raw["traffic"])
    if isinstance(traffic.get("trace"), Mapping):
        raise ValueError("cannot change: the question replays a recorded trace", "1")
    if isinstance(traffic.get("audio"), Mapping):
        raise ValueError("cannot change: the rate follows from the audio; edit the question", "1")
    if raw.get("batch"):
        return {**raw, "batch": {**raw["batch"], "requests": raw["batch"]["requests"] * ratio}}
    if traffic.get("users"):
        traffic["users"] = {**traffic["users"], "active": traffic["users"]["active"] * ratio}
    elif states_rate(traffic):
        turns = traffic["turns"]
        traffic["turns"] = {**turns, "conversations_per_hour": turns["conversations_per_hour"] * ratio}
    else:
        traffic["requests_per_s"] = {key: value * ratio for key, value in traffic["requests_per_s"].items()}
    return {**raw, "traffic": traffic}


SETTERS: dict[str, Callable[[Json, Control, Sequence[str]], Json]] = {
    "load": set_load,
    "class": lambda raw, c, words: raw,  # with_classes
    **{f"{PRICE}{term}": set_price for term in TERM_NAMES},
}


def with_classes(raw: Json, given: Values) -> Json:
    """The question restricted to the accelerators of these classes, and to those named as well if there are any."""
    asked = [word for word in given.get("class", ()) if word]
    if not asked:
        return raw
    if unknown := [word for word in asked if word not in CLASSES]:
        raise WorkloadError([error("class", f"{unknown[0][:40]} is not a class of accelerators", ", ".join(CLASSES))])
    inside = [a.slug for a in Accelerator.objects.filter(served=True).order_by("slug") if classes_of(a) in asked]
    named = raw["constraints"]["accelerators"]["allow"]
    denied = raw["constraints"]["accelerators"]["deny"]
    kept = [slug for slug in inside if (not named or slug in named) and slug not in denied]
    if not kept:
        raise WorkloadError([error("class", "no accelerator that you allow is in these classes", "another class")])
    return put(raw, "constraints.accelerators.allow", kept)


def without_derived(spec: Json) -> Json:
    """The question without the rates and lengths that follow from other fields, so that it can be parsed again."""
    traffic = {key: value for key, value in spec["traffic"].items() if value is not None}
    if spec.get("batch") or traffic.get("users") or states_rate(traffic) or isinstance(traffic.get("trace"), Mapping):
        traffic.pop("requests_per_s", None)
    if isinstance(traffic.get("trace"), Mapping) or isinstance(traffic.get("audio"), Mapping):
        traffic.pop("input_tokens", None)
    if isinstance(traffic.get("trace"), Mapping) or not kind_named(spec["kind"]).generates_tokens:
        traffic.pop("output_tokens", None)
    return {key: value for key, value in spec.items() if value is not None} | {"traffic": traffic}


# --- what differs -----------------------------------------------------------------------------------------------


SINCE_THEN = {"use_measurements": "yes"}  # fields that older questions lack, with what they meant by it


def differences(before: Json, after: Json) -> list[str]:
    """The differences between two questions, a phrase for each."""
    found = _changes(SINCE_THEN | before, SINCE_THEN | after)
    return [_said(path, old, new) for path, old, new in found if not _follows(path, after)]


def same_question(before: Json, after: Json) -> bool:
    """Whether an answer to one is also an answer to the other, perhaps at prices of another day."""
    return not [c for c in differences(before, after) if not c.startswith(PRICES_AS_OF)]


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedField:
    """One field of several questions: its path in the workload file, and its value in each as text."""

    path: str
    values: tuple[str, ...]
    differs: bool


def fields(specs: Sequence[Json]) -> list[AskedField]:
    """Every field that one of the questions sets."""
    leaves = [dict(_leaves(spec)) for spec in specs]
    found = []
    for path in dict.fromkeys(path for each in leaves for path in each):
        if not all(_follows(path, spec) for spec in specs):
            values = [each.get(path) for each in leaves]
            differs = any(value != values[0] and (value or values[0]) for value in values[1:])
            found.append(AskedField(path=path, values=tuple(_value(value) for value in values), differs=differs))
    return found


def _by_name(value: Any) -> Any:
    """A list of sections, such as the workloads of a portfolio, by their names."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return {str(item.get("name") or place): item for place, item in enumerate(value, 1)}
    return value


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    value = _by_name(value)
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}".lstrip("."))
    elif value not in (None, [], ""):
        yield path, value


def _changes(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, Mapping) and after in (None, []):
        after = {}
    if isinstance(after, Mapping) and before in (None, []):
        before = {}
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _changes(before.get(key), after.get(key), f"{path}.{key}".lstrip("."))
    elif before != after and (before or after):
        yield path, before, after


def _follows(path: str, spec: Json) -> bool:
    """Whether the field follows from another one that is listed, or only names the question."""
    traffic = spec.get("traffic") or {}
    by_other = bool(spec.get("batch") or traffic.get("users") or states_rate(traffic))
    return (
        path == "name"
        or path.endswith("tags")
        or (path.startswith("traffic.requests_per_s") and by_other)
        or path.endswith("_per_s.mean")
    )


SAID = {
    "traffic.requests_per_s.peak": "Requests/s at the peak",
    "traffic.users.active": "Active users",
    "traffic.turns.conversations_per_hour": "Conversations per hour",
    "batch.requests": "Requests of the batch",
    "workloads": "Workloads",
}


def label_of(path: str) -> str:
    """A field of the workload file in words; empty: it has none here."""
    return SAID.get(path) or next((c.label for c in CONTROLS if c.path == path and c.name != "class"), "")


def _said(path: str, old: Any, new: Any) -> str:
    label = label_of(path) or path
    if path.startswith("price_ratios."):
        old, new = old or 1, new or 1
    return f"{label}: {_value(old)} → {_value(new)}"


def _value(value: Any) -> str:
    if value in (None, [], ""):
        return "not set"
    if isinstance(value, Mapping):
        return ", ".join(map(str, value))
    if isinstance(value, list):
        return ", ".join(map(str, value[:4])) + (f" and {len(value) - 4} more" if len(value) > 4 else "")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1 and value == int(value) else f"{value:,.10g}"
