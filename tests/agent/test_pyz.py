"""The agent as one file: the same bytes each time, runs alone, and is Python 3.10."""

import ast
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from probes.agent import build, spec
from tests.agent import stub_suite

SOURCES = sorted(build.PACKAGE.rglob("*.py"))


@pytest.fixture
def pyz(tmp_path: Path) -> Path:
    path = tmp_path / "agent.pyz"
    path.write_bytes(build.archive())
    return path


def start(pyz: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """From a folder that holds nothing of ours, the archive given by a relative path, as an operator does."""
    command = [sys.executable, "-I", pyz.name, *given]
    return subprocess.run(command, cwd=pyz.parent, capture_output=True, text=True, timeout=120)


def test_the_same_sources_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build.archive()
    for path in SOURCES:
        os.utime(path)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert build.archive() == first


def test_it_holds_this_package_and_nothing_else() -> None:
    names = zipfile.ZipFile(io.BytesIO(build.archive())).namelist()
    package = [f"probes/agent/{path.relative_to(build.PACKAGE).as_posix()}" for path in SOURCES]
    assert names == ["__main__.py", "probes/__init__.py", *package]


def test_the_command_writes_it_and_prints_its_checksum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.pyz"
    assert build.main([str(out)]) == 0
    assert out.read_bytes() == build.archive()
    assert capsys.readouterr().out.endswith(f"  {out}\n")
    assert build.main([]) == build.main(["--help"]) == 2


def test_it_runs_by_itself(pyz: Path) -> None:
    done = start(pyz, "--version")
    assert (done.returncode, done.stdout) == (0, f"assay agent {spec.AGENT_VERSION}\n")


def test_its_child_finds_the_code_inside_the_archive(pyz: Path) -> None:
    """The library is absent or the kind is: either way the child must get as far as asking for it."""
    code = (
        f"import sys; sys.path.insert(0, {pyz.name!r})\n"
        "from probes.agent import sandbox\n"
        f"outcome = sandbox.run({{'ask': 'facts', 'spec': None, 'library': 'none'}}, sandbox.limits_for(60))\n"
        "print(outcome.code, outcome.log)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=pyz.parent, capture_output=True, text=True, timeout=120)
    assert "crashed" in done.stdout and "KeyError: 'none'" in done.stdout, done.stdout + done.stderr
    assert "agent.pyz/probes/agent/child.py" in done.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(stub_suite.ROOT)))
def test_every_file_is_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), path.name, feature_version=(3, 10))


def test_the_check_of_the_language_can_fail() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("try:\n    pass\nexcept* ValueError:\n    pass\n", feature_version=(3, 10))


# What the standard library got in 3.11 and that one is tempted to use.
LATER = {"UTC", "tomllib", "StrEnum", "Self", "Never", "assert_never", "LiteralString", "TaskGroup", "file_digest"}
LATER |= {"ExceptionGroup", "BaseExceptionGroup", "chdir", "override", "batched", "add_note"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(stub_suite.ROOT)))
def test_no_file_uses_what_came_after_3_10(path: Path) -> None:
    assert names_in(path.read_text()) & LATER == set()


def test_later_names_are_seen_however_they_are_written() -> None:
    text = "import tomllib\nfrom datetime import UTC\nimport enum\nclass A(enum.StrEnum): pass\nraise ExceptionGroup"
    assert names_in(text) & LATER == {"tomllib", "UTC", "StrEnum", "ExceptionGroup"}


def names_in(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found


@pytest.mark.parametrize(("changed", "runs"), [(b"", True), (b"x", False)], ids=["as made", "changed on its way"])
def test_the_line_to_paste_runs_only_the_file_that_was_meant(pyz: Path, changed: bytes, runs: bool) -> None:
    line = build.lines("http://127.0.0.1:9", "aet_x", pyz.read_bytes()).splitlines()[1]
    pyz.write_bytes(pyz.read_bytes() + changed)
    line = line.replace("python3", sys.executable).split(" run ")[0] + " --version"
    done = subprocess.run(["sh", "-c", line], cwd=pyz.parent, capture_output=True, text=True, timeout=120)
    assert (spec.AGENT_VERSION in done.stdout, done.returncode == 0) == (runs, runs)


# --- what an operator would look for in the sources --------------------------------------------------------------

LISTENS = {"socketserver", "http.server", "xmlrpc.server", "asyncio", "wsgiref", "multiprocessing.managers"}
LOADS_CODE = {"pickle", "shelve", "marshal", "dill", "cloudpickle", "code", "codeop", "imp", "ftplib", "telnetlib"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__"}


def suspicious(text: str) -> set[str]:
    """Modules that listen or load code, text that is run, shells, and sockets made by hand."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & (LISTENS | LOADS_CODE)
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} & (LISTENS | LOADS_CODE)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in RUNS_TEXT or name in ("os.system", "os.popen", "torch.load"):
                found.add(name)
            if name.startswith("socket.") and name != "socket.gethostname":
                found.add(name)
            if any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords):
                found.add("shell")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(stub_suite.ROOT)))
def test_no_file_listens_loads_code_or_runs_text(path: Path) -> None:
    assert suspicious(path.read_text()) == set()


def test_what_an_operator_would_not_want_is_seen() -> None:
    text = "import pickle, socket\nfrom http.server import HTTPServer\neval('1')\nsocket.socket()\nrun(a, shell=True)"
    assert suspicious(text) == {"pickle", "http.server", "eval", "socket.socket", "shell"}
