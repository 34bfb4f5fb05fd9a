"""Reads the fixture files as plain rows. Each error names the file, the key and the allowed values."""

import csv
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import yaml

from advisor.engine.network import check_plausible, from_shape

Row = dict[str, Any]
Check = Callable[[str, Any], None]  # of a value at a place; FixtureError: it is not allowed
Fields = Mapping[str, Check | None]  # the keys of a mapping; None: any value

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4", "int4")
KINDS = ("gpu", "tpu", "npu", "cpu", "lpu", "wafer", "rdu", "fpga", "apple", "edge")
TOPOLOGIES = ("switch", "mesh", "torus", "ring", "host")
BASES = ("read", "mixed", "memory", "derived", "estimate", "default", "measured", "relative", "datasheet")
TERMS = ("on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block", "purchase")
PRICE_COLUMNS = (
    *("provider", "instance", "accelerator", "accelerators", "region", "vcpus", "host_memory_gib", "term"),
    *("usd_per_hour", "purchase_usd", "kind", "as_of", "source", "notes"),
)
MAX_USD = {"0.01": 10**9, "0.0001": 10**11, "0.000001": 10**6}  # limits of the database columns, by decimal places
PRICE_RANGE = ("purchase_usd_min", "purchase_usd_max")  # optional columns in files of purchases
PRICE_TRUST = ("origin", "confidence", "unit", "country", "currency", "listed_price")  # optional columns
SMALLEST_UNIT = (
    "smallest_unit_accelerators",
    "smallest_unit_source",
)  # optional columns; for prices that are printed per chip
AVAILABILITIES = ("available", "sold_out")  # on the day of the price, in the optional column `availability`
PRICE_OPTIONAL = (*PRICE_RANGE, "marks", *PRICE_TRUST, *SMALLEST_UNIT, "availability")
UNKNOWN = "unknown"  # a smallest unit that no source states
SMALLEST_UNIT_COLUMNS = ("provider", "accelerator", "smallest_unit_accelerators", "source", "as_of")
CHANGES = "-change-per-year"  # ending of the keys of yearly price changes, which may be negative
ORIGINS = {  # where a price comes from, and how an answer says it
    "official_list": "the provider's price list",
    "provider_api": "the provider's price API",
    "reseller": "a reseller's price",
    "quote": "a quote",
    "marketplace": "a marketplace price",
    "second_hand": "a second-hand price",
    "index": "an average of several sellers",
    "estimate": "an estimate",
}
INDEX = "index"  # origin of a level of several sellers, which is no offer
CONFIDENCES = ("high", "medium", "low")
UNITS_SOLD = ("chip", "instance", "slice", "block", "card", "computer", "baseboard", "server", "rack")
PURCHASED_UNITS = {"chip": "card", "system": "computer"}  # by the kind of the price, where they differ
PER_CHIP = "(per GPU)"  # marks an instance whose price is for one chip of a larger host
USD = "USD"
API_PRICE_COLUMNS = (
    *("provider", "name", "model", "usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output"),
    *("max_input_tokens", "as_of", "source"),
)
API_SPEED = ("output_tokens_per_s", "ttft_ms", "speed_kind", "speed_as_of", "speed_source")  # optional columns
API_OTHER = ("quantization", "hardware", "withdrawn", "notes")  # optional columns
SPEED_KINDS = ("measured", "stated")  # by somebody else, by the provider
SEGMENTS = ("consumer",)
PRICE_MARKS = ("second_hand", "quote", "preview")
UNIT_KINDS = ("board", "host", "rack", "slice", "cluster")
CHASSIS = ("computer", "workstation", "server")
COOLINGS = ("air", "liquid", "air or liquid", "passive")
QUALITIES = ("lossless", "near_lossless", "lossy")
DRAFT_METHODS = ("eagle", "medusa", "draft")  # methods that draft with a checkpoint of their own
BENCHMARKS = "chips.csv"
BENCHMARK_COLUMNS = ("accelerator", "what", "value", "unit", "conditions", "as_of", "source")
RATE_COLUMNS = ("currency", "per_usd", "as_of", "source")
LEVEL_COLUMNS = ("accelerator", "term", "usd_per_chip_hour", "as_of", "source", "notes")
LEVEL_TERMS = ("on_demand", "spot", "reserved")
DISCOUNT_COLUMNS = ("provider", "accelerator", "term", "discount_fraction", "as_of", "source")
LICENCE_COLUMNS = ("name", "vendor", "usd_per_accelerator_per_year", "as_of", "source")
LICENCE_FOR = ("framework",)  # optional column in files of licenses
META = ("source", "as_of", "basis")


class FixtureError(ValueError):
    """A fixture file cannot be loaded; the message says what to change."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that refuses duplicate keys; by default the last one wins."""


def _unique_mapping(loader: Any, node: Any) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    if duplicates := {key for key in keys if keys.count(key) > 1}:
        raise FixtureError(f"{node.start_mark.name}: duplicate key: {', '.join(sorted(map(str, duplicates)))}")
    return {key: loader.construct_object(value, deep=True) for key, (_, value) in zip(keys, node.value, strict=True)}


_Loader.add_constructor("tag:yaml.org,2002:map", _unique_mapping)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file. FixtureError: it is not valid YAML."""
    try:
        with path.open("rb") as stream:
            return yaml.load(stream, _Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date such as 2026-02-30
        raise FixtureError(f"{path}: not YAML: {error}") from error


def check_keys(where: str, given: Any, required: Iterable[str], optional: Iterable[str] = ()) -> None:
    """FixtureError: `given` is not a mapping, lacks a required key or has an unknown one."""
    if not isinstance(given, Mapping):
        raise FixtureError(f"{where}: expected a mapping")
    allowed = {*required, *optional}
    if unknown := [str(key) for key in given if key not in allowed]:
        raise FixtureError(f"{where}: unknown key {', '.join(unknown)}; allowed are {', '.join(sorted(allowed))}")
    if missing := [key for key in required if given.get(key) in (None, "")]:
        raise FixtureError(f"{where}: missing {', '.join(missing)}")


def check_number(where: str, value: Any, *, zero: bool = False) -> None:
    """FixtureError unless `value` is a finite number above zero (`zero`: or zero itself)."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if not number or not (0 <= value < float("inf")) or (value == 0 and not zero):
        raise FixtureError(f"{where}: expected a number above zero, not {value!r}")


def check_change(where: str, value: Any) -> None:
    """FixtureError unless `value` is a yearly change: a number above -1."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (-1 < value < float("inf")):
        raise FixtureError(f"{where}: expected a number above -1, not {value!r}")


def check_count(where: str, value: Any) -> None:
    """FixtureError unless `value` is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FixtureError(f"{where}: expected a whole number of at least 1, not {value!r}")


def check_text(where: str, value: Any) -> None:
    if not isinstance(value, str):
        raise FixtureError(f"{where}: expected text, not {value!r}; put numbers in quotes")


def check_texts(where: str, value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FixtureError(f"{where}: expected a list of strings, such as [cuda, rocm]")


def check_switch(where: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise FixtureError(f"{where}: expected true or false, not {value!r}")


def check_choice(where: str, value: Any, allowed: Iterable[str]) -> None:
    """FixtureError unless `value` is one of `allowed`."""
    if value not in (choices := tuple(allowed)):
        raise FixtureError(f"{where}: {value!r} is not one of {', '.join(choices)}")


def one_of(*allowed: str) -> Check:
    return lambda where, value: check_choice(where, value, allowed)


def list_of(check: Check) -> Check:
    """Checks each item of a list."""

    def check_items(where: str, value: Any) -> None:
        check_texts(where, value)
        for item in value:
            check(where, item)

    return check_items


def listed_items(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FixtureError(f"{where}: expected a list, not {value!r}")
    return value


def check_number_or_zero(where: str, value: Any) -> None:
    check_number(where, value, zero=True)


def check_date(where: str, value: Any) -> None:
    if not isinstance(value, date):
        raise FixtureError(f"{where}: expected a date (YYYY-MM-DD), not {value!r}")


def each(names: Iterable[str], check: Check | None) -> dict[str, Check | None]:
    return dict.fromkeys(names, check)


def check_fields(where: str, given: Any, required: Fields, optional: Fields, between: str = ".") -> None:
    """FixtureError: `given` lacks a required key, has an unknown one, or one with a value that is not allowed."""
    check_keys(where, given, required, optional)
    for key, check in {**required, **optional}.items():
        if check and key in given:
            check(f"{where}{between}{key}", given[key])


def source_of(where: str, group: Mapping[str, Any]) -> Row:
    """The source, date and basis of a group of figures, JSON-serializable."""
    if not isinstance(group["source"], str) or not isinstance(group["as_of"], date):
        raise FixtureError(f"{where}: source must be text and as_of a date (YYYY-MM-DD)")
    check_choice(f"{where}.basis", str(group["basis"]).partition(":")[0], BASES)
    return {"source": group["source"], "as_of": group["as_of"].isoformat(), "basis": group["basis"]}


def newest(sources: Mapping[str, Row]) -> date:
    """The newest date among the sources."""
    return max(date.fromisoformat(source["as_of"]) for source in sources.values())


def group(where: str, given: Mapping[str, Any], required: Fields, optional: Fields | None = None) -> Row:
    """The figures of one group, without its source. FixtureError: its keys or values are not allowed."""
    check_fields(where, given, {**required, **each(META, None)}, optional or {})
    return {key: value for key, value in given.items() if key not in META}


def _sourced(where: str, given: Mapping[str, Any], parts: Iterable[str], between: str = ": ") -> Row:
    """The sources of the parts that are given, and the newest of their dates."""
    sources = {part: source_of(f"{where}{between}{part}", given[part]) for part in parts if part in given}
    return {"sources": sources, "as_of": newest(sources)}


def kept(given: Mapping[str, Any], names: Iterable[str]) -> Row:
    return {name: given[name] for name in names if name in given}


def _check_share(where: str, value: Any) -> None:
    check_number(where, value)
    if value > 1.0:
        raise FixtureError(f"{where}: expected a fraction of the memory, at most 1, not {value!r}")


def _check_mapping(where: str, value: Any) -> None:
    check_keys(where, value, (), value)


def _check_tiers(where: str, value: Any) -> None:
    tier = {"name": None, **each(("gb_per_s", "chips"), check_number), "topology": one_of(*TOPOLOGIES)}
    for given in listed_items(where, value):
        check_fields(where.removesuffix(".tiers"), given, tier, each(("latency_us", "wraps_from"), check_number))


def _check_profiles(where: str, value: Any) -> None:
    names = ("compute_slices", "memory_slices", "l2_slices", "gib", "cores", "instances")
    for given in listed_items(where, value):
        check_keys(where.removesuffix(".profiles"), given, ("name", *names))
        place = f"{where.removesuffix('.profiles')}.{given['name']}"
        check_fields(place, given, {"name": None, **each(names, check_number)}, {})


# The groups of an accelerator: required and optional keys.
CHIP: dict[str, tuple[Fields, Fields]] = {
    "memory": ({"gib": check_number, "type": None, "gb_per_s": check_number}, {"usual_gib": check_number}),
    "host": ({"chips_per_host": check_number}, {"pcie_gb_per_s": check_number, "chassis": one_of(*CHASSIS)}),
    "dense_tflops": ({}, each(DTYPES, check_number)),
    "chip": ({}, each(("cores", "sram_mib", "clock_ghz"), check_number)),
    "links": ({"tiers": _check_tiers}, {}),
    "power": ({"tdp_watts": check_number}, {"idle_watts": check_number}),
    "price": ({"typical_usd": check_number}, {}),
    "partitions": (
        {"way": None, **each(("compute_slices", "memory_slices"), check_number), "profiles": _check_profiles},
        {},
    ),
    "software": (
        {},
        {
            **each(("devices", "kubernetes_devices"), check_count),
            **each(("device_name", "kubernetes_resource", "kubernetes_note"), check_text),
            **{"container": _check_mapping, "gpu_memory_fraction": _check_share},
        },
    ),
    "market": ({"segment": one_of(*SEGMENTS), "terms": None}, {}),
}
CHIP_COLUMNS = {  # of figures whose key in the file differs from their column
    "usual_gib": "usual_memory_gib",
    "gib": "memory_gib",
    "type": "memory_type",
    "gb_per_s": "memory_gb_per_s",
    "typical_usd": "typical_price_usd",
    "tiers": "links",
}


def accelerator(path: Path) -> Row:
    """The row of one accelerator."""
    given, where = read_yaml(path), path.name
    plain = ("slug", "name", "vendor", "family", "kind", "stacks", "bought_as", "served")
    optional = ("architecture", "form_factor", "release_year", "not_served_reason", "notes")
    required = {**each((*plain, "memory", "host"), None), "kind": one_of(*KINDS)}
    check_fields(where, given, required, each((*optional, *CHIP), None), ": ")
    _check_slug(path, given)
    row: Row = kept(given, (*plain, *optional))
    for name, (needed, more) in CHIP.items():
        if name in given:
            figures = group(f"{where}: {name}", given[name], needed, more)
            whole = name in ("dense_tflops", "partitions", "software", "market")
            row |= {name: figures} if whole else {CHIP_COLUMNS.get(key, key): each for key, each in figures.items()}
    _check_partitions(where, row.get("partitions", {}))
    return {"usual_memory_gib": None} | row | _sourced(where, given, CHIP)


def _check_slug(path: Path, given: Mapping[str, Any]) -> None:
    if given["slug"] != path.stem:
        raise FixtureError(f"{path.name}: slug {given['slug']!r} differs from the file name")


def _check_partitions(where: str, partitions: Mapping[str, Any]) -> None:
    """FixtureError: a profile needs more slices than the chip has."""
    for profile in partitions.get("profiles", ()):
        for key in ("compute_slices", "memory_slices"):
            if profile[key] * profile["instances"] > partitions[key]:
                needed = f"{profile['instances']} x {profile['name']} need more {key} than the chip has"
                raise FixtureError(f"{where}: partitions: {needed}")


def served_model(path: Path) -> Row:
    """The row of one model. FixtureError: the engine cannot read its shape."""
    given, where = read_yaml(path), path.name
    plain = ("slug", "hf_id", "family", "native_dtype", "max_context_tokens")
    check_keys(
        where, given, (*plain, "shape"), ("licence", "published", "conversions", "measured_only", "notes", *PARTS)
    )
    _check_slug(path, given)
    _check_mapping(f"{where}: shape", given["shape"])
    shape = {key: value for key, value in given["shape"].items() if key not in META}
    check_keys(f"{where}: shape", given["shape"], ("blocks", *META), shape)
    try:
        check_plausible(from_shape(given["slug"], shape))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FixtureError(f"{where}: shape: {error}") from error
    row = kept(given, (*plain, "licence", "notes")) | {"shape": shape}
    sources = {"shape": source_of(f"{where}: shape", given["shape"])}
    if "published" in given:
        more = each(("active_parameters", "rounded"), None)
        published = group(f"{where}: published", given["published"], {"parameters": None}, more)
        sources["published"] = source_of(f"{where}: published", given["published"])
        sources["published"]["rounded"] = published.get("rounded", False)
        row["published_parameters"] = published["parameters"]
        row["published_active_parameters"] = published.get("active_parameters")
    row["checkpoints"] = _checkpoints(where, given, sources)
    return row | {"sources": sources, "as_of": newest(sources)}


# What is known of a model's checkpoints: required and optional keys.
PARTS: dict[str, tuple[Fields, Fields]] = {
    "checkpoint": ({"format": None}, {"experts_only": check_switch, "kept": check_text, "others": None}),
    "engines": ({}, {}),  # any engine, with its oldest version
    "hosting": ({"providers": check_count}, {}),
    "drafts": ({}, {"mtp_layers": check_count, **each(DRAFT_METHODS, check_text)}),
}


def _checkpoints(where: str, given: Mapping[str, Any], sources: Row) -> Row:
    """The published checkpoint, conversions by others and what drafts tokens; their sources are added to `sources`."""
    checkpoints: Row = {}
    for part, (required, optional) in PARTS.items():
        if part in given:
            place = f"{where}: {part}"
            _check_mapping(place, given[part])
            any_key = each(set(given[part]) - set(META), check_text) if part == "engines" else optional
            checkpoints["published" if part == "checkpoint" else part] = group(place, given[part], required, any_key)
            sources[part] = source_of(place, given[part])
    for index, item in enumerate(listed_items(f"{where}: conversions", given.get("conversions", []))):
        place = f"{where}: conversions[{index}]"
        conversion = group(place, item, each(("hf_id", "format"), None), {"experts_only": check_switch, "others": None})
        checkpoints.setdefault("conversions", []).append(conversion)
        sources[f"conversion {conversion['hf_id']}"] = source_of(place, item)
    if given.get("measured_only"):
        check_switch(f"{where}: measured_only", given["measured_only"])
        checkpoints["measured_only"] = True
    return checkpoints


def _named(where: str, given: Any, required: Fields, optional: Fields, name: str = "slug") -> str:
    """The place of a row of a list, with its name. FixtureError as in check_fields."""
    check_keys(where, given, required, optional)
    place = f"{where}: {given[name]}"
    check_fields(place, given, required, optional, ": ")
    return place


QUANTIZATION: Fields = {
    "applies_to": one_of("weights", "kv"),
    **each(("weights_dtype", "activations_dtype", "quality_note"), None),
    "bits_per_weight": check_number,
    "quality": one_of(*QUALITIES),
}
QUANTIZATION_MORE: Fields = {
    **each(("weight_only", "block_scaled"), check_switch),
    "training": one_of("", "fine_tuning", "from_scratch"),
    "experts_only": one_of("", "always", "latent"),
    "effort": None,
    "checkpoint_format": check_text,
    "published_quality": one_of(*QUALITIES),
    "shard_elements": check_count,
}


def quantization(where: str, given: Mapping[str, Any]) -> Row:
    """The row of one quantization method of weights or KV cache."""
    required = {**each(("slug", "name", *META), None), **QUANTIZATION}
    place = _named(where, given, required, {**QUANTIZATION_MORE, "notes": None})
    sources = {"method": source_of(place, given)}
    settings = kept(given, (*QUANTIZATION, *QUANTIZATION_MORE))
    row = kept(given, ("slug", "name", "notes"))
    return row | {"settings": settings, "sources": sources, "as_of": newest(sources)}


REGION = {  # the key of each part, and its column
    "electricity": ("usd_per_kwh", "electricity_usd_per_kwh"),
    "grid": ("kgco2e_per_kwh", "grid_kgco2e_per_kwh"),
    "pue": ("ratio", "pue"),
    "colocation": ("usd_per_kw_month", "colocation_usd_per_kw_month"),
}


def region(where: str, given: Mapping[str, Any]) -> Row:
    """The row of one region."""
    place = _named(where, given, each(("slug", "name", "country"), None), each((*REGION, "notes"), None))
    row = kept(given, ("slug", "name", "country", "notes"))
    for part, (key, column) in REGION.items():
        if part in given:
            row[column] = group(f"{place}: {part}", given[part], {key: check_number})[key]
    if not any(part in given for part in REGION):
        raise FixtureError(f"{place}: give at least one of electricity, grid, pue and colocation")
    return row | _sourced(place, given, REGION)


def api_provider(where: str, given: Mapping[str, Any]) -> Row:
    """The row of one provider of hosted models."""
    optional: Fields = {"base_url": None, "locations": check_texts, "withdrawn": check_date, "notes": None}
    place = _named(where, given, each(("slug", "name", *META), None), optional)
    sources = {"endpoint": source_of(place, given)}
    return kept(given, ("slug", "name", *optional)) | {"sources": sources, "as_of": newest(sources)}


UNIT: dict[str, tuple[Fields, Fields]] = {
    "contents": (
        {"accelerators": check_number},
        {"instances": check_number, "shape": None, "network_gb_per_s": check_number, "sold_as": check_texts},
    ),
    "power": ({}, {"watts": check_number, "cooling": one_of(*COOLINGS)}),
    "price": ({"usd": check_number}, each(("low_usd", "high_usd"), check_number)),
    "lead_time": ({"text": None}, {}),
}
UNIT_COLUMNS = {"usd": "price_usd", "low_usd": "price_usd_min", "high_usd": "price_usd_max", "text": "lead_time"}


def unit(where: str, given: Mapping[str, Any]) -> Row:
    """The row of one unit; `accelerator` is a slug."""
    plain = {**each(("slug", "name", "accelerator", "contents"), None), "kind": one_of(*UNIT_KINDS)}
    place = _named(where, given, plain, each(("power", "price", "lead_time", "notes"), None))
    row = kept(given, ("slug", "name", "kind", "accelerator", "notes"))
    for part, (required, optional) in UNIT.items():
        if part in given:
            figures = group(f"{place}: {part}", given[part], required, optional)
            row |= {UNIT_COLUMNS.get(key, key): value for key, value in figures.items()}
    return row | _sourced(place, given, UNIT)


def assumption(where: str, given: Mapping[str, Any]) -> Row:
    """The row of one default assumption."""
    check_keys(where, given, ("key", "value", "unit", *META), ("low", "high", "notes"))
    check_text(f"{where}: key", given["key"])
    check = check_change if given["key"].endswith(CHANGES) else check_number_or_zero
    required = {**each(("key", "unit", *META), None), "value": check}
    place = _named(where, given, required, {"low": check, "high": check, "notes": None}, "key")
    sources = {"value": source_of(place, given)}
    row = kept(given, ("key", "value", "unit", "low", "high", "notes"))
    return row | {"sources": sources, "as_of": newest(sources)}


def calibration(path: Path) -> Row:
    """The row of one calibration file."""
    given = read_yaml(path)
    fields = {**each(("name", "values", "fitted_on", "engine_version", "as_of"), None)}
    check_fields(path.name, given, {**fields, "basis": one_of("measured", "relative", "datasheet")}, {}, ": ")
    if not isinstance(given["as_of"], date) or not isinstance(given["values"], Mapping):
        raise FixtureError(f"{path.name}: as_of must be a date (YYYY-MM-DD) and values a mapping")
    return {**given, "engine_version": str(given["engine_version"])}


def table(
    path: Path,
    columns: tuple[str, ...],
    reader: Callable[[str, Mapping[str, Any]], Row],
    optional: tuple[str, ...] = (),
) -> Iterator[Row]:
    """The rows of a CSV file. FixtureError: a column is missing or unknown."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = csv.DictReader(stream)
            check_keys(path.name, dict.fromkeys(lines.fieldnames or (), "given"), columns, optional)
            for given in lines:
                yield reader(f"{path.name}:{lines.line_num}", given)
    except (UnicodeDecodeError, csv.Error) as error:
        raise FixtureError(f"{path.name}: not a CSV file in UTF-8: {error}") from error


def prices(path: Path) -> Iterator[Row]:
    """The offers in one file: instances by the hour, or purchases."""
    return table(path, PRICE_COLUMNS, price, PRICE_OPTIONAL)


def exchange_rates(path: Path) -> Iterator[Row]:
    """What one US dollar costs in other currencies; none if the file does not exist."""
    return table(path, RATE_COLUMNS, exchange_rate) if path.exists() else iter(())


def exchange_rate(where: str, given: Mapping[str, Any]) -> Row:
    """One currency on one day."""
    row = row_with_number(where, given, RATE_COLUMNS, "per_usd")
    return row | {"per_usd": Decimal(given["per_usd"])}


def price_levels(path: Path) -> Iterator[Row]:
    """Published levels of rents; none if the file does not exist."""
    return table(path, LEVEL_COLUMNS, price_level) if path.exists() else iter(())


def price_level(where: str, given: Mapping[str, Any]) -> Row:
    """The level of one chip and term on one day."""
    row = row_with_number(where, given, LEVEL_COLUMNS, "usd_per_chip_hour", "notes")
    check_choice(f"{where}: term", given["term"], LEVEL_TERMS)
    return row | {"usd_per_chip_hour": Decimal(given["usd_per_chip_hour"]), "notes": given.get("notes") or ""}


def api_prices(path: Path) -> Iterator[Row]:
    """The prices of hosted models; none if the file does not exist."""
    return table(path, API_PRICE_COLUMNS, api_price, (*API_SPEED, *API_OTHER)) if path.exists() else iter(())


def api_price(where: str, given: Mapping[str, Any]) -> Row:
    """The price of one hosted model, in USD per million tokens."""
    optional = ("usd_per_mtok_cached_input", "max_input_tokens", *API_SPEED, *API_OTHER)
    check_keys(where, given, [column for column in API_PRICE_COLUMNS if column not in optional], optional)
    # a line may be shorter than the header
    row: Row = dict(given) | {key: given[key] or "" for key in ("quantization", "hardware", "notes") if key in given}
    try:
        for key in ("usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output"):
            row[key] = _usd(key, given[key], "0.000001")
        row["max_input_tokens"] = int(given["max_input_tokens"]) if given["max_input_tokens"] else None
        if "output_tokens_per_s" in given:  # without the column, the stored speed stays
            row |= _speed(where, given)
        if "withdrawn" in given:
            row["withdrawn"] = date.fromisoformat(given["withdrawn"]) if given["withdrawn"] else None
        row["as_of"] = date.fromisoformat(given["as_of"])
    except ValueError as error:
        raise FixtureError(f"{where}: {error}") from error
    return row


def _usd(name: str, text: str | None, places: str) -> Decimal | None:
    """A price in USD, rounded to `places`; None for a blank cell. FixtureError: not a finite number in range."""
    try:
        usd = Decimal(text) if text else None
    except InvalidOperation:
        usd = Decimal("NaN")
    if usd is not None and not (usd.is_finite() and 0 <= usd < MAX_USD[places]):
        raise FixtureError(f"{name}: expected USD from 0 to {MAX_USD[places]:,}, not {text!r}")
    return usd.quantize(Decimal(places)) if usd is not None else None


def _speed(where: str, given: Mapping[str, Any]) -> Row:
    """The published speed of an endpoint: output tokens/s of one request, its TTFT in ms, and their source."""
    text = {column: given.get(column) or "" for column in API_SPEED}
    needed = [column for column in API_SPEED if column != "ttft_ms"]
    if len({bool(text[column]) for column in needed}) > 1 or (text["ttft_ms"] and not text["speed_source"]):
        raise FixtureError(f"{where}: give {', '.join(needed)} together, or none of them")
    if not text["speed_source"]:
        return {"output_tokens_per_s": None, "ttft_ms": None, "speed_kind": "", "speed_as_of": None, "speed_source": ""}
    check_choice(f"{where}: speed_kind", text["speed_kind"], SPEED_KINDS)
    figures = {name: float(text[name]) if text[name] else None for name in ("output_tokens_per_s", "ttft_ms")}
    for name, value in figures.items():
        if value is not None:
            check_number(f"{where}: {name}", value)
    return {**text, **figures, "speed_as_of": date.fromisoformat(text["speed_as_of"])}


def row_with_number(
    where: str, given: Mapping[str, Any], columns: tuple[str, ...], number: str, optional: str = ""
) -> Row:
    """A row of text columns, one number column and a date."""
    blank = optional.split()
    check_keys(where, given, [column for column in columns if column not in blank], blank)
    try:
        value = float(given[number])
        as_of = date.fromisoformat(given["as_of"])
    except ValueError as error:
        raise FixtureError(f"{where}: {error}") from error
    check_number(f"{where}: {number}", value)
    return {**given, number: value, "as_of": as_of}


def benchmark(where: str, given: Mapping[str, Any]) -> Row:
    """A rate measured on one accelerator, given by its slug."""
    check_choice(f"{where}: unit", given.get("unit"), ("TFLOP/s", "GB/s"))
    return row_with_number(where, given, BENCHMARK_COLUMNS, "value")


def discount(where: str, given: Mapping[str, Any]) -> Row:
    """A discount of an organisation. An empty accelerator or term means all."""
    row = row_with_number(where, given, DISCOUNT_COLUMNS, "discount_fraction", "accelerator term")
    if row["term"]:
        check_choice(f"{where}: term", row["term"], TERMS)
    if row["discount_fraction"] >= 1:
        raise FixtureError(f"{where}: discount_fraction must be below 1, such as 0.15")
    return row


def licence(where: str, given: Mapping[str, Any]) -> Row:
    """A yearly software or support fee per accelerator, in USD."""
    row = row_with_number(
        where,
        {"framework": "", **given},
        (*LICENCE_COLUMNS, *LICENCE_FOR),
        "usd_per_accelerator_per_year",
        "vendor framework",
    )
    return row | {
        "framework": row["framework"] or "",
        "usd_per_accelerator_per_year": _usd(where, str(row["usd_per_accelerator_per_year"]), "0.01"),
    }


def price(where: str, given: Mapping[str, Any]) -> Row:
    """The row of one offer."""
    required = ("provider", "instance", "accelerator", "accelerators", "term", "kind", "as_of", "source")
    check_keys(where, given, required, (*PRICE_COLUMNS, *PRICE_OPTIONAL))
    check_choice(f"{where}: term", given["term"], TERMS)
    row: Row = {**given, "notes": given.get("notes") or "", "marks": given.get("marks") or ""}
    row |= _trust(where, given)
    if row.setdefault("availability", ""):
        check_choice(f"{where}: availability", row["availability"], AVAILABILITIES)
    for mark in row["marks"].split():
        check_choice(f"{where}: marks", mark, PRICE_MARKS)
    try:
        row["accelerators"] = int(given["accelerators"])
        row["as_of"] = date.fromisoformat(given["as_of"])
        for key in ("usd_per_hour", "purchase_usd", *PRICE_RANGE):
            places = "0.000001" if key == "usd_per_hour" else "0.01"
            row[key] = _usd(key, given.get(key), places)
        for key in ("vcpus", "host_memory_gib"):
            row[key] = float(given[key]) if given[key] else None
            check_number(key, row[key] or 0.0, zero=True)
    except ValueError as error:
        raise FixtureError(f"{where}: {error}") from error
    usd = row["purchase_usd"] if given["term"] == "purchase" else row["usd_per_hour"]
    if usd is None or usd <= 0 or row["accelerators"] < 1:
        raise FixtureError(f"{where}: expected a price above zero and at least one accelerator")
    row |= _smallest_unit(where, given, row)
    low, high = (row[key] or usd for key in PRICE_RANGE)
    if not low <= usd <= high:
        raise FixtureError(f"{where}: purchase_usd must be between purchase_usd_min and purchase_usd_max")
    return row


def _smallest_unit(where: str, given: Mapping[str, Any], row: Row) -> Row:
    """How many chips are sold together at least, and its source; both empty: the row does not say."""
    text, source = (given.get(name) or "" for name in SMALLEST_UNIT)
    if not text and not source:
        return {"smallest_unit_accelerators": None, "smallest_unit_source": ""}
    unit = unit_of(f"{where}: smallest_unit_accelerators", text or UNKNOWN)
    if unit and unit % row["accelerators"]:
        raise FixtureError(
            f"{where}: smallest_unit_accelerators {unit} is not a multiple of the {row['accelerators']} accelerators"
        )
    return {"smallest_unit_accelerators": unit, "smallest_unit_source": source or given["source"]}


def unit_of(where: str, text: str) -> int | None:
    """A number of chips; None for the word unknown. FixtureError: anything else."""
    if text == UNKNOWN:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise FixtureError(f"{where}: expected a number of accelerators such as 8, or {UNKNOWN}, not {text!r}")
    return int(text)


def smallest_units(path: Path) -> Iterator[Row]:
    """The smallest unit of each seller and chip; none if the file does not exist."""
    return table(path, SMALLEST_UNIT_COLUMNS, smallest_unit) if path.exists() else iter(())


def smallest_unit(where: str, given: Mapping[str, Any]) -> Row:
    """How many chips one seller rents out together at least."""
    check_keys(where, given, SMALLEST_UNIT_COLUMNS)
    try:
        as_of = date.fromisoformat(given["as_of"])
    except ValueError as error:
        raise FixtureError(f"{where}: {error}") from error
    unit = unit_of(f"{where}: smallest_unit_accelerators", given["smallest_unit_accelerators"])
    named = {name: given[name] for name in ("provider", "accelerator", "source")}
    return named | {"accelerators": unit, "as_of": as_of}


def is_per_chip(row: Mapping[str, Any]) -> bool:
    """Whether the price is the rent of one chip, however many are sold together."""
    return (
        row["term"] != "purchase" and row["origin"] != INDEX and (row["unit"] == "chip" or PER_CHIP in row["instance"])
    )


def _trust(where: str, given: Mapping[str, Any]) -> Row:
    """Where the price comes from and what it is for. Empty cells: what the other columns suggest."""
    row: Row = {name: given.get(name) or value for name, value in _usual_trust(given).items()}
    for name, allowed in (("origin", tuple(ORIGINS)), ("confidence", CONFIDENCES), ("unit", UNITS_SOLD)):
        check_choice(f"{where}: {name}", row[name], allowed)
    country, currency = (row[name].upper() for name in ("country", "currency"))
    if not re.fullmatch(r"[A-Z]{3}", currency) or not re.fullmatch(r"([A-Z]{2})?", country):
        raise FixtureError(f"{where}: expected a currency such as EUR and a country code such as DE")
    printed = given.get("listed_price") or None
    if (currency != USD) != bool(printed):
        raise FixtureError(f"{where}: listed_price is the price in `currency`, if that is not USD; give both or none")
    return {
        **row,
        "country": country,
        "currency": currency,
        "listed_price": _usd("listed_price", printed, "0.0001"),
    }


def _usual_trust(given: Mapping[str, Any]) -> dict[str, str]:
    marks, kind, bought = (given.get("marks") or "").split(), given["kind"], given["term"] == "purchase"
    own = next((mark for mark in ("quote", "second_hand") if mark in marks), "")
    rented = "block" if kind == "capacity_block" else "chip" if PER_CHIP in given["instance"] else "instance"
    return {
        "origin": own or ("marketplace" if kind == "marketplace" else "reseller" if bought else "official_list"),
        "confidence": "medium",
        "unit": PURCHASED_UNITS.get(kind, kind) if bought else rented,
        "country": "",
        "currency": USD,
    }


def listed(path: Path, reader: Callable[[str, Mapping[str, Any]], Row]) -> list[Row]:
    """The rows of a YAML file with one list; none if the file does not exist."""
    if not path.exists():
        return []
    given = read_yaml(path)
    if not isinstance(given, list):
        raise FixtureError(f"{path.name}: expected a list")
    return [reader(path.name, item) for item in given]


def refuse_duplicates(kind: str, rows: Iterable[Row], keys: tuple[str, ...]) -> None:
    """FixtureError: two rows have the same key."""
    seen = set()
    for row in rows:
        key = tuple(row[name] for name in keys)
        if key in seen:
            raise FixtureError(f"{kind}: duplicate {' / '.join(map(str, key))}")
        seen.add(key)


def digest(directory: Path) -> str:
    """A SHA-256 digest of the fixture files, the same on every machine."""
    total = hashlib.sha256()
    for folder, pattern in (
        *((name, "*.yaml") for name in ("accelerators", "frameworks", "models")),
        ("prices", "*.csv"),
        (".", "*.yaml"),
        (".", "*.csv"),
    ):
        for path in sorted((directory / folder).glob(pattern)):
            total.update(f"{folder}/{path.name}\n".encode() + path.read_bytes())
    for path in [*sorted((directory / "calibration").glob("*.yaml")), directory / "measurements" / BENCHMARKS]:
        if path.exists():
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()
