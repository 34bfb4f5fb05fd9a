"""The layout of the code: who imports whom, through which names, how deep, and how full a folder may be."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("advisor", "catalog", "probes")
GROUND = ("advisor.engine", "probes.agent")
ENGINE = (
    "network terms kernels cost plans step training calibration scheduler search estimate training_search launch fleet "
    "optimisation"
).split()
ADVISOR = (
    "client workload result inputs answer report fidelity webhooks load_results load_tests evidence deployments "
    "studies api actuals accounts web ops watch"
).split()
CATALOG = ("loading accounts rest importers.models importers.prices pricing bundles details lists pages api").split()
PROBES = "machines received fitted pages api status".split()
# Entered by module (`from catalog.pricing import own`), not by name: commands and the engine's inputs need one module
# of each, without the models that the others load.
BY_MODULE = {"advisor.client", "catalog.loading", "catalog.pricing"}
ROOMS = [
    *(f"advisor.engine.{name}" for name in ENGINE),
    *(f"advisor.{name}" for name in ADVISOR),
    *(f"catalog.{name}" for name in CATALOG),
    *(f"probes.{name}" for name in PROBES),
]
# What each room may import of its own package: design.md's arrows, downward only.
BELOW_IN_ENGINE = {
    "network": "",
    "terms": "",
    "cost": "terms network",
    "plans": "cost terms",
    "kernels": "terms",
    "step": "cost kernels terms network",
    "training": "step kernels terms network",
    "calibration": "step cost kernels terms network",
    "scheduler": "step cost kernels terms network",
    "estimate": "scheduler step cost kernels terms network",
    "search": "calibration scheduler step plans cost kernels terms network",
    "training_search": "estimate training search plans step cost kernels terms network",
    "launch": "training search scheduler step cost kernels terms network",
    "fleet": "training_search training plans search calibration scheduler step cost kernels terms network",
    "optimisation": "training launch fleet search estimate scheduler step cost kernels terms network",
}
BELOW_IN_ADVISOR = {
    "watch": "",
    "client": "",
    "workload": "",
    "result": "",
    "inputs": "result workload",
    "fidelity": "inputs result workload",
    "answer": "fidelity inputs result workload",
    "report": "answer result",
    "webhooks": "",
    "load_results": "workload",
    "load_tests": "load_results advise webhooks fidelity inputs result",
    "evidence": "load_results fidelity inputs",
    "deployments": "evidence load_results load_tests answer inputs result workload",
    "studies": "advise turns answer inputs result workload",
    "api": "studies advise later load_tests report answer inputs result workload fidelity",
    "actuals": "api advise",
    "accounts": "webhooks api",
    "web": "actuals deployments api studies advise later refresh load_tests report answer inputs result workload "
    "fidelity",
    "ops": "web api advise load_tests fidelity watch",
}
BELOW_IN_CATALOG = {
    "loading": "",
    "accounts": "",
    "rest": "loading",
    "importers.models": "loading",
    "importers.prices": "loading",
    "pricing": "importers accounts loading",
    "bundles": "pricing loading",
    "details": "pricing loading",
    "lists": "details pricing accounts loading",
    "pages": "lists details pricing importers accounts loading",
    "api": "pages details pricing accounts rest lists loading",
}
BELOW_IN_PROBES = {
    "machines": "agent",
    "received": "machines agent",
    "fitted": "received machines",
    "pages": "fitted received machines agent",
    "api": "fitted received machines agent",
    "status": "fitted received machines agent",
}
# Not rooms: Django's own files, the use cases, and what models and settings are made of.
FOUNDATIONS = {
    *("models", "stored", "storage", "deletion", "leases", "owned_models", "shutdown", "celery", "templatetags"),
    *("engine", "charts", "clock", "field_errors", "form_fields", "revision", "shipped", "texts"),
}
MAY_IMPORT = {
    "advisor.engine": ("advisor.engine",),
    "probes.agent": ("probes.agent",),
    "catalog": ("catalog", *GROUND),
    "advisor": ("advisor", "catalog", *GROUND),
    "probes": ("probes", "advisor", "catalog"),
}
HEAVY = ("django", "celery", "pandas", "torch", "jax", "rest_framework", "yaml", "pydantic")
MOST_LOOSE_MODULES = 12  # beside the subpackages of a folder
DJANGO = {
    "admin",
    "apps",
    "celery",
    "models",
    "settings",
    "tasks",
    "urls",
    "wsgi",
}  # names that Django and Celery look for
MORE_MODULES = {  # folders that hold more, and why
    "advisor/management/commands": "Django finds the commands of an app in this folder only",
}
MOST_ENGINE_LEVELS = 8
FILES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES if "migrations" not in path.parts}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layer_of(module: str) -> str:
    return next((ground for ground in GROUND if within(module, ground)), module.split(".")[0])


@cache
def room_of(module: str) -> str:
    """The room that a module belongs to, else the module itself."""
    return next((room for room in ROOMS if within(module, room)), module)


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """(module, name) of every import, also inside functions; relative ones made absolute."""
    return tuple(walked(path))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def walked(path: Path) -> Iterator[tuple[str, str]]:
    package = module_of(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            yield from ((origin, alias.name) for alias in node.names)


@cache
def face(room: str) -> frozenset[str]:
    """The names that a room lends: its __all__, or where it has none, what its __init__ imports."""
    body = tree(MODULES[room]).body
    for node in body:
        if isinstance(node, ast.Assign) and [t.id for t in node.targets if isinstance(t, ast.Name)] == ["__all__"]:
            return frozenset(ast.literal_eval(node.value))
    imported = [node for node in body if isinstance(node, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for node in imported for alias in node.names)


def module_graph() -> dict[str, set[str]]:
    """Modules and the modules that they import; a room's __init__ stands for its face and is left out."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if module in ROOMS:
            continue
        graph[module] = set()
        for origin, name in imports(path):
            target = f"{origin}.{name}" if f"{origin}.{name}" in MODULES else origin
            if target in MODULES and target not in ROOMS and target != module:
                graph[module].add(target)
    return graph


def room_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        here = room_of(module)
        for origin, name in imports(path):
            there = room_of(f"{origin}.{name}" if f"{origin}.{name}" in MODULES else origin)
            graph.setdefault(here, set())
            if there in MODULES and there != here:
                graph[here].add(there)
    return graph


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """A way from a node back to itself; empty: there is none."""
    done: set[str] = set()

    def walk(node: str, trail: tuple[str, ...]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := walk(other, (*trail, node)):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, ()))), [])


def test_every_package_imports_only_those_below_it() -> None:
    wrong = [
        f"{module} imports {origin}.{name}".rstrip(".")
        for module, path in MODULES.items()
        for origin, name in imports(path)
        if origin.split(".")[0] in OURS
        and not any(within(f"{origin}.{name}".rstrip("."), allowed) for allowed in MAY_IMPORT[layer_of(module)])
    ]
    assert wrong == []


def test_imports_inside_a_package_go_down_the_list_of_rooms() -> None:
    graph, wrong = room_graph(), []
    for package, below in (
        ("advisor.engine", BELOW_IN_ENGINE),
        ("advisor", BELOW_IN_ADVISOR),
        ("catalog", BELOW_IN_CATALOG),
        ("probes", BELOW_IN_PROBES),
    ):
        for name, allowed in below.items():
            for other in graph.get(f"{package}.{name}", set()):
                if other.startswith(f"{package}.") and not other.startswith("advisor.engine.") | (other in OURS):
                    top = other.removeprefix(f"{package}.").split(".")[0]
                elif package == "advisor.engine" and other.startswith("advisor.engine."):
                    top = other.removeprefix("advisor.engine.").split(".")[0]
                else:
                    continue
                if top not in {*allowed.split(), *FOUNDATIONS}:
                    wrong.append(f"{package}.{name} imports {other}")
    assert wrong == []


def test_no_imports_run_in_a_circle() -> None:
    assert cycle_in(room_graph()) == []
    assert cycle_in(module_graph()) == []


def test_a_circle_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "a"]


def test_a_room_is_entered_only_through_the_names_that_it_lends() -> None:
    wrong = []
    for module, path in MODULES.items():
        here = room_of(module)
        for origin, name in imports(path):
            room = room_of(origin)
            if room in BY_MODULE and (origin != room or f"{origin}.{name}" in MODULES):
                continue
            if room in ROOMS and room != here and (origin != room or name not in face(room)):
                wrong.append(f"{module} imports {name} from {origin}")
    assert wrong == []


def test_a_room_used_as_a_namespace_is_asked_only_for_the_names_that_it_lends() -> None:
    wrong = []
    for module, path in MODULES.items():
        named = {
            name: f"{origin}.{name}" for origin, name in imports(path) if f"{origin}.{name}" in ROOMS and name != ""
        }
        for node in ast.walk(ast.parse(path.read_text())) if named else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in named:
                if node.attr not in face(named[node.value.id]):
                    wrong.append(f"{module}: {node.value.id}.{node.attr}")
    assert wrong == []


def test_every_name_that_a_package_lends_is_used_outside_it() -> None:
    """By other packages than the tests: imported by name, or as an attribute of the package."""
    faces = {module: face(module) for module, path in MODULES.items() if path.name == "__init__.py" and face(module)}
    used: dict[str, set[str]] = {package: set() for package in faces}
    for module, path in MODULES.items():
        spaces: dict[str, str] = {}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    if node.module in faces and not within(module, node.module):
                        used[node.module].add(alias.name)
                    if whole in faces and not within(module, whole):
                        spaces[alias.asname or alias.name] = whole
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # settings name functions in texts
                package, _, name = node.value.rpartition(".")
                if package in faces:
                    used[package].add(name)
        for node in ast.walk(tree(path)) if spaces else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in spaces:
                used[spaces[node.value.id]].add(node.attr)
    assert [f"{package}.{name}" for package in sorted(faces) for name in sorted(faces[package] - used[package])] == []


def test_no_folder_holds_more_modules_than_a_reader_can_tell_apart() -> None:
    loose = [path for path in MODULES.values() if path.stem not in DJANGO | {"__init__", "__main__"}]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in loose)
    crowded = {folder for folder, n in counts.items() if n > MOST_LOOSE_MODULES}
    assert crowded == MORE_MODULES.keys()


def test_no_folder_exists_for_the_sake_of_one_module() -> None:
    counts = Counter(parent for path in MODULES.values() for parent in path.relative_to(ROOT).parents)
    lonely = {str(folder) for folder, n in counts.items() if n <= 2}  # its __init__ and one more
    assert {folder for folder in lonely if not folder.startswith("advisor/formats/")} == {"catalog/templatetags"}


def test_the_engine_has_few_levels() -> None:
    graph = {room: {o for o in others if o in ROOMS} for room, others in room_graph().items() if room in ROOMS}
    engine = {room: others for room, others in graph.items() if room.startswith("advisor.engine.")}

    def level(room: str) -> int:
        return 1 + max((level(other) for other in engine.get(room, ())), default=0)

    assert max(level(room) for room in engine) <= MOST_ENGINE_LEVELS


def test_the_walk_sees_imports_of_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "catalog"
    package.mkdir()
    file = package / "loose.py"
    file.write_text("import advisor.models\ndef f():\n    from probes import models\n    from . import urls\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert sorted(imports(file)) == [("advisor.models", ""), ("catalog", "urls"), ("probes", "models")]


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


def test_the_web_tier_loads_no_compiler_no_solver_and_no_torch(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        f"os.environ.update(DJANGO_SETTINGS_MODULE='advisor.settings', ASSAY_VAR={str(tmp_path / 'var')!r})\n"
        "import advisor.wsgi\n"
        "absent = ('numba', 'torch', 'pandas', 'pyarrow', 'scipy.optimize', 'scipy.special')\n"
        "sys.exit(', '.join(name for name in absent if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
