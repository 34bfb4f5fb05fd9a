"""Who may know whom: probes -> advisor -> catalog; the engine and the agent know nobody."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("advisor", "catalog", "probes")
GROUND = ("advisor.engine", "probes.agent")
MAY_KNOW = {
    "advisor.engine": ("advisor.engine",),
    "probes.agent": ("probes.agent",),
    "catalog": ("catalog", *GROUND),
    "advisor": ("advisor", "catalog", *GROUND),
    "probes": ("probes", "advisor", "catalog"),
}
HEAVY = ("django", "celery", "pandas", "torch", "jax", "rest_framework", "yaml", "pydantic")
FILES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    return next((ground for ground in GROUND if within(module, ground)), module.split(".")[0])


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def imports(path: Path) -> Iterator[str]:
    """Every module that the file names in an import, wherever it stands; relative ones made absolute."""
    package = module_of(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def test_every_layer_imports_only_those_below_it() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in FILES
        for name in imports(path)
        if name.split(".")[0] in OURS
        and not any(within(name, allowed) for allowed in MAY_KNOW[layer_of(module_of(path))])
    ]
    assert wrong == []


def test_the_walk_sees_imports_of_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "catalog"
    package.mkdir()
    file = package / "loose.py"
    file.write_text("import advisor.models\ndef f():\n    from probes import models\n    from . import urls\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert sorted(imports(file)) == ["advisor.models", "catalog.urls", "probes.models"]


@pytest.mark.parametrize("package", ["advisor", "probes"])
def test_importing_the_package_imports_nothing(package: str) -> None:
    assert (ROOT / package / "__init__.py").read_text() == ""


@pytest.mark.parametrize("ground", GROUND)
def test_the_ground_imports_where_django_celery_pandas_and_torch_are_absent(ground: str) -> None:
    folder = ROOT.joinpath(*ground.split("."))
    modules = [module_of(path) for path in sorted(folder.rglob("*.py")) if path.name != "__main__.py"]
    blocked = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))"
    code = f"{blocked}\nimport importlib\nfor name in {modules!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_file_is_longer_than_500_lines() -> None:
    long = {str(path.relative_to(ROOT)): n for path in FILES if (n := len(path.read_text().splitlines())) > 500}
    assert long == {}
