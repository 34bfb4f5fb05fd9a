"""The tables of every input of a workload file: types and limits from its schema, meanings from the form."""

import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml
from django.utils.translation import override
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from advisor.web.form_fields import FIELDS, Field
from advisor.workload.schema import Spec, Stack, Weight
from tests.examples import ROOT, WORKLOADS
from tests.examples.assumed import ASSUMED

TOP = "workload"  # the name of the table of keys that are in no section
# Keys that the form does not ask for by themselves. tests/examples/test_inputs.py checks that none is missing or stale.
MEANINGS = {
    "model.config": "config.json of a model that is not in the catalog: its path (command line) or its contents",
    "model.confirm_size": "Confirms the computed model size if the name or the checkpoint states another one",
    "traffic.input_tokens.trace": "CSV file of recorded lengths, instead of a mean (command line only)",
    "traffic.output_tokens.trace": "CSV file of recorded lengths, instead of a mean (command line only)",
    "traffic.trace": "CSV file of recorded requests (command line only), or its contents under csv",
    "traffic.prefixes[].share": "Share of requests whose prompts begin with one of these texts",
    "traffic.prefixes[].tokens": "Tokens of one such text",
    "traffic.prefixes[].count": "Number of different texts in this class; each request begins with a random one",
    "constraints.layout.tp": "Tensor-parallel size of each replica; no other size is tried",
    "constraints.layout.pp": "Pipeline stages of each replica",
    "constraints.layout.ep": "Expert-parallel size of each replica",
    "constraints.layout.dp": "Attention data-parallel size inside each replica",
    "constraints.max_batched_tokens": "Token budget of a scheduler step; empty: framework's default, or a cheaper one",
    "constraints.max_running_requests": "Maximum running requests per scheduler (seats); empty: as many as are needed",
    "workloads": "The workloads of a portfolio: file names or their contents",
    "weights.KEY": "Weight of a goal in the balanced score. Goals: " + ", ".join(typing.get_args(Weight)),
    "team.STACK": "Your team's skill with a software stack, 0 (none) to 5 (expert). Stacks: "
    + ", ".join(typing.get_args(Stack)),
    "tco.price_paths.NAME[].month": "Months from today",
    "tco.price_paths.NAME[].ratio": "Expected price divided by today's price",
    "tco.price_paths.NAME[].low": "Low end of the 90% range, divided by today's price",
    "tco.price_paths.NAME[].high": "High end of the 90% range, divided by today's price",
    "tco.scenarios[].name": "Name of your scenario",
    "tco.scenarios[].load": "Factor on the expected traffic",
    "tco.scenarios[].performance": "Factor on the predicted throughput",
    "tco.scenarios[].rent": "Factor on the expected rental prices",
    "tco.scenarios[].hardware": "Factor on the expected purchase prices",
    "tco.scenarios[].resale": "Factor on the expected resale values",
    "tco.scenarios[].electricity": "Factor on the expected electricity price",
    "tco.scenarios[].staff": "Factor on the expected staff cost",
    "tco.scenarios[].api": "Factor on the expected token prices of hosted APIs",
}
LISTED = {"tco.scenarios": "tco.scenarios[]", "traffic.prefixes": "traffic.prefixes[]"}  # lists of sections
PATHS = "tco.price_paths."
UNITS = {  # by the ending of a key; the first that fits
    "kgco2e_per_kwh": "kgCO2e/kWh", "tokens_per_s_per_user": "tokens/s", "usd_per_month": "USD/month",
    "usd_per_accelerator_hour": "USD/hour", "requests_per_s.mean": "requests/s", "requests_per_s.peak": "requests/s",
    "_ms_p95": "ms", "_tokens": "tokens", "tokens.mean": "tokens", "tokens.p95": "tokens", ".tokens": "tokens",
    "_usd": "USD", "_hours": "hours", "_days": "days", "_months": "months", "_px": "pixels", "_kw": "kW",
    "kw_per_rack": "kW", "_s": "s", "sequence_length": "tokens", ".month": "months", "words_per_minute": "words/min",
    "discount_rate": "per year", "per_year": "per year", "conversations_per_hour": "per hour",
}  # fmt: skip
NOT_UNITS = ("requests_per_s", "load_curve", "adapters", "kv_formats", "tokens_per_s")
Table = list[list[str]]


def inputs(section: str) -> Table:
    """The rows of one section: key, type, unit, default, meaning, example."""
    return [row(path, field) for path, field in leaves() if section_of(path) == section]


def section_of(path: str) -> str:
    first = path.split(".")[0].split("[")[0]
    return first if "." in path and first != "model" else TOP


@cache
def leaves() -> tuple[tuple[str, FieldInfo | None], ...]:
    """Every key that holds a value, with its schema."""
    return tuple(walked(Spec, ""))


def walked(section: type[BaseModel], before: str) -> Iterator[tuple[str, FieldInfo | None]]:
    for name, field in section.model_fields.items():
        path = LISTED.get(before + name, before + name)
        inner = [s for s in dict.fromkeys(sections_of(field)) if s.__name__ != "NoTokens"]
        if path == "tco.price_paths":
            yield from walked_paths(inner[0])
            continue
        if path in ("weights", "team"):
            yield f"{path}.{'KEY' if path == 'weights' else 'STACK'}", field
            continue
        if not inner or path in ("model", "traffic.trace"):  # these two are a text or a section
            yield path, field
        for part in inner:
            yield from walked(part, f"{path}.")


def walked_paths(paths: type[BaseModel]) -> Iterator[tuple[str, FieldInfo | None]]:
    for name, field in paths.model_fields.items():
        yield f"{PATHS}{name}", field
    point = next(sections_of(next(iter(paths.model_fields.values()))))
    for name, field in point.model_fields.items():
        yield f"{PATHS}NAME[].{name}", field


def sections_of(field: FieldInfo) -> Iterator[type[BaseModel]]:
    given = [field.annotation, *(getattr(m, "json_schema_input_type", None) for m in field.metadata)]
    for annotation in given:
        yield from sections_in(annotation)


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from sections_in(part)


def row(path: str, field: FieldInfo | None) -> list[str]:
    assert field is not None
    return [f"`{path}`", typed(field), unit_of(path), default_of(field), meaning(path), example(path)]


def meaning(path: str) -> str:
    """What a key means: as the form says it, or as MEANINGS does."""
    if path in MEANINGS:
        return MEANINGS[path]
    with override("en"):
        field = FIELDS[path]
        parts = [str(field.label), str(field.help), values_of(field)]
    return ". ".join(filter(None, parts))


def values_of(field: Field) -> str:
    """What the form calls the values of a key, where that says more than the value."""
    in_file = [(value, str(label)) for value, label in field.choices if value not in ("", "none")]
    said = [f"`{value}`: {label}" for value, label in in_file if plain(label) not in (plain(value), "")]
    return "; ".join(said)


def plain(text: str) -> str:
    return re.sub(r"[ _-]", "", text.casefold())


def unit_of(path: str) -> str:
    if path.endswith(NOT_UNITS):
        return ""
    return next((unit for ending, unit in UNITS.items() if path.endswith(ending)), "")


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=False)
    if value is None or value is PydanticUndefined or value in ([], {}) or isinstance(value, BaseModel):
        return ""
    return f"`{'false' if value is False else written(value)}`"


def written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}".replace("e+0", "e").replace("e+", "e")
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip().strip("'")


def typed(field: FieldInfo) -> str:
    """The type with its limits, such as `number at least 0, at most 1`."""
    limits: dict[str, float] = {}
    for item in [*field.metadata, *metadata(field.annotation)]:
        limits |= {
            name: getattr(item, name) for name in ("gt", "ge", "lt", "le") if getattr(item, name, None) is not None
        }
    low = f"above {limits['gt']:g}" if "gt" in limits else f"at least {limits['ge']:g}" if "ge" in limits else ""
    high = (
        f"below {limits['lt']:g}"
        if "lt" in limits
        else f"at most {limits['le']:,.0f}"
        if limits.get("le", 1e6) < 1e6
        else ""
    )
    return " ".join([name_of(field.annotation), ", ".join(filter(None, [low, high]))]).strip()


def metadata(annotation: Any) -> Iterator[Any]:
    if typing.get_origin(annotation) is typing.Annotated:
        for item in annotation.__metadata__:
            yield from item.metadata if isinstance(item, FieldInfo) else [item]
    for part in typing.get_args(annotation):
        yield from metadata(part)


def name_of(annotation: Any) -> str:
    """number, text, one of a, b; list of number; map from name to number."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return name_of(parts[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(name_of(part) for part in parts if part is not type(None)))
    if origin is typing.Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is list:
        return f"list of {name_of(parts[0])}"
    if origin is dict:
        return f"map from name to {name_of(parts[1])}" if parts[1] is not Any else "object"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return {float: "number", int: "whole number", str: "text", bool: "true or false"}[annotation]


@cache
def workloads() -> tuple[tuple[str, Any], ...]:
    return tuple((path.stem, yaml.safe_load(path.read_text())) for path in sorted(WORKLOADS.glob("*.yaml")))


def example(path: str) -> str:
    """The first shipped workload that sets the key, with its value."""
    for name, document in workloads():
        value = found(document, path)
        if value is not None and len(written(value)) <= 60:
            return f"`{written(value)}` ({name})"
    return ""


def found(document: Any, path: str) -> Any:
    for key in path.replace("[]", ".[]").split("."):
        if key == "[]" or isinstance(document, list):
            document = document[0] if isinstance(document, list) and document else None
            if key == "[]":
                continue
        if key in ("KEY", "STACK", "NAME") and isinstance(document, dict):
            return document
        if not isinstance(document, dict):
            return document if key == "mean" and isinstance(document, int | float) else None
        document = document.get(key)
    return document


def assumptions() -> Table:
    """Every key of the catalog's cost assumptions that `tco` can override."""
    rows = yaml.safe_load((ROOT / "fixtures" / "overheads.yaml").read_text())
    return [
        [
            f"`tco.{r['key']}`",
            r["unit"],
            f"{r['value']:g}",
            spread(r),
            ASSUMED.get(r["key"]) or first_sentence(r.get("notes", "")),
            str(r["as_of"]),
        ]
        for r in rows
    ]


def spread(item: dict[str, Any]) -> str:
    return (
        f"{item['low']:g} to {item['high']:g}" if item.get("low") is not None and item.get("high") is not None else ""
    )


def first_sentence(text: str) -> str:
    return " ".join(text.split()).split(". ")[0].rstrip(".")
