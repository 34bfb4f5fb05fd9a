"""Command-line options of a released serving framework, read from its package without running it."""

import ast
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from advisor.answer.options.launch_flags import FLAG, sources

DEFINES = ("add_argument", "option", "CLIParameter", "DisableCLI")  # argparse, click, cyclopts as aiperf wraps it


def extract(kind: str, archive: Path) -> frozenset[str]:
    """Option names that a wheel or source archive defines; ValueError says what is missing."""
    if kind not in sources():
        raise ValueError(f"{kind}: not one of {', '.join(sources())}; add it to fixtures/flags/sources.yaml")
    source = sources()[kind]
    names: set[str] = set()
    for places in source.files:
        for text in _members(archive, places):
            names |= set(_of_cpp(text) if places[0].endswith(".cpp") else _of_python(text, source.classes))
    if not names:
        raise ValueError(f"{archive}: {', '.join(places[0] for places in source.files)} defines no option")
    return frozenset(names)


def _members(archive: Path, places: tuple[str, ...]) -> list[str]:
    """The text of the first of these files that the archive has, or of each module of the first of these folders."""
    read: Callable[[str], bytes]
    if zipfile.is_zipfile(archive):
        packed = zipfile.ZipFile(archive)
        names, read = packed.namelist(), packed.read
    else:
        tar = tarfile.open(archive)  # noqa: SIM115
        names, read = tar.getnames(), lambda n: tar.extractfile(n).read()  # type: ignore[union-attr]
    for place in places:
        if place.endswith("/"):
            matches = [n for n in names if f"/{place}" in f"/{n}" and n.endswith(".py")]
        else:
            matches = [n for n in names if n == place or n.endswith(f"/{place}")][:1]
        if matches:
            return [read(n).decode() for n in matches]
    raise ValueError(f"{archive}: holds no {places[0]}")


def _of_python(text: str, classes: tuple[str, ...]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _called(node) in DEFINES:
            yield from _flags(node)
        elif isinstance(node, ast.ClassDef) and node.name in classes:
            yield from map(_flag_of, _fields(node))
        elif isinstance(node, ast.AnnAssign):
            yield from _annotated(node)
        elif isinstance(node, ast.Dict):  # guidellm names the option of a field in its schema
            yield from (f"--{alias}" for alias in _aliases(node))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _flags(node: ast.Call) -> Iterator[str]:
    toggles = any("BooleanOptionalAction" in ast.dump(k.value) for k in node.keywords if k.arg == "action")
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "name")]
    texts = [c.value for arg in given for c in ast.walk(arg) if isinstance(c, ast.Constant)]
    for text in texts:
        if isinstance(text, str) and FLAG.fullmatch(text):
            yield text
            if toggles and text.startswith("--"):
                yield f"--no-{text[2:]}"


def _fields(node: ast.ClassDef) -> list[str]:
    targets = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _annotated(node: ast.AnnAssign) -> Iterator[str]:
    """The options of a field that SGLang annotates with A[type, help] or A[type, Arg(...)]."""
    a, field = node.annotation, node.target
    if not (isinstance(a, ast.Subscript) and isinstance(a.value, ast.Name) and a.value.id == "A"):
        return
    parts = a.slice.elts if isinstance(a.slice, ast.Tuple) else []
    calls = [part for part in parts if isinstance(part, ast.Call) and _called(part) == "Arg"]
    given = {k.arg: k.value for call in calls for k in call.keywords}
    if len(parts) < 2 or "no_cli" in given or not isinstance(field, ast.Name):
        return
    named = given.get("cli_name")
    yield str(named.value) if isinstance(named, ast.Constant) else _flag_of(field.id)
    if isinstance(aliases := given.get("aliases"), ast.List):
        yield from (str(each.value) for each in aliases.elts if isinstance(each, ast.Constant))


def _flag_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _aliases(node: ast.Dict) -> Iterator[str]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "argument_alias" and isinstance(value, ast.Constant):
            yield str(value.value).replace("_", "-")


def _of_cpp(text: str) -> Iterator[str]:
    """The braces that open an option of llama.cpp: {"-c", "--ctx-size"}."""
    for braces in re.findall(r"\{((?:\s*\"-[^\"]+\"\s*,?)+)\}", text):
        yield from re.findall(r"\"(--?[A-Za-z][\w-]*)\"", braces)


def text_of(package: str, version: str, day: str, command: str, names: frozenset[str]) -> str:
    head = [f"# package: {package}", f"# version: {version}", f"# extracted on: {day}", f"# command: {command}"]
    return "\n".join([*head, *sorted(names)]) + "\n"
