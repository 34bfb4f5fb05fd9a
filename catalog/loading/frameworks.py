"""Reads the framework fixtures and the templates of their launch commands."""

from collections.abc import Callable, Mapping
from datetime import date
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
    FixtureError,
    Row,
    check_choice,
    check_count,
    check_keys,
    check_number,
    check_switch,
    check_text,
    check_texts,
    group,
    newest,
    read_yaml,
    source_of,
)

SUPPORT = ("stacks", "vendors", "kinds", "mixers", "features")
IN_RULES = ("formats", "chips", "not_chips", "mixers")
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
BEHAVIOR = (
    *("compiled_stacks", "torch_compile", "prefixes_by_default", "builds_engines", "memory_as_needed"),
    *("ranks_wait", "one_accelerator", "host_cache_option", "fp8_cache_weights", "audio_window_s"),
)
LAUNCH_TEXTS = (
    *("template", "package", "package_note", "checkpoint_file", "hosts", "health_path", "default_model_name"),
    *("device_note", "card_share"),
)
LAUNCH_LISTS = ("serves", "package_vendors", "expert_hosts", "omits")
LAUNCH_NAMES = ("formats_on_load", "format_names", "cache_names", "images")  # mappings of strings
LAUNCH_SWITCHES = ("image_has_entrypoint", "load_test")
LAUNCH = (*LAUNCH_TEXTS, *LAUNCH_LISTS, *LAUNCH_NAMES, *LAUNCH_SWITCHES, "preference")
SERVES = ("tokens", "vectors", "sources", "images")
SCHEDULERS = ("chunked", "prefill_first", "static")
MEMORY_POLICIES = ("total", "static", "free")
HOSTS = ("ranked", "ray", "slurm")
FLAGS = ("lists", "nearest", "why", "options_file")
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
    given = read_yaml(path)
    newest_row = framework(path, {key: value for key, value in given.items() if key != "earlier"}, known)
    return [
        newest_row,
        *(_earlier(f"{path.name}: earlier", row, given, path, known) for row in given.get("earlier", ())),
    ]


def _earlier(where: str, row: Any, newer: Row, path: Path, known: Mapping[str, Row]) -> Row:
    """The newest row with another version, and with the parts that this version gives in place of its own."""
    check_keys(where, row, ("version", "scheduling"), ("flags",))
    others = {key: value for key, value in newer.items() if key not in ("earlier", "released")}
    return framework(path, {**others, **row}, known)


def framework(path: Path, given: Row, known: Mapping[str, Row]) -> Row:
    """The row of one framework version. `known` has the launch templates by slug."""
    where = path.name
    parts: dict[str, tuple[str, ...]] = {"support": SUPPORT, "scheduling": SCHEDULING, "overhead": OVERHEAD}
    optional = ("host_times", "behavior", "launch", "not_started", "flags", "facts", "released")
    plain = ("notes", "role", "hardware", "aliases")
    check_keys(where, given, ("slug", "name", "version", *parts), (*optional, *plain))
    check_text(f"{where}: version", given["version"])
    if path.stem not in (given["slug"], f"{given['slug']}-{given['version']}"):
        raise FixtureError(f"{where}: name the file {given['slug']}.yaml or {given['slug']}-{given['version']}.yaml")
    role = given.get("role", "serving")
    check_choice(f"{where}: role", role, ROLES)
    if role == "serving" and "host_times" not in given:
        raise FixtureError(f"{where}: missing host_times; copy those of a similar framework with basis: relative")
    check_texts(f"{where}: aliases", given.get("aliases", []))
    settings: Row = {key: given[key] for key in ("role", "hardware", "aliases") if key in given}
    settings |= _support(f"{where}: support", given["support"])
    settings |= group(f"{where}: scheduling", given["scheduling"], SCHEDULING, (*SCHEDULING, "on_chips"))
    settings |= group(f"{where}: overhead", given["overhead"], OVERHEAD)
    for rule in settings.get("on_chips", ()):
        check_keys(f"{where}: scheduling.on_chips", rule, (), ("chips", "from_gib", "below_gib", *CHIP_DEFAULTS))
    check_choice(f"{where}: scheduling.scheduler", settings["scheduler"], SCHEDULERS)
    check_choice(f"{where}: scheduling.memory_policy", settings["memory_policy"], MEMORY_POLICIES)
    settings["launch"] = _launch(f"{where}: launch", given["launch"], known) if "launch" in given else None
    if "not_started" in given:
        settings["not_started_reason"] = group(f"{where}: not_started", given["not_started"], ("reason",))["reason"]
    elif not settings["launch"]:
        raise FixtureError(f"{where}: give launch, or not_started with the reason why it has no start command")
    if "host_times" in given:
        settings["host_times"] = _host_times(f"{where}: host_times", given["host_times"])
    if "behavior" in given:
        settings |= _behavior(f"{where}: behavior", given["behavior"])
    if "released" in given:
        settings["released"] = group(f"{where}: released", given["released"], ("versions",))["versions"]
        check_texts(f"{where}: released.versions", settings["released"])
    if "flags" in given:
        settings["flags"] = _flags(f"{where}: flags", given["flags"], path.parent.parent / "flags")
    if "facts" in given:
        settings |= _facts(f"{where}: facts", given["facts"])
    sources = {part: source_of(f"{where}: {part}", given[part]) for part in (*parts, *optional) if part in given}
    row = {key: given[key] for key in ("slug", "name", "version", "notes") if key in given}
    return row | {"settings": settings, "sources": sources, "as_of": newest(sources)}


def _support(where: str, given: Mapping[str, Any]) -> Row:
    """Where the framework runs and what it loads; `quantizations` and `kv_dtypes` list the formats of the rules."""
    support = group(where, given, tuple(RULE_LISTS), (*SUPPORT, "feature_chips", "start_checks"))
    for key in SUPPORT:
        check_texts(f"{where}.{key}", support.get(key, []))
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
    check_keys(where, given, ("formats",), (*IN_RULES, "layers", "weight_only", *META))
    for key in IN_RULES:
        check_texts(f"{where}.{key}", given.get(key, []))
    check_choice(f"{where}.layers", given.get("layers", ""), ("", *LAYERS))
    check_switch(f"{where}.weight_only", given.get("weight_only", False))
    if not any(key in given for key in META):
        return {**given, **own}
    check_keys(where, given, ("formats", *META), given)
    return {**given, **source_of(where, given)}


def _start_rule(where: str, given: Any) -> Row:
    """What the framework refuses when it starts, with its own source."""
    check_keys(where, given, ("refuses", *META), ("chips", "models", "option"))
    check_text(f"{where}.option", given.get("option", ""))
    if ("option" in given) != (NEEDS_OPTION in given["refuses"]):
        raise FixtureError(f"{where}: {NEEDS_OPTION} and option belong together")
    for key in ("refuses", "chips", "models"):
        check_texts(f"{where}.{key}", given.get(key, []))
    for name in given["refuses"]:
        check_choice(f"{where}.refuses", name, START_CHECKS)
    return {**given, **source_of(where, given)}


def _host_times(where: str, given: Mapping[str, Any]) -> Row:
    """Host times; zero where the framework has no such overhead."""
    times = group(where, given, HOST_TIMES, (*HOST_TIMES, "adapter_launch_us"))
    for key, value in times.items():
        check_number(f"{where}.{key}", value, zero=True)
    return times


def _behavior(where: str, given: Mapping[str, Any]) -> Row:
    behavior = group(where, given, (), BEHAVIOR)
    for key, value in behavior.items():
        if key in ("compiled_stacks", "fp8_cache_weights"):
            check_texts(f"{where}.{key}", value)
        elif key == "audio_window_s":
            check_number(f"{where}.{key}", value)
        elif key == "host_cache_option":
            check_text(f"{where}.{key}", value)
        else:
            check_switch(f"{where}.{key}", value)
    return behavior


def _launch(where: str, given: Mapping[str, Any], known: Mapping[str, Row]) -> Row:
    """How the framework is installed and started, with the template in place of its name."""
    launch = group(where, given, ("template", "serves"), LAUNCH)
    checks: tuple[tuple[tuple[str, ...], Callable[[str, Any], None]], ...] = (
        (LAUNCH_TEXTS, check_text),
        (LAUNCH_LISTS, check_texts),
        (LAUNCH_NAMES, _check_names),
        (LAUNCH_SWITCHES, check_switch),
        (("preference",), check_count),
    )
    for keys, check in checks:
        for key in keys:
            if key in launch:
                check(f"{where}.{key}", launch[key])
    for output in launch["serves"]:
        check_choice(f"{where}.serves", output, SERVES)
    if "hosts" in launch:
        check_choice(f"{where}.hosts", launch["hosts"], HOSTS)
    _check_placeholders(f"{where}.package", launch.get("package", ""), ("version",))
    _check_placeholders(f"{where}.card_share", launch.get("card_share", ""), ("concurrency", "memory_fraction"))
    for vendor, image in launch.get("images", {}).items():
        _check_placeholders(f"{where}.images.{vendor}", image, ("version",))
    if launch["template"] not in known:
        names = ", ".join(sorted(known)) or "none"
        raise FixtureError(f"{where}.template: {launch['template']!r} is not in {TEMPLATES}, which has {names}")
    for part in (omits := launch.pop("omits", [])):
        check_choice(f"{where}.omits", part, OMITTED)
    return {**launch, "template": without_parts(known[launch["template"]], omits)}


def _check_names(where: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise FixtureError(f"{where}: expected a mapping of strings, such as {{fp8: fp8_e4m3}}")


def _check_placeholders(where: str, text: str, allowed: tuple[str, ...]) -> None:
    """FixtureError: the text has a $placeholder that is not in `allowed`."""
    template = Template(text)
    if not template.is_valid() or set(template.get_identifiers()) - set(allowed):
        placeholders = ", ".join("$" + name for name in allowed)
        raise FixtureError(f"{where}: {text!r}: the only placeholders allowed are {placeholders}")


def _flags(where: str, given: Mapping[str, Any], folder: Path) -> Row:
    """The lists of command-line flags, in flags/, that launch commands are checked against."""
    flags = group(where, given, (), FLAGS)
    check_texts(f"{where}.lists", flags.get("lists", []))
    for key in ("nearest", "why", "options_file"):
        check_text(f"{where}.{key}", flags.get(key, ""))
    if bool(flags.get("lists")) == bool(flags.get("nearest")):
        raise FixtureError(f"{where}: give either lists (of this release) or nearest (from the project's source)")
    for stem in [*flags.get("lists", []), flags.get("nearest"), flags.get("options_file")]:
        if stem and not (folder / f"{stem}.txt").is_file():
            raise FixtureError(f"{where}: flags/{stem}.txt does not exist; create it with manage.py extract_flags")
    return flags


def _facts(where: str, given: Mapping[str, Any]) -> Row:
    """Release dates and counts of a framework, JSON-serializable."""
    facts = group(where, given, ("licence",), FACTS)
    if "first_release" in facts:
        if not isinstance(facts["first_release"], date):
            raise FixtureError(f"{where}.first_release: expected a date (YYYY-MM-DD)")
        facts["first_release"] = facts["first_release"].isoformat()
    if "releases" in facts:
        check_number(f"{where}.releases", facts["releases"])
    return facts
