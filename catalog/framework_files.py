"""Reads the files of frameworks, and the command lines that they start with."""

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from string import Template
from typing import Any

from advisor.engine.spec import OMITTED, PARTS, SWITCHES, TEXTS, template_of, without_parts
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

SUPPORT = ("stacks", "vendors", "kinds", "quantizations", "kv_dtypes", "mixers", "features")
SCHEDULING = (
    *("scheduler", "default_max_batched_tokens", "max_running_requests", "memory_fraction", "block_tokens"),
    *("graph_max_tokens", "memory_policy"),
)
OVERHEAD = ("runtime_gib",)
HOST_TIMES = (
    *("uncompiled_ms_per_layer", "ngram_ms", "ngram_ms_per_sequence", "adapter_kernel_us", "further_adapter_us"),
)
BEHAVIOR = (
    *("compiled_stacks", "torch_compile", "prefixes_by_default", "builds_engines", "memory_as_needed"),
    *("host_cache_option", "fp8_cache_weights"),
)
LAUNCH_TEXTS = (
    *("template", "package", "package_note", "checkpoint_file", "hosts", "health_path", "default_model_name"),
    *("device_note", "card_share"),
)
LAUNCH_LISTS = ("serves", "package_vendors", "omits")
LAUNCH_NAMES = ("formats_on_load", "format_names", "cache_names", "images")  # mappings of texts
LAUNCH_SWITCHES = ("image_has_entrypoint", "load_test")
LAUNCH = (*LAUNCH_TEXTS, *LAUNCH_LISTS, *LAUNCH_NAMES, *LAUNCH_SWITCHES, "preference")
SERVES = ("tokens", "vectors", "sources")
SCHEDULERS = ("chunked", "prefill_first", "static")
MEMORY_POLICIES = ("total", "static", "free")
HOSTS = ("ranked", "ray", "slurm")
FLAGS = ("lists", "nearest", "why", "options_file")
TEMPLATES, OLD_LIST = "launch_templates.yaml", "frameworks.yaml"
ROLES = ("serving", "training", "library")
FACTS = ("first_release", "releases", "licence", "speculative")


def templates(directory: Path) -> dict[str, Row]:
    """The command lines that frameworks can name, by slug."""
    path, found = directory / TEMPLATES, dict[str, Row]()
    for given in read_yaml(path) if path.exists() else ():
        where = f"{path.name}: {given.get('slug', '?') if isinstance(given, Mapping) else '?'}"
        check_keys(where, given, ("slug", "command", *META), (*PARTS, *TEXTS, *SWITCHES))
        source_of(where, given)
        if given["slug"] in found:
            raise FixtureError(f"{where}: given twice")
        row = {key: value for key, value in given.items() if key not in ("slug", *META)}
        try:
            template_of(row)
        except ValueError as error:
            raise FixtureError(f"{where}: {error}") from error
        found[given["slug"]] = row
    return found


def frameworks(directory: Path) -> list[Row]:
    """The rows of all frameworks, each with the template of its command."""
    if (directory / OLD_LIST).exists():
        raise FixtureError(f"{OLD_LIST}: no longer read; move each framework to its own frameworks/SLUG.yaml")
    known = templates(directory)
    return [framework(path, known) for path in sorted((directory / "frameworks").glob("*.yaml"))]


def framework(path: Path, known: Mapping[str, Row]) -> Row:
    """The row of one framework at one version; `known`: the templates by slug."""
    given, where = read_yaml(path), path.name
    parts: dict[str, tuple[str, ...]] = {"support": SUPPORT, "scheduling": SCHEDULING, "overhead": OVERHEAD}
    optional = ("host_times", "behavior", "launch", "flags", "facts")
    plain = ("notes", "role", "hardware", "aliases")
    check_keys(where, given, ("slug", "name", "version", *parts), (*optional, *plain))
    check_text(f"{where}: version", given["version"])
    if path.stem not in (given["slug"], f"{given['slug']}-{given['version']}"):
        raise FixtureError(f"{where}: name the file {given['slug']}.yaml or {given['slug']}-{given['version']}.yaml")
    role = given.get("role", "serving")
    check_choice(f"{where}: role", role, ROLES)
    if role == "serving" and "host_times" not in given:
        raise FixtureError(f"{where}: missing host_times; copy those of a related framework with basis: relative")
    check_texts(f"{where}: aliases", given.get("aliases", []))
    settings: Row = {key: given[key] for key in ("role", "hardware", "aliases") if key in given}
    for part, keys in parts.items():
        settings |= group(f"{where}: {part}", given[part], () if part == "support" else keys, keys)
    for key in SUPPORT:
        check_texts(f"{where}: support.{key}", settings.get(key, []))
    check_choice(f"{where}: scheduling.scheduler", settings["scheduler"], SCHEDULERS)
    check_choice(f"{where}: scheduling.memory_policy", settings["memory_policy"], MEMORY_POLICIES)
    settings["launch"] = _launch(f"{where}: launch", given["launch"], known) if "launch" in given else None
    if "host_times" in given:
        settings["host_times"] = _host_times(f"{where}: host_times", given["host_times"])
    if "behavior" in given:
        settings |= _behavior(f"{where}: behavior", given["behavior"])
    if "flags" in given:
        settings["flags"] = _flags(f"{where}: flags", given["flags"], path.parent.parent / "flags")
    if "facts" in given:
        settings |= _facts(f"{where}: facts", given["facts"])
    sources = {part: source_of(f"{where}: {part}", given[part]) for part in (*parts, *optional) if part in given}
    row = {key: given[key] for key in ("slug", "name", "version", "notes") if key in given}
    return row | {"settings": settings, "sources": sources, "as_of": newest(sources)}


def _host_times(where: str, given: Mapping[str, Any]) -> Row:
    """Times that the host adds; zero where the framework does without."""
    found = group(where, given, HOST_TIMES)
    for key, value in found.items():
        check_number(f"{where}.{key}", value, zero=True)
    return found


def _behavior(where: str, given: Mapping[str, Any]) -> Row:
    found = group(where, given, (), BEHAVIOR)
    for key, value in found.items():
        if key in ("compiled_stacks", "fp8_cache_weights"):
            check_texts(f"{where}.{key}", value)
        elif key == "host_cache_option":
            check_text(f"{where}.{key}", value)
        else:
            check_switch(f"{where}.{key}", value)
    return found


def _launch(where: str, given: Mapping[str, Any], known: Mapping[str, Row]) -> Row:
    """How it is installed and started; the name of the template becomes the template itself."""
    found = group(where, given, ("template", "serves"), LAUNCH)
    checks: tuple[tuple[tuple[str, ...], Callable[[str, Any], None]], ...] = (
        (LAUNCH_TEXTS, check_text),
        (LAUNCH_LISTS, check_texts),
        (LAUNCH_NAMES, _check_names),
        (LAUNCH_SWITCHES, check_switch),
        (("preference",), check_count),
    )
    for keys, check in checks:
        for key in keys:
            if key in found:
                check(f"{where}.{key}", found[key])
    for what in found["serves"]:
        check_choice(f"{where}.serves", what, SERVES)
    if "hosts" in found:
        check_choice(f"{where}.hosts", found["hosts"], HOSTS)
    _check_values(f"{where}.package", found.get("package", ""), ("version",))
    _check_values(f"{where}.card_share", found.get("card_share", ""), ("concurrency", "memory_fraction"))
    for vendor, image in found.get("images", {}).items():
        _check_values(f"{where}.images.{vendor}", image, ("version",))
    if found["template"] not in known:
        names = ", ".join(sorted(known)) or "none"
        raise FixtureError(f"{where}.template: {found['template']!r} is not in {TEMPLATES}, which has {names}")
    for what in (omits := found.pop("omits", [])):
        check_choice(f"{where}.omits", what, OMITTED)
    return {**found, "template": without_parts(known[found["template"]], omits)}


def _check_names(where: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise FixtureError(f"{where}: write a mapping of texts, such as {{fp8: fp8_e4m3}}")


def _check_values(where: str, text: str, allowed: tuple[str, ...]) -> None:
    """Refuses a $value that is not put in here."""
    form = Template(text)
    if not form.is_valid() or set(form.get_identifiers()) - set(allowed):
        raise FixtureError(f"{where}: {text!r} may name ${', $'.join(allowed)} and no other value")


def _flags(where: str, given: Mapping[str, Any], folder: Path) -> Row:
    """The lists in flags/ that the options of its commands are checked against."""
    found = group(where, given, (), FLAGS)
    check_texts(f"{where}.lists", found.get("lists", []))
    for key in ("nearest", "why", "options_file"):
        check_text(f"{where}.{key}", found.get(key, ""))
    if bool(found.get("lists")) == bool(found.get("nearest")):
        raise FixtureError(f"{where}: give lists (of this release) or nearest (of the project's source), not both")
    for stem in [*found.get("lists", []), found.get("nearest"), found.get("options_file")]:
        if stem and not (folder / f"{stem}.txt").is_file():
            raise FixtureError(f"{where}: there is no flags/{stem}.txt; manage.py extract_flags writes it")
    return found


def _facts(where: str, given: Mapping[str, Any]) -> Row:
    """What can be counted and dated of a framework, JSON-able."""
    facts = group(where, given, ("licence",), FACTS)
    if "first_release" in facts:
        if not isinstance(facts["first_release"], date):
            raise FixtureError(f"{where}.first_release: a date (YYYY-MM-DD) was expected")
        facts["first_release"] = facts["first_release"].isoformat()
    if "releases" in facts:
        check_number(f"{where}.releases", facts["releases"])
    return facts
