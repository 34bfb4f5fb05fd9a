"""Command-line options of released frameworks: checks commands against the lists that were read from them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from advisor.engine.launch import Launch as EngineLaunch
from advisor.engine.terms import FlagLists, Framework
from advisor.result import FlagCheck, Launch, LoadTest
from catalog.shipped import FIXTURES

FOLDER = FIXTURES / "flags"
FLAG = re.compile(r"--?[A-Za-z][\w-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The option names of one released package, as its fixture holds them."""

    package: str
    version: str
    extracted_on: str
    command: str
    names: frozenset[str]

    @property
    def says(self) -> str:
        return f"{self.package} {self.version}, options read on {self.extracted_on}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a package defines its options (fixtures/flags/sources.yaml)."""

    # Each is names below the archive's top, or their ends, the first of which that is there is read. A name with `/` at
    # the end is all modules of a folder.
    files: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...] = ()  # whose fields are options too
    list: str = ""  # of a load generator: the list that its commands are checked against
    tool: str = ""  # of a load generator: the name of its command in a load test


@cache
def sources(folder: Path = FOLDER) -> dict[str, Source]:
    """The packages that options can be read out of."""
    given = yaml.safe_load((folder / "sources.yaml").read_text())
    return {
        kind: Source(
            files=tuple((each,) if isinstance(each, str) else tuple(each) for each in row["files"]),
            classes=tuple(row.get("classes", ())),
            list=row.get("list", ""),
            tool=row.get("tool", ""),
        )
        for kind, row in given.items()
    }


@cache
def options(stem: str) -> Options:
    """A fixture; FileNotFoundError when there is none of that name."""
    lines = (FOLDER / f"{stem}.txt").read_text().splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    return Options(
        package=head["package"],
        version=head["version"],
        extracted_on=head["extracted on"],
        command=head["command"],
        names=frozenset(line for line in lines if line and not line.startswith("#")),
    )


@cache
def known_options(framework: str) -> frozenset[str]:
    """Options of all read releases of a framework, as Python names; empty: none was read."""
    lists = [options(path.stem).names for path in sorted(FOLDER.glob(f"{framework}-*.txt"))] if framework else []
    return frozenset(name.lstrip("-").replace("-", "_") for names in lists for name in names)


def flags_of(argv: list[str]) -> list[str]:
    """The option names in a command, without the values given by `=` and what is Python's own."""
    if argv[:2] == ["python", "-m"]:
        argv = argv[3:]
    return [arg.partition("=")[0] for arg in argv if FLAG.fullmatch(arg.partition("=")[0])]


def check(name: str, flags: FlagLists, command: str, launcher: str = "") -> FlagCheck:
    """Whether every option of a command is in the lists of its release.

    `name`: the program and its version; `launcher`: the word after which its own options begin.
    """
    if not flags.lists:
        return check_against_source(name, flags, command, launcher)
    try:
        lists = [options(stem) for stem in flags.lists]
    except FileNotFoundError as missing:
        return FlagCheck(checked=False, unknown=[], source=f"no list {Path(missing.filename).name} in fixtures/flags")
    unknown = [f for f in flags_of(shlex.split(command)) if not all(f in each.names for each in lists)]
    source = "; ".join(each.says for each in lists) + (f" ({flags.why})" if flags.why else "")
    return FlagCheck(checked=not unknown, unknown=unknown, source=source)


def check_against_source(name: str, flags: FlagLists, command: str, launcher: str) -> FlagCheck:
    """Without a list of the release: never checked, but compared with the repository's source where it was read."""
    no_package = f"no released package of {name} could be read"
    if not flags.nearest:
        return FlagCheck(checked=False, unknown=[], source=no_package)
    known = options(flags.nearest)
    unknown = [f for f in flags_of(after_launcher(shlex.split(command), launcher)) if f not in known.names]
    repository = f"{known.package} at {known.version} ({flags.why})"
    source = repository if unknown else f"{no_package}; all options are in the source of {repository}"
    return FlagCheck(checked=False, unknown=unknown, source=source)


def after_launcher(argv: list[str], launcher: str) -> list[str]:
    """The server's own arguments, without those of the launcher that spreads it over hosts."""
    return argv[argv.index(launcher) + 1 :] if launcher and launcher in argv else argv


def unknown_keys(flags: FlagLists, text: str) -> list[str]:
    """Keys of an options file, sections as `section.key`, that the source does not define; none where none was read."""
    if not flags.options_file:
        return []
    known = options(flags.options_file).names
    return [key for key in _keys(yaml.safe_load(text)) if key not in known]


def _keys(section: dict[str, Any]) -> Iterator[str]:
    for key, value in section.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner in value)


def checked(framework: Framework, launch: EngineLaunch) -> Launch:
    """A launch with the check of its options and of those of its load test."""
    result = Launch(command=launch["command"], files=launch["files"])
    facts = framework.launch
    if launch["command"] and facts is not None:
        release = f"{framework.slug} {framework.version}"
        flags = check(release, framework.flags, launch["command"], facts.template.launcher)
        text = launch["files"].get(facts.template.options_file)
        keys = unknown_keys(framework.flags, text) if text else []
        if keys:
            flags = flags.changed(unknown=[*flags.unknown, *keys], checked=False)
        result = result.changed(flags=flags)
    if "load_test" in launch:
        test = launch["load_test"]
        lists = {source.tool: FlagLists(lists=(source.list,)) for source in sources().values() if source.tool}
        by_tool = {tool: check(tool, lists[tool], command) for tool, command in test["commands"].items()}
        result = result.changed(load_test=LoadTest(**test, flags=by_tool))
    return result
