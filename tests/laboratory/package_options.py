"""Options that released packages define, read from their sources without running them."""

import ast
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from advisor.answer.options import launch_flags
from catalog import clock
from catalog.management.errors import writing

FOLDER = launch_flags.FOLDER / "training"
# argparse, click, cyclopts as aiperf wraps it, argparse as Dynamo does
DEFINES = ("add_argument", "option", "CLIParameter", "DisableCLI", "add_negatable_bool_argument")
NAMED = ("name", "flag_name", "obsolete_flag")  # keywords that hold the name of an option


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """The texts of a wheel, a source archive or an installed package."""

    path: Path

    def text(self, *places: str) -> str:
        """The first of these files that is there, each by its path or the end of it; ValueError: none is."""
        return next(iter(self.texts(*places)))

    def texts(self, *places: str) -> list[str]:
        """The same; of a place that ends with a slash all modules of that folder."""
        if self.path.is_dir():
            return [(self.path / places[0]).read_text(encoding="utf-8")]
        names = self._names()
        for place in places:
            if place.endswith("/"):
                found = [n for n in names if f"/{place}" in f"/{n}" and n.endswith(".py")]
            else:
                found = sorted((n for n in names if n == place or n.endswith(f"/{place}")), key=len)[:1]
            if found:
                return [self._read(n) for n in found]
        raise ValueError(f"{self.path.name}: holds no {places[0]}")

    def _names(self) -> list[str]:
        if zipfile.is_zipfile(self.path):
            return zipfile.ZipFile(self.path).namelist()
        with tarfile.open(self.path) as archive:
            return archive.getnames()

    def _read(self, name: str) -> str:
        if zipfile.is_zipfile(self.path):
            return zipfile.ZipFile(self.path).read(name).decode()
        with tarfile.open(self.path) as archive:
            file = archive.extractfile(name)
            return file.read().decode() if file else ""


def written(out: Path, stem: str, package: str, version: str, command: str, names: Iterable[str]) -> str:
    """Writes the list of a release, and says what it holds."""
    head = {"package": package, "version": version, "extracted on": clock.today().isoformat(), "command": command}
    lines = [*(f"# {key}: {value}" for key, value in head.items()), *sorted(names)]
    path = out / f"{stem}-{version}.txt"
    with writing(path):
        path.write_text("\n".join(lines) + "\n")
    return f"{path.name}: {len(lines) - len(head)} options of {package} {version}"


# --- inference servers ------------------------------------------------------------------------------------------


def server_options(kind: str, package: Package) -> frozenset[str]:
    """Option names that a released inference server defines; ValueError says what is missing."""
    source = launch_flags.sources()[kind]
    names: set[str] = set()
    for places in source.files:
        for text in package.texts(*places):
            names |= set(_of_cpp(text) if places[0].endswith(".cpp") else _of_python(text, source.classes))
    if not names:
        raise ValueError(f"{package.path}: {', '.join(places[0] for places in source.files)} defines no option")
    return frozenset(names)


def _of_python(text: str, classes: tuple[str, ...] = ()) -> Iterator[str]:
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
    toggles |= _called(node) == "add_negatable_bool_argument"
    given = [*node.args, *(k.value for k in node.keywords if k.arg in NAMED)]
    texts = [c.value for arg in given for c in ast.walk(arg) if isinstance(c, ast.Constant)]
    for text in texts:
        if isinstance(text, str) and launch_flags.FLAG.fullmatch(text):
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


# --- training packages ------------------------------------------------------------------------------------------


@cache
def sources() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "sources.yaml").read_text())
    return found


def training_options(name: str, package: Package) -> frozenset[str]:
    """Everything that sources.yaml says to read of a package."""
    row = sources()[name]
    found: set[str] = set()
    for file in row.get("flags", ()):
        found |= {flag for flag in _of_python(package.text(file)) if flag.startswith("--")}
    for file in row.get("fields", ()):
        found |= set(fields(package.text(file)))
    for file, functions in row.get("parameters", {}).items():
        found |= set(parameters(package.text(file), functions))
    for file in row.get("keys", ()):
        found |= set(keys(yaml.safe_load(package.text(file))))
    for file in row.get("values", ()):
        found |= set(values(package.text(file)))
    if "models" in row:
        found |= manifest_paths(package, row["models"])
    if not found:
        raise ValueError(f"{package.path.name}: defines no option that sources.yaml looks for")
    return frozenset(found)


def fields(text: str) -> Iterator[str]:
    """Class.field, and Class.member of an enumeration."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            for name, item in members(node):
                yield f"{node.name}.{name}"
                if isinstance(item, ast.AnnAssign):
                    yield f"{node.name}.{_alias(name, item)}"


def members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    for item in node.body:
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and not target.id.startswith("_"):
                yield target.id, item


def parameters(text: str, functions: list[str]) -> Iterator[str]:
    """function.parameter; Class.parameter of an initializer."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and "__init__" in functions:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    yield from (f"{node.name}.{name}" for name in arguments(item))
        elif isinstance(node, ast.FunctionDef) and node.name in functions and node.name != "__init__":
            yield from (f"{node.name}.{name}" for name in arguments(node))


def arguments(node: ast.FunctionDef) -> list[str]:
    return [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs) if arg.arg not in ("self", "cls")]


def keys(section: Mapping[str, Any], outer: str = "") -> Iterator[str]:
    for key, value in section.items():
        yield f"{outer}{key}"
        if isinstance(value, dict):
            yield from keys(value, f"{outer}{key}.")


def values(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            if re.fullmatch(r"[a-z]\w*", node.value.value):
                yield node.value.value


# --- API models -------------------------------------------------------------------------------------------------


def manifest_paths(package: Package, row: Mapping[str, Any]) -> set[str]:
    """Paths of the keys of manifests, Kind.spec.key, as generated pydantic models define them; lists are no step."""
    models: dict[str, dict[str, str]] = {}
    for text in package.texts(f"{row['folder']}/"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                models[node.name] = {_alias(name, item): ast.unparse(item.annotation) for name, item in _typed(node)}
    found: set[str] = set()
    for kind, root in row["roots"].items():
        _follow(models, root, kind, frozenset(row["omits"]), found)
    return found


def _typed(node: ast.ClassDef) -> Iterator[tuple[str, ast.AnnAssign]]:
    return ((name, item) for name, item in members(node) if isinstance(item, ast.AnnAssign) and name != "model_config")


def _alias(name: str, item: ast.AnnAssign) -> str:
    """A field's name in JSON."""
    for keyword in item.value.keywords if isinstance(item.value, ast.Call) else ():
        if keyword.arg == "alias" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return name


def _follow(
    models: Mapping[str, dict[str, str]], model: str, path: str, omits: frozenset[str], found: set[str]
) -> None:
    for key, annotation in models[model].items():
        if key in omits:
            continue
        here = f"{path}.{key}"
        found.add(here)
        if "Dict[" in annotation:  # free keys
            found.add(f"{here}.*")
            continue
        for inner in re.findall(r"\w+", annotation):
            if inner in models and inner != model:
                _follow(models, inner, here, omits, found)
