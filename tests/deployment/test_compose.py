"""The Compose file and the files of the repository's host are valid down to every key."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from jsonschema import ValidationError
from jsonschema.validators import validator_for

from tests.deployment import manifests
from tests.deployment.manifests import COMPOSE, ROOT

GITHUB = ROOT / ".github"
FILES = {
    "compose-spec": [COMPOSE],
    "github-workflows": sorted(GITHUB.glob("workflows/*.yml")),
    "github-issue-forms": [p for p in sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) if p.name != "config.yml"],
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
HADOLINT = Path(sys.executable).parent / "hadolint"
CASES = [(schema, path) for schema, paths in FILES.items() for path in paths]
SERVICES = manifests.compose()["services"]
CONTAINERS = manifests.compose_containers()


@cache
def schema_of(name: str) -> Any:
    """A published schema, as check-jsonschema ships it."""
    file = resources.files("check_jsonschema.builtin_schemas") / "vendor" / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8"))


def check(name: str, document: Any) -> None:
    schema = schema_of(name)
    validator_for(schema)(schema).validate(document)


def read(path: Path) -> Any:
    return json.loads(json.dumps(yaml.load(path.read_text(), yaml.BaseLoader if path.suffix == ".cff" else Loader)))


class Loader(yaml.SafeLoader):
    """As YAML 1.2: `on` is a key of workflows."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@pytest.mark.parametrize(("schema", "path"), CASES, ids=lambda x: x.name if isinstance(x, Path) else x)
def test_a_file_is_valid(schema: str, path: Path) -> None:
    check(schema, read(path))


@pytest.mark.parametrize(("schema", "path"), CASES, ids=lambda x: x.name if isinstance(x, Path) else x)
def test_a_wrong_key_is_noticed(schema: str, path: Path) -> None:
    with pytest.raises(ValidationError):
        check(schema, read(path) | {"servicez": {}})


@pytest.mark.parametrize("name", SERVICES, ids="service {}".format)
def test_a_wrong_key_of_a_service_is_noticed(name: str) -> None:
    document = read(COMPOSE)
    document["services"][name]["read_onli"] = True
    with pytest.raises(ValidationError):
        check("compose-spec", document)


def test_there_is_a_worker_for_each_queue() -> None:
    commands = [c.command for c in CONTAINERS if c.command[:3] == ["assay", "run", "worker"]]
    assert [command[3] for command in commands] == list(settings.QUEUES)
    for queue in settings.QUEUES:
        assert SERVICES[queue]["environment"]["QUEUE"] == queue


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda c: c.where)
def test_a_container_is_restricted_and_waits_for_what_it_needs(container: manifests.Container) -> None:
    spec = container.spec
    assert spec["read_only"] and spec["cap_drop"] == ["ALL"] and spec["security_opt"] == ["no-new-privileges:true"]
    prepares = container.command[1] == "prepare"
    needed = {"postgres": "service_healthy"} if prepares else {"prepare": "service_completed_successfully"}
    assert needed.items() <= {name: each["condition"] for name, each in spec["depends_on"].items()}.items()
    if container.command[2:3] in (["worker"], ["beat"]):  # web has the image's own
        assert spec["healthcheck"]["test"]


def test_only_web_has_a_port_and_only_on_this_host() -> None:
    assert {name: spec["ports"] for name, spec in SERVICES.items() if "ports" in spec} == {
        "web": ["127.0.0.1:8000:8000"]
    }


def test_every_secret_comes_from_the_environment() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))
    lines = (ROOT / "deploy" / "example.env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert asked == given.keys()
    assert [name for name in ("SECRET_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD") if given[name]] == []


# --- the image ----------------------------------------------------------------------------------------------------


def instructions() -> Iterator[tuple[int, str, str]]:
    """(stage, instruction, arguments) of the Containerfile."""
    stage, text = -1, re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            stage += name == "FROM"
            yield stage, name, rest.strip()


def test_the_image_runs_as_a_user_without_build_tools() -> None:
    final = [(name, rest) for stage, name, rest in instructions() if stage == 1]
    assert ("USER", "10001:10001") in final
    runs = " ".join(rest for name, rest in final if name == "RUN")
    assert "pip uninstall" in runs and "pip install" not in runs and "apt-get install" not in runs
    assert {name for name, _ in final} >= {"HEALTHCHECK", "VOLUME", "CMD"}
    assert [rest for name, rest in final if name == "COPY"] == ["--from=build /opt/assay /opt/assay"]


def test_the_image_is_built_from_what_the_ignore_file_lets_through() -> None:
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word
        for _, name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert copied == let
    assert [name for name in copied if not (ROOT / name).exists()] == []


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint not found")
def test_the_linter_has_nothing_to_say(tmp_path: Path) -> None:
    file = ROOT / "Containerfile"
    assert subprocess.run([HADOLINT, file], capture_output=True, text=True).stdout == ""
    wrong = tmp_path / "Containerfile"
    wrong.write_text(file.read_text().replace("EXPOSE 8000", "EXPOZE 8000"))
    assert subprocess.run([HADOLINT, wrong], capture_output=True).returncode != 0


def test_its_default_command_and_healthcheck_are_those_of_web() -> None:
    said = {name: rest for stage, name, rest in instructions() if stage == 1}
    assert json.loads(said["CMD"]) == SERVICES["web"]["command"]
    assert "/healthz" in said["HEALTHCHECK"] and "healthcheck" not in SERVICES["web"]
