"""Options that a released training package defines, read from its sources without running them."""

import ast
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from catalog.shipped import FIXTURES

FOLDER = FIXTURES / "flags" / "training"
FLAG = re.compile(r"--[A-Za-z][\w-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """The texts of a wheel, a source archive or an installed package."""

    path: Path

    def text(self, name: str) -> str:
        """One file, by its path or the end of it; ValueError if the package has none."""
        if self.path.is_dir():
            return (self.path / name).read_text(encoding="utf-8")
        names = self._names()
        found = [n for n in names if n == name or n.endswith(f"/{name}")]
        if not found:
            raise ValueError(f"{self.path.name}: holds no {name}")
        return self._read(min(found, key=len))

    def texts_in(self, folder: str) -> Iterator[str]:
        """All Python files of a folder."""
        for name in self._names():
            if name.startswith(f"{folder}/") and name.endswith(".py"):
                yield self._read(name)

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


@cache
def sources() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "sources.yaml").read_text())
    return found


def extract(name: str, package: Package) -> frozenset[str]:
    """Everything that sources.yaml says to read of a package."""
    row = sources()[name]
    found: set[str] = set()
    for file in row.get("flags", ()):
        found |= set(flags(package.text(file)))
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


def flags(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for arg in node.args:
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and FLAG.fullmatch(arg.value):
                    yield arg.value


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
    for text in package.texts_in(row["folder"]):
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
