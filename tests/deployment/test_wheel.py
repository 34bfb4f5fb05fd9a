"""The package has everything that Assay needs without a checkout."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from advisor import storage
from advisor.ops.supervise import free_port
from catalog import shipped

pytest.importorskip("setuptools", minversion="77")  # what builds the package
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("advisor", "catalog", "probes")
LISTED = """
import json
from setuptools import Distribution
distribution = Distribution({"script_name": "setup.py"})
distribution.parse_config_files()
build = distribution.get_command_obj("build_py")
build.ensure_finalized()
print(json.dumps([name.removeprefix(build.build_lib + "/") for name in build.get_outputs(include_bytecode=False)]))
"""


@pytest.fixture(scope="module")
def packaged() -> set[str]:
    """The files of a wheel, as setuptools would write them now."""
    command = [sys.executable, "-W", "ignore", "-c", LISTED]
    return set(json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout))


def files(folder: Path) -> set[Path]:
    """All but compiled modules and what tools keep in hidden folders."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {p for p in found if not any(part.startswith((".", "__pycache__")) for part in p.relative_to(folder).parts)}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_the_packages_is_inside(package: str, packaged: set[str]) -> None:
    """Templates, styles, scripts, translations and lists beside the modules included."""
    found = {str(path.relative_to(ROOT)) for path in files(ROOT / package)}
    left_out = {name for name in found - packaged if not name.startswith("catalog/data/")}
    assert left_out <= {name for name in left_out if name.endswith((".po", ".toml"))}


@pytest.mark.parametrize(("name", "folder"), [("fixtures", ROOT / "fixtures"), ("docs", ROOT / "docs")])
def test_fixtures_and_documentation_are_inside(name: str, folder: Path, packaged: set[str]) -> None:
    found = {f"catalog/data/{name}/{path.relative_to(folder)}" for path in files(folder)}
    assert found and found - packaged == set()


def test_the_built_documentation_is_inside_if_it_was_built(packaged: set[str]) -> None:
    site = ROOT / "build" / "site"
    assert {f"catalog/data/site/{path.relative_to(site)}" for path in files(site)} - packaged == set()


def test_a_checkout_uses_its_own_folders() -> None:
    assert (shipped.FIXTURES, shipped.DOCS) == (ROOT / "fixtures", ROOT / "docs")
    assert shipped.SITE == ROOT / "build" / "site" == settings.DOCS_SITE


def test_a_checkout_keeps_its_files_beside_manage_py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "manage.py").touch()
    monkeypatch.chdir("/")
    assert storage.default_folder(tmp_path) == tmp_path / "var"


def test_a_package_keeps_its_files_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage.default_folder(tmp_path / "site-packages") == tmp_path / "var"


def test_a_package_leaves_the_var_of_the_system_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(ImproperlyConfigured, match="Set ASSAY_VAR"):
        storage.default_folder(tmp_path)


# --- installed ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`assay` of a wheel that was built from a source distribution, beside the libraries of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    source, made = folder / "source", folder / "dist"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*PACKAGES, "fixtures", "docs"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build(source, "build_sdist", made)
    shutil.unpack_archive(next(made.glob("*.tar.gz")), folder)
    build(next(folder.glob("assay-*")), "build_wheel", made)
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    packages = next((folder / "environment").glob("lib/python*/site-packages"))
    with zipfile.ZipFile(next(made.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    return folder / "environment" / "bin" / "python"


def build(source: Path, step: str, target: Path) -> None:
    code = f"from setuptools import build_meta; build_meta.{step}({str(target)!r})"
    target.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=source, check=True, stdout=subprocess.DEVNULL)


def call(port: int, path: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/yaml"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return json.loads(text) if path.startswith(("/api/", "/readyz")) else text


@pytest.mark.soak
def test_an_installed_package_answers_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    hidden = ("DATABASE_URL", "REDIS_URL", "ASSAY_", "PYTHONPATH", "DJANGO", "COVERAGE", "PYTEST")
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    where = "import advisor, catalog; print(advisor.__file__)"
    shown = subprocess.run([installed, "-c", where], cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    assert shown.stdout.startswith(str(installed.parents[1]))  # not the checkout
    port = free_port("127.0.0.1")
    with (tmp_path.parent / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [installed, "-m", "advisor", "up", "--port", str(port)], cwd=tmp_path, env=env, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 300
        while not ready(port):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path.parent / "up.log").read_text()
            time.sleep(0.2)
        question = (ROOT / "fixtures" / "workloads" / "support-chat.yaml").read_text() + "\nvariants: 'no'\n"
        advice = call(port, "/api/v1/advice", question.encode())
        while advice["state"] in ("queued", "running"):
            assert time.monotonic() < deadline
            time.sleep(0.5)
            advice = call(port, f"/api/v1/advice/{advice['id']}")
        assert advice["state"] == "done" and advice["result"]["recommendations"]
        assert "TTFT" in call(port, "/docs/glossary/")
        assert "Deutsch" in call(port, "/")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["var"]


def ready(port: int) -> bool:
    try:
        return bool(call(port, "/readyz"))
    except (urllib.error.URLError, OSError):
        return False
