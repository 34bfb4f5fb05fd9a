"""Reads the framework fixtures and the templates of their launch commands."""

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from advisor.engine.terms import (
    CHIP_DEFAULTS,
    NEEDS_OPTION,
    OMITTED,
    PARTS,
    RULE_LISTS,
    START_CHECKS,
    SWITCHES,
    TEXTS,
    template_of,
    without_parts,
)
from catalog.loading.fixtures import (
    META,
    Check,
    Fields,
    FixtureError,
    Row,
    check_choice,
    check_count,
    check_date,
    check_fields,
    check_keys,
    check_number,
    check_number_or_zero,
    check_switch,
    check_text,
    check_texts,
    each,
    group,
    kept,
    list_of,
    listed_items,
    newest,
    one_of,
    read_yaml,
    source_of,
)

SUPPORT = ("stacks", "vendors", "kinds", "mixers", "features")
LAYERS = ("dense", "experts")
SCHEDULING = (
    *("scheduler", "default_max_batched_tokens", "max_running_requests", "memory_fraction", "block_tokens"),
    *("graph_max_tokens", "memory_policy"),
)
OVERHEAD = ("runtime_gib",)
HOST_TIMES = (
    *("uncompiled_ms_per_layer", "ngram_ms", "ngram_ms_per_sequence", "adapter_kernel_us", "further_adapter_us"),
    *("eager_ms_per_layer", "eager_ms_per_expert_layer", "uncertain_ratio"),
)
BEHAVIOR: Fields = {
    "compiled_stacks": check_texts,
    **each(("torch_compile", "prefixes_by_default", "builds_engines", "memory_as_needed"), check_switch),
    **each(("ranks_wait", "one_accelerator"), check_switch),
    "host_cache_option": check_text,
    "fp8_cache_weights": check_texts,
    "audio_window_s": check_number,
}
SERVES = ("tokens", "vectors", "sources", "images")
SCHEDULERS = ("chunked", "prefill_first", "static")
MEMORY_POLICIES = ("total", "static", "free")
HOSTS = ("ranked", "ray", "slurm")
TEMPLATES, OLD_LIST = "launch_templates.yaml", "frameworks.yaml"
ROLES = ("serving", "training", "library")
FACTS = ("first_release", "releases", "licence", "speculative")


def templates(directory: Path) -> dict[str, Row]:
    """The launch command templates by slug."""
    path, by_slug = directory / TEMPLATES, dict[str, Row]()
    for given in read_yaml(path) if path.exists() else ():
        where = f"{path.name}: {given.get('slug', '?') if isinstance(given, Mapping) else '?'}"
        check_keys(where, given, ("slug", "command", *META), (*PARTS, *TEXTS, *SWITCHES))
        source_of(where, given)
        if given["slug"] in by_slug:
            raise FixtureError(f"{where}: duplicate slug")
        row = {key: value for key, value in given.items() if key not in ("slug", *META)}
        try:
            template_of(row)
        except ValueError as error:
            raise FixtureError(f"{where}: {error}") from error
        by_slug[given["slug"]] = row
    return by_slug


def frameworks(directory: Path) -> list[Row]:
    """The rows of all frameworks, each with its launch template."""
    if (directory / OLD_LIST).exists():
        raise FixtureError(
            f"{OLD_LIST} is no longer supported; move each framework to its own file, frameworks/SLUG.yaml"
        )
    known = templates(directory)
    return [row for path in sorted((directory / "frameworks").glob("*.yaml")) for row in versions(path, known)]


def versions(path: Path, known: Mapping[str, Row]) -> list[Row]:
    """The rows of a framework's file: its version, and earlier ones with what differs from it."""
    given, where = read_yaml(path), f"{path.name}: earlier"
    newest_row = framework(path, {key: value for key, value in given.items() if key != "earlier"}, known)
    return [
        newest_row,
        *(_earlier(where, row, given, path, known) for row in listed_items(where, given.get("earlier", []))),
    ]


def _earlier(where: str, row: Any, newer: Row, path: Path, known: Mapping[str, Row]) -> Row:
    """The newest row with another version, and with the parts that this version gives in place of its own."""
    check_keys(where, row, ("version", "scheduling"), ("flags",))
    others = {key: value for key, value in newer.items() if key not in ("earlier", "released")}
    return framework(path, {**others, **row}, known)


def framework(path: Path, given: Row, known: Mapping[str, Row]) -> Row:
    """The row of one framework version. `known` has the launch templates by slug."""
    where = path.name
    parts = ("support", "scheduling", "overhead")
    optional = ("host_times", "behavior", "launch", "not_started", "flags", "facts", "released")
    required = {**each(("slug", "name", *parts), None), "version": check_text}
    plain = {"role": one_of(*ROLES), "hardware": None, "aliases": check_texts, **each(("notes", *optional), None)}
    check_fields(where, given, required, plain, ": ")
    if path.stem not in (given["slug"], f"{given['slug']}-{given['version']}"):
        raise FixtureError(f"{where}: name the file {given['slug']}.yaml or {given['slug']}-{given['version']}.yaml")
    if given.get("role", "serving") == "serving" and "host_times" not in given:
        raise FixtureError(f"{where}: missing host_times; copy those of a similar framework with basis: relative")
    settings: Row = kept(given, ("role", "hardware", "aliases"))
    settings |= _support(f"{where}: support", given["support"])
    settings |= group(f"{where}: scheduling", given["scheduling"], SCHEDULES, {"on_chips": _check_chip_defaults})
    settings |= group(f"{where}: overhead", given["overhead"], each(OVERHEAD, None))
    settings["launch"] = _launch(f"{where}: launch", given["launch"], known) if "launch" in given else None
    if "not_started" in given:
        reason = group(f"{where}: not_started", given["not_started"], {"reason": None})
        settings["not_started_reason"] = reason["reason"]
    elif not settings["launch"]:
        raise FixtureError(f"{where}: give launch, or not_started with the reason why it has no start command")
    if "host_times" in given:  # zero where the framework has no such overhead
        times, adapter = each(HOST_TIMES, check_number_or_zero), {"adapter_launch_us": check_number_or_zero}
        settings["host_times"] = group(f"{where}: host_times", given["host_times"], times, adapter)
    if "behavior" in given:
        settings |= group(f"{where}: behavior", given["behavior"], {}, BEHAVIOR)
    if "released" in given:
        settings["released"] = group(f"{where}: released", given["released"], {"versions": check_texts})["versions"]
    if "flags" in given:
        settings["flags"] = _flags(f"{where}: flags", given["flags"], path.parent.parent / "flags")
    if "facts" in given:
        facts = group(f"{where}: facts", given["facts"], {"licence": None}, FACTS_GIVEN)
        settings |= facts | {key: facts[key].isoformat() for key in ("first_release",) if key in facts}
    sources = {part: source_of(f"{where}: {part}", given[part]) for part in (*parts, *optional) if part in given}
    row = kept(given, ("slug", "name", "version", "notes"))
    return row | {"settings": settings, "sources": sources, "as_of": newest(sources)}


def _check_chip_defaults(where: str, value: Any) -> None:
    for rule in listed_items(where, value):
        check_keys(where, rule, (), ("chips", "from_gib", "below_gib", *CHIP_DEFAULTS))


SCHEDULES: Fields = {
    **each(SCHEDULING, None),
    "scheduler": one_of(*SCHEDULERS),
    "memory_policy": one_of(*MEMORY_POLICIES),
}
FACTS_GIVEN: Fields = {"first_release": check_date, "releases": check_number, "speculative": None}


def _support(where: str, given: Mapping[str, Any]) -> Row:
    """Where the framework runs and what it loads; `quantizations` and `kv_dtypes` list the formats of the rules."""
    optional = {**each(SUPPORT, check_texts), "feature_chips": None, "start_checks": None}
    support = group(where, given, each(RULE_LISTS, None), optional)
    for feature, chips in support.get("feature_chips", {}).items():
        check_choice(f"{where}.feature_chips", feature, support.get("features", []))
        check_texts(f"{where}.feature_chips.{feature}", chips)
    own = source_of(where, given)
    rules = support.get("start_checks", [])
    support["start_checks"] = [_start_rule(f"{where}.start_checks, rule {i}", r) for i, r in enumerate(rules, 1)]
    for key, plain in RULE_LISTS.items():
        if not isinstance(given[key], list):
            raise FixtureError(f"{where}.{key}: expected a list of rules, such as [{{formats: [bf16]}}]")
        support[key] = [_rule(f"{where}.{key}, rule {i}", rule, own) for i, rule in enumerate(given[key], 1)]
        support[plain] = list(dict.fromkeys(slug for rule in support[key] for slug in rule["formats"]))
    return support


def _rule(where: str, given: Any, own: Row) -> Row:
    """Formats that work on some chips; a rule without a source has that of the whole support group."""
    optional = {**each(("chips", "not_chips", "mixers"), check_texts), "layers": one_of("", *LAYERS)}
    optional |= {"weight_only": check_switch, **each(META, None)}
    check_fields(where, given, {"formats": check_texts}, optional)
    if not any(key in given for key in META):
        return {**given, **own}
    check_keys(where, given, ("formats", *META), given)
    return {**given, **source_of(where, given)}


def _start_rule(where: str, given: Any) -> Row:
    """What the framework refuses when it starts, with its own source."""
    required = {"refuses": list_of(one_of(*START_CHECKS)), **each(META, None)}
    check_fields(where, given, required, {**each(("chips", "models"), check_texts), "option": check_text})
    if ("option" in given) != (NEEDS_OPTION in given["refuses"]):
        raise FixtureError(f"{where}: {NEEDS_OPTION} and option belong together")
    return {**given, **source_of(where, given)}


def _check_names(where: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise FixtureError(f"{where}: expected a mapping of strings, such as {{fp8: fp8_e4m3}}")


def _text_with(*allowed: str) -> Check:
    """Checks a text whose only $placeholders are `allowed`."""

    def check(where: str, value: Any) -> None:
        check_text(where, value)
        template = Template(value)
        if not template.is_valid() or set(template.get_identifiers()) - set(allowed):
            placeholders = ", ".join("$" + name for name in allowed)
            raise FixtureError(f"{where}: {value!r}: the only placeholders allowed are {placeholders}")

    return check


def _check_images(where: str, value: Any) -> None:
    _check_names(where, value)
    for vendor, image in value.items():
        _text_with("version")(f"{where}.{vendor}", image)


LAUNCH: Fields = {
    **each(("package_note", "checkpoint_file", "health_path", "default_model_name", "device_note"), check_text),
    "package": _text_with("version"),
    "card_share": _text_with("concurrency", "memory_fraction"),
    "hosts": one_of(*HOSTS),
    **each(("package_vendors", "expert_hosts"), check_texts),
    "omits": list_of(one_of(*OMITTED)),
    **each(("formats_on_load", "format_names", "cache_names"), _check_names),
    "images": _check_images,
    **each(("image_has_entrypoint", "load_test"), check_switch),
    "preference": check_count,
}


def _launch(where: str, given: Mapping[str, Any], known: Mapping[str, Row]) -> Row:
    """How the framework is installed and started, with the template in place of its name."""
    launch = group(where, given, {"template": check_text, "serves": list_of(one_of(*SERVES))}, LAUNCH)
    if launch["template"] not in known:
        names = ", ".join(sorted(known)) or "none"
        raise FixtureError(f"{where}.template: {launch['template']!r} is not in {TEMPLATES}, which has {names}")
    omits = launch.pop("omits", [])
    return {**launch, "template": without_parts(known[launch["template"]], omits)}


def _flags(where: str, given: Mapping[str, Any], folder: Path) -> Row:
    """The lists of command-line flags, in flags/, that launch commands are checked against."""
    texts = each(("nearest", "why", "options_file"), check_text)
    flags = group(where, given, {}, {"lists": check_texts, **texts})
    if bool(flags.get("lists")) == bool(flags.get("nearest")):
        raise FixtureError(f"{where}: give either lists (of this release) or nearest (from the project's source)")
    for stem in [*flags.get("lists", []), flags.get("nearest"), flags.get("options_file")]:
        if stem and not (folder / f"{stem}.txt").is_file():
            raise FixtureError(f"{where}: flags/{stem}.txt does not exist; create it with manage.py extract_flags")
    return flags
