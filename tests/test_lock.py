"""The lock has one version of everything that pyproject.toml asks for, and nothing of one machine."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
WANTED = [
    Requirement(text)
    for text in [*PROJECT["dependencies"], *EXTRAS["agent"], *EXTRAS["dev"], *EXTRAS["otel"], *EXTRAS["mcp"]]
]
LINES = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
LOCKED = {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in LINES)}


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_the_locked_version_is_in_the_asked_range(wanted: Requirement) -> None:
    assert LOCKED[canonicalize_name(wanted.name)] in wanted.specifier


def test_lines_are_plain_public_versions() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)] == []
    assert len(LOCKED) == len(LINES)


def test_torch_is_the_version_that_the_agents_are_tested_with() -> None:
    assert LOCKED["torch"] == Version("2.13.0")
    assert "torch==2.13.0" in EXTRAS["agent"]


def test_the_control_plane_does_not_ask_for_torch() -> None:
    assert not [text for text in PROJECT["dependencies"] if Requirement(text).name in ("torch", "nvidia-ml-py")]
